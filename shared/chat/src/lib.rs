//! The socket: who is connected, what they are told, and that nothing they must know is lost.
//!
//! A push to a socket may always fail, so it is never the only way. What must arrive is stored first, pushed second, and
//! repeated in answer to every `sync`, `ping` and `auth` until the client says that it saw it. A crash, a dead socket or a throttled
//! gateway then costs time, never a message.
//!
//! Reading order: [`connections`] (who is connected) and [`results`] (what must arrive), both rows of one table; [`gateway`]
//! (the way to one socket); [`postman`], which joins the three; [`tickets`] and [`greetings`] (how a socket begins). Then the
//! customer service: [`message`] and [`session`] (what is said, and the rules by which a session changes; no IO), [`desk`]
//! (their rows, and who serves whom), [`service`] (frames in, answers and news out), [`frames`], one file per frame that a
//! client may send; [`uploads`] (images); [`audit`],
//! the oracle.
//!
//! This crate knows no sale: a result is a number, two words and a text, and an order is what a card shows of it.

pub mod audit;
pub mod connections;
pub mod desk;
pub mod frames;
pub mod gateway;
pub mod greetings;
pub mod ids;
pub mod message;
mod pace;
pub mod postman;
pub mod results;
pub mod service;
pub mod session;
mod store;
pub mod tickets;
pub mod uploads;

pub use desk::Desk;
pub use postman::{Delivery, Postman};
pub use results::ResultNotice;
pub use service::Service;
pub use store::StoreError;
