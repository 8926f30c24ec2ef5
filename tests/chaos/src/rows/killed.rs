//! Functions that die of SIGKILL at a named step, and who goes on.

use std::time::Duration;

use client::documents::{ActivityAction, ProblemCode};
use client::{Cashier, Method, Outcome, Paying, RawRequest};
use e2e::process::CRASH_AT;
use e2e::{FunctionProcess, Offer, Shop, events, eventually};
use sale::order::{EndReason, OrderStatus};
use sale::store::payments::PaymentState;
use serde_json::Value;

use crate::hands::{
    Broom, PLENTY, SETTLED_WITHIN, acquitted, at_the_cashier, decided, deliver, dies, hasty, hold_of, made_once, pass,
    plenty, run_out, unpaid, unsent, until,
};
use crate::row::Seen;
use crate::stream::{Stream, insist};

/// How often a row tries to be there before the deployed functions are.
const TRIES: usize = 5;

/// Two purchases die; one buyer comes again with the same id, the other one does not.
pub(crate) async fn buy(point: &'static str) -> Seen {
    let shop = plenty().await;
    let stream = Stream::of(&shop);
    let (persistent, patient) = (shop.buyer("persistent"), shop.buyer("patient"));
    let pids = [
        dies(&shop, "buy", point, &persistent.buy_event(1, "k1")).await,
        dies(&shop, "buy", point, &patient.buy_event(1, "k1")).await,
    ];
    let (kept, left) = (hold_of(&shop, &persistent).await, hold_of(&shop, &patient).await);
    let retried = insist(&mut Vec::new(), async || persistent.api.buy(&persistent.wish(1), Some("k1")).await).await;
    assert_eq!(retried.unwrap().order_no, kept.as_str(), "the same request is the same order");
    assert_eq!(decided(&shop, &kept).await.status, OrderStatus::Unpaid);
    let row = decided(&shop, &left).await;
    let expected = match point {
        "buy.after_script" => (OrderStatus::Failed, Some(EndReason::Abandoned)),
        _ => (OrderStatus::Unpaid, None),
    };
    assert_eq!((row.status, row.reason), expected);
    let tally = stream.ends().await;
    tally.assert_undisturbed();
    let what = format!("the retry is the same order; the other one is {:?}; {tally}", row.status);
    Seen::new(&shop, 2, format!("killed {pids:?}"), what)
}

/// A batch of four dies, and is delivered again.
pub(crate) async fn consumer(point: &'static str) -> Seen {
    let shop = plenty().await;
    let stream = Stream::of(&shop);
    let messages = unsent(&shop, 4).await;
    let pid = dies(&shop, "consumer", point, &events::orders(&messages)).await;
    deliver(&shop, &messages).await;
    made_once(&shop, &messages).await;
    let tally = stream.ends().await;
    tally.assert_undisturbed();
    Seen::new(&shop, 1, format!("killed {pid}"), format!("4 orders UNPAID, each in one step; {tally}"))
}

/// The notice's function dies with the money recorded; the provider tells again.
pub(crate) async fn pay() -> Seen {
    let shop = plenty().await;
    let stream = Stream::of(&shop);
    let (order_no, payment) = at_the_cashier(&shop.buyer("payer"), "k1").await;
    let transaction = format!("tx-{}", shop.activity_id);
    let notice = events::paid(&shop.local, &payment, &transaction);
    let pid = dies(&shop, "pay-notify", "pay.after_transaction", &notice).await;
    let row = shop.row(&order_no).await.unwrap();
    assert_eq!(row.status, OrderStatus::Paid);
    let again = Paying { transaction_id: Some(transaction), ..Paying::new(Outcome::Success) };
    let cashier = Cashier::new(&shop.local.outputs).unwrap();
    assert_eq!(cashier.pay(&payment.pay_url, &again).await.unwrap().notified, 1, "the second notice is taken");
    let told = acquitted(&shop, &order_no).await;
    assert_eq!((told.status, told.paid_at), (OrderStatus::Paid, row.paid_at));
    let tally = stream.ends().await;
    tally.assert_undisturbed();
    Seen::new(&shop, 1, format!("killed {pid}"), format!("PAID once, and everybody hears of it; {tally}"))
}

