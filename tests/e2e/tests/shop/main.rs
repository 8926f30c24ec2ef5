//! A sale on the deployed stack, as shoppers and admins see it. Names in brackets are those of `cases/sale.md`.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "a test that fails says so by panicking, and lives by the system's clock"
)]

mod admin;
mod buying;
mod catalog;
mod logs;
mod orders;
mod paying;
mod refusals;
mod sockets;
mod tokens;
