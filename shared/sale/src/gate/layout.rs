//! How the book is written: keys, fields and packed values. The scripts read and write the same.

use kernel::ids::{OrderNo, Quantity, UserId};
use kernel::time::UnixMillis;

use super::{GateError, GateSettings, Hold};
use crate::admission::{Admission, AdmitRequest, Blocked, Fingerprint, HoldState, Refusal};
use crate::offer::{Allowance, LimitPeriod, OfferId, SaleState, Terms};

/// Whoever meets this word at the gate finds it missing or being made.
pub(super) const NOT_READY: &str = "NOT_READY";

/// The answer to a buyer who may not buy.
const BLOCKED: &str = "BLOCKED";

/// A value or member longer than this keeps Redis from packing its key into a list that is searched from end to end
/// (`hash-max-listpack-value`, `zset-max-listpack-value`): packed, a sold-out answer costs ten times as much at 500 fields.
const UNPACKED_BYTES: usize = 65;
/// Instants are packed at 13 digits of milliseconds; nothing sensible lies beyond (the year 2286).
const MAX_MILLIS: i64 = 9_999_999_999_999;

/// The two keys of an offer. The braces put them on one node of a cluster.
pub(super) struct Keys {
    pub(super) book: String,
    pub(super) pending: String,
}

impl Keys {
    pub(super) fn of(offer: &OfferId) -> Self {
        let OfferId { activity_id, sku_id } = offer;
        Self {
            book: format!("seckill:book:{{{activity_id}:{sku_id}}}"),
            pending: format!("seckill:pending:{{{activity_id}:{sku_id}}}"),
        }
    }

    pub(super) fn both(&self) -> [&str; 2] {
        [&self.book, &self.pending]
    }
}

/// The member that keeps pending unpacked. Its score is infinite, so that no reader of old holds meets it; no order number
/// has a blank.
pub(super) fn pending_filler() -> String {
    format!("{:<UNPACKED_BYTES$}", "filler")
}

pub(super) fn user_field(user_id: &UserId) -> String {
    format!("u:{user_id}")
}

/// Where units that count against an allowance are counted.
pub(super) fn count_field(allowance: &Allowance) -> String {
    format!("u:{allowance}")
}

pub(super) fn device_field(request: &AdmitRequest) -> String {
    format!("d:{}", request.device_address)
}

/// The answer that `admit` is to give to a buyer who may not buy.
pub(super) fn verdict(blocked: Blocked) -> String {
    match blocked.retry_after_ms {
        Some(wait) => format!("{BLOCKED} {wait}"),
        None => BLOCKED.to_owned(),
    }
}

/// What was asked for: a hold without its state and time.
pub(super) fn asked_for(fingerprint: &Fingerprint, quantity: Quantity, allowance: &Allowance) -> String {
    format!("{}|{quantity}|{allowance}|", fingerprint.as_str())
}

/// The second of a hold, at ten digits.
pub(super) fn second(at: UnixMillis) -> String {
    format!("{:010}", at.get().clamp(0, MAX_MILLIS) / 1_000)
}

pub(super) const fn state_letter(state: HoldState) -> char {
    match state {
        HoldState::Held => 'H',
        HoldState::Sold => 'S',
        HoldState::Released => 'R',
    }
}

fn state_of(letter: &str) -> Option<HoldState> {
    match letter {
        "H" => Some(HoldState::Held),
        "S" => Some(HoldState::Sold),
        "R" => Some(HoldState::Released),
        _ => None,
    }
}

pub(super) fn read_hold(text: &str) -> Result<Hold, GateError> {
    try_read_hold(text).ok_or_else(|| GateError::unknown("hold", text))
}

fn try_read_hold(text: &str) -> Option<Hold> {
    let state = state_of(text.get(..1)?)?;
    let held_at: i64 = text.get(1..11)?.parse().ok()?;
    let mut parts = text.get(11..)?.split('|');
    let fingerprint = Fingerprint::try_from(parts.next()?.to_owned()).ok()?;
    let quantity = Quantity::try_from(parts.next()?.parse::<u32>().ok()?).ok()?;
    let Allowance { user_id, limit_day } = parts.next()?.parse().ok()?;
    Some(Hold { state, held_at: UnixMillis::new(held_at * 1_000), fingerprint, quantity, user_id, limit_day })
}

