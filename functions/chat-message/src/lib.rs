//! `$default`: every frame of every socket. Answers go out over the socket's own address, never in the response.

use aws_sdk_apigatewaymanagement::Client as ManagementClient;
use aws_sdk_apigatewaymanagement::config::Builder as ManagementConfig;
use chat::Postman;
use chat::frames::{Credentials, ErrorCode, Token};
use chat::ids::ConnectionId;
use kernel::time::Clock;
use platform::auth::{AuthConfig, Role, Verifier};
use platform::boot::{self, Boot};
use platform::config::{Env, FromEnv, Noted};
use platform::ws::{Event, FrameError, Reply};

pub struct Config {
    connections_table: String,
    ws_endpoint: String,
    auth: AuthConfig,
}

impl FromEnv for Config {
    fn from_env(env: &mut Env<'_>) -> Result<Self, Noted> {
        let (connections_table, ws_endpoint) = (env.required("CONNECTIONS_TABLE"), env.required("WS_ENDPOINT"));
        let auth = AuthConfig::from_env(env);
        Ok(Self { connections_table: connections_table?, ws_endpoint: ws_endpoint?, auth: auth? })
    }
}

pub struct State {
    pub postman: Postman,
    pub verifier: Verifier,
    pub clock: Clock,
}

impl State {
    pub async fn start(boot: &Boot<Config>) -> Result<Self, boot::Error> {
        let config = &boot.config;
        let management = ManagementConfig::from(&boot.aws).endpoint_url(&config.ws_endpoint).build();
        Ok(Self {
            postman: Postman::new(
                aws_sdk_dynamodb::Client::new(&boot.aws),
                config.connections_table.clone(),
                &ManagementClient::from_conf(management),
                Clock::System,
            ),
            verifier: boot.verifier(&config.auth).await?,
            clock: Clock::System,
        })
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
    match state.postman.receive(&connection_id, text, |token| verify(state, token)).await {
        // A sender who is not known has been closed: that is how a frame after the end is taken.
        Ok(_) => Reply::Accepted,
        Err(error) => Reply::failed(&error),
    }
}

fn verify(state: &State, token: &Token) -> Option<Credentials> {
    let principal = state.verifier.verify(token.expose(), state.clock.now()).ok()?;
    match principal.role {
        Role::User | Role::Agent => Some(Credentials { user_id: principal.id, expires_at: principal.expires_at }),
        Role::Admin => None,
    }
}
