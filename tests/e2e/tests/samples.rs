//! Every sample event does on the deployed function what its name says: `events/<function>/<case>.<expected>.json`.
//!
//! A program of its own: the samples name a sale that it puts up first, and orders that follow from it, so it begins with
//! what they expect and takes each function in turn.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "a test that fails says so by panicking, and lives by the system's clock"
)]

use std::collections::BTreeMap;
use std::fs;

use client::documents::{ActivityAction, ActivityPut, ProductPut, SkuPut};
use contract::root;
use e2e::local::Invoked;
use e2e::shop::done;
use e2e::{Local, SOON, eventually};
use jiff::{SignedDuration, Timestamp};
use kernel::ids::OrderNo;
use sale::order::OrderStatus;
use serde_json::{Value, json};

/// The sale that is on, and its product. The one that begins in 2200 is put up by samples.
const OPEN: (&str, &str) = ("a1", "s10");
/// What `buy/admit.202.json` makes, and the samples of other functions ask about.
const ORDER_NO: &str = "SKSJILKZ6WITBVGJFRRJNRLPDI7D";
/// Samples that others build on, in this order; the rest follows by name.
const FIRST: [&str; 6] = [
    "admin/put-sku.200.json",
    "admin/put-activity.200.json",
    "admin/put-product.200.json",
    "admin/preheat.200.json",
    "buy/admit.202.json",
    "buy/base64-body.202.json",
];

#[tokio::test]
async fn every_sample_event_comes_to_what_its_name_says() {
    let local = Local::up().await;
    put_up_the_open_sale(&local).await;
    let mut samples = samples();
    for name in FIRST {
        let event = samples.remove(name).unwrap_or_else(|| panic!("events/{name} is missing"));
        check(&local, name, &event).await;
    }
    // The consumer's samples and those of orders are about an order that has come to be.
    let order_no: OrderNo = ORDER_NO.parse().unwrap();
    eventually("the sample's order comes to be", SOON, async || {
        let row = local.orders().get(&order_no).await.unwrap();
        row.filter(|row| row.status == OrderStatus::Unpaid)
    })
    .await;
    assert!(samples.len() > 50, "{} samples", samples.len());
    for (name, event) in &samples {
        check(&local, name, event).await;
    }
}

/// An hour of a sale with enough for every sample. On a stack that has it already it begins anew.
async fn put_up_the_open_sale(local: &Local) {
    let (activity_id, sku_id) = OPEN;
    let now = Timestamp::now();
    done(local.admin.put_sku(sku_id, &SkuPut { title: "Hotcake".into(), stock: 100 }).await);
    let activity = ActivityPut {
        name: "Sample".into(),
        starts_at: now - SignedDuration::from_mins(1),
        ends_at: now + SignedDuration::from_hours(1),
        pay_window_secs: 900,
        user_interval_ms: 0,
        device_ip_interval_ms: 0,
    };
    done(local.admin.put_activity(activity_id, &activity).await);
    let product =
        ProductPut { title: "Hotcake".into(), price: 990, currency: "CNY".into(), total: 100, limit_per_user: 3 };
    done(local.admin.put_product(activity_id, sku_id, &product).await);
    done(local.admin.activity_action(activity_id, ActivityAction::Preheat).await);
}

/// All samples by `<function>/<file>`.
fn samples() -> BTreeMap<String, Value> {
    let events = root().join("events");
    let mut samples = BTreeMap::new();
    for folder in fs::read_dir(events).unwrap() {
        let folder = folder.unwrap();
        let function = folder.file_name().into_string().unwrap();
        for file in fs::read_dir(folder.path()).unwrap() {
            let file = file.unwrap();
            let event = serde_json::from_slice(&fs::read(file.path()).unwrap()).unwrap();
            samples.insert(format!("{function}/{}", file.file_name().into_string().unwrap()), event);
        }
    }
    samples
}

async fn check(local: &Local, name: &str, event: &Value) {
    let (function, file) = name.split_once('/').unwrap();
    let expected = file.rsplit('.').nth(1).unwrap();
    let mut event = event.clone();
    // A gateway gives no connection the name of another.
    if let Some(connection_id) = event.pointer_mut("/requestContext/connectionId") {
        *connection_id = json!(format!("e2e{:x}", rand::random::<u64>()));
    }
    let Invoked { payload, error } = local.invoke(function, &event).await;
    assert_eq!(error, None, "{name}: {payload}");
    let fits = match function {
        "consumer" | "order-due" | "chat-greet" => {
            failures(expected, &event).is_some_and(|failed| payload == json!({"batchItemFailures": failed}))
        }
        "sweep" | "chat-sweep" => expected == "ok" && payload.is_null(),
        // What its frames lead to goes out over the socket, and here there is none: the component tests see it.
        "chat-message" => payload == json!({"statusCode": 200}),
        "chat-connect" | "chat-disconnect" => payload == json!({"statusCode": status_of(expected)}),
        _ => payload["statusCode"] == json!(expected.parse::<u16>().unwrap()),
    };
    assert!(fits, "{name} came to {payload}");
}

fn status_of(reply: &str) -> u16 {
    match reply {
        "accepted" => 200,
        "malformed" => 400,
        "unauthenticated" => 401,
        "forbidden" => 403,
        "unavailable" => 503,
        other => panic!("no reply {other}"),
    }
}

/// The messages that come back: none, all, or the first of several.
fn failures(expected: &str, event: &Value) -> Option<Vec<Value>> {
    let mut ids = event["Records"].as_array()?.iter().map(|record| json!({"itemIdentifier": record["messageId"]}));
    match expected {
        "done" => Some(Vec::new()),
        "partial" => Some(ids.next().into_iter().collect()),
        "failed" => Some(ids.collect()),
        _ => None,
    }
}
