//! How long a sale with many orders is closed after Redis forgot everything: `make recovery ORDERS=10000`.
//!
//! Orders are put into the tables by the sale's own code, then Redis is emptied, and a buyer comes back until let in. The stack's
//! own schedule sweeps, once a minute, as on AWS. The time is what is printed, and depends on when the last sweep was: it
//! notices, fifty seconds later at the earliest another one loads the gate.

use std::time::{Duration, Instant};

use client::documents::ProblemCode;
use e2e::{Offer, Shop};
use futures_util::future::join_all;
use kernel::ids::{OrderNo, Quantity};
use kernel::time::Clock;
use sale::Stores;
use sale::admission::Fingerprint;
use sale::audit::{self, BOUND_SECS, Report, Verdict};
use sale::dead_letters::DeadLetters;
use sale::ledger::{GROUP, Ledger};
use sale::queue::{OrderMessage, Queue, Reminders};
use sale::store::orders::{NewOrder, OrderRow};

/// The buyer comes back so often.
const COME_BACK: Duration = Duration::from_millis(500);
/// Two sweeps and what lies between them, with something to spare.
const PATIENCE: Duration = Duration::from_secs(300);
/// Rows put at once.
const AT_ONCE: usize = 20;

/// Measures, prints, and says whether the audit passed.
pub(crate) async fn measure(orders: usize) -> bool {
    let total = u64::try_from(orders).unwrap() + 1;
    let shop = Shop::open(Offer { total, limit_per_user: 1, ..Offer::default() }).await;
    println!("{orders} orders are made");
    fill(&shop, orders).await;
    let mut redis = crate::hands::redis(&shop.local).await;
    crate::hands::tell(&mut redis, &["FLUSHALL"]).await;
    let started = Instant::now();
    let buyer = shop.buyer("last");
    let mut seen: Vec<(ProblemCode, usize)> = Vec::new();
    loop {
        assert!(started.elapsed() < PATIENCE, "nobody is let in after {PATIENCE:?}: {seen:?}");
        match buyer.buy(1, "k1").await.outcome {
            Ok(_) => break,
            Err(problem) => match seen.last_mut() {
                Some((code, times)) if *code == problem.code => *times += 1,
                Some(_) | None => seen.push((problem.code, 1)),
            },
        }
        tokio::time::sleep(COME_BACK).await;
    }
    let closed = started.elapsed();
    let holds = shop.snapshot().await.holds.len();
    println!("closed for {:.1} s (answers meanwhile: {seen:?}); {holds} holds are back", closed.as_secs_f64());
    let report = audit(&shop).await;
    println!("audit: {:?}, committed {} of {total}", report.verdict, report.counts.committed);
    holds > orders && report.verdict == Verdict::Pass
}

/// The system's own audit, in this process: so many orders take the local AWS longer than a function has.
async fn audit(shop: &Shop) -> Report {
    let (local, queues) = (&shop.local, &shop.local.outputs.queues);
    let stores = Stores {
        gate: local.gate().await,
        orders: local.orders(),
        offers: local.offers(),
        payments: local.payments(),
        queue: Queue::new(local.sqs(), queues.orders.clone()),
        reminders: Reminders::new(local.sqs(), queues.reminders.clone()),
        clock: Clock::System,
    };
    let dead_letters = DeadLetters::new(local.sqs(), queues.dlq.clone(), queues.orders.clone());
    let activity_id = &shop.offer_id().activity_id;
    audit::audit(&stores, &dead_letters, activity_id, BOUND_SECS).await.unwrap().expect("the activity is there")
}

/// Makes orders of as many users, without the gate, which is about to forget them anyway.
async fn fill(shop: &Shop, orders: usize) {
    let (table, clock) = (shop.local.orders(), Clock::System);
    let offers = shop.local.offers();
    let terms = offers.offer(&shop.offer_id()).await.unwrap().unwrap().terms();
    let rows: Vec<OrderRow> = (0..orders)
        .map(|n| {
            let order = NewOrder {
                order_no: format!("SK{n:026}").parse::<OrderNo>().unwrap(),
                user_id: format!("filler-{n}").parse().unwrap(),
                offer: shop.offer_id(),
                quantity: Quantity::ONE,
                fingerprint: Fingerprint::of(Quantity::ONE),
                request_id: Some(format!("k{n}").parse().unwrap()),
                terms: terms.clone(),
            };
            OrderRow::pre_created(order, clock.now())
        })
        .collect();
    for some in rows.chunks(AT_ONCE) {
        for put in join_all(some.iter().map(|row| table.put(row))).await {
            put.unwrap();
        }
    }
    let ledger = Ledger { orders: table, offers, clock: clock.clone() };
    for group in rows.chunks(GROUP) {
        let messages: Vec<OrderMessage> = group.iter().map(OrderMessage::from).collect();
        ledger.commit(messages, clock.now().plus_secs(60)).await;
    }
}
