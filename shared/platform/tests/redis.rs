//! [`RedisConnection`] against real servers: started, stopped, restarted, paused, demoted and moved away from.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test that fails may say so by panicking")]

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use platform::redis::{COMMAND_BOUND, Credentials, RedisConnection, RedisUrl};
use platform::secrets::Secret;
use redis::{RedisResult, cmd};

/// How long a server may take to start, and two of them to agree on who has which slots.
const PATIENCE: Duration = Duration::from_secs(10);
const STEP: Duration = Duration::from_millis(20);

/// A redis-server of this test, ended with it.
struct Server {
    port: u16,
    process: Child,
}

impl Server {
    fn start(port: u16, options: &[&str]) -> Self {
        let process = Command::new("redis-server")
            .args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"])
            .args(["--cluster-config-file", &format!("nodes-{port}.conf"), "--dir", env!("CARGO_TARGET_TMPDIR")])
            .args(options)
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let server = Self { port, process };
        wait_until(|| TcpStream::connect(("127.0.0.1", port)).is_ok());
        server
    }

    fn single() -> Self {
        Self::start(free_port(), &[])
    }

    /// A node of a cluster that owns `slots`.
    fn node(port: u16, slots: (u16, u16)) -> Self {
        std::fs::remove_file(format!("{}/nodes-{port}.conf", env!("CARGO_TARGET_TMPDIR"))).ok();
        let server = Self::start(port, &["--cluster-enabled", "yes"]);
        server.tell(&format!("CLUSTER ADDSLOTSRANGE {} {}", slots.0, slots.1));
        server
    }

    /// Sends one command by hand and returns the beginning of the answer.
    fn tell(&self, command: &str) -> String {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        stream.write_all(format!("{command}\r\n").as_bytes()).unwrap();
        let mut answer = [0; 1024];
        let length = stream.read(&mut answer).unwrap();
        String::from_utf8_lossy(&answer[..length]).into_owned()
    }

    fn url(&self) -> RedisUrl {
        url(self.port)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.process.kill().ok();
        self.process.wait().ok();
    }
}

/// Forwards new connections to where it is pointed, as a name does whose address changes. Old connections stay where they are.
struct Name {
    port: u16,
    target: Arc<Mutex<u16>>,
}

impl Name {
    fn of(server: &Server) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let target = Arc::new(Mutex::new(server.port));
        let current = Arc::clone(&target);
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let port = *current.lock().unwrap();
                let server = TcpStream::connect(("127.0.0.1", port)).unwrap();
                forward(client.try_clone().unwrap(), server.try_clone().unwrap());
                forward(server, client);
            }
        });
        Self { port, target }
    }

    fn point_to(&self, server: &Server) {
        *self.target.lock().unwrap() = server.port;
    }
}

fn forward(mut from: TcpStream, mut to: TcpStream) {
    thread::spawn(move || {
        std::io::copy(&mut from, &mut to).ok();
        to.shutdown(Shutdown::Both).ok();
    });
}

fn url(port: u16) -> RedisUrl {
    format!("redis://127.0.0.1:{port}").parse().unwrap()
}

/// A port that is free, and leaves room for a cluster's bus, which takes the port 10,000 above.
fn free_port() -> u16 {
    loop {
        let address: SocketAddr = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        if address.port() < 55_000 && TcpListener::bind(("127.0.0.1", address.port() + 10_000)).is_ok() {
            return address.port();
        }
    }
}

fn wait_until(mut reached: impl FnMut() -> bool) {
    for _ in 0..PATIENCE.as_millis() / STEP.as_millis() {
        if reached() {
            return;
        }
        thread::sleep(STEP);
    }
    panic!("not reached within {PATIENCE:?}");
}

fn connection(url: &RedisUrl, cluster: bool) -> RedisConnection {
    RedisConnection::lazy(url, cluster, None).unwrap()
}

/// Sets a key. Whatever happens, an answer comes within the bound (and a margin for a busy machine).
async fn set(connection: &mut RedisConnection, key: &str) -> RedisResult<()> {
    let mut set = cmd("SET");
    let answer = set.arg(key).arg("1").query_async(connection);
    tokio::time::timeout(COMMAND_BOUND + Duration::from_secs(2), answer).await.expect("bounded")
}

#[tokio::test]
async fn a_server_that_is_down_fails_the_command_and_not_the_start() {
    for cluster in [false, true] {
        let port = free_port();
        let mut connection = connection(&url(port), cluster);
        assert!(set(&mut connection, "a").await.is_err());

        let _server = if cluster { Server::node(port, (0, 16_383)) } else { Server::start(port, &[]) };
        settle(&mut connection).await;
        assert_eq!(set(&mut connection, "a").await, Ok(()), "cluster: {cluster}");
    }
}

#[tokio::test]
async fn a_restart_is_not_noticed() {
    for cluster in [false, true] {
        let port = free_port();
        let start = || {
            if cluster { Server::node(port, (0, 16_383)) } else { Server::start(port, &[]) }
        };
        let server = start();
        let mut connection = connection(&url(port), cluster);
        settle(&mut connection).await;
        drop(server);

        let server = start();
        wait_until(|| !cluster || server.tell("CLUSTER INFO").contains("cluster_state:ok"));
        assert_eq!(set(&mut connection, "a").await, Ok(()), "cluster: {cluster}");
    }
}

