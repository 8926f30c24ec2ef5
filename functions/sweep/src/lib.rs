//! Once a minute: whatever was left lying is picked up, and buyers whose order it ended are told.

use std::convert::Infallible;
use std::time::Duration;

use chat::{Postman, ResultNotice};
use kernel::time::Clock;
use platform::boot::{self, Boot};
use platform::config::{Env, FromEnv, Noted};
use platform::redis::{RedisConfig, RedisConnection};
use platform::schedule::Tick;
use sale::Stores;
use sale::follow::{Decided, Told};
use sale::gate::Gate;
use sale::queue::Queue;
use sale::store::{Offers, Orders};
use sale::wording;

/// What is left of the time-out when sweeping stops: the page of holds being judged is told and followed in it.
const AFTER_STEPS: Duration = Duration::from_secs(12);

pub struct Config {
    orders_table: String,
    offers_table: String,
    connections_table: String,
    order_queue_url: String,
    order_dlq_url: String,
    ws_endpoint: String,
    redis: RedisConfig,
}

impl FromEnv for Config {
    fn from_env(env: &mut Env) -> Result<Self, Noted> {
        let orders_table = env.required("ORDERS_TABLE");
        let offers_table = env.required("OFFERS_TABLE");
        let connections_table = env.required("CONNECTIONS_TABLE");
        let order_queue_url = env.required("ORDER_QUEUE_URL");
        let order_dlq_url = env.required("ORDER_DLQ_URL");
        let ws_endpoint = env.required("WS_ENDPOINT");
        let redis = RedisConfig::from_env(env);
        Ok(Self {
            orders_table: orders_table?,
            offers_table: offers_table?,
            connections_table: connections_table?,
            order_queue_url: order_queue_url?,
            order_dlq_url: order_dlq_url?,
            ws_endpoint: ws_endpoint?,
            redis: redis?,
        })
    }
}

pub struct State {
    stores: Stores<RedisConnection>,
    postman: Postman,
}

impl State {
    pub async fn start(boot: &Boot<Config>) -> Result<Self, boot::Error> {
        let config = &boot.config;
        let db = aws_sdk_dynamodb::Client::new(&boot.aws);
        let sqs = aws_sdk_sqs::Client::new(&boot.aws);
        let management =
            aws_sdk_apigatewaymanagement::config::Builder::from(&boot.aws).endpoint_url(&config.ws_endpoint).build();
        Ok(Self {
            stores: Stores {
                gate: Gate::new(boot.redis(&config.redis).await?),
                orders: Orders::new(db.clone(), config.orders_table.clone()),
                offers: Offers::new(db.clone(), config.offers_table.clone()),
                queue: Queue::new(sqs.clone(), config.order_queue_url.clone()),
                dead_letters: Queue::new(sqs, config.order_dlq_url.clone()),
                clock: Clock::System,
            },
            postman: Postman::new(
                db,
                config.connections_table.clone(),
                &aws_sdk_apigatewaymanagement::Client::from_conf(management),
                Clock::System,
            ),
        })
    }
}

pub async fn handle(state: &State, tick: Tick) -> Result<(), Infallible> {
    let stop = tick.deadline.plus_millis(-(AFTER_STEPS.as_millis() as i64));
    let tell = async |decided: &[Decided]| tell_buyers(state, decided).await;
    let swept = sale::sweep::sweep(&state.stores, stop, &tell).await;
    tracing::info!(?swept, "swept");
    Ok(())
}

async fn tell_buyers(state: &State, decided: &[Decided]) -> Told {
    let notices: Vec<ResultNotice> = decided
        .iter()
        .map(|decided| ResultNotice {
            user_id: decided.user_id.clone(),
            order_no: decided.order_no.clone(),
            status: decided.status.result().as_str().into(),
            order_status: decided.status.as_str().into(),
            message: wording::about(decided.status, decided.reason),
            decided_at: decided.at,
        })
        .collect();
    match state.postman.deliver(&notices).await {
        Ok(_) => Told::Stored,
        Err(error) => {
            tracing::error!(error = &error as &dyn std::error::Error, "results are not stored");
            Told::NotStored
        }
    }
}
