//! Identifiers, parsed at the edge.
//!
//! All but the request id are `[A-Za-z0-9_-]{1,64}`: none of the separators of our keys (`#`, `:`, `|`, `{`, `}`, blank)
//! can be smuggled into a key, a hash tag or a packed value through one.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// The longest identifier, in bytes.
pub const MAX_ID_LEN: usize = 64;
/// The longest request id, in bytes.
pub const MAX_REQUEST_ID_LEN: usize = 128;
/// The most units one order may ask for. A bound on sums, far above any fair share.
pub const MAX_QUANTITY: u32 = 1_000;

/// Why a text is no identifier. The text itself is left out: it may be anything, of any length.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{what} must be 1 to {max} characters of {charset}")]
pub struct IdError {
    pub what: &'static str,
    pub max: usize,
    pub charset: &'static str,
}

fn is_id_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-'
}

fn is_request_id_byte(byte: u8) -> bool {
    is_id_byte(byte) || byte == b'.' || byte == b':'
}

macro_rules! id {
    ($(#[$doc:meta])* $name:ident, $what:literal, $max:expr, $charset:literal, $allowed:expr) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(String);

        impl $name {
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl TryFrom<String> for $name {
            type Error = IdError;

            fn try_from(text: String) -> Result<Self, IdError> {
                if text.is_empty() || text.len() > $max || !text.bytes().all($allowed) {
                    return Err(IdError { what: $what, max: $max, charset: $charset });
                }
                Ok(Self(text))
            }
        }

        impl FromStr for $name {
            type Err = IdError;

            fn from_str(text: &str) -> Result<Self, IdError> {
                // Judged before it is copied: the text may be far longer than any identifier.
                if text.len() > $max {
                    return Err(IdError { what: $what, max: $max, charset: $charset });
                }
                Self::try_from(text.to_owned())
            }
        }

        impl From<$name> for String {
            fn from(id: $name) -> String {
                id.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    };
}

id!(
    /// Whoever a token was issued to: its `sub`.
    UserId, "user id", MAX_ID_LEN, "A-Z a-z 0-9 _ -", is_id_byte
);
id!(
    /// One flash sale: a window, its rules, and the products sold in it.
    ActivityId, "activityId", MAX_ID_LEN, "A-Z a-z 0-9 _ -", is_id_byte
);
id!(
    /// A stock keeping unit: the thing sold, whose stock is allotted to offers.
    SkuId, "skuId", MAX_ID_LEN, "A-Z a-z 0-9 _ -", is_id_byte
);
id!(
    /// The number of an order: `SK` and 26 base32 characters when this system made it.
    OrderNo, "orderNo", MAX_ID_LEN, "A-Z a-z 0-9 _ -", is_id_byte
);
id!(
    /// The payment provider's number of one payment.
    TransactionId, "transactionId", MAX_ID_LEN, "A-Z a-z 0-9 _ -", is_id_byte
);
id!(
    /// Us, as the payment provider knows us.
    MerchantId, "merchantId", MAX_ID_LEN, "A-Z a-z 0-9 _ -", is_id_byte
);
id!(
    /// The client's word for the device it runs on.
    DeviceId, "device id", MAX_ID_LEN, "A-Z a-z 0-9 _ -", is_id_byte
);
id!(
    /// One intent to buy: the same on every retry of it.
    RequestId, "X-Request-ID", MAX_REQUEST_ID_LEN, "A-Z a-z 0-9 _ . : -", is_request_id_byte
);

impl RequestId {
    /// An id for a call that brought none.
    pub fn random() -> Result<Self, getrandom::Error> {
        random_hex().map(|hex| Self(format!("auto:{hex}")))
    }
}

/// 32 hexadecimal digits (128 bits) from the operating system: an identifier that nobody can guess.
pub fn random_hex() -> Result<String, getrandom::Error> {
    let mut bytes = [0u8; 16];
    getrandom::fill(&mut bytes)?;
    Ok(format!("{:032x}", u128::from_be_bytes(bytes)))
}

/// Units of one order: 1 to [`MAX_QUANTITY`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "u32", into = "u32")]
pub struct Quantity(u32);

/// A number of units outside 1 to [`MAX_QUANTITY`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a quantity is a whole number from 1 to {MAX_QUANTITY}")]
pub struct QuantityError;

impl Quantity {
    pub const ONE: Self = Self(1);

    pub fn get(self) -> u32 {
        self.0
    }

    /// For sums and differences, which may be larger or negative.
    pub fn units(self) -> i64 {
        i64::from(self.0)
    }
}

impl TryFrom<u32> for Quantity {
    type Error = QuantityError;

    fn try_from(units: u32) -> Result<Self, QuantityError> {
        if (1..=MAX_QUANTITY).contains(&units) { Ok(Self(units)) } else { Err(QuantityError) }
    }
}

impl From<Quantity> for u32 {
    fn from(quantity: Quantity) -> u32 {
        quantity.0
    }
}

impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identifiers_hold_no_separator() {
        for good in ["a", "u1", "A-b_9", &"x".repeat(64)] {
            assert_eq!(good.parse::<UserId>().map(String::from), Ok(good.to_owned()));
        }
        for bad in ["", "a b", "a#b", "a:b", "a|b", "{a}", "ä", "a\0", "a\n", &"x".repeat(65)] {
            assert!(bad.parse::<UserId>().is_err(), "{bad:?}");
        }
    }

    #[test]
    fn a_request_id_may_hold_dots_and_colons_and_is_longer() {
        assert!("req_1001:a.b".parse::<RequestId>().is_ok());
        assert!("x".repeat(128).parse::<RequestId>().is_ok());
        assert!("x".repeat(129).parse::<RequestId>().is_err());
        assert!("a|b".parse::<RequestId>().is_err());
    }

    #[test]
    fn random_request_ids_parse_and_differ() {
        let (a, b) = (RequestId::random().unwrap(), RequestId::random().unwrap());
        assert_ne!(a, b);
        assert_eq!(a.as_str().parse::<RequestId>(), Ok(a));
    }

    #[test]
    fn identifiers_are_judged_when_they_are_read() {
        assert!(serde_json::from_str::<SkuId>("\"s10\"").is_ok());
        assert!(serde_json::from_str::<SkuId>("\"s 10\"").is_err());
    }

    #[test]
    fn a_quantity_is_a_whole_number_within_its_bounds() {
        for good in ["1", "1000"] {
            assert!(serde_json::from_str::<Quantity>(good).is_ok(), "{good}");
        }
        for bad in ["0", "-5", "1.5", "1.0", "\"0x3\"", "\"1 \"", "1e9", "1001", "null", "true", "[1]", "4294967297"] {
            assert!(serde_json::from_str::<Quantity>(bad).is_err(), "{bad}");
        }
    }
}
