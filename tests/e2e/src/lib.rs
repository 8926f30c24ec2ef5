//! What the tests of the deployed stack have in common: verbs.
//!
//! A test reads as what people do: an admin opens a sale ([`Shop::open`]), shoppers buy ([`Buyer::accepted`]), hear
//! ([`Buyer::online`]) and look ([`Buyer::outcome`]), and in the end the audit has its say ([`Shop::audit`]). Everything goes
//! through `template.yaml` as it is deployed on the local stack, over real HTTP and WebSocket.
//!
//! - [`local`]: the stack under test, and the doors that only its operators use (Lambda, logs, queues, rows).
//! - [`shop`]: a fresh activity for each test, with ids of its own, so that tests run side by side on one stack.
//! - [`process`]: a function binary as a child process under a Runtime API of the test, so that it can be killed, frozen and
//!   set up with faults.
//! - [`events`]: what Lambda hands to the functions, for those that run beside the stack.
//! - [`redis_proxy`], [`aws_proxy`]: ways to Redis and to AWS that lose replies, or answer themselves.
//!
//! Every wait has an end. What moves by itself is waited for with [`eventually`]; what must not happen is looked for after
//! something that comes later did happen.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "a test that fails says so by panicking, and lives by the system's clock"
)]

pub mod aws_proxy;
pub mod events;
pub mod local;
pub mod process;
pub mod redis_proxy;
pub mod shop;

use std::time::{Duration, Instant};

pub use aws_proxy::LossyAws;
pub use local::Local;
pub use process::{FunctionProcess, Pending};
pub use redis_proxy::LossyRedis;
pub use shop::{Buyer, Offer, Shop, refusal};

/// The longest wait for what takes about a second on a quiet machine.
pub const SOON: Duration = Duration::from_secs(30);
/// The pause between two looks.
const LOOK_AGAIN: Duration = Duration::from_millis(200);

/// Looks until there is something to see; what it is.
pub async fn eventually<T>(what: &str, within: Duration, mut look: impl AsyncFnMut() -> Option<T>) -> T {
    let started = Instant::now();
    loop {
        if let Some(seen) = look().await {
            return seen;
        }
        assert!(started.elapsed() < within, "{what}: not within {within:?}");
        tokio::time::sleep(LOOK_AGAIN).await;
    }
}
