//! Functions that stop at a named step, as an environment that Lambda freezes, and go on when the world has.

use std::time::Duration;

use e2e::process::At;
use e2e::{FunctionProcess, events};
use sale::order::{EndReason, OrderStatus};
use serde_json::json;

use crate::hands::{decided, deliver, hold_of, made_once, pass, plenty, unsent};
use crate::row::Seen;
use crate::stream::Stream;

const FROZEN: Duration = Duration::from_secs(30);

/// The place is taken, and the row comes after the order was given up.
pub(crate) async fn buy() -> Seen {
    let shop = plenty().await;
    let stream = Stream::of(&shop);
    let slow = shop.buyer("slow");
    let function = FunctionProcess::start_at(&shop.local, "buy", At::Freeze("buy.after_script")).await;
    let late = function.send(&slow.buy_event(1, "k1"));
    function.freezes().await;
    let order_no = hold_of(&shop, &slow).await;
    pass(FROZEN).await;
    let row = decided(&shop, &order_no).await;
    assert_eq!((row.status, row.reason), (OrderStatus::Failed, Some(EndReason::Abandoned)));
    function.thaw();
    let answer = function.answer(late).await;
    assert!(answer["statusCode"] == 409 || answer["statusCode"] == 503, "{answer}");
    assert_eq!(shop.row(&order_no).await.unwrap(), row, "the late row changed nothing");
    let tally = stream.ends().await;
    tally.assert_undisturbed();
    let what = format!("ABANDONED meanwhile; the late row loses, answered {}; {tally}", answer["statusCode"]);
    Seen::new(&shop, 1, format!("frozen {}", function.pid()), what)
}

/// A batch is committed, delivered again to somebody else, and told by both.
pub(crate) async fn consumer() -> Seen {
    let shop = plenty().await;
    let stream = Stream::of(&shop);
    let messages = unsent(&shop, 4).await;
    let function = FunctionProcess::start_at(&shop.local, "consumer", At::Freeze("consumer.after_transaction")).await;
    let late = function.send(&events::orders(&messages));
    function.freezes().await;
    deliver(&shop, &messages).await;
    pass(FROZEN).await;
    function.thaw();
    let answer = function.answer(late).await;
    assert_eq!(answer["batchItemFailures"], json!([]), "{answer}");
    made_once(&shop, &messages).await;
    let tally = stream.ends().await;
    tally.assert_undisturbed();
    Seen::new(&shop, 1, format!("frozen {}", function.pid()), format!("4 orders UNPAID, each in one step; {tally}"))
}
