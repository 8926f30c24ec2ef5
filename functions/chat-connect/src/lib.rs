//! `$connect`: lets a socket in whose ticket or token is good and whose page is ours, stores that it is there, and leaves a
//! word for `chat-greet`, since it cannot write to the socket itself.
//!
//! A ticket (`?ticket=`) is got over HTTP, is good for half a minute, and once. A token comes as `?token=`, since a page cannot
//! set a header on a handshake; that can be switched off. Neither is ever logged, here or by the gateway, whose access log
//! leaves the query out.

use chat::StoreError;
use chat::connections::{Connection, ConnectionState, Connections, Registration};
use chat::greetings::Greetings;
use chat::ids::{ConnectionId, Party, Seq};
use chat::tickets::{Holder, Ticket, Tickets};
use kernel::ids::DeviceId;
use kernel::text::Language;
use kernel::time::{Clock, UnixMillis};
use platform::auth::{AuthConfig, AuthError, Role, Verifier};
use platform::boot::{self, Boot};
use platform::config::{Env, FromEnv, Noted};
use platform::origins::Origins;
use platform::ws::{Event, Reply};

pub struct Config {
    connections_table: String,
    greet_queue_url: String,
    auth: AuthConfig,
    allow_token_in_query: bool,
    allowed_origins: Origins,
}

impl FromEnv for Config {
    fn from_env(env: &mut Env<'_>) -> Result<Self, Noted> {
        let connections_table = env.required("CONNECTIONS_TABLE");
        let greet_queue_url = env.required("GREET_QUEUE_URL");
        let auth = AuthConfig::from_env(env);
        let allow_token_in_query = env.switch("ALLOW_TOKEN_IN_QUERY");
        let allowed_origins = env.required("ALLOWED_ORIGINS");
        Ok(Self {
            connections_table: connections_table?,
            greet_queue_url: greet_queue_url?,
            auth: auth?,
            allow_token_in_query: allow_token_in_query?,
            allowed_origins: allowed_origins?,
        })
    }
}

pub struct State {
    pub connections: Connections,
    pub tickets: Tickets,
    pub greetings: Greetings,
    pub verifier: Verifier,
    pub allow_token_in_query: bool,
    pub allowed_origins: Origins,
    pub clock: Clock,
}

impl State {
    pub async fn start(boot: &Boot<Config>) -> Result<Self, boot::Error> {
        let config = &boot.config;
        let db = aws_sdk_dynamodb::Client::new(&boot.aws);
        Ok(Self {
            connections: Connections::new(db.clone(), config.connections_table.clone()),
            tickets: Tickets::new(db, config.connections_table.clone()),
            greetings: Greetings::new(aws_sdk_sqs::Client::new(&boot.aws), config.greet_queue_url.clone()),
            verifier: boot.verifier(&config.auth).await?,
            allow_token_in_query: config.allow_token_in_query,
            allowed_origins: config.allowed_origins.clone(),
            clock: Clock::System,
        })
    }
}

pub async fn handle(state: &State, event: Event) -> Reply {
    if !state.allowed_origins.allow(event.header("origin")) {
        tracing::info!("refused: the page of another origin");
        return Reply::Forbidden;
    }
    // A ticket is used up by looking at it, so all else is judged before.
    let Some(parameters) = Parameters::of(&event) else { return Reply::Malformed };
    let connection_id = match ConnectionId::try_from(event.connection_id().to_owned()) {
        Ok(connection_id) => connection_id,
        Err(error) => return Reply::failed(&error),
    };
    let holder = match admit(state, &event).await {
        Ok(holder) => holder,
        Err(Refusal::Refused(reason)) => {
            tracing::info!(reason, "refused");
            return Reply::Unauthenticated;
        }
        Err(Refusal::Failed(error)) => return Reply::failed(&error),
    };
    let connection = Connection {
        connection_id: connection_id.clone(),
        side: holder.party.side,
        user_id: holder.party.id,
        device: parameters.device,
        language: event.header("accept-language").map(Language::negotiate).unwrap_or_default(),
        connected_at: event.connected_at(),
        expires_at: holder.expires_at,
        last_ack_seq: parameters.last_ack_seq.map(Seq::new),
        state: ConnectionState::Connecting,
    };
    match state.connections.register(&connection, state.clock.now()).await {
        Ok(Registration::Registered) => {}
        // Nobody is left to read it; a socket without rows must not be let in.
        Ok(Registration::AlreadyEnded) => return Reply::Unavailable,
        Err(error) => return Reply::failed(&error),
    }
    // Whoever is not greeted is live with their first frame.
    if let Err(error) = state.greetings.send(connection_id).await {
        tracing::warn!(error = &error as &dyn std::error::Error, "a connection is not greeted");
    }
    Reply::Accepted
}

enum Refusal {
    /// Why, for the log.
    Refused(String),
    Failed(StoreError),
}

/// Who opens the socket. A ticket goes before a token; one that is no good is not made up for by the other.
async fn admit(state: &State, event: &Event) -> Result<Holder, Refusal> {
    let now = state.clock.now();
    match event.query("ticket") {
        Some(ticket) => redeem(state, ticket, now).await,
        None => verify(state, event, now).map_err(|error| Refusal::Refused(error.to_string())),
    }
}

async fn redeem(state: &State, ticket: &str, now: UnixMillis) -> Result<Holder, Refusal> {
    let holder = match Ticket::parse(ticket) {
        Some(ticket) => state.tickets.redeem(&ticket, now).await.map_err(Refusal::Failed)?,
        None => None,
    };
    // Got with a token that has run out since.
    let holder = holder.filter(|holder| now < holder.expires_at);
    holder.ok_or_else(|| Refusal::Refused("no such ticket, or used, or expired".to_owned()))
}

fn verify(state: &State, event: &Event, now: UnixMillis) -> Result<Holder, AuthError> {
    let token = event.query("token").filter(|_| state.allow_token_in_query).ok_or(AuthError::Missing)?;
    let principal = state.verifier.verify(token, now)?;
    let party = match principal.role {
        Role::User => Party::user(principal.id),
        Role::Agent => Party::agent(principal.id),
        // An admin has no conversation and no orders.
        Role::Admin => return Err(AuthError::Audience),
    };
    Ok(Holder { party, expires_at: principal.expires_at })
}

/// What a handshake may say besides who it is.
struct Parameters {
    device: Option<DeviceId>,
    last_ack_seq: Option<u64>,
}

impl Parameters {
    /// An empty one is absent.
    fn of(event: &Event) -> Option<Self> {
        let given = |name| event.query(name).filter(|value| !value.is_empty());
        Some(Self {
            device: given("device").map(str::parse).transpose().ok()?,
            last_ack_seq: given("last_ack_seq").map(str::parse).transpose().ok()?,
        })
    }
}
