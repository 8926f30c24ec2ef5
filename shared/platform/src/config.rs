//! Configuration: environment variables, read once, at start.
//!
//! A function whose configuration is wrong must not serve. It stops at start with an error that names every variable that is
//! missing or malformed, so that one deployment shows all mistakes:
//!
//! ```
//! use platform::config::{Env, FromEnv, Noted};
//!
//! struct Config {
//!     orders_table: String,
//!     batch: u32,
//! }
//!
//! impl FromEnv for Config {
//!     fn from_env(env: &mut Env) -> Result<Self, Noted> {
//!         // Everything is read before the first `?`, so that everything wrong is noted.
//!         let (orders_table, batch) = (env.required("ORDERS_TABLE"), env.required("BATCH"));
//!         Ok(Self { orders_table: orders_table?, batch: batch? })
//!     }
//! }
//! ```
//!
//! Values are never part of a message: a value may be a secret.

use std::fmt;
use std::str::FromStr;

/// What a function reads at start.
pub trait FromEnv: Sized {
    fn from_env(env: &mut Env<'_>) -> Result<Self, Noted>;
}

/// For functions, and tests of them, that need no configuration.
impl FromEnv for () {
    fn from_env(_: &mut Env<'_>) -> Result<Self, Noted> {
        Ok(())
    }
}

/// The environment, and what was found wrong with it so far.
pub struct Env<'a> {
    lookup: &'a dyn Fn(&str) -> Option<String>,
    problems: Vec<String>,
}

/// Stands for a mistake that [`Env`] has written down. Only `Env` makes one, so reading cannot fail silently.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Noted(());

/// Every mistake in the configuration.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("configuration: {}", .0.join("; "))]
pub struct ConfigError(Vec<String>);

impl Env<'_> {
    /// A variable that must be there and not be empty.
    pub fn required<T: FromStr<Err: fmt::Display>>(&mut self, name: &str) -> Result<T, Noted> {
        match self.optional(name)? {
            Some(value) => Ok(value),
            None => Err(self.note(name, "is not set")),
        }
    }

    /// A variable that may be absent; an empty one is absent, as templates cannot leave a variable out.
    pub fn optional<T: FromStr<Err: fmt::Display>>(&mut self, name: &str) -> Result<Option<T>, Noted> {
        match (self.lookup)(name).filter(|value| !value.is_empty()).map(|value| value.parse()) {
            None => Ok(None),
            Some(Ok(value)) => Ok(Some(value)),
            Some(Err(error)) => Err(self.note(name, error)),
        }
    }

    /// A switch that must be there: `0`, `1`, `false` or `true`.
    pub fn switch(&mut self, name: &str) -> Result<bool, Noted> {
        match self.required::<String>(name)?.as_str() {
            "1" | "true" => Ok(true),
            "0" | "false" => Ok(false),
            _ => Err(self.note(name, "must be 0, 1, false or true")),
        }
    }

    fn note(&mut self, name: &str, problem: impl fmt::Display) -> Noted {
        self.problems.push(format!("{name} {problem}"));
        Noted(())
    }
}

/// Reads a configuration from the process's environment.
pub fn load<C: FromEnv>() -> Result<C, ConfigError> {
    load_from(&|name| process_variable(name))
}

/// Reads a configuration from anything that knows variables by name.
pub fn load_from<C: FromEnv>(lookup: &dyn Fn(&str) -> Option<String>) -> Result<C, ConfigError> {
    let mut env = Env { lookup, problems: Vec::new() };
    match C::from_env(&mut env) {
        // A configuration that ignored a note is as wrong as one that passed it on.
        Ok(config) if env.problems.is_empty() => Ok(config),
        Ok(_) | Err(Noted(())) => Err(ConfigError(env.problems)),
    }
}

#[allow(clippy::disallowed_methods, reason = "the one home of the environment")]
fn process_variable(name: &str) -> Option<String> {
    // A value that is not Unicode is kept, damaged, so that its parser refuses it by name.
    std::env::var_os(name).map(|value| value.to_string_lossy().into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, PartialEq)]
    struct Sample {
        table: String,
        batch: u32,
        secret: Option<u8>,
        cluster: bool,
    }

    impl FromEnv for Sample {
        fn from_env(env: &mut Env<'_>) -> Result<Self, Noted> {
            let (table, batch) = (env.required("TABLE"), env.required("BATCH"));
            let (secret, cluster) = (env.optional("SECRET"), env.switch("CLUSTER"));
            Ok(Self { table: table?, batch: batch?, secret: secret?, cluster: cluster? })
        }
    }

    fn read(pairs: &[(&str, &str)]) -> Result<Sample, ConfigError> {
        load_from(&|name| pairs.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned()))
    }

    #[test]
    fn a_complete_configuration_is_read() {
        let expected = Sample { table: "orders".into(), batch: 50, secret: None, cluster: true };
        assert_eq!(read(&[("TABLE", "orders"), ("BATCH", "50"), ("SECRET", ""), ("CLUSTER", "1")]), Ok(expected));
    }

    #[test]
    fn every_mistake_is_named_and_no_value_is_shown() {
        let error =
            read(&[("TABLE", ""), ("BATCH", "canary-a"), ("SECRET", "canary-b"), ("CLUSTER", "canary-c")]).unwrap_err();
        let message = error.to_string();
        for expected in
            ["TABLE is not set", "BATCH invalid digit", "SECRET invalid digit", "CLUSTER must be 0, 1, false or true"]
        {
            assert!(message.contains(expected), "{message}");
        }
        assert!(!message.contains("canary"), "{message}");
    }

    #[test]
    fn a_note_that_was_ignored_still_stops_the_start() {
        struct Careless;
        impl FromEnv for Careless {
            fn from_env(env: &mut Env<'_>) -> Result<Self, Noted> {
                env.required::<String>("FORGOTTEN").ok();
                Ok(Self)
            }
        }
        assert_eq!(load_from::<Careless>(&|_| None).err(), Some(ConfigError(vec!["FORGOTTEN is not set".into()])));
    }
}
