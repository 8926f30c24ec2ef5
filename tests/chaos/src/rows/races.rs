//! Two things at the same moment, of which one may win.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use client::documents::{ActivityAction, OrderStatus, ProblemCode};
use client::{Cashier, Outcome, Paying};
use e2e::aws_proxy::Fault;
use e2e::{FunctionProcess, LossyAws, Offer, Shop, events};
use futures_util::future::join_all;
use sale::order::{EndReason, OrderStatus as RowStatus};
use sale::store::payments::PaymentState;
use serde_json::json;
use tokio::sync::Barrier;

use crate::hands::{Broom, acquitted, at_the_cashier, decided, dies, hold_of, pass, plenty, unpaid, unsent, until};
use crate::row::Seen;
use crate::stream::{Stream, insist};

/// The buyer pays and cancels at once: one wins, and the money of a loser goes back.
pub(crate) async fn cancel_pay() -> Seen {
    const RACES: u32 = 8;
    const HEAD_START: Duration = Duration::from_millis(5);
    let shop = plenty().await;
    let stream = Stream::of(&shop);
    let cashier = Cashier::new(&shop.local.outputs).unwrap();
    let mut ends: BTreeMap<&str, usize> = BTreeMap::new();
    for n in 0..RACES {
        let buyer = shop.buyer(&format!("torn{n}"));
        let (order_no, payment) = at_the_cashier(&buyer, "k1").await;
        let barrier = Arc::new(Barrier::new(2));
        let paying = async {
            barrier.wait().await;
            cashier.pay(&payment.pay_url, &Paying::new(Outcome::Success)).await.unwrap()
        };
        let cancelling = async {
            barrier.wait().await;
            // The notice takes a longer way than the call: so each of them is sometimes first.
            pass(HEAD_START * n).await;
            insist(&mut Vec::new(), async || buyer.api.cancel(order_no.as_str()).await).await
        };
        let (receipt, cancelled) = futures_util::join!(paying, cancelling);
        assert_eq!(receipt.notified, 1);
        let row = acquitted(&shop, &order_no).await;
        match row.status {
            RowStatus::Paid => {
                assert_eq!(cancelled.unwrap_err(), ProblemCode::OrderState);
                *ends.entry("PAID").or_default() += 1;
            }
            RowStatus::Cancelled => {
                assert_eq!(cancelled.unwrap().status, OrderStatus::Cancelled);
                let transaction = receipt.transaction_id.parse().unwrap();
                until("the money goes back", async || {
                    shop.local.payments().get(&transaction).await.unwrap().unwrap().state == PaymentState::Refunded
                })
                .await;
                *ends.entry("CANCELLED, refunded").or_default() += 1;
            }
            RowStatus::PreCreated | RowStatus::Unpaid | RowStatus::Failed => panic!("{row:?}"),
        }
    }
    let tally = stream.ends().await;
    tally.assert_undisturbed();
    // A race that always ends in the same way was none.
    let rarer = if ends.len() == 2 { ends.values().copied().min().unwrap_or_default() } else { 0 };
    let how = format!("of {RACES} races won by the one that wins less often");
    Seen::new(&shop, u32::try_from(rarer).unwrap(), how, format!("{ends:?}; {tally}"))
}

/// The sale ends while buyers press the button: each is let in or told that it is over, and who is let in gets an order.
pub(crate) async fn end_buy() -> Seen {
    const LINES: usize = 4;
    const IN_LINE: usize = 30;
    let shop = plenty().await;
    let barrier = Arc::new(Barrier::new(LINES + 1));
    // Each line goes on until one is told that it is over.
    let buying = join_all((0..LINES).map(|line| {
        let (shop, barrier) = (shop.clone(), Arc::clone(&barrier));
        async move {
            barrier.wait().await;
            let mut let_in = Vec::new();
            for n in 0..IN_LINE {
                let buyer = shop.buyer(&format!("racer{line}x{n}"));
                match insist(&mut Vec::new(), async || buyer.api.buy(&buyer.wish(1), Some("k1")).await).await {
                    Ok(accepted) => let_in.push(accepted.order_no),
                    Err(code) => {
                        assert_eq!(code, ProblemCode::Ended);
                        return (let_in, true);
                    }
                }
            }
            (let_in, false)
        }
    }));
    let ending = async {
        barrier.wait().await;
        pass(Duration::from_millis(150)).await;
        shop.act(ActivityAction::End).await;
    };
    let (lines, ()) = futures_util::join!(buying, ending);
    let ended = lines.iter().filter(|(_, ended)| *ended).count();
    let let_in: Vec<String> = lines.into_iter().flat_map(|(let_in, _)| let_in).collect();
    for order_no in &let_in {
        let row = decided(&shop, &order_no.parse().unwrap()).await;
        assert!(row.status == RowStatus::Unpaid || row.reason.is_some(), "{row:?}");
    }
    let what = format!("{} let in, each with an order or a reason; then ENDED", let_in.len());
    Seen::new(&shop, u32::try_from(ended).unwrap(), "lines of buyers met the end", what)
}

