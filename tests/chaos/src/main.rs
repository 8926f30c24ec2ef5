//! Chaos: every fault that a sale has to bear, one row each, on the deployed local stack.
//!
//! `make chaos` gives it a stack of its own. Each row opens a sale, lets a small stream of buyers in over HTTP who pay, cancel
//! or wait, and does its worst: a function killed or frozen at a named step, Redis emptied, full or deaf, replies of AWS lost.
//! Then the sale is left in peace, and the system's own audit has to pass with nothing in motion. A row is red when something
//! was not as it must be, when the audit does not pass, and also when its fault never fired.
//!
//! What is about the whole Redis server runs alone, first, while few sales are there that would have to be made anew; the
//! rest runs some at once, each on a sale of its own. `ROWS=name,name` picks rows; [`recovery`] measures instead.
//!
//! In reading order: [`row`] (what a row is, and how it is judged), [`stream`] (the buyers), [`hands`] (what rows have in
//! common), [`rows`] (the faults), [`table`].
//!
//! Exit code: 0 every row is green, 1 some are red, 2 there is nothing to run.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "a row that fails says so by panicking, and lives by the system's clock"
)]

mod hands;
mod recovery;
mod row;
mod rows;
mod stream;
mod table;

use std::process::ExitCode;
use std::time::{Duration, Instant};

use e2e::Local;
use futures_util::StreamExt;
use serde_json::json;
use tokio::task::LocalSet;

use crate::row::{Line, Row};

/// Sales at once: the two cores of a small machine belong to the stack.
const AT_ONCE: usize = 3;
/// Between two sweeps. A deployed one comes every minute; here nobody has the time.
const SWEEP_EVERY: Duration = Duration::from_secs(7);

const EXIT_RED: u8 = 1;
const EXIT_NOTHING: u8 = 2;

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    if let Some(orders) = recovery_of() {
        return if recovery::measure(orders).await { ExitCode::SUCCESS } else { ExitCode::from(EXIT_RED) };
    }
    let (alone, together) = match picked() {
        Ok(rows) => rows,
        Err(unknown) => {
            eprintln!("no row {unknown:?}; there are {}", names().join(", "));
            return ExitCode::from(EXIT_NOTHING);
        }
    };
    // What a row says when it fails is printed with it.
    std::panic::set_hook(Box::new(|_| {}));
    let started = Instant::now();
    let lines = LocalSet::new().run_until(run(alone, together)).await;
    table::print(&lines, started.elapsed());
    if lines.iter().any(Line::is_red) { ExitCode::from(EXIT_RED) } else { ExitCode::SUCCESS }
}

async fn run(alone: Vec<Row>, together: Vec<Row>) -> Vec<Line> {
    let sweeping = tokio::task::spawn_local(keep_sweeping());
    let mut lines = Vec::new();
    for row in alone {
        lines.push(row.run().await);
    }
    let mut rest = futures_util::stream::iter(together).map(Row::run).buffer_unordered(AT_ONCE);
    while let Some(line) = rest.next().await {
        lines.push(line);
    }
    sweeping.abort();
    lines
}

/// Whatever becomes of a sweep, the next one follows: a row may have taken Redis away.
async fn keep_sweeping() {
    loop {
        tokio::time::sleep(SWEEP_EVERY).await;
        // A task of its own, since a stack that does not answer makes it panic.
        let sweep = tokio::task::spawn_local(async {
            let _alone = e2e::local::SWEEPING.lock().await;
            Local::up().await.invoke("sweep", &json!({})).await
        });
        if let Err(failure) = sweep.await {
            eprintln!("a sweep: {failure}");
        }
    }
}

/// `chaos recovery <orders>`: no rows, one measurement.
fn recovery_of() -> Option<usize> {
    let mut arguments = std::env::args().skip(1);
    (arguments.next().as_deref() == Some("recovery")).then(|| arguments.next()?.parse().ok()).flatten()
}

fn names() -> Vec<&'static str> {
    rows::alone().iter().chain(&rows::together()).map(|row| row.name).collect()
}

/// All rows, or those that `ROWS` names. Err: a name of none.
fn picked() -> Result<(Vec<Row>, Vec<Row>), String> {
    let wanted = std::env::var("ROWS").unwrap_or_default();
    let wanted: Vec<&str> = wanted.split(',').map(str::trim).filter(|name| !name.is_empty()).collect();
    if let Some(unknown) = wanted.iter().find(|name| !names().contains(name)) {
        return Err((*unknown).to_owned());
    }
    let pick =
        |rows: Vec<Row>| rows.into_iter().filter(|row| wanted.is_empty() || wanted.contains(&row.name)).collect();
    Ok((pick(rows::alone()), pick(rows::together())))
}