/// A cancellation dies; the buyer asks again.
pub(crate) async fn cancel() -> Seen {
    let shop = plenty().await;
    let stream = Stream::of(&shop);
    let buyer = shop.buyer("leaver");
    let order_no = unpaid(&buyer, "k1").await;
    let event = events::cancel(&buyer, order_no.as_str());
    let pid = dies(&shop, "orders", "cancel.after_transaction", &event).await;
    assert_eq!(shop.row(&order_no).await.unwrap().status, OrderStatus::Cancelled);
    insist(&mut Vec::new(), async || buyer.api.cancel(order_no.as_str()).await).await.unwrap();
    acquitted(&shop, &order_no).await;
    assert!(shop.snapshot().await.units.keys().all(|user| user.user_id.as_str() != buyer.id), "the unit is back");
    let tally = stream.ends().await;
    tally.assert_undisturbed();
    Seen::new(&shop, 1, format!("killed {pid}"), format!("CANCELLED once, and the unit is back; {tally}"))
}

/// Whoever sees to an order that owes news dies; the sweep goes on.
pub(crate) async fn due(point: &'static str) -> Seen {
    let shop = match point {
        // That step is about orders that run out of time.
        "due.after_transaction" => hasty().await,
        _ => plenty().await,
    };
    let stream = Stream::of(&shop);
    for n in 0..TRIES {
        let buyer = shop.buyer(&format!("due{n}"));
        let mut due = FunctionProcess::start_with(&shop.local, "order-due", &[(CRASH_AT, point)]).await;
        let (broom, order_no) = match point {
            "due.after_transaction" => run_out(&shop, &buyer).await,
            _ => {
                let (order_no, payment) = at_the_cashier(&buyer, "k1").await;
                let notice = events::paid(&shop.local, &payment, &format!("tx-{n}-{}", shop.activity_id));
                let broom = Broom::take(&shop.local).await;
                dies(&shop, "pay-notify", "pay.after_transaction", &notice).await;
                (broom, order_no)
            }
        };
        let reminder = due.send(&events::reminders(std::slice::from_ref(&order_no)));
        let died = due.dies_at_or_answers(point, reminder).await;
        let owed = shop.row(&order_no).await.unwrap();
        broom.let_go().await;
        if !died || !owed.is_owed() {
            continue;
        }
        let told = acquitted(&shop, &order_no).await;
        let tally = stream.ends().await;
        tally.assert_undisturbed();
        let what = format!("{:?}, owed, and then everybody hears of it; {tally}", told.status);
        return Seen::new(&shop, 1, format!("killed {}", due.pid()), what);
    }
    Seen::new(&shop, 0, "", "others were always first")
}

/// The sweep dies between the ABANDONED row and the release.
pub(crate) async fn abandon() -> Seen {
    let shop = plenty().await;
    let stream = Stream::of(&shop);
    let mut pids = Vec::new();
    for n in 0..TRIES {
        let buyer = shop.buyer(&format!("abandoned{n}"));
        dies(&shop, "buy", "buy.after_script", &buyer.buy_event(1, "k1")).await;
        let order_no = hold_of(&shop, &buyer).await;
        pass(Duration::from_secs(26)).await;
        let broom = Broom::take(&shop.local).await;
        // Old enough for any sweep.
        until("the hold is old", async || {
            let since = shop.snapshot().await.pending.get(&order_no).copied();
            since.is_none_or(|since| crate::hands::millis().millis_since(since) > 30_500)
        })
        .await;
        // Holds of other rows may be given up on the way.
        for _ in 0..TRIES {
            if shop.row(&order_no).await.is_some() {
                break;
            }
            pids.extend(broom.dies("sweep.after_abandon").await);
        }
        let row = shop.row(&order_no).await;
        let held = shop.snapshot().await.pending.contains_key(&order_no);
        broom.let_go().await;
        if row.is_none() || !held || pids.is_empty() {
            continue;
        }
        until("the next sweep lets the unit go", async || !shop.snapshot().await.pending.contains_key(&order_no)).await;
        let tally = stream.ends().await;
        tally.assert_undisturbed();
        let fired = u32::try_from(pids.len()).unwrap();
        return Seen::new(&shop, fired, format!("killed {pids:?}"), format!("FAILED by row, then let go; {tally}"));
    }
    Seen::new(&shop, 0, "", "others were always first")
}

