//! Instants, and the one clock.
//!
//! Rows and messages carry [`UnixMillis`]; documents show [`Rfc3339`]. Code that needs to know the time is handed a
//! [`Clock`], so a test can move it.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// The instants that a document may name: those with 13 digits (2001-09-09 to 2286-11-20), since the gate packs them at
/// that width. What lies beyond is a mistake (seconds, or microseconds, taken for milliseconds).
const NAMEABLE: std::ops::Range<i64> = 1_000_000_000_000..10_000_000_000_000;

/// Milliseconds since 1970-01-01T00:00:00Z.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct UnixMillis(i64);

impl UnixMillis {
    pub const fn new(millis: i64) -> Self {
        Self(millis)
    }

    pub const fn get(self) -> i64 {
        self.0
    }

    /// Whole seconds, rounded down.
    pub const fn secs(self) -> i64 {
        self.0.div_euclid(1_000)
    }

    #[must_use]
    pub const fn plus_millis(self, millis: i64) -> Self {
        Self(self.0.saturating_add(millis))
    }

    #[must_use]
    pub const fn plus_secs(self, secs: i64) -> Self {
        self.plus_millis(secs.saturating_mul(1_000))
    }

    /// Milliseconds from `earlier` to this instant; negative when it lies before.
    pub const fn millis_since(self, earlier: Self) -> i64 {
        self.0.saturating_sub(earlier.0)
    }
}

/// An instant in a document: RFC 3339, written in UTC with milliseconds, read with any offset.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Rfc3339(pub UnixMillis);

/// A text that is no instant between 2001-09-09 and 2286-11-20.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("an instant is written as in 2026-06-01T02:00:00Z")]
pub struct InstantError;

/// A time zone name or local time that means no instant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum LocalTimeError {
    #[error("the time zone is not in the IANA database")]
    UnknownZone,
    #[error("a local time is written as in 2026-06-01T10:00:00")]
    NotATime,
}

impl TryFrom<String> for Rfc3339 {
    type Error = InstantError;

    fn try_from(text: String) -> Result<Self, InstantError> {
        if !has_the_shape(&text) {
            return Err(InstantError);
        }
        let instant: Timestamp = text.parse().map_err(|_| InstantError)?;
        in_range(instant.as_millisecond()).map(Self)
    }
}

/// `2026-06-01T02:00:00Z`, with up to nine digits of a fraction, or an offset. The library that reads it takes far more.
fn has_the_shape(text: &str) -> bool {
    let Some((date_time, rest)) = text.split_at_checked(19) else { return false };
    let (fraction, zone) = rest.split_at(rest.find(['Z', 'z', '+', '-']).unwrap_or(rest.len()));
    let fits = |text: &str, pattern: &str| {
        text.len() == pattern.len()
            && text.bytes().zip(pattern.bytes()).all(|(byte, wanted)| match wanted {
                b'0' => byte.is_ascii_digit(),
                b'+' => matches!(byte, b'+' | b'-'),
                exact => byte.eq_ignore_ascii_case(&exact),
            })
    };
    let fraction_fits = match fraction.strip_prefix('.') {
        None => fraction.is_empty(),
        Some(digits) => (1..=9).contains(&digits.len()) && digits.bytes().all(|digit| digit.is_ascii_digit()),
    };
    fits(date_time, "0000-00-00T00:00:00") && fraction_fits && (fits(zone, "Z") || fits(zone, "+00:00"))
}

impl From<Rfc3339> for String {
    fn from(instant: Rfc3339) -> String {
        match Timestamp::from_millisecond(instant.0.get()) {
            Ok(timestamp) => format!("{timestamp:.3}"),
            // Only a corrupt row holds an instant beyond the calendar; its number says more than an error would.
            Err(_) => instant.0.get().to_string(),
        }
    }
}

/// The instant that a wall clock in `zone` shows as `local` (`2026-06-01T10:00:00`). A time that a daylight-saving change
/// skips means the instant as far after the change as it was meant to be after the skipped hour began; one that happens
/// twice means the first.
pub fn local_time(local: &str, zone: &str) -> Result<UnixMillis, LocalTimeError> {
    let zone = jiff::tz::TimeZone::get(zone).map_err(|_| LocalTimeError::UnknownZone)?;
    let civil: jiff::civil::DateTime = local.parse().map_err(|_| LocalTimeError::NotATime)?;
    let instant = zone.to_ambiguous_timestamp(civil).compatible().map_err(|_| LocalTimeError::NotATime)?;
    in_range(instant.as_millisecond()).map_err(|_| LocalTimeError::NotATime)
}

