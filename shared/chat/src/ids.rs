//! Identifiers of the socket.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The longest connection id, in bytes. API Gateway's have 16 today.
const MAX_CONNECTION_ID_LEN: usize = 128;
/// The longest session id, in bytes.
const MAX_SESSION_ID_LEN: usize = 64;

/// One open socket, as the gateway names it: visible ASCII, none of it our key separator.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ConnectionId(String);

/// A conversation between a customer and the service: `[A-Za-z0-9_-]{1,64}`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct SessionId(String);

/// A text that is no identifier of its kind. The text is left out: it may be anything, of any length.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a {0}")]
pub struct IdError(&'static str);

impl TryFrom<String> for ConnectionId {
    type Error = IdError;

    fn try_from(text: String) -> Result<Self, IdError> {
        let allowed = |byte: u8| byte.is_ascii_graphic() && byte != b'#';
        if (1..=MAX_CONNECTION_ID_LEN).contains(&text.len()) && text.bytes().all(allowed) {
            Ok(Self(text))
        } else {
            Err(IdError("connection id"))
        }
    }
}

impl TryFrom<String> for SessionId {
    type Error = IdError;

    fn try_from(text: String) -> Result<Self, IdError> {
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
        if (1..=MAX_SESSION_ID_LEN).contains(&text.len()) && text.bytes().all(allowed) {
            Ok(Self(text))
        } else {
            Err(IdError("session id"))
        }
    }
}

impl ConnectionId {
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<ConnectionId> for String {
    fn from(id: ConnectionId) -> String {
        id.0
    }
}

impl From<SessionId> for String {
    fn from(id: SessionId) -> String {
        id.0
    }
}

impl fmt::Display for ConnectionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connection_ids_are_the_gateways_and_break_no_key() {
        for good in ["L0SM9cOFvHcCIhw=", "a", "a-b_c/d+e="] {
            assert!(ConnectionId::try_from(good.to_owned()).is_ok(), "{good}");
        }
        for bad in ["", "a#b", "a b", "é", "a\n", &"x".repeat(129)] {
            assert!(ConnectionId::try_from(bad.to_owned()).is_err(), "{bad:?}");
        }
    }
}
