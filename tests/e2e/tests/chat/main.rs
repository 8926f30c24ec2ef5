//! The customer service on the deployed stack. Names in brackets are those of `cases/chat.md`.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "a test that fails says so by panicking, and lives by the system's clock"
)]

mod images;
