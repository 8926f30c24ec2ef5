//! The words that both domains use, and nothing else.
//!
//! A value of one of these types has been checked once, at the edge, and cannot be wrong afterwards: an identifier holds
//! no separator that a key could be broken with, a quantity is within its bounds, an amount of money cannot overflow.
//!
//! Reading order: [`ids`] (who and what), [`money`], [`text`] (what clients read, in both languages), [`time`] (instants, and
//! the one clock), [`backoff`] (how long to wait before a further try), [`crash`] (where a test may have the process killed).

pub mod backoff;
pub mod crash;
pub mod ids;
pub mod money;
pub mod text;
pub mod time;
