//! The sale: sells exactly what there is, and turns every admission into one order or one explained refusal.
//!
//! Two stores meet here. The [`gate`] (Redis) answers every press of the button in one round trip and may be wrong for a
//! moment; the rows (DynamoDB, [`store`]) are the truth. One rule joins them: each order row moves by conditional writes
//! only, and the gate follows the row, keyed by the order number.
//!
//! Reading order: [`offer`] and [`order`] (the nouns), [`admission`] (what the gate answers), [`gate`], [`store`] and
//! [`queue`]; then the use cases in the order an order meets them: [`buy`], [`ledger`] (commit, cancel), [`follow`] (the gate
//! follows the rows), [`pay`] (money comes in; [`provider`] is where from), [`due`] (unpaid orders end, everybody learns of
//! paid and cancelled ones), [`refund`], [`sweep`]; then what surrounds them: [`lifecycle`] (publish, pause, end, settle),
//! [`reconcile`] and [`rebuild`] (a gate put right, or made from rows) and [`audit`] (the oracle of every test). [`wording`]
//! is what buyers read.

pub mod admission;
pub mod audit;
pub mod blacklist;
pub mod buy;
pub mod dead_letters;
pub mod due;
pub mod follow;
pub mod gate;
pub mod ledger;
pub mod lifecycle;
pub mod offer;
pub mod order;
pub mod pay;
pub mod provider;
pub mod queue;
pub mod rebuild;
pub mod reconcile;
pub mod refund;
pub mod store;
pub mod sweep;
pub mod wording;

use kernel::time::Clock;

/// All that the use cases behind the counter work on: the gate, the rows, and the queue between them.
#[derive(Debug, Clone)]
pub struct Stores<C> {
    pub gate: gate::Gate<C>,
    pub orders: store::Orders,
    pub offers: store::Offers,
    pub payments: store::Payments,
    pub queue: queue::Queue,
    pub reminders: queue::Reminders,
    pub clock: Clock,
}

impl<C> Stores<C> {
    /// The tables that a group of orders moves.
    pub fn ledger(&self) -> ledger::Ledger {
        ledger::Ledger { orders: self.orders.clone(), offers: self.offers.clone(), clock: self.clock.clone() }
    }
}

/// One of the stores failed. What was to be done is repeatable: do it again.
#[derive(Debug, thiserror::Error)]
pub enum SaleError {
    #[error("the gate failed")]
    Gate(#[from] gate::GateError),
    #[error("the tables failed")]
    Store(#[from] store::StoreError),
    #[error("the queue failed")]
    Queue(#[from] queue::QueueError),
}
