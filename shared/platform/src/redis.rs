//! One handle on Redis for both of its shapes: a stand-alone server (or one primary behind a name), and a cluster.
//!
//! Each client library type fails in the other's world: the cluster client refuses a stand-alone server, and the other one
//! keeps talking to a server that answers MOVED or READONLY after a failover. [`RedisConnection`] is chosen by configuration
//! and is what the sale needs: a `ConnectionLike` that can be cloned.
//!
//! - **Lazy.** Nothing is connected before the first command, so a start never fails because Redis is down; a buy answers 503.
//! - **Bounded.** A command takes at most [`COMMAND_BOUND`], whatever the network does.
//! - **Heals.** A dropped connection, MOVED or READONLY leads to a new connection, for which the name is resolved again, and the
//!   command is sent once more. So **a command may run twice**: send only what can be repeated. The cluster client does the
//!   same by itself.

use std::fmt;
use std::str::FromStr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use redis::aio::{ConnectionLike, ConnectionManager, ConnectionManagerConfig};
use redis::cluster::{ClusterClient, ClusterConfig};
use redis::cluster_async::ClusterConnection;
use redis::io::tcp::TcpSettings;
use redis::{
    Client, Cmd, ConnectionAddr, ConnectionInfo, Pipeline, RedisError, RedisFuture, RedisResult, ServerErrorKind, Value,
};
use serde::Deserialize;

use crate::config::{Env, FromEnv, Noted};
use crate::secrets::Secret;

/// How long one attempt to connect may take: TCP, TLS and AUTH.
const CONNECT_TIMEOUT: Duration = Duration::from_millis(1_000);
/// How long one reply may take. The slowest script is some hundred microseconds.
const RESPONSE_TIMEOUT: Duration = Duration::from_millis(500);
/// How long sent bytes may go unacknowledged before the kernel gives the connection up. A peer that vanished without a word
/// would otherwise cost every command its whole time-out for a quarter of an hour.
const UNACKNOWLEDGED_TIMEOUT: Duration = Duration::from_millis(1_000);
/// How often the cluster client may send a command again: over the broken connection's successor, if there is none after a
/// look at the first node, and once more for a slot that moved meanwhile.
const CLUSTER_RETRIES: u32 = 3;
/// Waits of the cluster client before it sends a command again, in milliseconds.
const CLUSTER_RETRY_WAIT_MILLIS: (u64, u64) = (10, 100);
/// The longest that one command takes, everything included: two attempts, each with a new connection. The cluster client keeps
/// to it whatever it retries.
pub const COMMAND_BOUND: Duration = Duration::from_millis(3_000);

/// Which Redis, and as whom.
#[derive(Debug, Clone)]
pub struct RedisConfig {
    pub url: RedisUrl,
    pub cluster: bool,
    /// A secret with [`Credentials`]; absent when the server asks for none.
    pub secret_arn: Option<String>,
}

impl FromEnv for RedisConfig {
    fn from_env(env: &mut Env<'_>) -> Result<Self, Noted> {
        let (url, cluster) = (env.required("REDIS_URL"), env.switch("REDIS_CLUSTER"));
        let secret_arn = env.optional("CACHE_SECRET_ARN");
        Ok(Self { url: url?, cluster: cluster?, secret_arn: secret_arn? })
    }
}

/// `redis://host:port`, or `rediss://host:port` for TLS.
#[derive(Clone)]
pub struct RedisUrl(ConnectionInfo);

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("must be redis://host:port or rediss://host:port")]
pub struct RedisUrlError;

impl FromStr for RedisUrl {
    type Err = RedisUrlError;

    fn from_str(url: &str) -> Result<Self, RedisUrlError> {
        let info: ConnectionInfo = url.parse().map_err(|_| RedisUrlError)?;
        match info.addr() {
            ConnectionAddr::Tcp(..) | ConnectionAddr::TcpTls { .. } => Ok(Self(info)),
            _ => Err(RedisUrlError),
        }
    }
}

