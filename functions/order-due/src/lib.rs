//! The reminders' queue: an order's time may have come. Unpaid orders past their deadline are cancelled, in groups; about paid
//! and cancelled ones everybody is told. The rows alone decide; see [`sale::due`].

use std::time::Duration;

use backoffice::{Herald, HeraldConfig, StoresConfig};
use kernel::ids::OrderNo;
use platform::boot::{self, Boot};
use platform::config::{Env, FromEnv, Noted};
use platform::redis::RedisConnection;
use platform::sqs::{Batch, Disposition};
use sale::Stores;
use sale::queue::ReminderMessage;

/// What is left of the time-out for telling everybody when cancelling stops.
const AFTER_STEPS: Duration = Duration::from_secs(20);

pub struct Config {
    stores: StoresConfig,
    herald: HeraldConfig,
}

impl FromEnv for Config {
    fn from_env(env: &mut Env) -> Result<Self, Noted> {
        let stores = StoresConfig::from_env(env);
        let herald = HeraldConfig::from_env(env);
        Ok(Self { stores: stores?, herald: herald? })
    }
}

pub struct State {
    stores: Stores<RedisConnection>,
    herald: Herald,
}

impl State {
    pub async fn start(boot: &Boot<Config>) -> Result<Self, boot::Error> {
        let config = &boot.config;
        Ok(Self { stores: config.stores.open(boot).await?, herald: Herald::new(boot, &config.herald)? })
    }
}

/// A reminder whose order is still owed something comes back; so does a whole batch whose rows could not be read.
pub async fn handle(state: &State, batch: Batch<ReminderMessage>) -> Vec<Disposition> {
    let stop = batch.deadline.plus_millis(-(AFTER_STEPS.as_millis() as i64));
    let order_nos: Vec<OrderNo> = batch.messages.into_iter().map(|message| message.body.order_no).collect();
    let disposition = match sale::due::attend(&state.stores, &state.herald, &order_nos, stop).await {
        Ok(attended) => {
            tracing::info!(?attended, "attended");
            // What is left is left in the due index too, where the sweep finds it: sooner than the queue would bring it back.
            Disposition::Done
        }
        Err(error) => {
            tracing::error!(error = &error as &dyn std::error::Error, "orders are not attended");
            Disposition::Retry
        }
    };
    vec![disposition; order_nos.len()]
}
