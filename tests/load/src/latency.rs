//! Percentiles.
//!
//! A run has some ten thousand durations: they are kept and sorted, and the percentiles are exact.

use std::time::Duration;

use serde::Serialize;

/// Percentiles of durations, by nearest rank, in milliseconds. All zero when there were none.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Percentiles {
    pub count: usize,
    pub p50_ms: f64,
    pub p95_ms: f64,
    pub p99_ms: f64,
    pub max_ms: f64,
}

impl Percentiles {
    pub fn of(durations: impl IntoIterator<Item = Duration>) -> Self {
        let mut sorted: Vec<Duration> = durations.into_iter().collect();
        sorted.sort_unstable();
        let at = |percent: usize| {
            let rank = (sorted.len() * percent).div_ceil(100).max(1);
            sorted.get(rank - 1).map_or(0.0, |duration| (duration.as_secs_f64() * 10_000.0).round() / 10.0)
        };
        Self { count: sorted.len(), p50_ms: at(50), p95_ms: at(95), p99_ms: at(99), max_ms: at(100) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_the_nearest_rank() {
        let all = Percentiles::of((1..=200).rev().map(Duration::from_millis));
        assert_eq!(all, Percentiles { count: 200, p50_ms: 100.0, p95_ms: 190.0, p99_ms: 198.0, max_ms: 200.0 });
        let one = Percentiles::of([Duration::from_micros(1_550)]);
        assert_eq!(one, Percentiles { count: 1, p50_ms: 1.6, p95_ms: 1.6, p99_ms: 1.6, max_ms: 1.6 });
        let none = Percentiles::of([]);
        assert_eq!(none, Percentiles { count: 0, p50_ms: 0.0, p95_ms: 0.0, p99_ms: 0.0, max_ms: 0.0 });
    }
}
