//! The customer service on the deployed stack, as customers and agents see it. Names in brackets are those of the chat's cases
//! (C1–C38). What a gateway has to misbehave for is tried on components instead: `tests/suite/tests/desk`.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "a test that fails says so by panicking, and lives by the system's clock"
)]

mod assigning;
mod connecting;
mod floor;
mod history;
mod killed;
mod line;
mod redis;
mod soak;
mod strangers;
mod talking;
