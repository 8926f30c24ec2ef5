//! Logs: one JSON object a line, on standard output, where Lambda picks them up.
//!
//! `RUST_LOG` sets the level of our own code (`info` when it is absent). Other people's code never gets below `info`: at
//! `trace` the Lambda runtime prints whole events and the SDKs print whole requests, tokens and all, and no setting may make
//! a token appear in a log. Each error is logged once, by the code that ends its journey, with the whole [`chain`].

use std::error::Error;
use std::time::{Duration, Instant};

use tracing::level_filters::LevelFilter;
use tracing::{Metadata, Subscriber};
use tracing_subscriber::filter::{EnvFilter, ParseError, filter_fn};
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::{SubscriberInitExt, TryInitError};

use crate::config::{Env, FromEnv, Noted};

/// Other people's crates that log and see whole events or requests. Matched as prefixes of a line's target.
const FOREIGN: [&str; 5] = ["aws_", "h2", "hyper", "lambda_runtime", "tower"];

/// The longest error chain that is written, in causes. A cycle or a pathological source must not fill the log.
const MAX_CAUSES: usize = 16;

/// What `RUST_LOG` asks for.
#[derive(Default)]
pub struct LogLevel(Option<String>);

impl FromEnv for LogLevel {
    fn from_env(env: &mut Env<'_>) -> Result<Self, Noted> {
        env.optional("RUST_LOG").map(Self)
    }
}

/// Why logging could not be started.
#[derive(Debug, thiserror::Error)]
pub enum TelemetryError {
    #[error("RUST_LOG is malformed")]
    Directives(#[source] ParseError),
    #[error("a logger is installed already")]
    Installed(#[source] TryInitError),
}

/// Starts logging for the whole process.
pub fn init(level: &LogLevel) -> Result<(), TelemetryError> {
    subscriber(level, std::io::stdout)?.try_init().map_err(TelemetryError::Installed)
}

fn subscriber<W>(level: &LogLevel, writer: W) -> Result<impl Subscriber + Send + Sync, TelemetryError>
where
    W: for<'w> MakeWriter<'w> + Send + Sync + 'static,
{
    let directives = EnvFilter::builder()
        .with_default_directive(LevelFilter::INFO.into())
        .parse(level.0.as_deref().unwrap_or_default())
        .map_err(TelemetryError::Directives)?;
    // The current span is kept: it holds Lambda's request id, which ties the lines of one call together.
    let lines = tracing_subscriber::fmt::layer()
        .json()
        .flatten_event(true)
        .with_span_list(false)
        .with_ansi(false)
        .with_writer(writer);
    Ok(tracing_subscriber::registry().with(directives).with(filter_fn(is_harmless)).with(lines))
}

fn is_harmless(line: &Metadata<'_>) -> bool {
    *line.level() <= LevelFilter::INFO || !FOREIGN.iter().any(|prefix| line.target().starts_with(prefix))
}

/// An error and its causes on one line, outermost first. Our errors' `Display` leaves the source out; a foreign one that
/// repeats it is not written twice.
pub fn chain(error: &dyn Error) -> String {
    let mut line = error.to_string();
    let mut cause = error.source();
    for _ in 0..MAX_CAUSES {
        let Some(error) = cause else { break };
        let text = error.to_string();
        if !line.ends_with(&text) {
            line.push_str(": ");
            line.push_str(&text);
        }
        cause = error.source();
    }
    line
}

/// Measures how long a call took.
pub struct Stopwatch(Instant);

impl Stopwatch {
    #[allow(clippy::disallowed_methods, reason = "the one home of the monotonic clock")]
    pub fn start() -> Self {
        Self(Instant::now())
    }

    /// Whole milliseconds since the start.
    pub fn millis(&self) -> u64 {
        u64::try_from(self.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    fn elapsed(&self) -> Duration {
        self.0.elapsed()
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::{Arc, Mutex};

    use super::*;

    #[derive(Clone, Default)]
    struct Captured(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Captured {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn logged(level: Option<&str>, log: impl FnOnce()) -> String {
        let captured = Captured::default();
        let writer = captured.clone();
        let subscriber = subscriber(&LogLevel(level.map(str::to_owned)), move || writer.clone()).unwrap();
        tracing::subscriber::with_default(subscriber, log);
        String::from_utf8(captured.0.lock().unwrap().clone()).unwrap()
    }

    #[test]
    fn lines_are_json_with_the_call_they_belong_to() {
        let text = logged(None, || {
            let call = tracing::info_span!("call", requestId = "r-1");
            let _entered = call.enter();
            tracing::info!(status = 202, "answered");
        });
        let line: serde_json::Value = serde_json::from_str(text.trim()).unwrap();
        assert_eq!(
            (&line["message"], &line["status"], &line["level"]),
            (&"answered".into(), &202.into(), &"INFO".into())
        );
        assert_eq!(line["span"]["requestId"], "r-1");
    }

    #[test]
    fn no_level_makes_foreign_code_print_what_it_sees() {
        let text = logged(Some("trace"), || {
            tracing::trace!(target: "lambda_runtime::layers::api_response", body = "canary", "event");
            tracing::debug!(target: "aws_smithy_runtime::client::http", body = "canary", "request");
            tracing::info!(target: "lambda_runtime", "kept");
            tracing::trace!(target: "sale::gate", "ours");
        });
        assert!(!text.contains("canary"), "{text}");
        assert!(text.contains("kept") && text.contains("ours"), "{text}");
    }

    #[test]
    fn the_default_level_is_info() {
        let text = logged(None, || {
            tracing::debug!("hidden");
            tracing::info!("shown");
        });
        assert!(!text.contains("hidden") && text.contains("shown"), "{text}");
    }

    #[test]
    fn a_malformed_level_is_named() {
        let error = subscriber(&LogLevel(Some("sale=loud".into())), io::sink).err().unwrap();
        assert_eq!(error.to_string(), "RUST_LOG is malformed");
    }

    #[test]
    fn a_chain_is_one_line_from_the_outside_in() {
        #[derive(Debug, thiserror::Error)]
        #[error("the order row was not written")]
        struct Outer(#[source] io::Error);
        assert_eq!(chain(&Outer(io::Error::other("reset"))), "the order row was not written: reset");
    }
}
