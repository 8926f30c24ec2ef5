//! What the sale has to say, said: to buyers over their sockets (and at the next `sync`, if they have none), to the warehouse
//! over the event bus.

use chat::{Postman, ResultNotice};
use kernel::time::Clock;
use platform::boot::{self, Boot};
use platform::config::{Env, FromEnv, Noted};
use sale::follow::{Decided, Messenger, Told};
use sale::store::orders::OrderRow;

use crate::events::Events;

/// Where buyers are reached.
pub struct BuyersConfig {
    connections_table: String,
    ws_endpoint: String,
}

impl FromEnv for BuyersConfig {
    fn from_env(env: &mut Env) -> Result<Self, Noted> {
        let connections_table = env.required("CONNECTIONS_TABLE");
        let ws_endpoint = env.required("WS_ENDPOINT");
        Ok(Self { connections_table: connections_table?, ws_endpoint: ws_endpoint? })
    }
}

/// The way to the buyers.
pub struct Buyers(Postman);

impl Buyers {
    pub fn new<C>(boot: &Boot<C>, config: &BuyersConfig) -> Self {
        let management =
            aws_sdk_apigatewaymanagement::config::Builder::from(&boot.aws).endpoint_url(&config.ws_endpoint).build();
        Self(Postman::new(
            aws_sdk_dynamodb::Client::new(&boot.aws),
            config.connections_table.clone(),
            &aws_sdk_apigatewaymanagement::Client::from_conf(management),
            Clock::System,
        ))
    }

    /// Lets buyers know, durably. May be called with what they know already.
    pub async fn tell(&self, decided: &[Decided]) -> Told {
        if decided.is_empty() {
            return Told::Stored;
        }
        let notices: Vec<ResultNotice> = decided
            .iter()
            .map(|decided| ResultNotice {
                user_id: decided.user_id.clone(),
                order_no: decided.order_no.clone(),
                status: decided.status.result().as_str().into(),
                order_status: decided.status.as_str().into(),
                message: decided.message(),
                decided_at: decided.at,
            })
            .collect();
        match self.0.deliver(&notices).await {
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
}

/// The environment of a function that tells both.
pub struct HeraldConfig {
    buyers: BuyersConfig,
    event_bus: String,
}

impl FromEnv for HeraldConfig {
    fn from_env(env: &mut Env) -> Result<Self, Noted> {
        let buyers = BuyersConfig::from_env(env);
        let event_bus = env.required("EVENT_BUS");
        Ok(Self { buyers: buyers?, event_bus: event_bus? })
    }
}

/// Tells buyers and the warehouse.
pub struct Herald {
    buyers: Buyers,
    events: Events,
}

impl Herald {
    pub fn new<C>(boot: &Boot<C>, config: &HeraldConfig) -> Result<Self, boot::Error> {
        Ok(Self {
            buyers: Buyers::new(boot, &config.buyers),
            events: Events::new(aws_sdk_eventbridge::Client::new(&boot.aws), config.event_bus.clone()),
        })
    }
}

impl Messenger for Herald {
    async fn tell(&self, decided: &[Decided]) -> Told {
        self.buyers.tell(decided).await
    }

    async fn publish_paid(&self, orders: &[&OrderRow]) -> Told {
        match self.events.publish_paid(orders).await {
            Ok(()) => Told::Stored,
            Err(error) => {
                tracing::error!(error = &error as &dyn std::error::Error, "paid orders are not published yet");
                Told::NotStored
            }
        }
    }
}
