//! Work that is done by the clock: one call a minute, say, with nothing in the event that matters.

use std::error;

use kernel::time::UnixMillis;
use lambda_runtime::{LambdaEvent, service_fn};
use serde::de::IgnoredAny;

use crate::boot::Error;
use crate::telemetry::{Stopwatch, chain};

/// One call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tick {
    /// When Lambda ends this call.
    pub deadline: UnixMillis,
}

/// Serves ticks until Lambda ends the process. A call that fails counts as an error of the function, which raises its alarm;
/// the next tick tries again.
pub async fn serve<S, E: error::Error + Send + Sync + 'static>(
    state: &S,
    handle: impl AsyncFn(&S, Tick) -> Result<(), E>,
) -> Result<(), Error> {
    let handle = &handle;
    lambda_runtime::run(service_fn(move |event: LambdaEvent<IgnoredAny>| async move {
        let stopwatch = Stopwatch::start();
        let deadline = UnixMillis::new(i64::try_from(event.context.deadline).unwrap_or(i64::MAX));
        let outcome = handle(state, Tick { deadline }).await;
        match &outcome {
            Ok(()) => tracing::info!(ms = stopwatch.millis(), "tick done"),
            Err(error) => {
                tracing::error!(ms = stopwatch.millis(), cause = chain(error), "tick failed")
            }
        }
        outcome.map_err(Error::from)
    }))
    .await
}
