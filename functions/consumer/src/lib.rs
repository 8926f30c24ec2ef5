//! The orders queue: admitted orders become real ones, in groups. Then the buyers are told, and after them the gate: a hold
//! that is still pending there has the sweep tell both again. Last, each order that waits for its payment is reminded of.

use std::collections::HashMap;
use std::time::Duration;

use backoffice::{Buyers, BuyersConfig, StoresConfig};
use kernel::ids::OrderNo;
use platform::boot::{self, Boot};
use platform::config::{Env, FromEnv, Noted};
use platform::redis::RedisConnection;
use platform::sqs::{Batch, Disposition};
use sale::Stores;
use sale::follow::{Decided, Following, Told};
use sale::ledger::Outcome;
use sale::offer::OfferId;
use sale::order::{EndReason, OrderStatus};
use sale::queue::{OrderMessage, Reminder};

/// What is left of the time-out when committing stops: the last transaction may take 4 s more, results are stored (4 s) and
/// pushed (8 s at most), then the gate (3 s).
const AFTER_STEPS: Duration = Duration::from_secs(20);

pub struct Config {
    stores: StoresConfig,
    buyers: BuyersConfig,
}

impl FromEnv for Config {
    fn from_env(env: &mut Env) -> Result<Self, Noted> {
        let stores = StoresConfig::from_env(env);
        let buyers = BuyersConfig::from_env(env);
        Ok(Self { stores: stores?, buyers: buyers? })
    }
}

pub struct State {
    stores: Stores<RedisConnection>,
    buyers: Buyers,
}

impl State {
    pub async fn start(boot: &Boot<Config>) -> Result<Self, boot::Error> {
        let config = &boot.config;
        Ok(Self { stores: config.stores.open(boot).await?, buyers: Buyers::new(boot, &config.buyers) })
    }
}

pub async fn handle(state: &State, batch: Batch<OrderMessage>) -> Vec<Disposition> {
    let stop = batch.deadline.plus_millis(-(AFTER_STEPS.as_millis() as i64));
    let messages: Vec<OrderMessage> = batch.messages.into_iter().map(|message| message.body).collect();
    let outcomes = state.stores.ledger().commit(messages.clone(), stop).await;
    kernel::crash::point("consumer.after_transaction");

    let told = tell_buyers(state, &messages, &outcomes).await;
    kernel::crash::point("consumer.after_push");
    if told == Told::Stored {
        tell_gate(state, &messages, &outcomes).await;
    }
    remind(state, &messages, &outcomes).await;
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

/// What the gate is not told now is pending there, and the sweep tells it. So is, on purpose, whom the rows refused: a gate that
/// had let them in has lost something, and would let the next one in with the same units.
async fn tell_gate(state: &State, messages: &[OrderMessage], outcomes: &HashMap<OrderNo, Outcome>) {
    let mut by_offer: HashMap<OfferId, Following> = HashMap::new();
    for message in messages {
        if let Some(Outcome::Settled { status, reason, .. }) = outcomes.get(&message.order_no) {
            if reason.is_some_and(EndReason::is_drift) {
                tracing::error!(alarm = "GATE_DRIFT", order_no = %message.order_no, ?reason, "refused after it was let in");
                continue;
            }
            by_offer.entry(message.offer()).or_default().note(message.order_no.clone(), *status);
        }
    }
    for (offer, following) in by_offer {
        if let Err(error) = following.tell(&state.stores.gate, &offer).await {
            tracing::warn!(error = &error as &dyn std::error::Error, "the gate is left to the sweep to tell");
        }
    }
}

async fn tell_buyers(state: &State, messages: &[OrderMessage], outcomes: &HashMap<OrderNo, Outcome>) -> Told {
    let by_number: HashMap<&OrderNo, &OrderMessage> =
        messages.iter().map(|message| (&message.order_no, message)).collect();
    let decided = by_number.into_values().filter_map(|message| match outcomes.get(&message.order_no) {
        Some(Outcome::Settled { status, reason, at }) if *status != OrderStatus::PreCreated => Some(Decided {
            user_id: message.user_id.clone(),
            order_no: message.order_no.clone(),
            status: *status,
            reason: *reason,
            at: *at,
            refund_due: false,
        }),
        Some(Outcome::Settled { .. } | Outcome::Busy | Outcome::Unknown) | None => None,
    });
    state.buyers.tell(&decided.collect::<Vec<_>>()).await
}

/// Has the orders that are UNPAID looked at when their time to pay is over. What is not sent here the sweep does.
async fn remind(state: &State, messages: &[OrderMessage], outcomes: &HashMap<OrderNo, Outcome>) {
    let reminders: Vec<Reminder> = messages
        .iter()
        .filter_map(|message| match outcomes.get(&message.order_no) {
            Some(Outcome::Settled { status: OrderStatus::Unpaid, at, .. }) => {
                let deadline = at.plus_secs(i64::from(message.pay_window_secs));
                Some(Reminder::at(message.order_no.clone(), deadline, state.stores.clock.now()))
            }
            Some(Outcome::Settled { .. } | Outcome::Busy | Outcome::Unknown) | None => None,
        })
        .collect();
    if let Err(error) = state.stores.reminders.send(&reminders).await {
        tracing::warn!(error = &error as &dyn std::error::Error, "unpaid orders are left to the sweep");
    }
}
