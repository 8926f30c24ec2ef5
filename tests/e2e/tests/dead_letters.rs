//! [P7] A message that nobody can read, among nine that are fine.
//!
//! A program of its own: cargo runs these one after the other, so the dead letter is nobody else's, and the orders queue may
//! be hurried for as long as this takes.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "a test that fails says so by panicking, and lives by the system's clock"
)]

use std::time::Duration;

use aws_sdk_sqs::types::{QueueAttributeName, SendMessageBatchRequestEntry};
use client::documents::Verdict;
use e2e::{FunctionProcess, Local, Offer, Shop, eventually};
use kernel::ids::OrderNo;
use sale::order::OrderStatus;
use sale::queue::OrderMessage;

/// Five deliveries, one after the other, and the poller's own pace.
const FIVE_DELIVERIES: Duration = Duration::from_secs(90);
/// The queue makes a message that came back wait for six times the consumer's timeout. Here it waits this long.
const HURRIED_SECS: &str = "2";

#[tokio::test]
async fn of_ten_messages_only_the_malformed_one_comes_back_and_ends_as_a_dead_letter() {
    let shop = Shop::open(Offer::default()).await;
    let local = &shop.local;
    assert!(dead_letters(local).await.is_empty(), "somebody left dead letters behind");
    let orders = nine_orders_that_are_not_sent(&shop).await;
    let mut bodies: Vec<String> = Vec::new();
    for order_no in &orders {
        let row = shop.row(order_no).await.unwrap();
        assert_eq!(row.status, OrderStatus::PreCreated);
        bodies.push(serde_json::to_string(&OrderMessage::from(&row)).unwrap());
    }
    // One word is wrong.
    let malformed = bodies[0].replace("\"qty\":1", "\"qty\":\"one\"");
    assert_ne!(malformed, bodies[0]);
    bodies.insert(6, malformed.clone());

    let patience = visibility(local).await;
    set_visibility(local, HURRIED_SECS).await;
    send_all(local, &bodies).await;
    for order_no in &orders {
        let row = e2e::shop::settled(&shop, order_no).await;
        assert_eq!(row.trail, [OrderStatus::PreCreated, OrderStatus::Unpaid]);
    }
    let dead = eventually("the malformed message is a dead letter", FIVE_DELIVERIES, async || {
        Some(dead_letters(local).await).filter(|dead| !dead.is_empty())
    })
    .await;
    set_visibility(local, &patience).await;
    assert_eq!(dead, [malformed], "byte for byte, and no other");
    for order_no in &orders {
        assert_eq!(shop.row(order_no).await.unwrap().trail.len(), 2, "the others had their effect once");
    }

    // Never a word of "all is well" while something is dead.
    let report = shop.audit_once().await;
    assert_eq!(report.verdict, Verdict::Fail);
    let named: Vec<&str> = report.violations.iter().map(|violation| violation.invariant.as_str()).collect();
    assert_eq!(named, ["I9"], "{report:?}");
    local.sqs().purge_queue().queue_url(&local.outputs.queues.dlq).send().await.unwrap();
    assert_eq!(shop.audit().await.counts.committed, 9);
}

/// Nine orders whose message was never sent: the queue did not answer, and the row is the outbox.
async fn nine_orders_that_are_not_sent(shop: &Shop) -> Vec<OrderNo> {
    let nowhere = ("ORDER_QUEUE_URL", "http://127.0.0.1:9/000000000000/nowhere");
    let buy = FunctionProcess::start_with(&shop.local, "buy", &[nowhere]).await;
    let mut orders = Vec::new();
    for n in 1..=9 {
        let answer = buy.invoke(&shop.buyer(&format!("u{n}")).buy_event(1, "k1")).await;
        assert_eq!(answer["statusCode"], 202, "{answer}");
        let body: serde_json::Value = serde_json::from_str(answer["body"].as_str().unwrap()).unwrap();
        orders.push(body["orderNo"].as_str().unwrap().parse().unwrap());
    }
    orders
}

async fn send_all(local: &Local, bodies: &[String]) {
    let entries = bodies
        .iter()
        .enumerate()
        .map(|(n, body)| SendMessageBatchRequestEntry::builder().id(n.to_string()).message_body(body).build().unwrap());
    let sent =
        local.sqs().send_message_batch().queue_url(&local.outputs.queues.orders).set_entries(Some(entries.collect()));
    assert!(sent.send().await.unwrap().failed().is_empty());
}

/// Looks at the dead letters without taking them.
async fn dead_letters(local: &Local) -> Vec<String> {
    let answer = local
        .sqs()
        .receive_message()
        .queue_url(&local.outputs.queues.dlq)
        .max_number_of_messages(10)
        .visibility_timeout(0);
    let messages = answer.send().await.unwrap().messages.unwrap_or_default();
    messages.into_iter().filter_map(|message| message.body).collect()
}

async fn visibility(local: &Local) -> String {
    let name = QueueAttributeName::VisibilityTimeout;
    let answer =
        local.sqs().get_queue_attributes().queue_url(&local.outputs.queues.orders).attribute_names(name.clone());
    answer.send().await.unwrap().attributes.unwrap()[&name].clone()
}

async fn set_visibility(local: &Local, seconds: &str) {
    let name = QueueAttributeName::VisibilityTimeout;
    local
        .sqs()
        .set_queue_attributes()
        .queue_url(&local.outputs.queues.orders)
        .attributes(name, seconds)
        .send()
        .await
        .unwrap();
}
