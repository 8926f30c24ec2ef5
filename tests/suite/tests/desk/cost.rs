//! What a frame costs: round trips to the table before its sender is answered, and write units. They are what the chat costs
//! on AWS, so they are kept by a test.

use std::sync::{Arc, Mutex};

use aws_sdk_dynamodb::config::interceptors::BeforeTransmitInterceptorContextRef;
use aws_sdk_dynamodb::config::{ConfigBag, Intercept, RuntimeComponents};
use aws_sdk_dynamodb::error::BoxError;
use serde_json::{Value, json};
use suite::chat_house::types;

use crate::hall::Hall;

/// A write unit writes so much.
const UNIT_BYTES: usize = 1_024;

/// Everything that is asked of DynamoDB, in order.
#[derive(Debug, Clone, Default)]
struct Till(Arc<Mutex<Vec<Call>>>);

#[derive(Debug)]
struct Call {
    operation: String,
    request: Value,
}

impl Intercept for Till {
    fn name(&self) -> &'static str {
        "till"
    }

    fn read_before_transmit(
        &self,
        context: &BeforeTransmitInterceptorContextRef<'_>,
        _: &RuntimeComponents,
        _: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        let request = context.request();
        let target = request.headers().get("x-amz-target").unwrap_or_default();
        let operation = target.rsplit('.').next().unwrap_or_default().to_owned();
        let request = serde_json::from_slice(request.body().bytes().unwrap_or_default())?;
        self.0.lock().unwrap().push(Call { operation, request });
        Ok(())
    }
}

