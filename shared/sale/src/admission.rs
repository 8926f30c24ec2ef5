//! What the gate answers to a buyer.

use kernel::ids::{OrderNo, Quantity, UserId};
use kernel::time::UnixMillis;

use crate::offer::Terms;

/// One press of the button, already verified and parsed.
#[derive(Debug, Clone)]
pub struct AdmitRequest {
    pub order_no: OrderNo,
    pub user_id: UserId,
    pub quantity: Quantity,
    pub fingerprint: Fingerprint,
    /// `<device>|<address>`, for the device's rate mark.
    pub device_address: String,
}

/// What a request asked for, so that a retry can be told from another wish under the same id: 16 hexadecimal digits of
/// SHA-256 over quantity and seats. Never the challenge, which may change between two tries.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Fingerprint(String);

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
    Ended { ends_at: UnixMillis },
    /// Limit 1, and one live unit already.
    AlreadyBought,
    LimitExceeded { remaining: u32 },
    StockEmpty,
    InsufficientStock { remaining: u32 },
    NotStarted { starts_at: UnixMillis },
    /// Too soon after the last admission of this user or device.
    RateLimited { retry_after_ms: u32 },
}
