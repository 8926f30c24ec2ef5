//! An order: its number, its row, and the only ways it may go.

use aws_lc_rs::{digest, hmac};
use data_encoding::{BASE32_NOPAD, HEXLOWER};
use kernel::ids::{ActivityId, OrderNo, Quantity, RequestId, SkuId, UserId};
use kernel::money::{Cents, Currency, Price};
use kernel::time::UnixMillis;
use serde::{Deserialize, Serialize};

use crate::admission::Fingerprint;
use crate::offer::{OfferId, Terms};

/// Digits of an order number after `SK`: 130 bits, so that none can be guessed.
const ORDER_NO_DIGITS: usize = 26;
/// Bytes of the SHA-256 that a fingerprint keeps.
const FINGERPRINT_BYTES: usize = 8;

/// Where an order stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum OrderStatus {
    /// The units are held; the order is being made.
    PreCreated,
    Unpaid,
    Paid,
    Cancelled,
    Failed,
}

impl OrderStatus {
    pub const ALL: [Self; 5] = [Self::PreCreated, Self::Unpaid, Self::Paid, Self::Cancelled, Self::Failed];

    /// The one table of transitions. Every conditional write of an order is made from it.
    pub const fn successors(self) -> &'static [Self] {
        match self {
            Self::PreCreated => &[Self::Unpaid, Self::Failed],
            Self::Unpaid => &[Self::Paid, Self::Cancelled],
            Self::Paid | Self::Cancelled | Self::Failed => &[],
        }
    }

    /// How an order may begin: admitted, or given up before it came to be.
    pub const fn may_begin(self) -> bool {
        match self {
            Self::PreCreated | Self::Failed => true,
            Self::Unpaid | Self::Paid | Self::Cancelled => false,
        }
    }

    /// A live order has a right to its units.
    pub const fn is_live(self) -> bool {
        match self {
            Self::PreCreated | Self::Unpaid | Self::Paid => true,
            Self::Cancelled | Self::Failed => false,
        }
    }

    /// A committed order is counted by its offer and its user's claim.
    pub const fn is_committed(self) -> bool {
        match self {
            Self::Unpaid | Self::Paid => true,
            Self::PreCreated | Self::Cancelled | Self::Failed => false,
        }
    }

    pub const fn result(self) -> BuyResult {
        match self {
            Self::PreCreated => BuyResult::Pending,
            Self::Unpaid | Self::Paid => BuyResult::Success,
            Self::Cancelled | Self::Failed => BuyResult::Fail,
        }
    }

    /// As rows and documents write it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::PreCreated => "PRE_CREATED",
            Self::Unpaid => "UNPAID",
            Self::Paid => "PAID",
            Self::Cancelled => "CANCELLED",
            Self::Failed => "FAILED",
        }
    }
}

/// What a buyer is told about a purchase.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum BuyResult {
    Pending,
    Success,
    Fail,
}

/// Why an order ended without goods.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum FailReason {
    /// Held at the gate, but its row never came: given up by the sweep.
    Abandoned,
    /// The offer's own count refused: the gate had let too many in after losing writes.
    StockEmpty,
    /// The user's claim refused, likewise.
    LimitExceeded,
    /// Could not be made within the allowed number of tries.
    GaveUp,
}

/// Number of the order that this user's request for this offer makes: the same on every retry, and unguessable without
/// the secret.
pub fn order_no(secret: &hmac::Key, user_id: &UserId, offer: &OfferId, request_id: &RequestId) -> Result<OrderNo, kernel::ids::IdError> {
    // No part can hold the separator.
    let tag = hmac::sign(secret, format!("{user_id}|{}|{}|{request_id}", offer.activity_id, offer.sku_id).as_bytes());
    let digits = BASE32_NOPAD.encode(tag.as_ref());
    format!("SK{}", &digits[..ORDER_NO_DIGITS]).parse()
}

impl Fingerprint {
    /// Of what was asked for.
    pub fn of(quantity: Quantity) -> Self {
        let sum = digest::digest(&digest::SHA256, format!("qty={quantity}").as_bytes());
        Self(HEXLOWER.encode(&sum.as_ref()[..FINGERPRINT_BYTES]))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}
