//! The gate on real servers, stand-alone and as a cluster.
//!
//! `seeds` runs the seed documents' own scripts and shows where they break their promise, beside ours; `cases` are buyers;
//! `faults` are servers that misbehave; `contract` compares the gate with its model over random sequences of everything.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

mod cases;
mod contract;
mod faults;
mod seeds;
