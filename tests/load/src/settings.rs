//! What can be chosen, by flag or by environment variable (`make demo BUYERS=10000 STOCK=500`).

use std::path::PathBuf;

use clap::Parser;
use clap::builder::RangedU64ValueParser;

/// A socket for every third buyer and a few calls under way have to fit into the usual limit of open files.
const MAX_BUYERS: u64 = 20_000;
const MAX_STOCK: u64 = 100_000;
const MAX_CONCURRENCY: u64 = 256;

/// A flash sale with a crowd, and a verdict.
#[derive(Debug, Clone, Parser)]
#[command(name = "load")]
pub(crate) struct Settings {
    /// How many buyers come.
    #[arg(long, env = "BUYERS", default_value_t = 2_000, value_parser = RangedU64ValueParser::<usize>::new().range(1..=MAX_BUYERS))]
    pub(crate) buyers: usize,
    /// Units of each of the two offers.
    #[arg(long, env = "STOCK", default_value_t = 100, value_parser = RangedU64ValueParser::<u32>::new().range(1..=MAX_STOCK))]
    pub(crate) stock: u32,
    /// Buy calls under way at once. The local AWS answers as many calls a second with 16 as with more; the
    /// rest would only stand in line there, and hold up the consumer and the pushes.
    #[arg(long, env = "CONCURRENCY", default_value_t = 16, value_parser = RangedU64ValueParser::<usize>::new().range(1..=MAX_CONCURRENCY))]
    pub(crate) concurrency: usize,
    /// Decides who does what; the same seed and number of buyers make the same crowd. Random when absent.
    #[arg(long, env = "SEED")]
    seed: Option<u64>,
    /// Where the stack keeps its state; `outputs.json` in there says where it listens.
    #[arg(long, env = "HOTCAKE_STATE", default_value = ".local")]
    state: PathBuf,
    /// Where the report goes.
    #[arg(long, env = "REPORT", default_value = "target/demo/report.json")]
    pub(crate) report: PathBuf,
}

impl Settings {
    pub(crate) fn outputs(&self) -> PathBuf {
        self.state.join("outputs.json")
    }

    pub(crate) fn seed(&self) -> u64 {
        self.seed.unwrap_or_else(|| rand::random_range(0..1_000_000))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_are_the_demo_of_the_readme_and_bounds_hold() {
        let defaults = Settings::parse_from(["load"]);
        assert_eq!((defaults.buyers, defaults.stock), (2_000, 100));
        for bad in [["--buyers", "0"], ["--buyers", "20001"], ["--stock", "0"], ["--concurrency", "1000"]] {
            assert!(Settings::try_parse_from(["load"].into_iter().chain(bad)).is_err(), "{bad:?}");
        }
    }
}
