//! What the functions behind the counter have in common: the stores they work on, and whom they tell.
//!
//! The one place where the sale and the sockets meet. It takes no decision; [`sale`] does.

pub mod events;
pub mod herald;
mod stores;

pub use herald::{Buyers, BuyersConfig, Herald, HeraldConfig};
pub use stores::StoresConfig;