/// The admin takes units out while buyers buy and others resume a sale that is not paused, again and again.
pub(crate) async fn lower_buy() -> Seen {
    const RESUMERS: usize = 2;
    const MOST_RESUMES: usize = 400;
    const MOST_BUYERS: usize = 60;
    let over = Cell::new(false);
    let shop = Shop::open(Offer { total: 60, limit_per_user: 1, ..Offer::default() }).await;
    let barrier = Arc::new(Barrier::new(RESUMERS + 2));
    let lowering = async {
        barrier.wait().await;
        let mut ends: BTreeMap<&str, usize> = BTreeMap::new();
        for total in [55, 50, 45, 40, 35, 30, 26, 22, 18, 15, 12] {
            let put = shop.local.admin.put_product(&shop.activity_id, &shop.sku_id, &shop.product(total, 1)).await;
            let end = match put.unwrap().outcome {
                Ok(_) => "lowered",
                Err(problem) => problem.code.as_str(),
            };
            *ends.entry(end).or_default() += 1;
        }
        over.set(true);
        ends
    };
    let resuming = join_all((0..RESUMERS).map(|_| async {
        barrier.wait().await;
        for n in 0..MOST_RESUMES {
            if over.get() {
                return n;
            }
            let answer = shop.local.admin.activity_action(&shop.activity_id, ActivityAction::Resume).await.unwrap();
            assert!(answer.outcome.is_ok() || answer.status == 503, "{answer:?}");
        }
        MOST_RESUMES
    }));
    let buying = async {
        barrier.wait().await;
        let mut let_in = Vec::new();
        for n in 0..MOST_BUYERS {
            if over.get() {
                break;
            }
            let buyer = shop.buyer(&format!("racer{n}"));
            match insist(&mut Vec::new(), async || buyer.api.buy(&buyer.wish(1), Some("k1")).await).await {
                Ok(accepted) => let_in.push(accepted.order_no),
                Err(code) => {
                    assert!(matches!(code, ProblemCode::StockEmpty | ProblemCode::InsufficientStock), "{code}")
                }
            }
        }
        let_in
    };
    let (ends, resumes, let_in) = futures_util::join!(lowering, resuming, buying);
    for order_no in &let_in {
        let row = decided(&shop, &order_no.parse().unwrap()).await;
        assert_eq!(row.status, RowStatus::Unpaid, "whom the gate lets in gets an order: {row:?}");
    }
    let offer = async || shop.local.offers().offer(&shop.offer_id()).await.unwrap().unwrap();
    until("gate and row agree", async || {
        let (counters, offer) = (shop.snapshot().await.counters, offer().await);
        counters.total == offer.total && counters.lowering == 0
    })
    .await;
    let lowered = ends.get("lowered").copied().unwrap_or_default();
    let what = format!(
        "puts {ends:?} beside {} resumes, total {} in the end, {} let in, each with an order",
        resumes.iter().sum::<usize>(),
        offer().await.total,
        let_in.len()
    );
    Seen::new(&shop, u32::try_from(lowered).unwrap(), "lowered", what)
}

