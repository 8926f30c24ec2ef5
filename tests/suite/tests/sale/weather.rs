//! A wire to DynamoDB that counts what passes and may misbehave: what AWS does under load, and no local database does.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::config::retry::RetryConfig;
use serde_json::{Value, json};
use suite::dynamo::Dynamo;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

use suite::wire::{Message, Wire};

/// What happens to a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// Not done: another transaction is on the same item.
    Conflict,
    /// Not done: too many calls.
    Throttled,
    /// Done, but nobody is told.
    ReplyCut,
    /// Done a while later: others come first.
    Late,
}

/// How late.
const LATE: Duration = Duration::from_millis(400);

#[derive(Default)]
struct Forecast {
    /// By operation: faults to come, one call each; then what happens to every call.
    next: HashMap<String, VecDeque<Fault>>,
    always: HashMap<String, Fault>,
    calls: HashMap<String, usize>,
}

/// The wire of one test, gone with it.
pub(crate) struct Weather {
    /// The SDK's client through it.
    pub client: Client,
    forecast: Arc<Mutex<Forecast>>,
    server: JoinHandle<()>,
}

impl Weather {
    /// A fair wire.
    pub(crate) async fn before(dynamo: &Dynamo) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a free port");
        let address = listener.local_addr().expect("a bound socket has an address");
        let forecast = Arc::new(Mutex::new(Forecast::default()));
        let server = tokio::spawn(serve(listener, dynamo.address, Arc::clone(&forecast)));
        // The SDK's retries are real; only their waits are short.
        let retries = RetryConfig::standard().with_initial_backoff(Duration::from_millis(1));
        let config =
            dynamo.client.config().to_builder().endpoint_url(format!("http://{address}")).retry_config(retries);
        Self { client: Client::from_conf(config.build()), forecast, server }
    }

    /// The next calls of `operation` meet these faults.
    pub(crate) fn next(&self, operation: &str, faults: impl IntoIterator<Item = Fault>) {
        self.lock().next.entry(operation.to_owned()).or_default().extend(faults);
    }

    /// Every call of `operation` meets this fault.
    pub(crate) fn always(&self, operation: &str, fault: Fault) {
        self.lock().always.insert(operation.to_owned(), fault);
    }

    pub(crate) fn clear(&self) {
        let mut forecast = self.lock();
        forecast.next.clear();
        forecast.always.clear();
    }

    /// Calls of `operation` since this was last asked, retries of the SDK among them.
    pub(crate) fn calls(&self, operation: &str) -> usize {
        self.lock().calls.remove(operation).unwrap_or_default()
    }

    fn lock(&self) -> MutexGuard<'_, Forecast> {
        self.forecast.lock().expect("no test panics while it holds the lock")
    }
}

impl Drop for Weather {
    fn drop(&mut self) {
        self.server.abort();
    }
}

impl Forecast {
    fn meet(&mut self, operation: &str) -> Option<Fault> {
        *self.calls.entry(operation.to_owned()).or_default() += 1;
        let next = self.next.get_mut(operation).and_then(VecDeque::pop_front);
        next.or(self.always.get(operation).copied())
    }
}

async fn serve(listener: TcpListener, database: std::net::SocketAddr, forecast: Arc<Mutex<Forecast>>) {
    while let Ok((stream, _)) = listener.accept().await {
        let forecast = Arc::clone(&forecast);
        tokio::spawn(async move {
            let database = TcpStream::connect(database).await.expect("the database listens");
            carry(Wire::new(stream), Wire::new(database), &forecast).await;
        });
    }
}

/// Carries calls until one end hangs up, or a reply is cut.
async fn carry(mut client: Wire, mut database: Wire, forecast: &Mutex<Forecast>) -> Option<()> {
    loop {
        let call = client.read().await?;
        let fault = forecast.lock().expect("no test panics while it holds the lock").meet(call.operation());
        let answer = match fault {
            Some(Fault::Conflict) => conflict(&call),
            Some(Fault::Throttled) => error("ThrottlingException", json!({})),
            Some(Fault::ReplyCut | Fault::Late) | None => {
                if fault == Some(Fault::Late) {
                    tokio::time::sleep(LATE).await;
                }
                database.write(&call).await?;
                database.read().await?
            }
        };
        if fault == Some(Fault::ReplyCut) {
            return None;
        }
        client.write(&answer).await?;
    }
}

/// As DynamoDB refuses a call that met a transaction: on the last item of a transaction, or on the only one.
fn conflict(call: &Message) -> Message {
    let body: Value = serde_json::from_slice(&call.body).expect("calls are JSON");
    let Some(actions) = body["TransactItems"].as_array() else {
        return error("TransactionConflictException", json!({}));
    };
    let mut reasons = vec![json!({ "Code": "None" }); actions.len()];
    if let Some(last) = reasons.last_mut() {
        *last = json!({ "Code": "TransactionConflict", "Message": "Transaction is ongoing for the item" });
    }
    error("TransactionCanceledException", json!({ "CancellationReasons": reasons }))
}

fn error(name: &str, mut body: Value) -> Message {
    body["__type"] = json!(format!("com.amazonaws.dynamodb.v20120810#{name}"));
    body["message"] = json!("as the test wants it");
    Message::answer(400, &body)
}
