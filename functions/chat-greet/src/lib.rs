//! The queue of greetings: sockets that were opened a moment ago. Whoever has not spoken since is live from now on, and is
//! told what they missed; see [`Service::greet`].

use backoffice::DeskConfig;
use chat::Service;
use chat::greetings::Greeting;
use futures_util::future::join_all;
use platform::boot::{self, Boot};
use platform::sqs::{Batch, Disposition};

pub struct State {
    pub service: Service,
}

impl State {
    pub async fn start(boot: &Boot<DeskConfig>) -> Result<Self, boot::Error> {
        Ok(Self { service: boot.config.open(boot)? })
    }
}

/// As many at once as a batch has, which is ten at most. A greeting whose connection could not be read comes back.
pub async fn handle(state: &State, batch: Batch<Greeting>) -> Vec<Disposition> {
    join_all(batch.messages.iter().map(|message| greet(state, &message.body))).await
}

async fn greet(state: &State, Greeting { connection_id }: &Greeting) -> Disposition {
    match state.service.greet(connection_id).await {
        Ok(_) => Disposition::Done,
        Err(error) => {
            tracing::error!(%connection_id, error = &error as &dyn std::error::Error, "a connection is not greeted");
            Disposition::Retry
        }
    }
}
