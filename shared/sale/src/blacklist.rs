//! Who may not buy, by name. Kept in the offers table, and in each buy function's memory for at most [`FRESH_MILLIS`]: a
//! buyer who is refused by it costs no read. Every change raises a version, so an unchanged list is not read again.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use kernel::ids::UserId;
use kernel::text::is_invisible;
use kernel::time::{Clock, UnixMillis};
use serde::{Deserialize, Serialize};

use crate::admission::Blocked;
use crate::store::{Offers, StoreError};

/// How old the list in memory may be, in milliseconds.
pub const FRESH_MILLIS: i64 = 5_000;
/// After a read that failed, the list in memory is used for so long before the next try, in milliseconds.
const RETRY_MILLIS: i64 = 1_000;
/// The longest reason, in characters.
pub const MAX_REASON_CHARS: usize = 500;

/// One user on the list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Entry {
    pub user_id: UserId,
    pub reason: String,
    /// Absent: until taken off.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until: Option<UnixMillis>,
    pub by: UserId,
    pub at: UnixMillis,
}

/// Whether it is a reason: 1 to [`MAX_REASON_CHARS`] characters, none of which plays with whoever reads it.
pub fn is_reason(text: &str) -> bool {
    (1..=MAX_REASON_CHARS).contains(&text.chars().count())
        && !text.chars().any(|char| char.is_control() || is_invisible(char))
}

/// The list as a function remembers it.
#[derive(Debug)]
pub struct Blacklist {
    offers: Offers,
    clock: Clock,
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    /// None: never read.
    version: Option<i64>,
    until: HashMap<UserId, Option<UnixMillis>>,
    read_again_at: UnixMillis,
}

impl Blacklist {
    pub fn new(offers: Offers, clock: Clock) -> Self {
        Self { offers, clock, known: Mutex::default() }
    }

    /// Whether `user_id` is on the list. When it cannot be read, the one in memory counts; before there is one, an error.
    pub async fn judge(&self, user_id: &UserId) -> Result<Option<Blocked>, StoreError> {
        let now = self.clock.now();
        let (version, is_stale) = {
            let known = self.lock();
            (known.version, known.version.is_none() || known.read_again_at <= now)
        };
        if is_stale {
            match self.read(version).await {
                Ok(news) => {
                    let mut known = self.lock();
                    if let Some((version, until)) = news {
                        (known.version, known.until) = (Some(version), until);
                    }
                    known.read_again_at = now.plus_millis(FRESH_MILLIS);
                }
                Err(error) if version.is_none() => return Err(error),
                Err(error) => {
                    tracing::warn!(error = &error as &dyn std::error::Error, "the blacklist in memory is used on");
                    self.lock().read_again_at = now.plus_millis(RETRY_MILLIS);
                }
            }
        }
        Ok(match self.lock().until.get(user_id) {
            None => None,
            Some(None) => Some(Blocked { retry_after_ms: None }),
            Some(Some(until)) => match u64::try_from(until.millis_since(now)) {
                Ok(wait @ 1..) => Some(Blocked { retry_after_ms: Some(wait) }),
                Ok(_) | Err(_) => None,
            },
        })
    }

    /// The list and its version, if it is another one than `known`.
    #[allow(clippy::type_complexity, reason = "used once, right above")]
    async fn read(&self, known: Option<i64>) -> Result<Option<(i64, HashMap<UserId, Option<UnixMillis>>)>, StoreError> {
        let version = self.offers.blacklist_version().await?;
        if known == Some(version) {
            return Ok(None);
        }
        let entries = self.offers.blacklist().await?;
        Ok(Some((version, entries.into_iter().map(|entry| (entry.user_id, entry.until)).collect())))
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_is_a_text_that_people_can_read() {
        let longest = "字".repeat(MAX_REASON_CHARS);
        for good in ["x", "buys by machine; 用脚本抢购", &longest] {
            assert!(is_reason(good), "{good}");
        }
        for bad in ["", "a\0b", "\u{1b}[2J", "two\nlines", "\u{202e}txt", &format!("{longest}x")] {
            assert!(!is_reason(bad), "{bad:?}");
        }
    }
}
