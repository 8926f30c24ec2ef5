//! Once a minute: sessions of agents who are away or lost go to others, what waits is given out, what has been silent for long
//! is closed. One sweep runs at a time; two would do no harm. See [`Service::sweep`].

use std::time::Duration;

use backoffice::DeskConfig;
use chat::{Service, StoreError};
use platform::boot::{self, Boot};
use platform::schedule::Tick;

/// What is left of the time-out when sweeping stops: the step under way is finished, and those whom it concerns are told.
const AFTER_STEPS: Duration = Duration::from_secs(15);

pub struct State {
    pub service: Service,
}

impl State {
    pub async fn start(boot: &Boot<DeskConfig>) -> Result<Self, boot::Error> {
        Ok(Self { service: boot.config.open(boot)? })
    }
}

pub async fn handle(state: &State, tick: Tick) -> Result<(), StoreError> {
    let stop = tick.deadline.plus_millis(-(AFTER_STEPS.as_millis() as i64));
    // Boxed: the AWS clients' futures nest too deeply for the compiler to lay out one with all of them inside.
    let swept = Box::pin(state.service.sweep(stop)).await?;
    tracing::info!(?swept, "swept");
    Ok(())
}
