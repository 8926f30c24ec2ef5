//! What every function needs to be a Lambda function, and nothing of what it is for.
//!
//! A process starts in [`boot`]: it reads its [`config`] (all mistakes reported at once), starts its [`telemetry`], builds the
//! AWS clients' settings, fetches its [`secrets`] and gets a handle on [`redis`]. Then it serves one kind of event for the
//! rest of its life: [`http`] requests (whose callers [`auth`] identifies), [`ws`] frames, [`sqs`] batches, or the ticks of a
//! [`schedule`].
//!
//! HTTP statuses, queue dispositions and the shapes of API Gateway's events exist here and in `functions/`, nowhere else.
//! The event types are our own, with the fields that are read: parsing the complete ones costs a quarter of a refused buy,
//! and the common adapter panics on a body that is not the base64 it claims to be. None of them can be printed whole.

pub mod auth;
pub mod boot;
pub mod config;
mod event;
pub mod http;
pub mod redis;
pub mod schedule;
pub mod secrets;
pub mod sqs;
pub mod telemetry;
pub mod ws;
