//! The orders queue in memory, behind the real SDK: it keeps what is sent until the test takes it, and what the test does
//! with it (twice, late, in another order, never) is what SQS may do. SQS itself is met on the local stack.

use std::sync::{Arc, Mutex, MutexGuard};

use aws_sdk_sqs::Client;
use aws_sdk_sqs::config::retry::RetryConfig;
use aws_sdk_sqs::config::{BehaviorVersion, Config, Credentials, Region};
use sale::queue::{OrderMessage, Queue};
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

use crate::wire::{Message, Wire};

#[derive(Default)]
struct Kept {
    bodies: Vec<String>,
    /// Entries of batches that will be refused.
    refuse: usize,
}

/// A queue of one test, gone with it.
pub(crate) struct TestQueue {
    pub queue: Queue,
    kept: Arc<Mutex<Kept>>,
    server: JoinHandle<()>,
}

impl TestQueue {
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a free port");
        let address = listener.local_addr().expect("a bound socket has an address");
        let kept = Arc::new(Mutex::new(Kept::default()));
        let server = tokio::spawn(serve(listener, Arc::clone(&kept)));
        Self { queue: at(&address.to_string()), kept, server }
    }

    /// All messages, oldest first.
    pub(crate) fn take(&self) -> Vec<OrderMessage> {
        let bodies = std::mem::take(&mut self.lock().bodies);
        bodies.iter().map(|body| serde_json::from_str(body).expect("messages are orders")).collect()
    }

    /// Puts a message in, whatever it says.
    pub(crate) fn plant(&self, body: &str) {
        self.lock().bodies.push(body.to_owned());
    }

    /// The next `entries` of batches are refused, one by one.
    pub(crate) fn refuse(&self, entries: usize) {
        self.lock().refuse = entries;
    }

    fn lock(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().expect("no test panics while it holds the lock")
    }
}

impl Drop for TestQueue {
    fn drop(&mut self) {
        self.server.abort();
    }
}

/// A queue where nobody listens.
pub(crate) fn unreachable() -> Queue {
    at("127.0.0.1:1")
}

fn at(address: &str) -> Queue {
    let config = Config::builder()
        .behavior_version(BehaviorVersion::latest())
        .region(Region::from_static("us-east-1"))
        .credentials_provider(Credentials::new("test", "test", None, None, "test"))
        .retry_config(RetryConfig::disabled())
        .endpoint_url(format!("http://{address}"))
        .build();
    Queue::new(Client::from_conf(config), format!("http://{address}/000000000000/orders"))
}

async fn serve(listener: TcpListener, kept: Arc<Mutex<Kept>>) {
    while let Ok((stream, _)) = listener.accept().await {
        tokio::spawn(answer(stream, Arc::clone(&kept)));
    }
}

async fn answer(stream: TcpStream, kept: Arc<Mutex<Kept>>) {
    let mut wire = Wire::new(stream);
    while let Some(call) = wire.read().await {
        let answer = kept.lock().expect("no test panics while it holds the lock").answer(&call);
        if wire.write(&Message::answer(200, &answer)).await.is_none() {
            return;
        }
    }
}

impl Kept {
    fn answer(&mut self, call: &Message) -> Value {
        let body: Value = serde_json::from_slice(&call.body).expect("calls are JSON");
        match call.operation() {
            "SendMessage" => {
                self.keep(&body);
                json!({ "MessageId": "m", "MD5OfMessageBody": "" })
            }
            "SendMessageBatch" => {
                let (mut taken, mut refused) = (Vec::new(), Vec::new());
                for entry in body["Entries"].as_array().expect("a batch has entries") {
                    if self.refuse > 0 {
                        self.refuse -= 1;
                        refused.push(json!({ "Id": entry["Id"], "Code": "InternalError", "SenderFault": false }));
                    } else {
                        self.keep(entry);
                        taken.push(json!({ "Id": entry["Id"], "MessageId": "m", "MD5OfMessageBody": "" }));
                    }
                }
                json!({ "Successful": taken, "Failed": refused })
            }
            "GetQueueAttributes" => json!({ "Attributes": {
                "ApproximateNumberOfMessages": self.bodies.len().to_string(),
                "ApproximateNumberOfMessagesNotVisible": "0",
                "ApproximateNumberOfMessagesDelayed": "0",
            } }),
            other => panic!("the sale does not use {other}"),
        }
    }

    fn keep(&mut self, message: &Value) {
        self.bodies.push(message["MessageBody"].as_str().expect("a message has a body").to_owned());
    }
}
