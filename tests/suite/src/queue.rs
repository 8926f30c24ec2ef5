//! SQS in memory, behind the real SDK: it keeps what is sent until the test takes it, and what the test does with it (twice,
//! late, in another order, never) is what SQS may do. SQS itself is met on the local stack.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};

use aws_sdk_sqs::Client;
use aws_sdk_sqs::config::retry::RetryConfig;
use aws_sdk_sqs::config::{BehaviorVersion, Config, Credentials, Region};
use chat::greetings::Greetings;
use sale::dead_letters::DeadLetters;
use sale::queue::{OrderMessage, Queue, Reminders};
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

use crate::wire::{Message, Wire};

#[derive(Default)]
struct Kept {
    queues: HashMap<String, Vec<Letter>>,
    /// Entries of batches that will be refused.
    refuse: usize,
    sent: usize,
}

#[derive(Debug, Clone)]
struct Letter {
    id: String,
    body: String,
    delay_secs: i64,
    /// Received, and neither deleted nor given back.
    in_flight: bool,
}

/// All queues of one test, gone with it.
pub struct TestSqs {
    client: Client,
    address: String,
    kept: Arc<Mutex<Kept>>,
    server: JoinHandle<()>,
}

/// One of them.
pub struct TestQueue {
    url: String,
    client: Client,
    kept: Arc<Mutex<Kept>>,
}

impl TestSqs {
    pub async fn start() -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a free port");
        let address = listener.local_addr().expect("a bound socket has an address").to_string();
        let kept = Arc::new(Mutex::new(Kept::default()));
        let server = tokio::spawn(serve(listener, Arc::clone(&kept)));
        Self { client: client_at(&address), address, kept, server }
    }

    pub fn queue(&self, name: &str) -> TestQueue {
        let url = format!("http://{}/000000000000/{name}", self.address);
        TestQueue { url, client: self.client.clone(), kept: Arc::clone(&self.kept) }
    }
}

impl Drop for TestSqs {
    fn drop(&mut self) {
        self.server.abort();
    }
}

impl TestQueue {
    pub fn greetings(&self) -> Greetings {
        Greetings::new(self.client.clone(), self.url.clone())
    }

    pub fn queue(&self) -> Queue {
        Queue::new(self.client.clone(), self.url.clone())
    }

    pub fn reminders(&self) -> Reminders {
        Reminders::new(self.client.clone(), self.url.clone())
    }

    /// As the dead-letter queue of `origin`.
    pub fn dead_letters_of(&self, origin: &Self) -> DeadLetters {
        DeadLetters::new(self.client.clone(), self.url.clone(), origin.url.clone())
    }

    /// All messages, oldest first.
    pub fn take(&self) -> Vec<OrderMessage> {
        let bodies = self.take_bodies();
        bodies.iter().map(|(body, _)| serde_json::from_str(body).expect("messages are orders")).collect()
    }

    /// All messages as they were sent, each with its delay in seconds.
    pub fn take_bodies(&self) -> Vec<(String, i64)> {
        let kept = std::mem::take(self.lock().queues.entry(self.url.clone()).or_default());
        kept.into_iter().map(|message| (message.body, message.delay_secs)).collect()
    }

    /// Puts a message in, whatever it says.
    pub fn plant(&self, body: &str) {
        self.lock().keep(&self.url, body, 0);
    }

    /// The next `entries` of batches are refused, one by one.
    pub fn refuse(&self, entries: usize) {
        self.lock().refuse = entries;
    }

    fn lock(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().expect("no test panics while it holds the lock")
    }
}

/// A queue where nobody listens.
pub fn unreachable() -> Queue {
    Queue::new(client_at("127.0.0.1:1"), "http://127.0.0.1:1/000000000000/orders".to_owned())
}

fn client_at(address: &str) -> Client {
    let config = Config::builder()
        .behavior_version(BehaviorVersion::latest())
        .region(Region::from_static("us-east-1"))
        .credentials_provider(Credentials::new("test", "test", None, None, "test"))
        .retry_config(RetryConfig::disabled())
        .endpoint_url(format!("http://{address}"))
        .build();
    Client::from_conf(config)
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
        let url = text(&body["QueueUrl"]);
        match call.operation() {
            "SendMessage" => {
                self.keep(&url, &text(&body["MessageBody"]), body["DelaySeconds"].as_i64().unwrap_or(0));
                json!({ "MessageId": "m", "MD5OfMessageBody": "" })
            }
            "SendMessageBatch" => {
                let (mut taken, mut refused) = (Vec::new(), Vec::new());
                for entry in body["Entries"].as_array().expect("a batch has entries") {
                    if self.refuse > 0 {
                        self.refuse -= 1;
                        refused.push(json!({ "Id": entry["Id"], "Code": "InternalError", "SenderFault": false }));
                    } else {
                        self.keep(&url, &text(&entry["MessageBody"]), entry["DelaySeconds"].as_i64().unwrap_or(0));
                        taken.push(json!({ "Id": entry["Id"], "MessageId": "m", "MD5OfMessageBody": "" }));
                    }
                }
                json!({ "Successful": taken, "Failed": refused })
            }
            "ReceiveMessage" => {
                let most = body["MaxNumberOfMessages"].as_u64().unwrap_or(1) as usize;
                let queue = self.queues.entry(url).or_default();
                let messages: Vec<Value> = queue
                    .iter_mut()
                    .filter(|message| !message.in_flight)
                    .take(most)
                    .map(|message| {
                        message.in_flight = true;
                        json!({
                            "MessageId": message.id, "ReceiptHandle": message.id, "Body": message.body,
                            "MD5OfBody": "", "Attributes": { "SentTimestamp": "1780000000000" },
                        })
                    })
                    .collect();
                json!({ "Messages": messages })
            }
            "ChangeMessageVisibility" => {
                let (handle, queue) = (text(&body["ReceiptHandle"]), self.queues.entry(url).or_default());
                queue.iter_mut().filter(|message| message.id == handle).for_each(|message| message.in_flight = false);
                json!({})
            }
            "DeleteMessage" => {
                let handle = text(&body["ReceiptHandle"]);
                self.queues.entry(url).or_default().retain(|message| message.id != handle);
                json!({})
            }
            "GetQueueAttributes" => {
                let queue = self.queues.entry(url).or_default();
                let in_flight = queue.iter().filter(|message| message.in_flight).count();
                json!({ "Attributes": {
                    "ApproximateNumberOfMessages": (queue.len() - in_flight).to_string(),
                    "ApproximateNumberOfMessagesNotVisible": in_flight.to_string(),
                    "ApproximateNumberOfMessagesDelayed": "0",
                } })
            }
            other => panic!("nobody here uses {other}"),
        }
    }

    fn keep(&mut self, url: &str, body: &str, delay_secs: i64) {
        self.sent += 1;
        let message = Letter { id: format!("m{}", self.sent), body: body.to_owned(), delay_secs, in_flight: false };
        self.queues.entry(url.to_owned()).or_default().push(message);
    }
}

fn text(value: &Value) -> String {
    value.as_str().expect("a text").to_owned()
}
