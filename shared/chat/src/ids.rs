//! Identifiers of sockets, sessions and messages, and who speaks.

use std::fmt;
use std::str::FromStr;

use kernel::ids::UserId;
use serde::{Deserialize, Serialize};

/// The longest connection id, in bytes. API Gateway's have 16 today.
const MAX_CONNECTION_ID_LEN: usize = 128;
/// The longest session id, in bytes.
const MAX_SESSION_ID_LEN: usize = 64;
/// The longest name of a message, in bytes.
const MAX_CLIENT_MSG_ID_LEN: usize = 64;

/// One open socket, as the gateway names it: visible ASCII, none of it our key separator.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ConnectionId(String);

/// A conversation between a customer and the service: `[A-Za-z0-9_-]{1,64}`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct SessionId(String);

/// The client's name for one message it sends, the same on every try: `[A-Za-z0-9_.:-]{1,64}`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ClientMsgId(String);

/// The number of a message in its session: 1, 2, 3, … without gaps. 0 stands before the first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Seq(u64);

impl Seq {
    pub const ZERO: Self = Self(0);

    pub const fn new(seq: u64) -> Self {
        Self(seq)
    }

    pub const fn get(self) -> u64 {
        self.0
    }

    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }
}

impl fmt::Display for Seq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The two sides of a conversation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Side {
    /// The customer.
    User,
    /// The customer service.
    Agent,
}

impl Side {
    #[must_use]
    pub const fn other(self) -> Self {
        match self {
            Self::User => Self::Agent,
            Self::Agent => Self::User,
        }
    }
}

/// Somebody who may be connected. A customer and an agent of the same id are two.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Party {
    pub side: Side,
    pub id: UserId,
}

impl Party {
    pub const fn user(id: UserId) -> Self {
        Self { side: Side::User, id }
    }

    pub const fn agent(id: UserId) -> Self {
        Self { side: Side::Agent, id }
    }
}

impl fmt::Display for Party {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.side {
            Side::User => write!(f, "user {}", self.id),
            Side::Agent => write!(f, "agent {}", self.id),
        }
    }
}

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

impl TryFrom<String> for ClientMsgId {
    type Error = IdError;

    fn try_from(text: String) -> Result<Self, IdError> {
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.' | b':');
        if (1..=MAX_CLIENT_MSG_ID_LEN).contains(&text.len()) && text.bytes().all(allowed) {
            Ok(Self(text))
        } else {
            Err(IdError("clientMsgId"))
        }
    }
}

impl SessionId {
    /// A new one.
    pub fn random() -> Result<Self, getrandom::Error> {
        kernel::ids::random_hex().map(Self)
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for SessionId {
    type Err = IdError;

    fn from_str(text: &str) -> Result<Self, IdError> {
        text.to_owned().try_into()
    }
}

impl ClientMsgId {
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<ClientMsgId> for String {
    fn from(id: ClientMsgId) -> String {
        id.0
    }
}

impl fmt::Display for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
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