/// Two sweeps that do not know of each other, over orders that were lost on the way.
pub(crate) async fn sweep_sweep() -> Seen {
    const LOST: usize = 3;
    let shop = plenty().await;
    let stream = Stream::of(&shop);
    let mut orphans = Vec::new();
    for n in 0..LOST {
        let buyer = shop.buyer(&format!("orphan{n}"));
        dies(&shop, "buy", "buy.after_script", &buyer.buy_event(1, "k1")).await;
        orphans.push(hold_of(&shop, &buyer).await);
    }
    let messages = unsent(&shop, LOST).await;
    pass(Duration::from_secs(24)).await;
    let broom = Broom::take(&shop.local).await;
    // The lease is a transaction, the first one of a sweep. It fails as often as the SDK tries: swept without a lease.
    let fault = Fault::Answered(500, "InternalServerError");
    let ways = [(), ()].map(|()| LossyAws::before(&shop.local.outputs.aws_endpoint, "TransactWriteItems", fault, 3));
    let ways = join_all(ways).await;
    let mut sweeps = Vec::new();
    for aws in &ways {
        sweeps.push(FunctionProcess::start_with(&shop.local, "sweep", &[("AWS_ENDPOINT_URL", aws.url())]).await);
    }
    until("the holds are old", async || {
        let pending = shop.snapshot().await.pending;
        orphans.iter().all(|order_no| {
            pending.get(order_no).is_none_or(|since| crate::hands::millis().millis_since(*since) > 30_500)
        })
    })
    .await;
    let ticks: Vec<_> = sweeps.iter().map(|sweep| sweep.send(&json!({}))).collect();
    for (sweep, tick) in sweeps.iter().zip(ticks) {
        sweep.answer_within(tick, Duration::from_secs(60)).await;
    }
    let unleased = sweeps.iter().filter(|sweep| sweep.said().contains("swept without a lease")).count();
    let pids: Vec<i32> = sweeps.iter().map(FunctionProcess::pid).collect();
    broom.let_go().await;
    for order_no in &orphans {
        let row = decided(&shop, order_no).await;
        assert_eq!((row.status, row.reason), (RowStatus::Failed, Some(EndReason::Abandoned)));
        assert_eq!(row.trail, [RowStatus::Failed], "given up once");
    }
    crate::hands::made_once(&shop, &messages).await;
    let tally = stream.ends().await;
    tally.assert_undisturbed();
    let what = format!("{LOST} given up once, {LOST} sent and made once; {tally}");
    Seen::new(&shop, u32::try_from(unleased).unwrap(), format!("sweeps {pids:?} without a lease at once"), what)
}

/// Units come back while the gate is made anew.
pub(crate) async fn release_rebuild() -> Seen {
    const RELEASED: usize = 6;
    let shop = plenty().await;
    let stream = Stream::of(&shop);
    let mut orders = Vec::new();
    for n in 0..RELEASED {
        let buyer = shop.buyer(&format!("leaver{n}"));
        let order_no = unpaid(&buyer, "k1").await;
        orders.push((buyer, order_no));
    }
    let before = shop.snapshot().await.counters.epoch;
    let offer = async || shop.local.offers().offer(&shop.offer_id()).await.unwrap().unwrap();
    let meanwhile = Cell::new(0);
    let barrier = Arc::new(Barrier::new(RELEASED + 1));
    let admin = FunctionProcess::start(&shop.local, "admin").await;
    let rebuilding = async {
        barrier.wait().await;
        admin.invoke(&events::admin(&shop, "admin/rebuild-unknown.404")).await
    };
    let releasing = join_all(orders.iter().enumerate().map(|(n, (buyer, order_no))| {
        let (barrier, meanwhile, offer) = (Arc::clone(&barrier), &meanwhile, &offer);
        async move {
            barrier.wait().await;
            // Some at its beginning, some while functions are waited for, some while the orders are loaded.
            pass(Duration::from_millis([0, 50, 400, 20_000, 49_500, 51_000][n])).await;
            insist(&mut Vec::new(), async || buyer.api.cancel(order_no.as_str()).await).await.unwrap();
            meanwhile.set(meanwhile.get() + u32::from(offer().await.rebuilding.is_some()));
        }
    }));
    let (begun, _) = futures_util::join!(rebuilding, releasing);
    assert_eq!(begun["statusCode"], 200, "{begun}");
    until("the gate is made", async || offer().await.rebuilding.is_none()).await;
    for (_, order_no) in &orders {
        acquitted(&shop, order_no).await;
    }
    until("no cancelled order has its units", async || {
        let units = shop.snapshot().await.units;
        orders.iter().all(|(buyer, _)| units.keys().all(|user| user.user_id.as_str() != buyer.id))
    })
    .await;
    let tally = stream.ends().await;
    tally.assert_all_served();
    let what = format!("epoch {before} → {}; the units are back once; {tally}", offer().await.epoch);
    Seen::new(&shop, meanwhile.get(), format!("of {RELEASED} orders cancelled while the gate was made"), what)
}
