//! How long to wait before a further try: full jitter, so that callers which failed together do not come back together.

use std::time::Duration;

/// The wait before try `attempt` (0 = the first repetition): anywhere from nothing to `base × 2^attempt`, at most `cap`.
pub fn full_jitter(attempt: u32, base: Duration, cap: Duration) -> Duration {
    let ceiling = base.saturating_mul(2u32.saturating_pow(attempt.min(16))).min(cap);
    let mut bytes = [0u8; 8];
    // Without randomness from the system the longest wait is still a correct one.
    let share = match getrandom::fill(&mut bytes) {
        Ok(()) => u64::from_be_bytes(bytes) as f64 / u64::MAX as f64,
        Err(_) => 1.0,
    };
    ceiling.mul_f64(share)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_stay_below_a_ceiling_that_doubles_up_to_the_cap() {
        let (base, cap) = (Duration::from_millis(10), Duration::from_millis(100));
        for (attempt, ceiling_ms) in [(0, 10), (1, 20), (3, 80), (4, 100), (60, 100)] {
            let waits: Vec<_> = (0..200).map(|_| full_jitter(attempt, base, cap)).collect();
            assert!(waits.iter().all(|wait| *wait <= Duration::from_millis(ceiling_ms)));
            assert!(
                waits.iter().any(|wait| *wait > Duration::from_millis(ceiling_ms / 4)),
                "spread over the whole range"
            );
        }
    }
}
