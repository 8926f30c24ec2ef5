//! What SQS may do, and what comes with it.

use e2e::{FunctionProcess, events};
use serde_json::json;

use crate::hands::{deliver, made_once, plenty, unsent};
use crate::row::Seen;
use crate::stream::Stream;

/// Every message four times, in other orders, before and after it had its effect.
pub(crate) async fn duplicates() -> Seen {
    let shop = plenty().await;
    let stream = Stream::of(&shop);
    let mut messages = unsent(&shop, 6).await;
    messages.reverse();
    deliver(&shop, &messages).await;
    messages.rotate_left(2);
    deliver(&shop, &messages).await;
    made_once(&shop, &messages).await;
    messages.reverse();
    deliver(&shop, &messages).await;
    // Once more to a consumer whose answer is seen: all were taken.
    let consumer = FunctionProcess::start(&shop.local, "consumer").await;
    let answer = consumer.invoke(&events::orders(&messages)).await;
    let taken = answer["batchItemFailures"].as_array().map_or(0, |failures| messages.len() - failures.len());
    let tally = stream.ends().await;
    made_once(&shop, &messages).await;
    tally.assert_undisturbed();
    let how = "messages taken again, after they had been sent three times";
    Seen::new(&shop, u32::try_from(taken).unwrap(), how, format!("6 orders UNPAID, each in one step; {tally}"))
}

/// A batch in which the i-th message cannot be read, for every i.
pub(crate) async fn malformed() -> Seen {
    const BATCH: usize = 5;
    let shop = plenty().await;
    let stream = Stream::of(&shop);
    let consumer = FunctionProcess::start(&shop.local, "consumer").await;
    let all = unsent(&shop, BATCH * (BATCH - 1)).await;
    let mut refused = 0;
    for (i, messages) in all.chunks(BATCH - 1).enumerate() {
        let mut bodies: Vec<String> = messages.iter().map(|message| serde_json::to_string(message).unwrap()).collect();
        bodies.insert(i, bodies[0].replace("\"qty\":1", "\"qty\":\"one\""));
        let answer = consumer.invoke(&events::bodies(bodies.into_iter())).await;
        assert_eq!(answer["batchItemFailures"], json!([{"itemIdentifier": events::message_id(i)}]), "{i}");
        refused += 1;
        made_once(&shop, messages).await;
    }
    let tally = stream.ends().await;
    tally.assert_undisturbed();
    Seen::new(&shop, refused, "malformed", format!("only the i-th came back, for every i; {tally}"))
}