/// A sale that is over is settled by a sweep that dies.
pub(crate) async fn settle(point: &'static str) -> Seen {
    let mut last = None;
    for n in 0..TRIES {
        let shop = plenty().await;
        let stream = Stream::of(&shop);
        pass(Duration::from_secs(4)).await;
        let tally = stream.ends().await;
        tally.assert_undisturbed();
        let broom = Broom::take(&shop.local).await;
        shop.act(ActivityAction::End).await;
        for row in shop.rows().await {
            if row.status == OrderStatus::Unpaid {
                let id = row.user_id.as_str();
                let buyer = shop.buyer(id.strip_suffix(&format!("-{}", shop.activity_id)).unwrap());
                insist(&mut Vec::new(), async || buyer.api.cancel(row.order_no.as_str()).await).await.unwrap();
            }
        }
        for row in shop.rows().await {
            acquitted(&shop, &row.order_no).await;
        }
        let mut pid = None;
        for _ in 0..TRIES {
            pid = broom.dies(point).await;
            let activity = shop.local.offers().activity(&shop.offer_id().activity_id).await.unwrap().unwrap();
            if activity.state == sale::offer::SaleState::Settled {
                break;
            }
        }
        broom.let_go().await;
        let activity = async || shop.local.offers().activity(&shop.offer_id().activity_id).await.unwrap().unwrap();
        let (Some(pid), false) = (pid, activity().await.archived) else {
            last = Some((n, shop));
            continue;
        };
        until("the next sweep lets the sale rest", async || activity().await.archived).await;
        let sku = shop.local.offers().sku(&shop.offer_id().sku_id).await.unwrap().unwrap();
        let paid: i64 =
            shop.rows().await.iter().filter(|row| row.status == OrderStatus::Paid).count().try_into().unwrap();
        assert_eq!(sku.free, i64::try_from(PLENTY).unwrap() - paid, "what is left went back once");
        return Seen::new(&shop, 1, format!("killed {pid}"), format!("settled once, {} units back; {tally}", sku.free));
    }
    let (_, shop) = last.unwrap();
    Seen::new(&shop, 0, "", "others were always first")
}

/// A pause is written, and the gate has not heard of it.
pub(crate) async fn pause() -> Seen {
    let shop = plenty().await;
    let stream = Stream::of(&shop);
    pass(Duration::from_secs(2)).await;
    let event = events::admin(&shop, "admin/pause.200");
    let pid = dies(&shop, "admin", "lifecycle.after_row", &event).await;
    until("the sweep pauses the gate", async || {
        let answer = shop.buyer(&format!("probe{}", rand::random::<u32>())).buy(1, "k1").await;
        answer.problem().is_some_and(|problem| problem.code == ProblemCode::Paused)
    })
    .await;
    shop.act(ActivityAction::Resume).await;
    let tally = stream.ends().await;
    tally.assert_all_served();
    Seen::new(&shop, 1, format!("killed {pid}"), format!("PAUSED by the sweep, resumed; {tally}"))
}

