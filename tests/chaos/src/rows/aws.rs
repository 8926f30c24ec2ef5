//! AWS calls that lose their reply, are throttled, or meet another one; and sockets that nobody gets through to.

use std::time::Duration;

use e2e::aws_proxy::{Fault, POST_TO_CONNECTION};
use e2e::{Buyer, FunctionProcess, LossyAws, SOON, Shop, events, eventually};
use sale::order::OrderStatus;
use serde_json::{Value, json};

use crate::hands::{decided, deliver, hold_of, made_once, millis, pass, plenty, unsent};
use crate::row::Seen;
use crate::stream::Stream;

/// More often than any SDK tries.
const ALWAYS: u32 = 1_000;
/// A socket that is younger is not forgotten: it may be about to open.
const YOUNG: Duration = Duration::from_secs(31);

async fn before(shop: &Shop, operation: &'static str, fault: Fault, times: u32) -> LossyAws {
    LossyAws::before(&shop.local.outputs.aws_endpoint, operation, fault, times).await
}

/// A purchase meets the fault, and then buys again with the same id: one order.
async fn purchase(shop: &Shop, buyer: &Buyer, aws: &LossyAws, status: u16) {
    let function = FunctionProcess::start_with(&shop.local, "buy", &[("AWS_ENDPOINT_URL", aws.url())]).await;
    let answer = function.invoke(&buyer.buy_event(1, "k1")).await;
    assert_eq!(answer["statusCode"], status, "{answer}");
    let held = hold_of(shop, buyer).await;
    let retried = buyer.buy(1, "k1").await;
    assert_eq!(e2e::shop::accepted(retried), held.as_str(), "the same request is the same order");
    let row = decided(shop, &held).await;
    assert_eq!(row.trail, [OrderStatus::PreCreated, OrderStatus::Unpaid]);
}

/// Once, and the function itself goes on; always, and the buyer comes again.
async fn purchases(operation: &'static str, fault: Fault, always: u16, how: &str) -> Seen {
    let shop = plenty().await;
    let stream = Stream::of(&shop);
    let mut fired = 0;
    for (buyer, times, status) in [("once", 1, 202), ("always", ALWAYS, always)] {
        let aws = before(&shop, operation, fault, times).await;
        purchase(&shop, &shop.buyer(buyer), &aws, status).await;
        fired += aws.fired();
    }
    let tally = stream.ends().await;
    tally.assert_undisturbed();
    let what = format!("once: 202, always: {always}; the retries are the same orders; {tally}");
    Seen::new(&shop, fired, format!("{operation} {how}"), what)
}

pub(crate) async fn put_reply_lost() -> Seen {
    purchases("PutItem", Fault::LostReply, 503, "replies lost").await
}

/// The row is the outbox: the buyer does not notice.
pub(crate) async fn send_reply_lost() -> Seen {
    purchases("SendMessage", Fault::LostReply, 202, "replies lost").await
}

pub(crate) async fn put_throttled() -> Seen {
    let fault = Fault::Answered(400, "ProvisionedThroughputExceededException");
    purchases("PutItem", fault, 503, "throttled").await
}

/// A batch meets the fault `few` times and is committed; it always meets it, and comes back whole.
async fn batches(fault: Fault, few: u32, how: &str) -> Seen {
    let shop = plenty().await;
    let stream = Stream::of(&shop);
    let messages = unsent(&shop, 8).await;
    let (some, others) = messages.split_at(4);
    let operation = "TransactWriteItems";

    let aws = before(&shop, operation, fault, few).await;
    let answer = batch(&shop, "AWS_ENDPOINT_URL", &aws, some).await;
    assert_eq!(answer["batchItemFailures"], json!([]), "{answer}");
    made_once(&shop, some).await;
    let mut fired = aws.fired();

    let aws = before(&shop, operation, fault, ALWAYS).await;
    let answer = batch(&shop, "AWS_ENDPOINT_URL", &aws, others).await;
    let back = answer["batchItemFailures"].as_array().map_or(0, Vec::len);
    fired += aws.fired();
    match fault {
        // What it cannot hear of is done all the same: whether it says so is up to what it reads.
        Fault::LostReply => {}
        Fault::Answered(..) | Fault::Conflict => assert_eq!(back, others.len(), "{answer}"),
    }
    deliver(&shop, others).await;
    made_once(&shop, others).await;
    let tally = stream.ends().await;
    tally.assert_undisturbed();
    let what = format!("{few} times: committed; always: {back} of 4 come back, never a refusal; {tally}");
    Seen::new(&shop, fired, format!("{operation} {how}"), what)
}

