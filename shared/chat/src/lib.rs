//! The socket: who is connected, what they are told, and that nothing they must know is lost.
//!
//! A push to a socket may always fail, so it is never the only way. What must arrive is stored first, pushed second, and
//! repeated in answer to every `sync`, `ping` and `auth` until the client says that it saw it. A crash, a dead socket or a throttled
//! gateway then costs time, never a message.
//!
//! Reading order: [`connections`] (who is connected) and [`results`] (what must arrive), both rows of one table; [`gateway`] (the
//! way to one socket); [`postman`], which joins the three to deliver results and to answer frames; [`frames`], one file per
//! frame that a client may send. Beside them: [`tickets`] and [`greetings`] (how a socket begins), [`uploads`] (images). Sessions and messages of the customer service move in beside `results`, with a file each
//! under `frames`.
//!
//! This crate knows no order and no sale: a result is a number, two words and a text.

pub mod connections;
pub mod frames;
pub mod gateway;
pub mod greetings;
pub mod ids;
pub mod message;
pub mod postman;
pub mod results;
mod store;
pub mod tickets;
pub mod uploads;

pub use postman::{Delivery, Postman};
pub use results::ResultNotice;
pub use store::StoreError;
