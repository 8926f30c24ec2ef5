//! The other demo: a day at the customer service, on the deployed stack, and a verdict that can fail.
//!
//! `make demo-chat` runs it against the stack that `make up` started. More customers come than the agents have room for: they
//! are told their place in the queue and are served in turn. They talk in two languages, send images and an order; connections
//! break on both sides while words are under way; an agent goes away, another one is cut off without a word, a conversation is
//! handed over. In the end all is closed and rated, and a word too late is refused. All of them use the reference client.
//!
//! What everybody has on their screen is held against what the service says it has stored, and the oracle of the chat looks at
//! the rows. One conversation is printed; the report goes to the terminal and to `target/demo/desk.json`.
//!
//! In reading order: [`settings`], [`cast`] (who plays and what they say), [`day`] (what happens), [`customer`], [`agent`],
//! [`hall`] (what is written down meanwhile), [`judge`] (what is promised), [`rows`], [`transcript`], [`report`].
//!
//! Exit code: 0 the day was right, 1 it was not, 2 the demo could not be run to its end.
#![allow(
    clippy::disallowed_methods,
    reason = "the demo is a client: it has its own clock, and nothing in the system reads it"
)]

mod agent;
mod cast;
mod customer;
mod day;
mod hall;
mod judge;
mod report;
mod rows;
mod settings;
mod transcript;

use std::process::ExitCode;
use std::sync::Arc;

use client::{Api, Stack};
use load::error::{DemoError, chain};
use load::progress::Progress;

use crate::day::Day;
use crate::hall::Hall;
use crate::report::Report;
use crate::settings::Settings;

/// The day was right only if every promise was kept and the rows are right.
const EXIT_WRONG: u8 = 1;
const EXIT_NOT_RUN: u8 = 2;

// One thread: the two cores of a small machine belong to the stack.
#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    match run(&Settings::read()).await {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(EXIT_WRONG),
        Err(error) => {
            eprintln!("\nThe demo could not be run to its end: {}", chain(&error));
            ExitCode::from(EXIT_NOT_RUN)
        }
    }
}

async fn run(settings: &Settings) -> Result<bool, DemoError> {
    let stack = Stack::from_outputs(settings.outputs())?;
    let api = Api::new(&stack)?;
    let progress = Arc::new(Progress::begin());
    let hall = Arc::new(Hall::new(Arc::clone(&progress)));
    let run = format!("desk-{}", jiff::Timestamp::now().as_second());
    progress.say(&format!(
        "{} customers come to {} agents with room for {} each, against {}",
        settings.customers,
        settings.agents,
        settings.capacity(),
        stack.http_url
    ));

    let day = Day { api: &api, stack: &stack, settings, progress: &progress, hall: Arc::clone(&hall), run };
    let record = Box::pin(day.run()).await?;
    let audit = rows::audit(&stack).await?;

    let report = Report::new(settings, &hall, &record, audit);
    load::text::save(&report, &settings.report)?;
    report.print(&settings.report);
    Ok(report.is_right())
}