/// The live units of a user; the rate mark behind them is the gate's own business.
pub(super) fn read_units(text: &str) -> Result<i64, GateError> {
    let units = text.split(' ').next().and_then(|units| units.parse().ok());
    units.ok_or_else(|| GateError::unknown("count of units", text))
}

pub(super) fn read_number(what: &'static str, text: &str) -> Result<i64, GateError> {
    text.parse().map_err(|_| GateError::unknown(what, text))
}

pub(super) fn read_order_no(text: &str) -> Result<OrderNo, GateError> {
    text.parse().map_err(|_| GateError::unknown("order number", text))
}

/// The `gate` field: what an open gate judges by, or the answer of a closed one.
pub(super) fn gate_field(settings: &GateSettings) -> String {
    let rules = &settings.rules;
    let millis = |at: UnixMillis| at.get().clamp(0, MAX_MILLIS);
    let (starts, ends) = (millis(rules.starts_at), millis(rules.ends_at));
    match settings.state {
        SaleState::Live if !settings.on_sale => "PAUSED".to_owned(),
        SaleState::Live => {
            let gate = format!(
                "{starts:013} {ends:013} {} {} {}",
                settings.terms.limit_per_user, rules.user_interval_ms, rules.device_ip_interval_ms
            );
            match settings.limit_period {
                LimitPeriod::Activity => gate,
                LimitPeriod::Day => format!("DAY {} {gate}", rules.utc_offset_secs),
            }
        }
        SaleState::Paused => "PAUSED".to_owned(),
        SaleState::Closed | SaleState::Settled => format!("ENDED {ends:013}"),
    }
}

/// The `terms` field. JSON allows the blanks that make it long enough.
pub(super) fn terms_field(terms: &Terms) -> Result<String, GateError> {
    let json = serde_json::to_string(terms).map_err(|_| GateError::unknown("terms", &terms.title))?;
    Ok(format!("{json:<UNPACKED_BYTES$}"))
}

fn read_terms(text: &str) -> Result<Terms, GateError> {
    serde_json::from_str(text).map_err(|_| GateError::unknown("terms", text))
}

/// Terms, and before them perhaps the day that the order counts for: `DAY <day> <terms>`.
fn read_dated_terms(text: &str) -> Result<Terms, GateError> {
    let Some((day, terms)) = text.strip_prefix("DAY ").and_then(|dated| dated.split_once(' ')) else {
        return read_terms(text);
    };
    Ok(Terms { limit_day: Some(read_number("day", day)?), ..read_terms(terms)? })
}

/// What `admit` said.
pub(super) fn read_admission(reply: &str) -> Result<Admission, GateError> {
    if reply.starts_with('{') || reply.starts_with("DAY ") {
        return read_dated_terms(reply).map(Admission::Admitted);
    }
    let (word, rest) = reply.split_once(' ').unwrap_or((reply, ""));
    let count = || rest.parse().map_err(|_| GateError::unknown("answer of admit", reply));
    let instant = || read_number("answer of admit", rest).map(UnixMillis::new);
    Ok(Admission::Refused(match word {
        "REPLAYED" => {
            let (letter, terms) = rest.split_once(' ').unwrap_or((rest, ""));
            let state = state_of(letter).ok_or_else(|| GateError::unknown("answer of admit", reply))?;
            return Ok(Admission::Replayed(state, read_dated_terms(terms)?));
        }
        NOT_READY => Refusal::NotReady,
        "REQUEST_ID_REUSED" => Refusal::RequestIdReused,
        "PAUSED" => Refusal::Paused,
        "ENDED" => Refusal::Ended { ends_at: instant()? },
        BLOCKED => {
            let wait = (!rest.is_empty()).then(|| rest.parse()).transpose();
            let retry_after_ms = wait.map_err(|_| GateError::unknown("answer of admit", reply))?;
            Refusal::Blocked(Blocked { retry_after_ms })
        }
        "ALREADY_BOUGHT" => Refusal::AlreadyBought,
        "LIMIT_EXCEEDED" => Refusal::LimitExceeded { remaining: count()? },
        "STOCK_EMPTY" => Refusal::StockEmpty,
        "INSUFFICIENT_STOCK" => Refusal::InsufficientStock { remaining: count()? },
        "NOT_STARTED" => Refusal::NotStarted { starts_at: instant()? },
        "RATE_LIMITED" => Refusal::RateLimited { retry_after_ms: count()? },
        _ => return Err(GateError::unknown("answer of admit", reply)),
    }))
}
