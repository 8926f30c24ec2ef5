//! What a row is, and how it is judged.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::time::{Duration, Instant};

use client::documents::{AuditReport, Verdict};
use e2e::Shop;

/// The longest row, without its audit: a gate that is made anew waits for 50 s, a killed sweep keeps its lease for a while.
const ROW_BOUND: Duration = Duration::from_secs(240);
/// Left in peace, a sale is right within the 120 s of the promise; other rows share the queue and the sweep.
const PEACE: Duration = Duration::from_secs(150);
const LOOK_AGAIN: Duration = Duration::from_secs(2);

pub(crate) type Running = Pin<Box<dyn Future<Output = Seen>>>;

/// A fault, and what does it.
pub(crate) struct Row {
    pub(crate) name: &'static str,
    pub(crate) fault: &'static str,
    pub(crate) does: fn() -> Running,
}

/// What a row saw.
pub(crate) struct Seen {
    /// The sale that has to be right in the end. None: this machine cannot do the row, and `what` says why.
    pub(crate) shop: Option<Shop>,
    /// How often the fault happened.
    pub(crate) fired: u32,
    /// Of what: the processes, the calls.
    pub(crate) how: String,
    pub(crate) what: String,
}

impl Seen {
    pub(crate) fn new(shop: &Shop, fired: u32, how: impl fmt::Display, what: impl fmt::Display) -> Self {
        Self { shop: Some(shop.clone()), fired, how: how.to_string(), what: what.to_string() }
    }

    pub(crate) fn skipped(why: &str) -> Self {
        Self { shop: None, fired: 0, how: String::new(), what: why.to_owned() }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Colour {
    Green,
    Red,
    Skipped,
}

/// A row of the table.
pub(crate) struct Line {
    pub(crate) name: &'static str,
    pub(crate) colour: Colour,
    pub(crate) fired: u32,
    pub(crate) audit: String,
    pub(crate) took: Duration,
}

impl Line {
    pub(crate) fn is_red(&self) -> bool {
        self.colour == Colour::Red
    }
}

impl Row {
    /// Does it, has the sale audited, and prints what was seen.
    pub(crate) async fn run(self) -> Line {
        let started = Instant::now();
        println!("▸ {}: {}", self.name, self.fault);
        let seen = bounded((self.does)(), ROW_BOUND).await;
        let (colour, fired, audit, what) = match seen {
            Err(failure) => (Colour::Red, 0, "not asked".to_owned(), failure),
            Ok(Seen { shop: None, what, .. }) => (Colour::Skipped, 0, "-".to_owned(), format!("skipped: {what}")),
            Ok(Seen { shop: Some(shop), fired, how, what }) => {
                let verdict = audit_in_peace(&shop).await;
                let green = verdict.is_ok() && fired > 0;
                let fact =
                    if fired == 0 { "THE FAULT NEVER FIRED; ".to_owned() } else { format!("{fired} × {how}; ") };
                let colour = if green { Colour::Green } else { Colour::Red };
                (colour, fired, verdict.unwrap_or_else(|failure| failure), fact + &what)
            }
        };
        let line = Line { name: self.name, colour, fired, audit, took: started.elapsed() };
        let mark = match colour {
            Colour::Green => "green",
            Colour::Red => "RED",
            Colour::Skipped => "skipped",
        };
        println!("  {mark} {}: {what}; audit: {}; {} s", line.name, line.audit, line.took.as_secs());
        line
    }
}

/// Runs it on a task of its own, so that its panic is an answer, and ends it when it takes too long.
async fn bounded(running: Running, bound: Duration) -> Result<Seen, String> {
    let task = tokio::task::spawn_local(running);
    let abort = task.abort_handle();
    match tokio::time::timeout(bound, task).await {
        Ok(Ok(seen)) => Ok(seen),
        Ok(Err(failure)) => Err(match failure.try_into_panic() {
            Ok(said) => words(&*said),
            Err(failure) => failure.to_string(),
        }),
        Err(_) => {
            abort.abort();
            Err(format!("not over within {} s", bound.as_secs()))
        }
    }
}

/// What a panic says.
fn words(said: &(dyn std::any::Any + Send)) -> String {
    let text = said.downcast_ref::<String>().map(String::as_str).or_else(|| said.downcast_ref::<&str>().copied());
    text.unwrap_or("a panic without words").chars().take(1_500).collect()
}

/// The audit with nothing in motion: PASS, or what is still wrong when the time is over.
async fn audit_in_peace(shop: &Shop) -> Result<String, String> {
    let started = Instant::now();
    let mut last = "no answer".to_owned();
    while started.elapsed() < PEACE {
        match shop.local.admin.audit(&shop.activity_id, Some(0)).await {
            Ok(answer) => match answer.outcome {
                Ok(report) if report.verdict == Verdict::Pass => return Ok("PASS".to_owned()),
                Ok(report) => last = violations(&report),
                Err(problem) => last = format!("refused: {}", problem.code),
            },
            Err(error) => last = error.to_string(),
        }
        tokio::time::sleep(LOOK_AGAIN).await;
    }
    Err(format!("FAIL {last}"))
}

fn violations(report: &AuditReport) -> String {
    let named = report.violations.iter().map(|violation| format!("{} {}", violation.invariant, violation.detail));
    named.collect::<Vec<_>>().join(" | ").chars().take(1_000).collect()
}
