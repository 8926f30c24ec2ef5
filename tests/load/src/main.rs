//! The demo: a flash sale with a crowd, on the deployed stack, and a verdict that can fail.
//!
//! `make demo` runs it against the stack that `make up` started. It connects a good part of the buyers by WebSocket, sets
//! up an activity with two offers (one unit per buyer; up to three), waits for the start by the server's clock, and lets
//! everybody press the button at once. Every 202 is followed to its end; then the sale ends, the winners pay, cancel or let
//! their orders run out, and it is settled. The system's own audit says whether it sold what it had and no more; what only a
//! buyer can see (was I told, did my retry lead to the same order, could I read a stranger's order) is checked beside it, and
//! so is whether the payment provider has the same money in its ledger. The report goes to the terminal and to
//! `target/demo/report.json`.
//!
//! In reading order: [`settings`], [`plan`] (who does what), [`stage`] (the sale is set up), [`storm`] (everybody at
//! once), [`buyer`] (one of them), [`till`] (the winners pay), [`promises`] (what is checked), [`aftermath`] (strangers, the
//! audit), [`report`].
//!
//! Exit code: 0 the sale was right, 1 it was not, 2 the demo could not be run to its end.
#![allow(
    clippy::disallowed_methods,
    reason = "the demo is a client: it has its own clock, and nothing in the system reads it"
)]

mod aftermath;
mod buyer;
mod plan;
mod promises;
mod report;
mod settings;
mod stage;
mod storm;
mod till;

use std::process::ExitCode;

use clap::Parser;
use client::{Api, Stack};

use load::error::{DemoError, chain};
use load::progress::Progress;

use crate::plan::Plan;
use crate::report::Report;
use crate::settings::Settings;

/// The sale was right only if the audit passes and every promise was kept.
const EXIT_WRONG: u8 = 1;
const EXIT_NOT_RUN: u8 = 2;

// One thread: the two cores of a small machine belong to the stack.
#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    match run(Settings::parse()).await {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(EXIT_WRONG),
        Err(error) => {
            eprintln!("\nThe demo could not be run to its end: {}", chain(&error));
            ExitCode::from(EXIT_NOT_RUN)
        }
    }
}

async fn run(settings: Settings) -> Result<bool, DemoError> {
    let stack = Stack::from_outputs(settings.outputs())?;
    let api = Api::new(&stack)?;
    let plan = Plan::draw(settings.buyers, settings.seed());
    let progress = Progress::begin();
    progress.say(&format!(
        "{} buyers (seed {}), {} units of each offer, {} buy calls at once, against {}",
        plan.buyers.len(),
        plan.seed,
        settings.stock,
        settings.concurrency,
        stack.http_url
    ));

    let sockets = storm::connect(&stack, &plan, &progress).await?;
    let sale = stage::set(&api, &stack, &plan, &settings, &progress).await?;
    let mut crowd = storm::run(&api, &stack, &plan, &sale, &settings, sockets, &progress).await?;
    let stats = aftermath::count(&api, &stack, &plan, &sale, &settings, &mut crowd).await?;
    let till = till::run(&api, &stack, &sale, &mut crowd, &progress).await?;
    let aftermath = aftermath::look(&api, &stack, &plan, &sale, &crowd, &progress).await?;

    let report = Report::new(&settings, &plan, &sale, &crowd, stats, till, aftermath);
    load::text::save(&report, &settings.report)?;
    report.print(&settings.report, &stack);
    Ok(report.is_right())
}