/// An end is written, and the gate has not heard of it.
pub(crate) async fn end() -> Seen {
    let shop = plenty().await;
    let stream = Stream::of(&shop);
    pass(Duration::from_secs(2)).await;
    let tally = stream.ends().await;
    tally.assert_undisturbed();
    let mut event = events::admin(&shop, "admin/pause.200");
    event["pathParameters"]["action"] = "end".into();
    let pid = dies(&shop, "admin", "lifecycle.after_row", &event).await;
    until("the sweep ends it at the gate", async || {
        let answer = shop.buyer(&format!("probe{}", rand::random::<u32>())).buy(1, "k1").await;
        answer.problem().is_some_and(|problem| problem.code == ProblemCode::Ended)
    })
    .await;
    Seen::new(&shop, 1, format!("killed {pid}"), format!("ENDED by the sweep; {tally}"))
}

/// Units are added in the row, and the gate has not heard of it.
pub(crate) async fn raise() -> Seen {
    let shop = Shop::publish(Offer { total: PLENTY, ..Offer::default() }).await;
    e2e::shop::done(shop.local.admin.put_product(&shop.activity_id, &shop.sku_id, &shop.product(PLENTY - 10, 3)).await);
    shop.act(ActivityAction::Preheat).await;
    let stream = Stream::of(&shop);
    let pid = dies(&shop, "admin", "lifecycle.after_row", &events::put_total(&shop, PLENTY, 3)).await;
    let offer = shop.local.offers().offer(&shop.offer_id()).await.unwrap().unwrap();
    assert_eq!(offer.total, i64::try_from(PLENTY).unwrap());
    until("the sweep raises the gate", async || shop.snapshot().await.counters.total == i64::try_from(PLENTY).unwrap())
        .await;
    let tally = stream.ends().await;
    tally.assert_undisturbed();
    Seen::new(&shop, 1, format!("killed {pid}"), format!("the gate has the row's total; {tally}"))
}

/// Units are out at the gate for a row that is never written.
pub(crate) async fn lower() -> Seen {
    let shop = plenty().await;
    let stream = Stream::of(&shop);
    let pid = dies(&shop, "admin", "lifecycle.after_lower", &events::put_total(&shop, PLENTY - 10, 3)).await;
    let counters = shop.snapshot().await.counters;
    assert_eq!((counters.total, counters.lowering), (i64::try_from(PLENTY - 10).unwrap(), 10));
    until("the sweep puts the units back", async || {
        shop.snapshot().await.counters.total == i64::try_from(PLENTY).unwrap()
    })
    .await;
    let tally = stream.ends().await;
    tally.assert_undisturbed();
    Seen::new(&shop, 1, format!("killed {pid}"), format!("10 units out, and back; {tally}"))
}

/// Whoever makes a gate anew dies, and the next sweep goes on.
pub(crate) async fn rebuild(point: &'static str) -> Seen {
    let shop = plenty().await;
    let stream = Stream::of(&shop);
    pass(Duration::from_secs(4)).await;
    let before = shop.snapshot().await.counters.epoch;
    let event = events::admin(&shop, "admin/rebuild-unknown.404");
    let pid = match point {
        "rebuild.after_row" | "rebuild.after_begin" => dies(&shop, "admin", point, &event).await,
        _ => {
            let admin = FunctionProcess::start(&shop.local, "admin").await;
            let begun = admin.invoke(&event).await;
            assert_eq!(begun["statusCode"], 200, "{begun}");
            // It may be loaded once the functions that ran when it began are gone.
            pass(Duration::from_secs(46)).await;
            let broom = Broom::take(&shop.local).await;
            let mut preheat = events::admin(&shop, "admin/pause.200");
            preheat["pathParameters"]["action"] = "preheat".into();
            let pid = load_dies(&shop, point, &preheat).await;
            broom.let_go().await;
            pid
        }
    };
    let offer = async || shop.local.offers().offer(&shop.offer_id()).await.unwrap().unwrap();
    until("the gate is made", async || offer().await.rebuilding.is_none()).await;
    let after = shop.snapshot().await.counters;
    assert!(after.epoch > before && after.loading.is_none(), "{after:?}");
    let tally = stream.ends().await;
    tally.assert_all_served();
    Seen::new(&shop, 1, format!("killed {pid}"), format!("made anew, epoch {before} → {}; {tally}", after.epoch))
}

