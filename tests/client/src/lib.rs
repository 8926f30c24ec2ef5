//! The reference client: how a front end talks to Hotcake, and what the tests and the demo talk through.
//!
//! A purchase, as a well-behaved page makes it:
//!
//! 1. Ask [`Api::time`] for the server's clock and count down by it. The buyer's own clock is not trusted.
//! 2. Open a [`Socket`] and send `sync`. The first frame makes the connection live; results that were decided while
//!    nobody was connected come at once.
//! 3. At the start, [`Api::buy`] with an `X-Request-ID` made once for this wish. Whatever goes wrong on the way (no
//!    answer, 429, 503), send the *same* id again after a [`Backoff`]: it leads to the same order.
//! 4. A 202 is a right to the goods, not yet an order. The result arrives as a `seckill_result` frame
//!    ([`Socket::result_of`]); acknowledge it with [`Socket::result_ack`], or every `sync` repeats it.
//! 5. [`Api::pay`] answers with what the payment provider's page is opened with; what is done there is [`Cashier::pay`].
//!    The order is PAID when the provider has told the shop: the socket says so ([`Socket::order_in`]).
//! 6. A socket that breaks is opened again after a random wait ([`Socket::reconnect`]), and `sync` replays what was
//!    missed. Without any socket, [`Api::follow`] polls with growing waits.
//!
//! Talking to the customer service has rules of its own: [`chat`] tells them, and [`ChatClient`] follows them.
//!
//! In reading order: [`Stack`] (where a deployment listens), [`TokenBuilder`] (who calls), [`documents`] and [`frames`]
//! (what goes over the wire), [`Api`], [`Socket`], [`Cashier`], [`chat`].
//!
//! Documents and frames that the contract fixes are read with `deny_unknown_fields` and closed enums: an answer that
//! drifts from the contract is an error here, before a user meets it. Every wait has an end; every buffer has a bound.
//! Only `http://` and `ws://` are spoken, since the stack under test listens on the loopback interface.
#![allow(
    clippy::disallowed_methods,
    reason = "a client outside the system has its own clock; nothing in the system reads it"
)]

mod api;
mod backoff;
mod cashier;
pub mod chat;
pub mod documents;
mod error;
pub mod frames;
mod socket;
mod stack;
mod token;

pub use api::{Answer, Api, Followed, Headers, RawAnswer, RawRequest, Watch};
pub use backoff::Backoff;
pub use cashier::{Cashier, Movement, Outcome, Paying, Receipt};
pub use chat::{ChatClient, ChatOptions};
pub use error::ClientError;
pub use reqwest::Method;
pub use socket::{Away, ConnectOptions, Delivered, Received, Socket};
pub use stack::{Jwt, Queues, Secret, Stack, Tables};
pub use token::{Role, Token, TokenBuilder};
