//! What API Gateway's HTTP and WebSocket events have in common.

use std::collections::BTreeMap;

use data_encoding::BASE64;
use serde::{Deserialize, Deserializer};

/// The largest body of a request, and of a frame, in bytes (16 KiB). Everything we accept is far smaller.
pub(crate) const MAX_BODY_BYTES: usize = 16 * 1024;

/// Headers, query or path parameters: few, so they are searched one by one. The gateway leaves the object out, or sends
/// `null`, when there are none.
#[derive(Default)]
pub(crate) struct Pairs(BTreeMap<String, String>);

impl<'de> Deserialize<'de> for Pairs {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Option::<BTreeMap<String, String>>::deserialize(deserializer).map(|pairs| Self(pairs.unwrap_or_default()))
    }
}

impl Pairs {
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    /// By a name in any case. HTTP APIs send header names in lower case, WebSocket APIs as the client wrote them.
    pub(crate) fn get_any_case(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
    }
}

/// Why a body cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BodyError {
    TooLarge,
    NotBase64,
}

/// The bytes of a body. The gateway encodes those whose content type it does not take for text.
pub(crate) fn body_bytes(body: Option<&str>, is_base64: bool) -> Result<Vec<u8>, BodyError> {
    let body = body.unwrap_or_default();
    // Judged before it is decoded: base64 makes four characters of three bytes.
    let bound = if is_base64 { MAX_BODY_BYTES.div_ceil(3) * 4 } else { MAX_BODY_BYTES };
    if body.len() > bound {
        return Err(BodyError::TooLarge);
    }
    let bytes = if is_base64 {
        BASE64.decode(body.as_bytes()).map_err(|_| BodyError::NotBase64)?
    } else {
        body.as_bytes().to_vec()
    };
    if bytes.len() > MAX_BODY_BYTES { Err(BodyError::TooLarge) } else { Ok(bytes) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bodies_are_bounded_to_the_byte_in_either_form() {
        for size in [MAX_BODY_BYTES - 2, MAX_BODY_BYTES - 1, MAX_BODY_BYTES] {
            let body = "x".repeat(size);
            assert_eq!(body_bytes(Some(&body), false), Ok(body.clone().into_bytes()));
            assert_eq!(body_bytes(Some(&BASE64.encode(body.as_bytes())), true), Ok(body.into_bytes()));
        }
        for size in [MAX_BODY_BYTES + 1, MAX_BODY_BYTES + 2, MAX_BODY_BYTES + 3, 10 * MAX_BODY_BYTES] {
            let body = "x".repeat(size);
            assert_eq!(body_bytes(Some(&body), false), Err(BodyError::TooLarge));
            assert_eq!(body_bytes(Some(&BASE64.encode(body.as_bytes())), true), Err(BodyError::TooLarge));
        }
    }

    #[test]
    fn a_body_may_be_absent_and_may_lie_about_its_form() {
        assert_eq!(body_bytes(None, false), Ok(Vec::new()));
        assert_eq!(body_bytes(Some("not base64!"), true), Err(BodyError::NotBase64));
    }
}