impl Till {
    /// What was asked since this was last called.
    fn take(&self) -> Vec<Call> {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

impl Call {
    /// Units of the writes in it, and how many items are written. Items that are put are weighed; updates are of rows that
    /// are small.
    fn writes(&self) -> (usize, usize) {
        let units = |put: &Value| put["Item"].as_object().map_or(1, |item| weight(item).div_ceil(UNIT_BYTES));
        match self.operation.as_str() {
            "BatchGetItem" | "GetItem" | "Query" => (0, 0),
            "PutItem" => (units(&self.request), 1),
            "UpdateItem" | "DeleteItem" => (1, 1),
            "TransactWriteItems" => {
                let items = self.request["TransactItems"].as_array().unwrap();
                // A transaction writes everything twice.
                (2 * items.iter().map(|item| units(&item["Put"])).sum::<usize>(), items.len())
            }
            "BatchWriteItem" => {
                let tables = self.request["RequestItems"].as_object().unwrap();
                let items = tables.values().map(|items| items.as_array().unwrap().len()).sum();
                (items, items)
            }
            other => panic!("{other}"),
        }
    }
}

/// Bytes of an item: names and values.
fn weight(item: &serde_json::Map<String, Value>) -> usize {
    fn value(of: &Value) -> usize {
        let (kind, of) = of.as_object().unwrap().iter().next().unwrap();
        match (kind.as_str(), of) {
            ("M", Value::Object(map)) => 3 + map.iter().map(|(name, of)| 1 + name.len() + value(of)).sum::<usize>(),
            ("L", Value::Array(list)) => 3 + list.iter().map(|of| 1 + value(of)).sum::<usize>(),
            ("SS", Value::Array(set)) => set.iter().map(|of| of.as_str().unwrap().len()).sum(),
            (_, Value::String(text)) => text.len(),
            _ => 1,
        }
    }
    item.iter().map(|(name, of)| name.len() + value(of)).sum()
}

fn operations(calls: &[Call]) -> Vec<&str> {
    calls.iter().map(|call| call.operation.as_str()).collect()
}

/// Units and items.
fn written(calls: &[Call]) -> (usize, usize) {
    let each = calls.iter().map(Call::writes);
    each.fold((0, 0), |sum, (units, items)| (sum.0 + units, sum.1 + items))
}

/// A customer and an agent in a session, and the till.
async fn served() -> (Hall, Till, String) {
    let mut hall = Hall::open().await;
    let till = Till::default();
    let config = hall.house.dynamo.client.config().to_builder().interceptor(till.clone()).build();
    hall.house.service = hall.house.service_over(&aws_sdk_dynamodb::Client::from_conf(config));
    hall.agent("g1").await;
    hall.customer("u1").await;
    let session = hall.session("u1").await;
    // Heard of just now, so no heartbeat is due.
    hall.text("u1", &session, "hello").await;
    assert!(!till.take().is_empty());
    (hall, till, session)
}

#[tokio::test]
async fn a_word_is_two_round_trips_to_sent_and_six_units() {
    let (hall, till, session) = served().await;
    let words = [("u1", "hello".to_owned()), ("g1", "字".repeat(200)), ("u1", "👩‍👩‍👧‍👦".repeat(20))];
    for (nth, (who, content)) in words.into_iter().enumerate() {
        // As long as a client's name for it may reasonably be.
        assert_eq!(types(&hall.named(who, &session, &content, &format!("{nth:036}")).await), ["sent"]);
        let calls = till.take();
        assert_eq!(operations(&calls)[..2], ["BatchGetItem", "TransactWriteItems"]);
        // The rest is about whom to tell, and is beside the answer.
        assert_eq!(operations(&calls)[2..], ["Query", "Query"], "the connections of both sides");
        assert_eq!(written(&calls), (6, 3), "{who}: session, message and its name");
    }
    // Said again it is asked for and written once more, in vain; nobody else is told.
    let again = hall.named("u1", &session, "hello", &format!("{:036}", 0)).await;
    assert_eq!((types(&again), &again[0]["duplicate"]), (vec!["sent"], &json!(true)));
    assert_eq!(operations(&till.take()), ["BatchGetItem", "TransactWriteItems"]);
    // A long one costs what its length costs, and a refusal nothing.
    hall.text("u1", &session, &"字".repeat(4_000)).await;
    assert_eq!(written(&till.take()), (2 * (1 + 12 + 1), 3));
    hall.customer("u2").await;
    till.take();
    hall.text("u2", &session, "let me in").await;
    assert_eq!(written(&till.take()), (0, 0));
}

#[tokio::test]
async fn reading_costs_one_unit_and_being_there_nothing() {
    let (hall, till, session) = served().await;
    let head = hall.state(&session).await["head"].as_u64().unwrap();
    till.take();
    let ack = json!({"type": "ack", "sessionId": session, "lastSeq": head});
    hall.say("g1", ack.clone()).await;
    let calls = till.take();
    assert_eq!((operations(&calls)[..2].to_vec(), written(&calls)), (vec!["BatchGetItem", "UpdateItem"], (1, 1)));
    // Said again it is known from what was read.
    hall.say("g1", ack).await;
    assert_eq!(operations(&till.take()), ["BatchGetItem"]);

    for frame in [json!({"type": "ping"}), json!({"type": "typing", "sessionId": session})] {
        for who in ["u1", "g1"] {
            hall.say(who, frame.clone()).await;
            assert_eq!(written(&till.take()), (0, 0), "{who}: {frame}");
        }
    }
    // An agent's heartbeat is written when the last one that was is half a minute old.
    hall.house.pass_secs(30);
    hall.say("g1", json!({"type": "ping"})).await;
    assert_eq!(written(&till.take()), (1, 1));

    // A replay reads; only the first frame of a connection writes that it is live.
    let sync = json!({"type": "sync", "sessions": {&session: 0}});
    hall.say("u1", sync.clone()).await;
    let calls = till.take();
    assert_eq!((operations(&calls)[0], written(&calls)), ("BatchGetItem", (0, 0)));
    let connection = hall.house.connection("tablet", "u1");
    hall.house.register(&connection).await;
    till.take();
    hall.say("tablet", sync.clone()).await;
    assert_eq!(written(&till.take()), (4, 2), "both its rows, in one transaction");
    hall.say("tablet", sync).await;
    assert_eq!(written(&till.take()), (0, 0));
}
