//! `$default`: every frame of every socket. Answers go out over the socket's own address, never in the response.

use backoffice::DeskConfig;
use chat::frames::{Credentials, ErrorCode, Token};
use chat::ids::{ConnectionId, Party};
use chat::message::Card;
use chat::service::{Outside, Received};
use chat::{Service, StoreError};
use kernel::ids::{OrderNo, UserId};
use kernel::time::Clock;
use platform::auth::{AuthConfig, Role, Verifier};
use platform::boot::{self, Boot};
use platform::config::{Env, FromEnv, Noted};
use platform::ws::{Event, FrameError, Reply};
use sale::store::Orders;

pub struct Config {
    desk: DeskConfig,
    orders_table: String,
    auth: AuthConfig,
}

impl FromEnv for Config {
    fn from_env(env: &mut Env<'_>) -> Result<Self, Noted> {
        let (desk, orders_table) = (DeskConfig::from_env(env), env.required("ORDERS_TABLE"));
        let auth = AuthConfig::from_env(env);
        Ok(Self { desk: desk?, orders_table: orders_table?, auth: auth? })
    }
}

pub struct State {
    pub service: Service,
    pub lobby: Lobby,
}

/// What the chat asks of others: who a token means, and what an order is.
pub struct Lobby {
    pub verifier: Verifier,
    pub orders: Orders,
    pub clock: Clock,
}

impl State {
    pub async fn start(boot: &Boot<Config>) -> Result<Self, boot::Error> {
        let config = &boot.config;
        let orders = Orders::new(aws_sdk_dynamodb::Client::new(&boot.aws), config.orders_table.clone());
        let verifier = boot.verifier(&config.auth).await?;
        Ok(Self { service: config.desk.open(boot)?, lobby: Lobby { verifier, orders, clock: Clock::System } })
    }
}

pub async fn handle(state: &State, event: Event) -> Reply {
    let connection_id = match ConnectionId::try_from(event.connection_id().to_owned()) {
        Ok(connection_id) => connection_id,
        Err(error) => return Reply::failed(&error),
    };
    let text = event.text().map_err(|error| match error {
        FrameError::TooLarge => ErrorCode::TooLarge,
        FrameError::NotText => ErrorCode::BadFrame,
    });
    let received = Received {
        connection_id: &connection_id,
        text,
        message_id: event.message_id().unwrap_or_else(|| event.id()),
        received_at: event.request_time(),
    };
    match state.service.receive(received, &state.lobby).await {
        // A sender who is not known has been closed: that is how a frame after the end is taken.
        Ok(_) => Reply::Accepted,
        Err(error) => Reply::failed(&error),
    }
}

impl Outside for Lobby {
    fn verify(&self, token: &Token) -> Option<Credentials> {
        let principal = self.verifier.verify(token.expose(), self.clock.now()).ok()?;
        let party = match principal.role {
            Role::User => Party::user(principal.id),
            Role::Agent => Party::agent(principal.id),
            Role::Admin => return None,
        };
        Some(Credentials { party, expires_at: principal.expires_at })
    }

    async fn card(&self, customer: &UserId, order_no: &OrderNo) -> Result<Option<Card>, StoreError> {
        let order = self
            .orders
            .get(order_no)
            .await
            .map_err(|error| StoreError::Unavailable { operation: "GetItem", source: Box::new(error) })?;
        Ok(order.filter(|order| order.user_id == *customer).map(|order| Card {
            order_no: order.order_no,
            title: order.terms.title,
            qty: order.qty.get(),
            amount: order.amount.get(),
            currency: order.terms.currency.as_str().to_owned(),
            status: order.status.as_str().into(),
        }))
    }
}