impl fmt::Debug for RedisUrl {
    // The URL may hold a password; the address does not.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RedisUrl({})", self.0.addr())
    }
}

/// The user that Redis knows us as.
#[derive(Deserialize)]
pub struct Credentials {
    username: String,
    password: String,
}

impl Credentials {
    /// From a secret `{"username": …, "password": …}`.
    pub fn from_secret(secret: &Secret) -> Result<Self, crate::secrets::SecretError> {
        secret.json()
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Credentials({}, hidden)", self.username)
    }
}

/// A connection to Redis. Clones share it.
#[derive(Clone)]
pub enum RedisConnection {
    Single(SingleConnection),
    Cluster(ClusterConnection),
}

impl RedisConnection {
    /// A connection that is made by its first command. An error means that the settings contradict each other.
    ///
    /// Must be called within the runtime that will run the commands.
    pub fn lazy(url: &RedisUrl, cluster: bool, credentials: Option<&Credentials>) -> RedisResult<Self> {
        let mut info = url
            .0
            .clone()
            .set_tcp_settings(TcpSettings::default().set_nodelay(true).set_user_timeout(UNACKNOWLEDGED_TIMEOUT));
        if let Some(Credentials { username, password }) = credentials {
            let settings = info.redis_settings().clone().set_username(username).set_password(password);
            info = info.set_redis_settings(settings);
        }
        if cluster {
            cluster_connection(info).map(Self::Cluster)
        } else {
            SingleConnection::lazy(Client::open(info)?).map(Self::Single)
        }
    }
}

fn cluster_connection(info: ConnectionInfo) -> RedisResult<ClusterConnection> {
    let (min_wait, max_wait) = CLUSTER_RETRY_WAIT_MILLIS;
    let client = ClusterClient::builder([info.clone()])
        .tcp_settings(info.tcp_settings().clone())
        .retries(CLUSTER_RETRIES)
        .min_retry_wait(min_wait)
        .max_retry_wait(max_wait)
        .connection_timeout(CONNECT_TIMEOUT)
        .response_timeout(RESPONSE_TIMEOUT)
        .overall_response_timeout(Some(COMMAND_BOUND))
        .build()?;
    Ok(client.get_pending_async_connection_with_config(ClusterConfig::new()))
}

impl ConnectionLike for RedisConnection {
    fn req_packed_command<'a>(&'a mut self, cmd: &'a Cmd) -> RedisFuture<'a, Value> {
        match self {
            Self::Single(connection) => Box::pin(connection.command(cmd)),
            Self::Cluster(connection) => connection.req_packed_command(cmd),
        }
    }

    fn req_packed_commands<'a>(
        &'a mut self,
        pipeline: &'a Pipeline,
        offset: usize,
        count: usize,
    ) -> RedisFuture<'a, Vec<Value>> {
        match self {
            Self::Single(connection) => Box::pin(connection.pipeline(pipeline, offset, count)),
            Self::Cluster(connection) => connection.req_packed_commands(pipeline, offset, count),
        }
    }

    fn get_db(&self) -> i64 {
        match self {
            Self::Single(connection) => connection.line().manager.get_db(),
            Self::Cluster(connection) => connection.get_db(),
        }
    }
}

/// A connection to one server, replaced when that server turns out to be the wrong one.
#[derive(Clone)]
pub struct SingleConnection(Arc<Shared>);

struct Shared {
    client: Client,
    line: Mutex<Line>,
}

/// The connection in use, and how many came before it.
#[derive(Clone)]
struct Line {
    generation: u64,
    manager: ConnectionManager,
}

impl SingleConnection {
    fn lazy(client: Client) -> RedisResult<Self> {
        let line = Mutex::new(Line { generation: 0, manager: lazy_manager(&client)? });
        Ok(Self(Arc::new(Shared { client, line })))
    }

