//! The sale, component by component: the use cases that the functions run, on a real redis-server and a DynamoDB in this
//! process, through the real SDK. Cases are named after their rows in the case list (S7, P42, …).
//!
//! `buying`, `committing`, `paying`, `giving_back`, `refunding`, `sweeping`, `settling`, `keeping_shop`, `reconciling` and
//! `remaking_the_gate` follow the use cases; `bad_weather` is what AWS
//! does under load; `auditing` breaks every promise once and sees the audit name it; `interleavings` does all of it in any
//! order.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

mod auditing;
mod bad_weather;
mod buying;
mod committing;
mod day_by_day;
mod dead_letters;
mod giving_back;
mod house;
mod interleavings;
mod keeping_out;
mod keeping_shop;
mod paying;
mod reconciling;
mod refunding;
mod remaking_the_gate;
mod settling;
mod sweeping;
mod weather;
