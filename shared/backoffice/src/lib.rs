//! What the functions behind the counter have in common: the stores they work on, whom they tell, the change log, and the
//! desk of the customer service.
//!
//! The one place where the sale and the sockets meet. It takes no decision; [`sale`] does.

mod changes;
mod desk;
pub mod events;
pub mod herald;
mod stores;

pub use changes::{ChangeLog, SYSTEM};
pub use desk::DeskConfig;
pub use herald::{Buyers, BuyersConfig, Herald, HeraldConfig};
pub use stores::StoresConfig;