/// Repeats a command until it succeeds: a cluster takes a moment to declare itself complete.
async fn settle(connection: &mut RedisConnection) {
    for _ in 0..PATIENCE.as_millis() / STEP.as_millis() {
        if set(connection, "settle").await.is_ok() {
            return;
        }
        tokio::time::sleep(STEP).await;
    }
    panic!("not reached within {PATIENCE:?}");
}

#[tokio::test]
async fn a_demoted_primary_is_left_for_the_new_one() {
    let (old, new) = (Server::single(), Server::single());
    let name = Name::of(&old);
    let mut connection = connection(&url(name.port), false);
    assert_eq!(set(&mut connection, "a").await, Ok(()));

    old.tell(&format!("REPLICAOF 127.0.0.1 {}", new.port));
    // The name still leads to the old primary: the refusal is passed on.
    assert_eq!(set(&mut connection, "b").await.unwrap_err().code(), Some("READONLY"));

    name.point_to(&new);
    assert_eq!(set(&mut connection, "c").await, Ok(()));
    assert_eq!(new.tell("EXISTS c"), ":1\r\n");
}

#[tokio::test]
async fn a_pipeline_leaves_a_demoted_primary_too() {
    let (old, new) = (Server::single(), Server::single());
    let name = Name::of(&old);
    let mut connection = connection(&url(name.port), false);
    assert_eq!(set(&mut connection, "a").await, Ok(()));
    old.tell(&format!("REPLICAOF 127.0.0.1 {}", new.port));
    name.point_to(&new);

    let mut pipeline = redis::pipe();
    pipeline.get("missing").set("d", 1);
    let replies: (Option<String>, String) = pipeline.query_async(&mut connection).await.unwrap();
    assert_eq!(replies, (None, "OK".to_owned()));
    assert_eq!(new.tell("EXISTS d"), ":1\r\n");
}

#[tokio::test]
async fn a_server_that_lost_the_slot_is_left_for_its_owner() {
    let (first, second) = (Server::node(free_port(), (0, 8_191)), Server::node(free_port(), (8_192, 16_383)));
    first.tell(&format!("CLUSTER MEET 127.0.0.1 {}", second.port));
    let complete = |server: &Server| server.tell("CLUSTER INFO").contains("cluster_state:ok");
    wait_until(|| complete(&first) && complete(&second));

    // "foo" is in slot 12182, of the second; "bar" in slot 5061, of the first.
    let name = Name::of(&first);
    let mut single = connection(&url(name.port), false);
    assert_eq!(set(&mut single, "bar").await, Ok(()));
    assert_eq!(set(&mut single, "foo").await.unwrap_err().code(), Some("MOVED"));
    name.point_to(&second);
    assert_eq!(set(&mut single, "foo").await, Ok(()));

    // The cluster client finds the owner by itself.
    let mut cluster = connection(&first.url(), true);
    settle(&mut cluster).await;
    assert_eq!(set(&mut cluster, "foo").await, Ok(()));
    assert_eq!(set(&mut cluster, "bar").await, Ok(()));
}

#[tokio::test]
async fn a_server_that_hangs_costs_a_bounded_wait() {
    for cluster in [false, true] {
        let server = if cluster { Server::node(free_port(), (0, 16_383)) } else { Server::single() };
        let mut connection = connection(&server.url(), cluster);
        settle(&mut connection).await;
        server.tell("CLIENT PAUSE 5000");
        assert!(set(&mut connection, "a").await.unwrap_err().is_timeout(), "cluster: {cluster}");
        server.tell("CLIENT UNPAUSE");
        settle(&mut connection).await;
    }
}

#[tokio::test]
async fn the_user_of_the_secret_is_who_connects() {
    let secret = Secret::new(r#"{"username":"app","password":"word"}"#.into());
    let credentials = Credentials::from_secret(&secret).unwrap();
    for cluster in [false, true] {
        let port = free_port();
        let server = if cluster { Server::node(port, (0, 16_383)) } else { Server::start(port, &[]) };
        server.tell("ACL SETUSER app on >word ~* &* +@all");
        wait_until(|| !cluster || server.tell("CLUSTER INFO").contains("cluster_state:ok"));
        server.tell("ACL SETUSER default off");

        let mut known = RedisConnection::lazy(&server.url(), cluster, Some(&credentials)).unwrap();
        assert_eq!(set(&mut known, "a").await, Ok(()), "cluster: {cluster}");
        let mut stranger = connection(&server.url(), cluster);
        assert!(set(&mut stranger, "a").await.is_err(), "cluster: {cluster}");
    }
}

#[tokio::test]
async fn scripts_survive_a_flushed_cache() {
    for cluster in [false, true] {
        let server = if cluster { Server::node(free_port(), (0, 16_383)) } else { Server::single() };
        let mut connection = connection(&server.url(), cluster);
        settle(&mut connection).await;
        let script = redis::Script::new("return redis.call('INCR', KEYS[1])");
        for expected in 1..=2 {
            server.tell("SCRIPT FLUSH");
            let count: i64 = script.key("count").invoke_async(&mut connection).await.unwrap();
            assert_eq!(count, expected, "cluster: {cluster}");
        }
    }
}
