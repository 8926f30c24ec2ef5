//! `hotcake`, the operator's command line.
//!
//! It speaks the admin API and nothing else, so it does on AWS what it does on the local stack, and knows no more of the
//! system than `openapi.yaml` says. It reads answers leniently: an older `hotcake` works with a newer deployment.
//!
//! In reading order: [`cli`] (what can be typed), [`target`] (which deployment is meant, and by whose token), [`api`] (one
//! call, repeated where that is safe), then a module for each group of verbs: [`sale`], [`watch`], [`health`], [`letters`],
//! [`refunds`], [`blacklist`], [`token`]. [`show`] lays out what people read.
//!
//! Exit code: 0 done, 1 the audit found a promise broken, 2 refused (or not to be understood), 3 no usable answer.
#![allow(
    clippy::disallowed_methods,
    reason = "a client outside the system has its own clock and environment; nothing in the system reads them"
)]

mod api;
mod blacklist;
mod cli;
mod failure;
mod health;
mod letters;
mod refunds;
mod sale;
mod show;
mod target;
mod token;
mod watch;

use std::process::ExitCode;

use clap::Parser;

use crate::cli::{Cli, Verb};
use crate::failure::{Ending, Failure};
use crate::show::Out;

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    match run(Cli::parse()).await {
        Ok(ending) => ending.exit_code(),
        Err(failure) => failure.tell(),
    }
}

async fn run(cli: Cli) -> Result<Ending, Failure> {
    let out = Out { json: cli.json };
    if let Verb::Token(wanted) = cli.verb {
        return token::run(&wanted, &cli.target, &out);
    }
    let api = cli.target.api()?;
    match cli.verb {
        Verb::Sale(verb) => sale::run(verb, &api, &out).await,
        Verb::Watch(wanted) => watch::run(&wanted, &api, &out).await,
        Verb::Stats(wanted) => watch::once(&wanted, &api, &out).await,
        Verb::Health(verb) => health::run(verb, &api, &out).await,
        Verb::Dlq(verb) => letters::run(verb, &api, &out).await,
        Verb::Refunds(wanted) => refunds::run(wanted, &api, &out).await,
        Verb::Blacklist(verb) => blacklist::run(verb, &api, &out).await,
        Verb::Token(_) => Ok(Ending::Right),
    }
}
