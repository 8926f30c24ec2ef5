//! How long to wait before the next try.
//!
//! Waits grow and are random over their whole range ("full jitter"): ten thousand clients that lost the same server must
//! not come back in step.

use std::time::Duration;

/// Coming back after a break: the bound of the first wait, and of the longest. API Gateway takes 500 new sockets a second, so a
/// thousand clients that lost the same server need two.
pub(crate) const FIRST_RECONNECT: Duration = Duration::from_secs(2);
pub(crate) const LONGEST_RECONNECT: Duration = Duration::from_secs(15);

/// Growing random waits. One per thing that is being tried.
#[derive(Debug, Clone)]
pub struct Backoff {
    ceiling: Duration,
    cap: Duration,
}

impl Backoff {
    /// The first wait lies between nothing and `first`, each next one between nothing and twice the last bound, never
    /// over `cap`.
    pub fn new(first: Duration, cap: Duration) -> Self {
        Self { ceiling: first.min(cap), cap }
    }

    /// The next wait. `at_least` is what the server asked for (`Retry-After`, `retryAfterMs`): the random part comes on
    /// top, so that those who were told the same number do not return together.
    pub fn next_wait(&mut self, at_least: Option<Duration>) -> Duration {
        let wait = at_least.unwrap_or_default() + random_up_to(self.ceiling);
        self.ceiling = self.ceiling.saturating_mul(2).min(self.cap);
        wait
    }
}

fn random_up_to(bound: Duration) -> Duration {
    bound.mul_f64(rand::random_range(0.0..=1.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_grow_to_the_cap_and_honour_the_server() {
        let mut backoff = Backoff::new(Duration::from_millis(100), Duration::from_millis(350));
        for bound in [100, 200, 350, 350] {
            assert!(backoff.next_wait(None) <= Duration::from_millis(bound));
        }
        let asked = Duration::from_secs(2);
        let wait = backoff.next_wait(Some(asked));
        assert!(wait >= asked && wait <= asked + Duration::from_millis(350), "{wait:?}");
    }

    #[test]
    fn waits_differ() {
        let waits: std::collections::HashSet<_> =
            (0..20).map(|_| Backoff::new(Duration::from_secs(1), Duration::from_secs(1)).next_wait(None)).collect();
        assert!(waits.len() > 10, "{waits:?}");
    }

    /// C29: a thousand clients that lost the same server. API Gateway takes 500 new sockets a second.
    #[test]
    fn a_thousand_that_were_cut_off_together_do_not_come_back_together() {
        let mut tenths = [0u32; 10];
        for _ in 0..1_000 {
            let wait = Backoff::new(FIRST_RECONNECT, LONGEST_RECONNECT).next_wait(None);
            tenths[(wait.as_secs_f64() / FIRST_RECONNECT.as_secs_f64() * 10.0).min(9.0) as usize] += 1;
        }
        // 100 each, give or take: seven times the deviation of chance.
        assert!(tenths.iter().all(|clients| (35..=165).contains(clients)), "{tenths:?}");
        let a_second = 1_000.0 / FIRST_RECONNECT.as_secs_f64();
        assert!(a_second <= 500.0, "{a_second} new sockets a second");
    }
}
