//! Own redis-servers: started on a free port, stand-alone or as a cluster of one node, and ended with the value.

use std::fs::File;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use platform::redis::RedisConnection;

/// How often a start is tried: the port may be gone again by the time the server binds it.
const STARTS: u32 = 5;
/// How long a server may take until it answers (a new cluster node waits two seconds by itself), in steps of [`STEP`].
const STEPS: u32 = 500;
const STEP: Duration = Duration::from_millis(20);

/// The two shapes that Redis comes in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    StandAlone,
    /// `cluster-enabled yes`, all slots on this node.
    Cluster,
}

impl Shape {
    pub const BOTH: [Self; 2] = [Self::StandAlone, Self::Cluster];
}

/// A running redis-server.
pub struct RedisServer {
    shape: Shape,
    port: u16,
    child: Child,
    directory: PathBuf,
}

impl RedisServer {
    pub async fn start(shape: Shape) -> Self {
        Self::start_with(shape, &[]).await
    }

    /// Starts a server with further options (`--name value`).
    pub async fn start_with(shape: Shape, options: &[&str]) -> Self {
        for _ in 0..STARTS {
            let server = Self::spawn(shape, options);
            if let Some(server) = server.ready().await {
                return server;
            }
        }
        panic!("redis-server does not start");
    }

    fn spawn(shape: Shape, options: &[&str]) -> Self {
        static STARTED: AtomicU32 = AtomicU32::new(0);
        let name = format!("hotcake-redis-{}-{}", std::process::id(), STARTED.fetch_add(1, Ordering::Relaxed));
        let directory = std::env::temp_dir().join(name);
        std::fs::create_dir(&directory).unwrap();
        let port = free_port();
        let mut command = Command::new("redis-server");
        command.args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]);
        command.arg("--dir").arg(&directory);
        if shape == Shape::Cluster {
            command.args(["--cluster-enabled", "yes", "--cluster-port", &free_port().to_string()]);
        }
        let log = File::create(log_of(&directory)).unwrap();
        let child = command.args(options).stdin(Stdio::null()).stdout(log).stderr(Stdio::null()).spawn();
        let child = child.expect("redis-server is needed: apt-get install redis-server");
        Self { shape, port, child, directory }
    }

    /// None: it ended, or never answered.
    async fn ready(mut self) -> Option<Self> {
        let mut slots_given = self.shape == Shape::StandAlone;
        for _ in 0..STEPS {
            if self.child.try_wait().unwrap().is_some() {
                break;
            }
            // Asked over a plain connection: a cluster client wants the slots to be there already.
            if let Some(mut plain) = self.plain().await {
                if !slots_given {
                    let given =
                        redis::cmd("CLUSTER").arg("ADDSLOTSRANGE").arg(0).arg(16_383).exec_async(&mut plain).await;
                    slots_given = given.is_ok();
                }
                // Refused while the cluster is not whole.
                if redis::cmd("EXISTS").arg("ready").exec_async(&mut plain).await.is_ok() {
                    return Some(self);
                }
            }
            tokio::time::sleep(STEP).await;
        }
        eprintln!("{}", std::fs::read_to_string(log_of(&self.directory)).unwrap_or_default());
        None
    }

    /// More patient than a function is: a test's own commands may have to wait for a busy machine.
    async fn plain(&self) -> Option<redis::aio::MultiplexedConnection> {
        const PATIENCE: Option<Duration> = Some(Duration::from_secs(10));
        let config =
            redis::AsyncConnectionConfig::new().set_connection_timeout(PATIENCE).set_response_timeout(PATIENCE);
        redis::Client::open(self.url()).unwrap().get_multiplexed_async_connection_with_config(&config).await.ok()
    }

    pub fn shape(&self) -> Shape {
        self.shape
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// A connection as the functions have it.
    pub fn connect(&self) -> RedisConnection {
        RedisConnection::lazy(&self.url().parse().unwrap(), self.shape == Shape::Cluster, None).unwrap()
    }

    /// A plain connection to this very server, for what the functions never do: reconfigure it, look behind the gate.
    pub async fn operator(&self) -> redis::aio::MultiplexedConnection {
        self.plain().await.expect("the server answered before")
    }
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        // Both fail only when there is nothing left to end or to remove.
        self.child.kill().ok();
        self.child.wait().ok();
        std::fs::remove_dir_all(&self.directory).ok();
    }
}

fn log_of(directory: &Path) -> PathBuf {
    directory.join("log")
}

fn free_port() -> u16 {
    TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap().port()
}
