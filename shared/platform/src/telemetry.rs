//! Logs: one JSON object a line, on standard output, where Lambda picks them up.
//!
//! `RUST_LOG` sets the level of our own code (`info` when it is absent). Other people's code never gets below `info`: at
//! `trace` the Lambda runtime prints whole events and the SDKs print whole requests, tokens and all, and no setting may make
//! a token appear in a log. Each error is logged once, by the code that ends its journey, as a field of its own kind
//! (`error = &error as &dyn Error`): it is written with the whole [`chain`] of its causes.

use std::error::Error;
use std::fmt;
use std::time::{Duration, Instant};

use serde_json::{Map, Value};
use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::{Event, Metadata, Subscriber};
use tracing_subscriber::filter::{EnvFilter, ParseError, filter_fn};
use tracing_subscriber::fmt::format::{FormatEvent, JsonFields, Writer};
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};
use tracing_subscriber::fmt::{FmtContext, FormattedFields, MakeWriter};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::registry::LookupSpan;
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
    let lines = tracing_subscriber::fmt::layer()
        .fmt_fields(JsonFields::new())
        .event_format(JsonLines)
        .with_ansi(false)
        .with_writer(writer);
    Ok(tracing_subscriber::registry().with(directives).with(filter_fn(is_harmless)).with(lines))
}

/// Writes `{"timestamp", "level", "target", "message", …}`, the names that Lambda's own lines have. The fields of the spans
/// around the event are members too: the runtime's holds `requestId`, which ties the lines of one call together.
///
/// The library's JSON format writes of an error only what `Display` says, which in our errors is never the cause.
struct JsonLines;

impl<S: Subscriber + for<'a> LookupSpan<'a>> FormatEvent<S, JsonFields> for JsonLines {
    fn format_event(
        &self,
        context: &FmtContext<'_, S, JsonFields>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let mut line = Line(Map::new());
        for span in context.event_scope().into_iter().flat_map(|scope| scope.from_root()) {
            let extensions = span.extensions();
            let fields = extensions.get::<FormattedFields<JsonFields>>().map(|fields| serde_json::from_str(fields));
            if let Some(Ok(Value::Object(fields))) = fields {
                line.0.extend(fields);
            }
        }
        event.record(&mut line);

        let mut timestamp = String::new();
        SystemTime.format_time(&mut Writer::new(&mut timestamp))?;
        line.0.insert("timestamp".to_owned(), timestamp.into());
        line.0.insert("level".to_owned(), event.metadata().level().as_str().into());
        line.0.insert("target".to_owned(), event.metadata().target().into());
        writeln!(writer, "{}", Value::Object(line.0))
    }
}

/// The members of one line.
struct Line(Map<String, Value>);

impl Line {
    fn set(&mut self, field: &Field, value: impl Into<Value>) {
        self.0.insert(field.name().to_owned(), value.into());
    }
}

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.set(field, format!("{value:?}"));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.set(field, value);
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.set(field, value);
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.set(field, value);
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.set(field, value);
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.set(field, value);
    }

    fn record_error(&mut self, field: &Field, value: &(dyn Error + 'static)) {
        self.set(field, chain(value));
    }
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

    #[derive(Debug, thiserror::Error)]
    #[error("the order row was not written")]
    struct NotWritten(#[source] io::Error);

    #[test]
    fn lines_are_json_with_the_call_they_belong_to() {
        let text = logged(None, || {
            let call = tracing::info_span!("call", requestId = "r-1");
            let _entered = call.enter();
            tracing::info!(status = 202, cached = true, "said \"yes\"\nand more");
        });
        assert_eq!(text.lines().count(), 1);
        let mut line: Map<String, Value> = serde_json::from_str(&text).unwrap();
        assert!(line.remove("timestamp").unwrap().as_str().unwrap().ends_with('Z'));
        let expected = serde_json::json!({
            "level": "INFO", "target": "platform::telemetry::tests", "message": "said \"yes\"\nand more",
            "requestId": "r-1", "status": 202, "cached": true,
        });
        assert_eq!(Value::Object(line), expected);
    }

    #[test]
    fn an_error_is_written_with_its_causes() {
        let error = NotWritten(io::Error::other("reset"));
        let text = logged(None, || tracing::error!(error = &error as &dyn Error, "left to the sweep"));
        let line: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(line["error"], "the order row was not written: reset");
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
        assert_eq!(chain(&NotWritten(io::Error::other("reset"))), "the order row was not written: reset");
    }
}
