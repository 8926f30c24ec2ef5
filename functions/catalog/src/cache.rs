//! What one environment read a moment ago. An environment serves one request at a time, so nobody waits for a read that
//! somebody else is making; a lock is there only because state is shared by reference.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Mutex, PoisonError};

use kernel::time::UnixMillis;

/// How long something is kept. Warm functions show a new activity after this, without a restart.
const KEEP_MILLIS: i64 = 2_000;
/// Entries kept at once; made-up ids push each other out, not memory up.
const MAX_ENTRIES: usize = 1_000;

pub(crate) struct Cache<K, V> {
    entries: Mutex<HashMap<K, (V, UnixMillis)>>,
}

impl<K, V> Default for Cache<K, V> {
    fn default() -> Self {
        Self { entries: Mutex::new(HashMap::new()) }
    }
}

impl<K: Eq + Hash, V: Clone> Cache<K, V> {
    pub(crate) fn get(&self, key: &K, now: UnixMillis) -> Option<V> {
        let entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        entries.get(key).filter(|(_, read_at)| is_fresh(*read_at, now)).map(|(value, _)| value.clone())
    }

    pub(crate) fn put(&self, key: K, value: V, now: UnixMillis) {
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        if entries.len() >= MAX_ENTRIES {
            entries.retain(|_, (_, read_at)| is_fresh(*read_at, now));
        }
        if entries.len() < MAX_ENTRIES {
            entries.insert(key, (value, now));
        }
    }
}

/// A clock that stepped back makes nothing fresh.
fn is_fresh(read_at: UnixMillis, now: UnixMillis) -> bool {
    (0..KEEP_MILLIS).contains(&now.millis_since(read_at))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_lives_for_a_moment() {
        let cache = Cache::default();
        let start = UnixMillis::new(1_000_000);
        cache.put("a", 1, start);
        assert_eq!(cache.get(&"a", start.plus_millis(KEEP_MILLIS - 1)), Some(1));
        assert_eq!(cache.get(&"a", start.plus_millis(KEEP_MILLIS)), None);
        assert_eq!(cache.get(&"a", start.plus_millis(-1)), None);
        assert_eq!(cache.get(&"b", start), None);
    }

    #[test]
    fn a_full_cache_drops_what_is_stale_and_grows_no_further() {
        let cache = Cache::default();
        let start = UnixMillis::new(1_000_000);
        for key in 0..MAX_ENTRIES {
            cache.put(key, key, start);
        }
        cache.put(MAX_ENTRIES, 0, start);
        assert_eq!(cache.get(&MAX_ENTRIES, start), None, "full of fresh entries");
        let later = start.plus_millis(KEEP_MILLIS);
        cache.put(MAX_ENTRIES, 0, later);
        assert_eq!(cache.get(&MAX_ENTRIES, later), Some(0), "the stale ones went");
    }
}
