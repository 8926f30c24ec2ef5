//! What the component tests run against: real servers in this process or started by it, and only what must misbehave on
//! demand is played.
//!
//! [`dynamo`] is a DynamoDB with the template's tables; [`sockets`] plays `@connections`, whose failures no gateway shows
//! when asked; [`chat_house`] puts the chat on both. [`queue`] is an SQS
//! in memory, and [`wire`] what it speaks.
//! [`redis_server`] is a Redis of either shape; [`gate_house`] puts a gate on it.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "whatever fails here fails a test")]

pub mod chat_house;
pub mod dynamo;
pub mod gate_house;
pub mod queue;
pub mod redis_server;
pub mod sockets;
pub mod wire;
