//! How fast one connection may speak.
//!
//! Counted in the function's memory: frames cost no write for it. A connection whose frames are spread over several
//! environments gets as many times the rate; that bounds what a client can cost, which is all that it is for.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use kernel::time::UnixMillis;

use crate::ids::ConnectionId;

/// Frames a second that a connection may send, and how many at once after a silence: a `sync` may bring 50 results, each of
/// which is acknowledged.
const RATE_PER_SEC: i64 = 20;
const BURST: i64 = 100;
/// Connections that are remembered. When there are more, those that have been silent for long enough are forgotten.
const MAX_KNOWN: usize = 10_000;

/// What connections have left.
#[derive(Debug, Default)]
pub(crate) struct Pace(Mutex<HashMap<ConnectionId, Bucket>>);

/// Thousandths of a frame that may be sent, as of a moment.
#[derive(Debug, Clone, Copy)]
struct Bucket {
    left: i64,
    at: UnixMillis,
}

impl Bucket {
    const FULL: i64 = BURST * 1_000;

    fn refilled(self, now: UnixMillis) -> Self {
        // A frame a thousandth of a second and `RATE_PER_SEC` is a thousandth of a frame in each of it.
        let gained = now.millis_since(self.at).max(0).saturating_mul(RATE_PER_SEC);
        Self { left: self.left.saturating_add(gained).min(Self::FULL), at: now.max(self.at) }
    }
}

impl Pace {
    /// `false`: this frame is one too many.
    pub(crate) fn allows(&self, connection_id: &ConnectionId, now: UnixMillis) -> bool {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= MAX_KNOWN {
            known.retain(|_, bucket| bucket.refilled(now).left < Bucket::FULL);
        }
        let full = Bucket { left: Bucket::FULL, at: now };
        let bucket = known.entry(connection_id.clone()).or_insert(full);
        *bucket = bucket.refilled(now);
        let allowed = bucket.left >= 1_000;
        if allowed {
            bucket.left -= 1_000;
        }
        allowed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_then_a_steady_rate_each_connection_by_itself() {
        let (pace, start) = (Pace::default(), UnixMillis::new(1_780_000_000_000));
        let id = |id: &str| ConnectionId::try_from(id.to_owned()).unwrap();
        let sent = |id: &ConnectionId, at, frames: i64| (0..frames).filter(|_| pace.allows(id, at)).count();
        let (fast, other) = (id("a"), id("b"));
        assert_eq!(sent(&fast, start, 200), BURST as usize);
        assert_eq!(sent(&other, start, 1), 1);
        assert_eq!(sent(&fast, start.plus_millis(500), 100), 10);
        assert_eq!(sent(&fast, start.plus_millis(400), 1), 0, "a clock that goes back gives nothing");
        assert_eq!(sent(&fast, start.plus_secs(60), 200), BURST as usize);
    }
}
