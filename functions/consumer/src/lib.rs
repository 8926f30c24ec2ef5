//! The orders queue: admitted orders become real ones, in groups. Then the buyers are told, and after them the gate: a hold
//! that is still pending there has the sweep tell both again.

use std::collections::HashMap;
use std::time::Duration;

use chat::{Postman, ResultNotice};
use kernel::ids::OrderNo;
use kernel::time::Clock;
use platform::boot::{self, Boot};
use platform::config::{Env, FromEnv, Noted};
use platform::redis::{RedisConfig, RedisConnection};
use platform::sqs::{Batch, Disposition};
use sale::commit::{Ledger, Outcome};
use sale::follow::{Following, Told};
use sale::gate::Gate;
use sale::offer::OfferId;
use sale::order::OrderStatus;
use sale::queue::OrderMessage;
use sale::store::{Offers, Orders};
use sale::wording;

/// What is left of the time-out for telling gate and buyers when committing stops.
const AFTER_STEPS: Duration = Duration::from_secs(12);

pub struct Config {
    orders_table: String,
    offers_table: String,
    connections_table: String,
    ws_endpoint: String,
    redis: RedisConfig,
}

impl FromEnv for Config {
    fn from_env(env: &mut Env) -> Result<Self, Noted> {
        let orders_table = env.required("ORDERS_TABLE");
        let offers_table = env.required("OFFERS_TABLE");
        let connections_table = env.required("CONNECTIONS_TABLE");
        let ws_endpoint = env.required("WS_ENDPOINT");
        let redis = RedisConfig::from_env(env);
        Ok(Self {
            orders_table: orders_table?,
            offers_table: offers_table?,
            connections_table: connections_table?,
            ws_endpoint: ws_endpoint?,
            redis: redis?,
        })
    }
}

pub struct State {
    ledger: Ledger,
    gate: Gate<RedisConnection>,
    postman: Postman,
}

impl State {
    pub async fn start(boot: &Boot<Config>) -> Result<Self, boot::Error> {
        let config = &boot.config;
        let db = aws_sdk_dynamodb::Client::new(&boot.aws);
        let management =
            aws_sdk_apigatewaymanagement::config::Builder::from(&boot.aws).endpoint_url(&config.ws_endpoint).build();
        Ok(Self {
            ledger: Ledger {
                orders: Orders::new(db.clone(), config.orders_table.clone()),
                offers: Offers::new(db.clone(), config.offers_table.clone()),
                clock: Clock::System,
            },
            gate: Gate::new(boot.redis(&config.redis).await?),
            postman: Postman::new(
                db,
                config.connections_table.clone(),
                &aws_sdk_apigatewaymanagement::Client::from_conf(management),
                Clock::System,
            ),
        })
    }
}

pub async fn handle(state: &State, batch: Batch<OrderMessage>) -> Vec<Disposition> {
    let stop = batch.deadline.plus_millis(-(AFTER_STEPS.as_millis() as i64));
    let messages: Vec<OrderMessage> = batch.messages.into_iter().map(|message| message.body).collect();
    let outcomes = state.ledger.commit(messages.clone(), stop).await;
    kernel::crash::point("consumer.after_transaction");

    let told = tell_buyers(state, &messages, &outcomes).await;
    kernel::crash::point("consumer.after_push");
    if told == Told::Stored {
        tell_gate(state, &messages, &outcomes).await;
    }
    messages.iter().map(|message| disposition(outcomes.get(&message.order_no), told)).collect()
}

fn disposition(outcome: Option<&Outcome>, told: Told) -> Disposition {
    match outcome {
        Some(Outcome::Settled { status: OrderStatus::PreCreated, .. } | Outcome::Busy) => Disposition::Retry,
        Some(Outcome::Settled { .. }) => match told {
            Told::Stored => Disposition::Done,
            // Delivered again, it changes nothing and is told again.
            Told::NotStored => Disposition::Retry,
        },
        Some(Outcome::Unknown) => Disposition::Poison,
        None => Disposition::Retry,
    }
}

/// What the gate is not told now is pending there, and the sweep tells it.
async fn tell_gate(state: &State, messages: &[OrderMessage], outcomes: &HashMap<OrderNo, Outcome>) {
    let mut by_offer: HashMap<OfferId, Following> = HashMap::new();
    for message in messages {
        if let Some(Outcome::Settled { status, .. }) = outcomes.get(&message.order_no) {
            by_offer.entry(message.offer()).or_default().note(message.order_no.clone(), *status);
        }
    }
    for (offer, following) in by_offer {
        if let Err(error) = following.tell(&state.gate, &offer).await {
            tracing::warn!(error = &error as &dyn std::error::Error, "the gate is left to the sweep to tell");
        }
    }
}

async fn tell_buyers(state: &State, messages: &[OrderMessage], outcomes: &HashMap<OrderNo, Outcome>) -> Told {
    let by_number: HashMap<&OrderNo, &OrderMessage> =
        messages.iter().map(|message| (&message.order_no, message)).collect();
    let notices: Vec<ResultNotice> = by_number
        .into_values()
        .filter_map(|message| match outcomes.get(&message.order_no) {
            Some(Outcome::Settled { status, reason, at }) if *status != OrderStatus::PreCreated => Some(ResultNotice {
                user_id: message.user_id.clone(),
                order_no: message.order_no.clone(),
                status: status.result().as_str().into(),
                order_status: status.as_str().into(),
                message: wording::about(*status, *reason),
                decided_at: *at,
            }),
            Some(Outcome::Settled { .. } | Outcome::Busy | Outcome::Unknown) | None => None,
        })
        .collect();
    match state.postman.deliver(&notices).await {
        Ok(delivery) => {
            tracing::info!(?delivery, results = notices.len(), "results delivered");
            Told::Stored
        }
        Err(error) => {
            tracing::error!(error = &error as &dyn std::error::Error, "results are not stored");
            Told::NotStored
        }
    }
}
