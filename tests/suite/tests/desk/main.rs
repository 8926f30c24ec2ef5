//! The customer service, on a DynamoDB of its own and a gateway that can misbehave. Cases are those of the chat's list (C1–C38).
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test file: its helpers fail the test too"
)]

mod assigning;
mod cost;
mod hall;
mod interleavings;
mod model;
mod reading;
mod sending;
mod sweeping;
