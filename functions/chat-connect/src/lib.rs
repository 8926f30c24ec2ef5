//! `$connect`: lets a socket in whose token is good, and stores that it is there.
//!
//! The token comes as `?token=`, since a page cannot set a header on a handshake. It is never logged, here or by the
//! gateway, whose access log leaves the query out; and it can be switched off.

use chat::connections::{Connection, ConnectionState, Connections, Registration};
use chat::ids::{ConnectionId, Seq, Side};
use kernel::ids::DeviceId;
use kernel::text::Language;
use kernel::time::Clock;
use platform::auth::{AuthConfig, AuthError, Principal, Role, Verifier};
use platform::boot::{self, Boot};
use platform::config::{Env, FromEnv, Noted};
use platform::ws::{Event, Reply};

pub struct Config {
    connections_table: String,
    auth: AuthConfig,
    allow_token_in_query: bool,
}

impl FromEnv for Config {
    fn from_env(env: &mut Env<'_>) -> Result<Self, Noted> {
        let connections_table = env.required("CONNECTIONS_TABLE");
        let auth = AuthConfig::from_env(env);
        let allow_token_in_query = env.switch("ALLOW_TOKEN_IN_QUERY");
        Ok(Self { connections_table: connections_table?, auth: auth?, allow_token_in_query: allow_token_in_query? })
    }
}

pub struct State {
    pub connections: Connections,
    pub verifier: Verifier,
    pub allow_token_in_query: bool,
    pub clock: Clock,
}

impl State {
    pub async fn start(boot: &Boot<Config>) -> Result<Self, boot::Error> {
        let config = &boot.config;
        Ok(Self {
            connections: Connections::new(aws_sdk_dynamodb::Client::new(&boot.aws), config.connections_table.clone()),
            verifier: boot.verifier(&config.auth).await?,
            allow_token_in_query: config.allow_token_in_query,
            clock: Clock::System,
        })
    }
}

pub async fn handle(state: &State, event: Event) -> Reply {
    let principal = match authenticate(state, &event) {
        Ok(principal) => principal,
        Err(error) => {
            tracing::info!(%error, "refused");
            return Reply::Unauthenticated;
        }
    };
    let Some(parameters) = Parameters::of(&event) else { return Reply::Malformed };
    let connection_id = match ConnectionId::try_from(event.connection_id().to_owned()) {
        Ok(connection_id) => connection_id,
        Err(error) => return Reply::failed(&error),
    };
    let connection = Connection {
        connection_id,
        side: match principal.role {
            Role::Agent => Side::Agent,
            Role::User | Role::Admin => Side::User,
        },
        user_id: principal.id,
        device: parameters.device,
        language: event.header("accept-language").map(Language::negotiate).unwrap_or_default(),
        connected_at: event.connected_at(),
        expires_at: principal.expires_at,
        last_ack_seq: parameters.last_ack_seq.map(Seq::new),
        state: ConnectionState::Connecting,
    };
    match state.connections.register(&connection, state.clock.now()).await {
        Ok(Registration::Registered) => Reply::Accepted,
        // Nobody is left to read it; a socket without rows must not be let in.
        Ok(Registration::AlreadyEnded) => Reply::Unavailable,
        Err(error) => Reply::failed(&error),
    }
}

fn authenticate(state: &State, event: &Event) -> Result<Principal, AuthError> {
    let token = event.query("token").filter(|_| state.allow_token_in_query).ok_or(AuthError::Missing)?;
    let principal = state.verifier.verify(token, state.clock.now())?;
    match principal.role {
        Role::User | Role::Agent => Ok(principal),
        // An admin has no conversation and no orders.
        Role::Admin => Err(AuthError::Audience),
    }
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
