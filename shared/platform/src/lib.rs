//! What every function needs to be a Lambda function, and nothing of what it is for.
//!
//! A process starts in [`boot`]: it reads its [`config`] (all mistakes reported at once), starts its [`telemetry`], builds the
//! AWS clients' settings, fetches its [`secrets`] and gets a handle on [`redis`]. Then it serves one kind of event for the
//! rest of its life: [`http`] requests (whose callers [`auth`] identifies), [`ws`] frames (whose pages [`origins`] know),
//! [`sqs`] batches, or the ticks of a [`schedule`].
//!
//! HTTP statuses, queue dispositions and the shapes of API Gateway's events exist here and in `functions/`, nowhere else.
//! Events of sockets, queues and schedules are small types of our own with the fields that are read; requests come through
//! `lambda_http`. None of them can be printed whole.

pub mod auth;
pub mod boot;
pub mod config;
pub mod http;
pub mod origins;
pub mod redis;
pub mod schedule;
pub mod secrets;
pub mod sqs;
pub mod telemetry;
pub mod ws;

/// The largest body of a request, and of a frame, in bytes (16 KiB). Everything we accept is far smaller.
pub(crate) const MAX_BODY_BYTES: usize = 16 * 1024;
