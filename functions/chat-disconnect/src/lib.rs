//! `$disconnect`: forgets a socket that is closed. The gateway tries to tell, and does not promise it: what it does not
//! tell is found by the next push.

use chat::connections::Connections;
use chat::ids::ConnectionId;
use kernel::time::Clock;
use platform::boot::{self, Boot};
use platform::config::{Env, FromEnv, Noted};
use platform::ws::{Event, Reply};

pub struct Config {
    connections_table: String,
}

impl FromEnv for Config {
    fn from_env(env: &mut Env<'_>) -> Result<Self, Noted> {
        Ok(Self { connections_table: env.required("CONNECTIONS_TABLE")? })
    }
}

pub struct State {
    pub connections: Connections,
    pub clock: Clock,
}

impl State {
    pub async fn start(boot: &Boot<Config>) -> Result<Self, boot::Error> {
        let client = aws_sdk_dynamodb::Client::new(&boot.aws);
        Ok(Self { connections: Connections::new(client, boot.config.connections_table.clone()), clock: Clock::System })
    }
}

pub async fn handle(state: &State, event: Event) -> Reply {
    let connection_id = match ConnectionId::try_from(event.connection_id().to_owned()) {
        Ok(connection_id) => connection_id,
        Err(error) => return Reply::failed(&error),
    };
    match state.connections.end(&connection_id, state.clock.now()).await {
        Ok(()) => Reply::Accepted,
        Err(error) => Reply::failed(&error),
    }
}
