//! What is for sale: activities, the offers in them, and the state that the gate is made equal to.

use kernel::ids::{ActivityId, SkuId, UserId};
use kernel::money::{Currency, Price};
use kernel::time::UnixMillis;
use serde::{Deserialize, Serialize};

/// The `total` of an unlimited offer: a stock that no sale reaches. Every rule then holds as it stands, and no counter has
/// a value that means something else (the seed's −1 sold without end once a counter had drifted there).
pub const UNLIMITED_TOTAL: i64 = 1_000_000_000_000;

/// The most units an offer may hold for sale when it is not unlimited.
pub const MAX_TOTAL: i64 = 100_000_000;

/// The most products in one activity: settling it is one transaction over the activity, each offer, each SKU and the change
/// log, and DynamoDB takes 100 actions.
pub const MAX_PRODUCTS: usize = 49;

/// One SKU sold in one activity.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OfferId {
    pub activity_id: ActivityId,
    pub sku_id: SkuId,
}

/// Where a sale stands, as decided by people and by the sweep. Whether it is open is left to the clock: the window is part
/// of the gate, so no job has to run at ten sharp.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum SaleState {
    /// Sells within its window.
    Live,
    /// Stopped by hand; may be resumed.
    Paused,
    /// Over: by hand or by the clock. Orders still live are drained.
    Closed,
    /// Closed and drained; what was left has gone back to the SKU.
    Settled,
}

/// Where a sale stands, for people: by its rows and the clock (see [`ActivityRow::shown`]).
///
/// [`ActivityRow::shown`]: crate::store::offers::ActivityRow::shown
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Shown {
    /// Nothing is put up yet.
    Draft,
    Scheduled,
    /// The gates are made; it opens by the clock.
    Preheated,
    Open,
    Paused,
    Closed,
    Settled,
}

/// When and to whom a sale sells.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Rules {
    pub starts_at: UnixMillis,
    pub ends_at: UnixMillis,
    pub pay_window_secs: u32,
    /// The least time between two admissions of one user, in milliseconds; 0 = no limit.
    pub user_interval_ms: u32,
    /// The same for one device at one address.
    pub device_ip_interval_ms: u32,
    /// Where the sale's days begin, in seconds east of UTC.
    #[serde(default)]
    pub utc_offset_secs: i32,
}

/// What a limit is a limit of.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum LimitPeriod {
    /// All of the sale.
    #[default]
    Activity,
    /// Each calendar day of it.
    Day,
}

/// Against which limit units count: a user's of all of the sale, or of one day of it. The gate's clock says which day, once,
/// and everybody else repeats it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Allowance {
    pub user_id: UserId,
    /// Days since 1970-01-01 where the sale is. Absent when the limit is one of all of the sale.
    pub limit_day: Option<i64>,
}

/// `user`, or `user@day`: no identifier has an `@`.
impl std::fmt::Display for Allowance {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.limit_day {
            None => write!(f, "{}", self.user_id),
            Some(day) => write!(f, "{}@{day}", self.user_id),
        }
    }
}

impl std::str::FromStr for Allowance {
    type Err = AllowanceError;

    fn from_str(text: &str) -> Result<Self, AllowanceError> {
        let (user, day) = match text.split_once('@') {
            None => (text, None),
            Some((user, day)) => (user, Some(day.parse().map_err(|_| AllowanceError)?)),
        };
        Ok(Self { user_id: user.parse().map_err(|_| AllowanceError)?, limit_day: day })
    }
}

/// A text that is neither a user nor a user's day.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not whose limit units count against")]
pub struct AllowanceError;

/// What a buyer is sold, fixed for an order at the moment it is admitted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Terms {
    pub title: String,
    pub price: Price,
    pub currency: Currency,
    /// Live units one user may have of this offer.
    pub limit_per_user: u32,
    pub pay_window_secs: u32,
    /// The day that an order counts for, if each day has its own limit; see [`Allowance::limit_day`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit_day: Option<i64>,
}
