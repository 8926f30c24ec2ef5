//! What the two demos have in common: `load`, a storm of buyers, and `desk`, a day at the customer service.
//!
//! Both are clients with a verdict. In reading order: [`calls`] (calls that have to succeed, waits that have to end),
//! [`progress`] (what is going on), [`ledger`] (promises, judged case by case), [`latency`], [`hardware`], [`text`] (how it
//! is printed).
#![allow(
    clippy::disallowed_methods,
    reason = "the demos are clients: they have their own clock, and nothing in the system reads it"
)]

pub mod calls;
pub mod error;
pub mod hardware;
pub mod latency;
pub mod ledger;
pub mod progress;
pub mod text;