/// Asks for the gate until it is loaded, which kills who does it.
async fn load_dies(shop: &Shop, point: &str, preheat: &Value) -> i32 {
    eventually("the load dies", SETTLED_WITHIN, async || {
        let mut admin = FunctionProcess::start_with(&shop.local, "admin", &[(CRASH_AT, point)]).await;
        let asked = admin.send(preheat);
        admin.dies_at_or_answers(point, asked).await.then(|| admin.pid())
    })
    .await
}

/// Money goes back, and who saw to it dies before it is noted.
pub(crate) async fn refund() -> Seen {
    let shop = plenty().await;
    let stream = Stream::of(&shop);
    let cashier = Cashier::new(&shop.local.outputs).unwrap();
    let mut pids = Vec::new();
    for n in 0..TRIES {
        let buyer = shop.buyer(&format!("late{n}"));
        let (order_no, payment) = at_the_cashier(&buyer, "k1").await;
        insist(&mut Vec::new(), async || buyer.api.cancel(order_no.as_str()).await).await.unwrap();
        let broom = Broom::take(&shop.local).await;
        let receipt = cashier.pay(&payment.pay_url, &Paying::new(Outcome::Success)).await.unwrap();
        let transaction = receipt.transaction_id.parse().unwrap();
        let state = async || shop.local.payments().get(&transaction).await.unwrap().unwrap().state;
        let refunded = async || {
            let ledger = cashier.ledger().await.unwrap();
            let movement = ledger.into_iter().find(|paid| paid.transaction_id == receipt.transaction_id).unwrap();
            (movement.refunded, movement.amount)
        };
        // Money of other rows may be paid back on the way.
        for _ in 0..TRIES {
            if refunded().await.0 > 0 {
                break;
            }
            pids.extend(broom.dies("refund.after_provider").await);
        }
        let (back, noted) = (refunded().await.0, state().await);
        broom.let_go().await;
        if back == 0 || noted != PaymentState::RefundDue || pids.is_empty() {
            continue;
        }
        until("the next sweep notes it", async || state().await == PaymentState::Refunded).await;
        let (back, paid) = refunded().await;
        assert_eq!(back, paid, "it went back once");
        let tally = stream.ends().await;
        tally.assert_undisturbed();
        let fired = u32::try_from(pids.len()).unwrap();
        return Seen::new(&shop, fired, format!("killed {pids:?}"), format!("paid back once, then noted; {tally}"));
    }
    Seen::new(&shop, 0, "", "others were always first")
}

/// A dead letter is sent again, and who did it dies before it is deleted.
pub(crate) async fn redrive() -> Seen {
    let shop = plenty().await;
    let stream = Stream::of(&shop);
    let messages = unsent(&shop, 1).await;
    let dlq = &shop.local.outputs.queues.dlq;
    let body = serde_json::to_string(&messages[0]).unwrap();
    shop.local.sqs().send_message().queue_url(dlq).message_body(body).send().await.unwrap();
    let pid = dies(&shop, "admin", "redrive.after_send", &events::sample("admin/redrive.200")).await;
    made_once(&shop, &messages).await;
    // It is out of sight for a minute, and then sent once more.
    until("the letter is sent again and gone", async || {
        let path = "/api/admin/dlq/redrive";
        let request = RawRequest { method: Method::POST, path, headers: &[], body: None };
        let answer: Value = serde_json::from_slice(&shop.local.admin.raw(request).await.unwrap().body).unwrap();
        answer["redriven"].as_u64().is_some_and(|redriven| redriven > 0)
    })
    .await;
    made_once(&shop, &messages).await;
    let tally = stream.ends().await;
    tally.assert_undisturbed();
    Seen::new(&shop, 1, format!("killed {pid}"), format!("sent twice, one order; {tally}"))
}
