//! What can be chosen, by flag or by environment variable (`make demo-chat CUSTOMERS=20 AGENTS=4`).

use std::path::PathBuf;

use clap::builder::RangedU64ValueParser;
use clap::error::ErrorKind;
use clap::{CommandFactory, Parser};

/// Everybody keeps a socket open, and every frame is a call of a process of the local AWS.
const MAX_CUSTOMERS: u64 = 60;
/// One is cut off and somebody has to take over.
const MIN_AGENTS: u64 = 2;
const MAX_AGENTS: u64 = 10;

/// A day at the customer service, and a verdict.
#[derive(Debug, Clone, Parser)]
#[command(name = "desk")]
pub(crate) struct Settings {
    /// How many customers come.
    #[arg(long, env = "CUSTOMERS", default_value_t = 12, value_parser = RangedU64ValueParser::<usize>::new().range(3..=MAX_CUSTOMERS))]
    pub(crate) customers: usize,
    /// How many agents are there for them. Together they have room for half of the customers, or for one each.
    #[arg(long, env = "AGENTS", default_value_t = 3, value_parser = RangedU64ValueParser::<usize>::new().range(MIN_AGENTS..=MAX_AGENTS))]
    pub(crate) agents: usize,
    /// Where the stack keeps its state; `outputs.json` in there says where it listens.
    #[arg(long, env = "HOTCAKE_STATE", default_value = ".local")]
    state: PathBuf,
    /// Where the report goes.
    #[arg(long, env = "REPORT", default_value = "target/demo/desk.json")]
    pub(crate) report: PathBuf,
}

impl Settings {
    pub(crate) fn read() -> Self {
        let settings = Self::parse();
        settings.check().unwrap_or_else(|error| error.exit())
    }

    /// Without a queue there is nothing to see.
    fn check(self) -> Result<Self, clap::Error> {
        if self.customers > self.agents {
            return Ok(self);
        }
        let why = format!("CUSTOMERS ({}) must be more than AGENTS ({}), or nobody waits", self.customers, self.agents);
        Err(Self::command().error(ErrorKind::ValueValidation, why))
    }

    pub(crate) fn outputs(&self) -> PathBuf {
        self.state.join("outputs.json")
    }

    /// Customers that one agent serves at a time.
    pub(crate) fn capacity(&self) -> usize {
        (self.customers / (2 * self.agents)).max(1)
    }

    pub(crate) fn room(&self) -> usize {
        self.capacity() * self.agents
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(arguments: &[&str]) -> Result<Settings, clap::Error> {
        Settings::try_parse_from([&["desk"], arguments].concat()).and_then(Settings::check)
    }

    #[test]
    fn there_are_always_more_customers_than_room_and_bounds_hold() {
        let defaults = read(&[]).unwrap();
        assert_eq!((defaults.customers, defaults.agents, defaults.room()), (12, 3, 6));
        for customers in 3..=60 {
            for agents in 2..=10.min(customers - 1) {
                let (customers, agents) = (customers.to_string(), agents.to_string());
                let settings = read(&["--customers", &customers, "--agents", &agents]).unwrap();
                assert!(settings.room() < settings.customers, "{settings:?}");
            }
        }
        for bad in
            [["--customers", "2"], ["--customers", "61"], ["--agents", "1"], ["--agents", "11"], ["--agents", "x"]]
        {
            assert!(read(&bad).is_err(), "{bad:?}");
        }
        assert!(read(&["--customers", "3", "--agents", "3"]).is_err(), "nobody would wait");
    }
}