/// How far clocks in `zone` are ahead of UTC at an instant, in seconds.
pub fn utc_offset_secs(zone: &str, at: UnixMillis) -> Result<i32, LocalTimeError> {
    let zone = jiff::tz::TimeZone::get(zone).map_err(|_| LocalTimeError::UnknownZone)?;
    let instant = Timestamp::from_millisecond(at.get()).map_err(|_| LocalTimeError::NotATime)?;
    Ok(zone.to_offset(instant).seconds())
}

/// The day in UTC on which an instant lies, as `20260601`.
pub fn utc_day(at: UnixMillis) -> String {
    match Timestamp::from_millisecond(at.get()) {
        Ok(timestamp) => timestamp.strftime("%Y%m%d").to_string(),
        // Beyond the calendar: only a broken clock says so.
        Err(_) => "00000000".to_owned(),
    }
}

fn in_range(millis: i64) -> Result<UnixMillis, InstantError> {
    if NAMEABLE.contains(&millis) { Ok(UnixMillis(millis)) } else { Err(InstantError) }
}

/// What time it is.
#[derive(Debug, Clone)]
pub enum Clock {
    System,
    /// A clock that a test sets. All clones share it.
    Manual(Arc<AtomicI64>),
}

impl Clock {
    pub fn manual(start: UnixMillis) -> Self {
        Self::Manual(Arc::new(AtomicI64::new(start.get())))
    }

    pub fn now(&self) -> UnixMillis {
        match self {
            Self::System => system_now(),
            Self::Manual(millis) => UnixMillis(millis.load(Ordering::SeqCst)),
        }
    }

    /// Moves a manual clock. The system's stays as it is.
    pub fn advance_millis(&self, millis: i64) {
        match self {
            Self::System => {}
            Self::Manual(at) => {
                at.fetch_add(millis, Ordering::SeqCst);
            }
        }
    }
}

#[allow(clippy::disallowed_methods, reason = "the one home of the system's clock")]
fn system_now() -> UnixMillis {
    UnixMillis(Timestamp::now().as_millisecond())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documents_show_utc_and_read_any_offset() {
        let instant = Rfc3339::try_from("2026-06-01T10:00:00.25+08:00".to_owned()).unwrap();
        assert_eq!(String::from(instant), "2026-06-01T02:00:00.250Z");
        for bad in
            ["", "2026-06-01", "2026-06-01T10:00:00", "1780000000000", "1999-01-01T00:00:00Z", "9999-12-31T23:59:59Z"]
        {
            assert_eq!(Rfc3339::try_from(bad.to_owned()), Err(InstantError), "{bad}");
        }
    }

    #[test]
    fn a_skipped_local_time_opens_once_after_the_change() {
        // In Berlin 02:30 does not exist on 2026-03-29: the clock goes from 02:00 to 03:00.
        let opens = local_time("2026-03-29T02:30:00", "Europe/Berlin").unwrap();
        assert_eq!(String::from(Rfc3339(opens)), "2026-03-29T01:30:00.000Z");
        // On 2026-10-25 it happens twice; the first counts.
        let opens = local_time("2026-10-25T02:30:00", "Europe/Berlin").unwrap();
        assert_eq!(String::from(Rfc3339(opens)), "2026-10-25T00:30:00.000Z");
        assert_eq!(local_time("2026-10-25T02:30:00", "Mars/Base"), Err(LocalTimeError::UnknownZone));
        assert_eq!(local_time("half past two", "Europe/Berlin"), Err(LocalTimeError::NotATime));
    }

    #[test]
    fn days_begin_at_midnight_in_utc() {
        let midnight = local_time("2026-06-01T00:00:00", "UTC").unwrap();
        assert_eq!(utc_day(midnight), "20260601");
        assert_eq!(utc_day(midnight.plus_millis(-1)), "20260531");
    }

    #[test]
    fn a_manual_clock_is_shared_by_its_clones() {
        let clock = Clock::manual(UnixMillis::new(5));
        clock.clone().advance_millis(10);
        assert_eq!(clock.now(), UnixMillis::new(15));
    }
}
