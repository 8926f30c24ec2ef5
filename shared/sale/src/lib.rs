//! The sale: sells exactly what there is, and turns every admission into one order or one explained refusal.
//!
//! Two stores meet here. The [`gate`] (Redis) answers every press of the button in one round trip and may be wrong for a
//! moment; the rows (DynamoDB, [`store`]) are the truth. One rule joins them: each order row moves by conditional writes
//! only, and the gate follows the row, keyed by the order number.
//!
//! Reading order: [`offer`] and [`order`] (the nouns), [`admission`] (what the gate answers), [`gate`], [`store`], then the
//! use cases in the order an order meets them: [`buy`], [`commit`], [`sweep`]; [`lifecycle`] (publish, preheat, pause, end),
//! [`rebuild`] (a gate made from rows) and [`audit`] (the oracle of every test).

pub mod admission;
pub mod gate;
pub mod offer;
pub mod order;
