//! Plays the management side of a WebSocket API (`@connections`), so that it can misbehave: sockets that are gone, too many
//! requests, failures, silence. No real gateway does that on demand.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use aws_sdk_apigatewaymanagement::Client;
use aws_sdk_apigatewaymanagement::config::{BehaviorVersion, Config, Credentials, Region};
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

/// How one request is answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// With this status. 200 takes the frame.
    Status(u16),
    /// Not at all, until the client gives up.
    Silence,
}

/// What a socket has seen so far, and what it will do.
#[derive(Default)]
struct Sockets {
    /// Answers still to give, by connection; then `then`, or 200.
    next: HashMap<String, VecDeque<Answer>>,
    then: HashMap<String, Answer>,
    frames: BTreeMap<String, Vec<Value>>,
    posts: HashMap<String, usize>,
    closed: Vec<String>,
}

/// The gateway of one test, gone with it.
pub struct FakeGateway {
    /// The SDK's client for it.
    pub client: Client,
    sockets: Arc<Mutex<Sockets>>,
    server: JoinHandle<()>,
}

impl FakeGateway {
    /// A gateway that takes everything.
    pub async fn start() -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a free port");
        let address = listener.local_addr().expect("a bound socket has an address");
        let sockets = Arc::new(Mutex::new(Sockets::default()));
        let server = tokio::spawn(serve(listener, Arc::clone(&sockets)));
        let client = Client::from_conf(
            Config::builder()
                .behavior_version(BehaviorVersion::latest())
                .region(Region::from_static("us-east-1"))
                .credentials_provider(Credentials::new("test", "test", None, None, "test"))
                .endpoint_url(format!("http://{address}/prod"))
                .build(),
        );
        Self { client, sockets, server }
    }

    /// Answers the next posts to a connection so, one after the other, and then as before.
    pub fn next(&self, connection_id: &str, answers: impl IntoIterator<Item = Answer>) {
        self.lock().next.entry(connection_id.to_owned()).or_default().extend(answers);
    }

    /// Answers every post to a connection so.
    pub fn always(&self, connection_id: &str, answer: Answer) {
        self.lock().then.insert(connection_id.to_owned(), answer);
    }

    /// The frames a connection has been sent since this was last asked.
    pub fn take_frames(&self, connection_id: &str) -> Vec<Value> {
        self.lock().frames.remove(connection_id).unwrap_or_default()
    }

    /// How often it was tried to send something to a connection.
    pub fn posts(&self, connection_id: &str) -> usize {
        self.lock().posts.get(connection_id).copied().unwrap_or_default()
    }

    /// The connections that were told to close, in order.
    pub fn closed(&self) -> Vec<String> {
        self.lock().closed.clone()
    }

    fn lock(&self) -> MutexGuard<'_, Sockets> {
        self.sockets.lock().expect("no test panics while it holds the lock")
    }
}

impl Drop for FakeGateway {
    fn drop(&mut self) {
        self.server.abort();
    }
}

async fn serve(listener: TcpListener, sockets: Arc<Mutex<Sockets>>) {
    while let Ok((stream, _)) = listener.accept().await {
        tokio::spawn(answer(stream, Arc::clone(&sockets)));
    }
}

/// One request on one connection: the answer closes it.
async fn answer(mut stream: TcpStream, sockets: Arc<Mutex<Sockets>>) {
    let Some((method, connection_id, body)) = read_request(&mut stream).await else { return };
    let answer = sockets.lock().expect("no test panics while it holds the lock").take(&method, connection_id, &body);
    match answer {
        Answer::Status(status) => {
            let head = format!("HTTP/1.1 {status} Said So\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
            stream.write_all(head.as_bytes()).await.ok();
        }
        Answer::Silence => tokio::time::sleep(Duration::from_secs(60)).await,
    }
}

impl Sockets {
    fn take(&mut self, method: &str, connection_id: String, body: &[u8]) -> Answer {
        if method == "DELETE" {
            self.closed.push(connection_id);
            return Answer::Status(204);
        }
        assert_eq!(method, "POST");
        *self.posts.entry(connection_id.clone()).or_default() += 1;
        let planned = self.next.get_mut(&connection_id).and_then(VecDeque::pop_front);
        let answer = planned.or(self.then.get(&connection_id).copied()).unwrap_or(Answer::Status(200));
        if answer == Answer::Status(200) {
            let frame = serde_json::from_slice(body).expect("frames are JSON");
            self.frames.entry(connection_id).or_default().push(frame);
        }
        answer
    }
}

/// Method, connection id and body of a request to `/prod/@connections/{id}`.
async fn read_request(stream: &mut TcpStream) -> Option<(String, String, Vec<u8>)> {
    let mut bytes = Vec::new();
    let head_len = loop {
        if let Some(at) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
            break at + 4;
        }
        if stream.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
    };
    let head = String::from_utf8(bytes[..head_len].to_vec()).expect("a head is text");
    let body_len = head
        .lines()
        .filter_map(|line| line.split_once(':'))
        .find(|(name, _)| name.eq_ignore_ascii_case("content-length"))
        .map_or(0, |(_, value)| value.trim().parse().expect("a length is a number"));
    while bytes.len() < head_len + body_len {
        if stream.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
    }
    let mut line = head.split(' ');
    let (method, path) = (line.next()?, line.next()?);
    let path = percent_decoded(path);
    let connection_id = path.strip_prefix("/prod/@connections/").unwrap_or_else(|| panic!("posted to {path}"));
    Some((method.to_owned(), connection_id.to_owned(), bytes[head_len..head_len + body_len].to_vec()))
}

fn percent_decoded(path: &str) -> String {
    let mut parts = path.split('%');
    let mut decoded = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (code, rest) = part.split_at(2);
        decoded.push(u8::from_str_radix(code, 16).expect("two hexadecimal digits").into());
        decoded.push_str(rest);
    }
    decoded
}