    fn line(&self) -> Line {
        self.0.line.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    async fn command(&self, cmd: &Cmd) -> RedisResult<Value> {
        let mut line = self.line();
        let reply = line.manager.send_packed_command(cmd).await;
        if self.worth_repeating(&line, reply.as_ref().map(std::slice::from_ref)) {
            return self.line().manager.send_packed_command(cmd).await;
        }
        reply
    }

    async fn pipeline(&self, pipeline: &Pipeline, offset: usize, count: usize) -> RedisResult<Vec<Value>> {
        let mut line = self.line();
        let replies = line.manager.send_packed_commands(pipeline, offset, count).await;
        if self.worth_repeating(&line, replies.as_ref().map(Vec::as_slice)) {
            return self.line().manager.send_packed_commands(pipeline, offset, count).await;
        }
        replies
    }

    /// Whether what was sent may fare better on the connection that is in use now. Replaces `line` if its server is the wrong
    /// one: that is what a MOVED or READONLY among the replies says.
    fn worth_repeating(&self, line: &Line, replies: Result<&[Value], &RedisError>) -> bool {
        match replies {
            Ok(values) => values.iter().any(is_from_wrong_server) && self.replace(line),
            // The manager has started to reconnect already.
            Err(error) => error.is_connection_dropped(),
        }
    }

    fn replace(&self, stale: &Line) -> bool {
        let mut line = self.0.line.lock().unwrap_or_else(PoisonError::into_inner);
        // Of many commands that meet the wrong server at once, the first replaces it.
        if line.generation == stale.generation {
            match lazy_manager(&self.0.client) {
                Ok(manager) => *line = Line { generation: stale.generation + 1, manager },
                Err(_) => return false,
            }
        }
        true
    }
}

fn is_from_wrong_server(reply: &Value) -> bool {
    match reply {
        Value::ServerError(error) => matches!(error.kind(), Some(ServerErrorKind::Moved | ServerErrorKind::ReadOnly)),
        _ => false,
    }
}

fn lazy_manager(client: &Client) -> RedisResult<ConnectionManager> {
    // The library's own retries connect again before a command fails, up to six seconds. Here a command that found no server
    // fails at once, and the next one tries again.
    let config = ConnectionManagerConfig::new()
        .set_number_of_retries(0)
        .set_connection_timeout(Some(CONNECT_TIMEOUT))
        .set_response_timeout(Some(RESPONSE_TIMEOUT));
    ConnectionManager::new_lazy_with_config(client.clone(), config)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::load_from;

    fn config(url: &str, cluster: &str, arn: &str) -> Result<RedisConfig, crate::config::ConfigError> {
        let (url, cluster, arn) = (url.to_owned(), cluster.to_owned(), arn.to_owned());
        load_from(&move |name| match name {
            "REDIS_URL" => Some(url.clone()),
            "REDIS_CLUSTER" => Some(cluster.clone()),
            "CACHE_SECRET_ARN" => Some(arn.clone()),
            _ => None,
        })
    }

    #[test]
    fn the_configuration_names_what_is_wrong() {
        assert!(config("redis://127.0.0.1:6379", "0", "").is_ok_and(|config| config.secret_arn.is_none()));
        assert!(config("rediss://cache.example:6379", "1", "arn:x").is_ok_and(|config| config.secret_arn.is_some()));
        for bad in ["127.0.0.1:6379", "http://127.0.0.1", "unix:///tmp/redis.sock", "redis://"] {
            let error = config(bad, "maybe", "").unwrap_err().to_string();
            assert!(error.contains("REDIS_URL must be redis://host:port"), "{bad}: {error}");
            assert!(error.contains("REDIS_CLUSTER must be"), "{error}");
        }
    }

    #[test]
    fn nothing_shows_a_password() {
        let url: RedisUrl = "redis://user:canary@127.0.0.1:6379".parse().unwrap();
        let credentials =
            Credentials::from_secret(&Secret::new(r#"{"username":"app","password":"canary"}"#.into())).unwrap();
        assert!(!format!("{url:?} {credentials:?}").contains("canary"));
    }

    #[test]
    fn the_bound_covers_both_attempts() {
        assert_eq!(COMMAND_BOUND, (CONNECT_TIMEOUT + RESPONSE_TIMEOUT) * 2);
    }
}
