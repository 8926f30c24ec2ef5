//! What the gate answers to a buyer.

use aws_lc_rs::digest;
use data_encoding::HEXLOWER;
use kernel::ids::{OrderNo, Quantity, UserId};
use kernel::time::UnixMillis;
use serde::{Deserialize, Serialize};

use crate::offer::Terms;

/// Digits of SHA-256 that a fingerprint keeps.
const FINGERPRINT_DIGITS: usize = 16;

/// One press of the button, already verified and parsed.
#[derive(Debug, Clone)]
pub struct AdmitRequest {
    pub order_no: OrderNo,
    pub user_id: UserId,
    pub quantity: Quantity,
    pub fingerprint: Fingerprint,
    /// `<device>|<address>`, for the device's rate mark.
    pub device_address: String,
    /// Set for a buyer who may not buy, whatever there is to be had.
    pub blocked: Option<Blocked>,
}

/// A buyer may not buy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Blocked {
    /// Absent: until somebody says otherwise.
    pub retry_after_ms: Option<u64>,
}

/// What a request asked for, so that a retry can be told from another wish under the same id: 16 hexadecimal digits of
/// SHA-256 over quantity and seats. Never the challenge, which may change between two tries.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Fingerprint(String);

/// A text that is no fingerprint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a fingerprint is {FINGERPRINT_DIGITS} hexadecimal digits")]
pub struct FingerprintError;

impl Fingerprint {
    /// Of what was asked for.
    pub fn of(quantity: Quantity) -> Self {
        let sum = digest::digest(&digest::SHA256, format!("qty={quantity}").as_bytes());
        Self(HEXLOWER.encode(&sum.as_ref()[..FINGERPRINT_DIGITS / 2]))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for Fingerprint {
    type Error = FingerprintError;

    fn try_from(text: String) -> Result<Self, FingerprintError> {
        let is_digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        if text.len() == FINGERPRINT_DIGITS && text.bytes().all(is_digit) {
            Ok(Self(text))
        } else {
            Err(FingerprintError)
        }
    }
}

impl From<Fingerprint> for String {
    fn from(fingerprint: Fingerprint) -> String {
        fingerprint.0
    }
}

/// What became of a hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum HoldState {
    Held,
    Sold,
    Released,
}

/// The gate's answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Admission {
    /// The units are held from now on.
    Admitted(Terms),
    /// This very request was admitted before.
    Replayed(HoldState, Terms),
    /// Nothing changed.
    Refused(Refusal),
}

/// Why a buyer is turned away.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refusal {
    /// Not preheated, or being rebuilt.
    NotReady,
    /// The request id was used for another quantity or other seats.
    RequestIdReused,
    Paused,
    /// The end, by the gate's clock.
    Ended {
        ends_at: UnixMillis,
    },
    /// On the blacklist, or in a cool-down after orders that were not paid.
    Blocked(Blocked),
    /// Limit 1, and one live unit already.
    AlreadyBought,
    LimitExceeded {
        remaining: u32,
    },
    StockEmpty,
    InsufficientStock {
        remaining: u32,
    },
    NotStarted {
        starts_at: UnixMillis,
    },
    /// Too soon after the last admission of this user or device.
    RateLimited {
        retry_after_ms: u32,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fingerprint_tells_quantities_apart() {
        let of = |units: u32| Fingerprint::of(Quantity::try_from(units).unwrap());
        assert_eq!(of(1), of(1));
        assert_ne!(of(1), of(2));
        assert_eq!(Fingerprint::try_from(of(1).as_str().to_owned()), Ok(of(1)));
    }

    #[test]
    fn a_fingerprint_is_judged_when_it_is_read() {
        for bad in ["", "0123456789abcde", "0123456789abcdef0", "0123456789ABCDEF", "0123456|89abcdef"] {
            assert_eq!(Fingerprint::try_from(bad.to_owned()), Err(FingerprintError), "{bad}");
        }
    }
}
