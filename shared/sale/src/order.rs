//! An order: its number, its row, and the only ways it may go.

use aws_lc_rs::hmac;
use data_encoding::BASE32_NOPAD;
use kernel::ids::{OrderNo, RequestId, UserId};
use serde::{Deserialize, Serialize};

use crate::offer::OfferId;

/// Digits of an order number after `SK`: 130 bits, so that none can be guessed.
const ORDER_NO_DIGITS: usize = 26;

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

impl EndReason {
    /// The rows refused whom the gate had let in: it has lost writes.
    pub const fn is_drift(self) -> bool {
        match self {
            Self::StockEmpty | Self::LimitExceeded => true,
            Self::Abandoned | Self::GaveUp | Self::CancelledByBuyer | Self::PayTimeout | Self::Unknown => false,
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

impl BuyResult {
    /// As documents and frames write it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Success => "success",
            Self::Fail => "fail",
        }
    }
}

/// Why an order ended without goods.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum EndReason {
    /// Held at the gate, but its row never came: given up by the sweep.
    Abandoned,
    /// The offer's own count refused: the gate had let too many in after losing writes.
    StockEmpty,
    /// The user's claim refused, likewise.
    LimitExceeded,
    /// Could not be made within the allowed number of tries.
    GaveUp,
    /// The buyer let it go.
    CancelledByBuyer,
    /// It was not paid in time.
    PayTimeout,
    /// Written by a later version of this code.
    #[serde(other)]
    Unknown,
}

/// Number of the order that this user's request for this offer makes: the same on every retry, and unguessable without
/// the secret.
pub fn order_no(
    secret: &hmac::Key,
    user_id: &UserId,
    offer: &OfferId,
    request_id: &RequestId,
) -> Result<OrderNo, kernel::ids::IdError> {
    // No part can hold the separator.
    let tag = hmac::sign(secret, format!("{user_id}|{}|{}|{request_id}", offer.activity_id, offer.sku_id).as_bytes());
    let digits = BASE32_NOPAD.encode(tag.as_ref());
    format!("SK{}", &digits[..ORDER_NO_DIGITS]).parse()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offer(activity: &str, sku: &str) -> OfferId {
        OfferId { activity_id: activity.parse().unwrap(), sku_id: sku.parse().unwrap() }
    }

    #[test]
    fn orders_go_forward_and_the_dead_stay_dead() {
        use OrderStatus::{Cancelled, Failed, Paid, PreCreated, Unpaid};
        let legal = [(PreCreated, Unpaid), (PreCreated, Failed), (Unpaid, Paid), (Unpaid, Cancelled)];
        for from in OrderStatus::ALL {
            for to in OrderStatus::ALL {
                assert_eq!(from.successors().contains(&to), legal.contains(&(from, to)), "{from:?} to {to:?}");
            }
            assert_eq!(from.is_live(), from.result() != BuyResult::Fail);
            assert!(!from.is_committed() || from.is_live());
            assert_eq!(serde_json::to_string(&from).unwrap(), format!("\"{}\"", from.as_str()));
        }
    }

    #[test]
    fn an_order_number_follows_from_the_request_and_from_nothing_less() {
        let key = hmac::Key::new(hmac::HMAC_SHA256, b"secret");
        let number = |key: &hmac::Key, user: &str, activity: &str, sku: &str, request: &str| {
            order_no(key, &user.parse().unwrap(), &offer(activity, sku), &request.parse().unwrap()).unwrap()
        };
        let first = number(&key, "u1", "a1", "s1", "k1");
        assert_eq!(first, number(&key, "u1", "a1", "s1", "k1"), "a retry");
        assert_eq!(first.as_str().len(), 28);
        let other_key = hmac::Key::new(hmac::HMAC_SHA256, b"other");
        for other in [
            number(&key, "u2", "a1", "s1", "k1"),
            number(&key, "u1", "a2", "s1", "k1"),
            number(&key, "u1", "a1", "s2", "k1"),
            number(&key, "u1", "a1", "s1", "k2"),
            number(&other_key, "u1", "a1", "s1", "k1"),
        ] {
            assert_ne!(first, other);
        }
    }
}