async fn batch(shop: &Shop, variable: &str, aws: &LossyAws, messages: &[sale::queue::OrderMessage]) -> Value {
    let consumer = FunctionProcess::start_with(&shop.local, "consumer", &[(variable, aws.url())]).await;
    consumer.invoke(&events::orders(messages)).await
}

pub(crate) async fn commit_reply_lost() -> Seen {
    batches(Fault::LostReply, 1, "replies lost").await
}

pub(crate) async fn commit_throttled() -> Seen {
    batches(Fault::Answered(400, "ThrottlingException"), 2, "throttled").await
}

pub(crate) async fn commit_conflict() -> Seen {
    batches(Fault::Conflict, 2, "TransactionConflict").await
}

/// A frame does not get through: a socket that is gone is forgotten, the others hear of it now or with the next `sync`.
async fn post(status: u16, kind: &'static str, times: u32) -> Seen {
    let shop = plenty().await;
    let stream = Stream::of(&shop);
    let buyer = shop.buyer("unsent0");
    let mut socket = buyer.online().await;
    if status == 410 {
        pass(YOUNG).await;
    }
    let messages = unsent(&shop, 1).await;
    let order_no = messages[0].order_no.as_str();
    let connections = async || {
        let user = chat::ids::Party::user(buyer.id.parse().unwrap());
        shop.local.connections().live(&user, millis()).await.unwrap().len()
    };
    assert_eq!(connections().await, 1);

    let ws_endpoint = shop.local.deployed("consumer").await.environment["WS_ENDPOINT"].clone();
    let aws = LossyAws::before(&ws_endpoint, POST_TO_CONNECTION, Fault::Answered(status, kind), times).await;
    let answer = batch(&shop, "WS_ENDPOINT", &aws, &messages).await;
    assert_eq!(answer["batchItemFailures"], json!([]), "nobody's order depends on a socket: {answer}");
    made_once(&shop, &messages).await;
    let what = match (status, times) {
        (410, _) => {
            eventually("the row of the socket is removed", SOON, async || (connections().await == 0).then_some(()))
                .await;
            drop(socket);
            let mut socket = buyer.online().await;
            socket.result_of(order_no, SOON).await.unwrap();
            "the socket is forgotten, and the next one hears of it"
        }
        (_, ALWAYS) => {
            e2e::shop::pong(&mut socket).await;
            socket.sync().await.unwrap();
            socket.result_of(order_no, SOON).await.unwrap();
            "left to sync, which tells"
        }
        _ => {
            socket.result_of(order_no, SOON).await.unwrap();
            assert_eq!(connections().await, 1);
            "tried again, and told"
        }
    };
    let tally = stream.ends().await;
    tally.assert_undisturbed();
    Seen::new(&shop, aws.fired(), format!("{POST_TO_CONNECTION} {status}"), format!("{what}; {tally}"))
}

pub(crate) async fn post_gone() -> Seen {
    post(410, "GoneException", ALWAYS).await
}

pub(crate) async fn post_throttled() -> Seen {
    post(429, "LimitExceededException", 2).await
}

pub(crate) async fn post_failed() -> Seen {
    post(500, "InternalServerError", ALWAYS).await
}
