//! Redis emptied, replaced, full, deaf, or of a while ago.

use std::process::Command;
use std::time::{Duration, Instant};

use client::Answer;
use client::documents::ProblemCode;
use e2e::{FunctionProcess, LossyRedis, Offer, Shop};
use redis::aio::MultiplexedConnection;
use sale::order::{EndReason, OrderStatus};

use crate::hands::{PLENTY, decided, hold_of, number, pass, plenty, redis, tell, unpaid, until};
use crate::row::Seen;
use crate::stream::{Stream, insist};

/// Buyers come before the fault, during it, and after it.
const BEFORE: Duration = Duration::from_secs(4);
const DURING: Duration = Duration::from_secs(6);

/// A gate with nothing in it, until it is made anew from the rows.
async fn remade(shop: &Shop, stream: Stream, epoch: i64, how: &str) -> Seen {
    let probe = shop.buyer("probe");
    let answer = probe.api.buy(&probe.wish(1), Some("k1")).await;
    if let Ok(Answer { outcome: Err(problem), .. }) = &answer {
        assert!(matches!(problem.code, ProblemCode::NotReady | ProblemCode::Unavailable), "{problem:?}");
    }
    let started = Instant::now();
    insist(&mut Vec::new(), async || probe.api.buy(&probe.wish(1), Some("k1")).await).await.expect("it sells again");
    let closed = started.elapsed().as_secs();
    let offer = shop.local.offers().offer(&shop.offer_id()).await.unwrap().unwrap();
    let tally = stream.ends().await;
    tally.assert_all_served();
    assert!(tally.waits.keys().any(|said| said == "NOT_READY"), "nobody noticed: {tally}");
    Seen::new(
        shop,
        u32::try_from(offer.epoch - epoch).unwrap(),
        how,
        format!("NOT_READY for {closed} s, never sold out; epoch {epoch} → {}; {tally}", offer.epoch),
    )
}

async fn epoch(shop: &Shop) -> i64 {
    shop.snapshot().await.counters.epoch
}

pub(crate) async fn flushed() -> Seen {
    let shop = plenty().await;
    let stream = Stream::of(&shop);
    pass(BEFORE).await;
    let epoch = epoch(&shop).await;
    tell(&mut redis(&shop.local).await, &["FLUSHALL"]).await;
    remade(&shop, stream, epoch, "FLUSHALL, and gates made anew").await
}

/// The machine is gone, and an empty one is in its place.
pub(crate) async fn restarted() -> Seen {
    let shop = plenty().await;
    let stream = Stream::of(&shop);
    pass(BEFORE).await;
    let epoch = epoch(&shop).await;
    let root = contract::root();
    let script = [root.join("tests/stack/stack.py").into_os_string(), "lose".into()];
    let mut losing = Command::new(root.join(".local/venv/bin/python"));
    let lost = tokio::task::spawn_blocking(move || losing.args(script).status()).await.unwrap().unwrap();
    assert!(lost.success(), "stack.py lose: {lost}");
    remade(&shop, stream, epoch, "killed and started empty, and gates made anew").await
}

/// The last writes are lost, as when a replica that was behind is promoted: the offer's two keys as they were a while ago.
pub(crate) async fn last_writes_lost() -> Seen {
    const UNITS: u64 = 8;
    let shop = Shop::open(Offer { total: UNITS, limit_per_user: 1, ..Offer::default() }).await;
    for n in 0..4 {
        unpaid(&shop.buyer(&format!("early{n}")), "k1").await;
    }
    until("the gate knows them", async || shop.snapshot().await.pending.is_empty()).await;
    let mut redis = redis(&shop.local).await;
    let keys = ["book", "pending"].map(|kind| format!("seckill:{kind}:{{{}:{}}}", shop.activity_id, shop.sku_id));
    let mut kept: Vec<Option<Vec<u8>>> = Vec::new();
    for key in &keys {
        kept.push(redis::cmd("DUMP").arg(key).query_async(&mut redis).await.unwrap());
    }
    let mut lost = Vec::new();
    for n in 0..4 {
        lost.push(unpaid(&shop.buyer(&format!("lost{n}")), "k1").await);
    }
    shop.buyer("hopeful").refused(1, "k1", ProblemCode::StockEmpty).await;
    for (key, kept) in keys.iter().zip(kept) {
        tell(&mut redis, &["DEL", key]).await;
        if let Some(kept) = kept {
            redis::cmd("RESTORE").arg(key).arg(0).arg(kept).query_async::<()>(&mut redis).await.unwrap();
        }
    }
    // The gate lets four too many in, and the rows refuse them, with a reason.
    let mut excess: u32 = 0;
    for n in 0..6 {
        let buyer = shop.buyer(&format!("excess{n}"));
        let answer = buyer.buy(1, "k1").await;
        match answer.outcome {
            Ok(accepted) => {
                let row = decided(&shop, &accepted.order_no.parse().unwrap()).await;
                assert_eq!((row.status, row.reason), (OrderStatus::Failed, Some(EndReason::StockEmpty)));
                excess += 1;
            }
            Err(problem) => assert_eq!(problem.code, ProblemCode::StockEmpty),
        }
    }
    until("the sweep puts the lost holds back", async || {
        let snapshot = shop.snapshot().await;
        snapshot.counters.available == 0 && lost.iter().all(|order_no| snapshot.holds.contains_key(order_no))
    })
    .await;
    let offer = shop.local.offers().offer(&shop.offer_id()).await.unwrap().unwrap();
    assert_eq!(offer.remaining, 0, "eight are sold and no more");
    Seen::new(
        &shop,
        excess,
        "let in too many after DUMP and RESTORE of 4 orders ago",
        "FAILED by the rows; the lost holds are back",
    )
}

/// Buyers come while the server does not do what it is told; then it is well again. Who noticed came back.
async fn ill(how: &str, counter: &str, make_ill: &[&[&str]], make_well: &[&[&str]]) -> Seen {
    let shop = plenty().await;
    let stream = Stream::of(&shop);
    pass(BEFORE).await;
    let mut redis = redis(&shop.local).await;
    let before = number(&mut redis, counter).await;
    for words in make_ill {
        tell(&mut redis, words).await;
    }
    let worst = slowest(&shop, DURING).await;
    for words in make_well {
        tell(&mut redis, words).await;
    }
    let fired = number(&mut redis, counter).await - before;
    pass(BEFORE).await;
    let tally = stream.ends().await;
    tally.assert_all_served();
    Seen::new(&shop, fired, how, format!("the slowest answer took {} ms; {tally}", worst.as_millis()))
}

/// Buys for a while; how long the slowest answer took. Each is 202 or 503, and bounded.
async fn slowest(shop: &Shop, during: Duration) -> Duration {
    let (started, mut worst) = (Instant::now(), Duration::ZERO);
    for n in 0..20 {
        if started.elapsed() > during {
            break;
        }
        let probe = shop.buyer(&format!("ill{n}"));
        let answer = probe.api.buy(&probe.wish(1), Some("k1")).await.expect("an answer of ours");
        assert!(matches!(answer.status, 202 | 503), "{answer:?}");
        worst = worst.max(answer.took);
        pass(Duration::from_millis(300)).await;
    }
    assert!(worst < Duration::from_secs(10), "an answer took {worst:?}");
    worst
}

pub(crate) async fn script_flush() -> Seen {
    let shop = plenty().await;
    let stream = Stream::of(&shop);
    let mut redis = redis(&shop.local).await;
    let before = number(&mut redis, "errorstat_NOSCRIPT").await;
    for _ in 0..5 {
        pass(Duration::from_secs(2)).await;
        tell(&mut redis, &["SCRIPT", "FLUSH"]).await;
    }
    pass(BEFORE).await;
    let fired = number(&mut redis, "errorstat_NOSCRIPT").await - before;
    let tally = stream.ends().await;
    tally.assert_undisturbed();
    Seen::new(&shop, fired, "NOSCRIPT after 5 SCRIPT FLUSH", format!("no buyer noticed; {tally}"))
}

pub(crate) async fn readonly() -> Seen {
    let make_ill: &[&[&str]] = &[&["CONFIG", "SET", "replica-read-only", "yes"], &["REPLICAOF", "127.0.0.1", "9"]];
    ill("READONLY", "errorstat_READONLY", make_ill, &[&["REPLICAOF", "NO", "ONE"]]).await
}

pub(crate) async fn oom() -> Seen {
    let (make_ill, make_well): (&[&[&str]], &[&[&str]]) =
        (&[&["CONFIG", "SET", "maxmemory", "1"]], &[&["CONFIG", "SET", "maxmemory", "0"]]);
    ill("OOM", "errorstat_OOM", make_ill, make_well).await
}

/// Whoever is connected is cut off, and nobody gets in any more.
pub(crate) async fn maxclients() -> Seen {
    let make_ill: &[&[&str]] =
        &[&["CONFIG", "SET", "maxclients", "1"], &["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]];
    let make_well: &[&[&str]] = &[&["CONFIG", "SET", "maxclients", "10000"]];
    ill("connections refused", "rejected_connections", make_ill, make_well).await
}

/// Nobody is answered for 700 ms, again and again.
pub(crate) async fn hang() -> Seen {
    let shop = plenty().await;
    let stream = Stream::of(&shop);
    pass(BEFORE).await;
    let mut redis: MultiplexedConnection = redis(&shop.local).await;
    let mut worst = Duration::ZERO;
    let mut fired = 0;
    for n in 0..6 {
        tell(&mut redis, &["CLIENT", "PAUSE", "700", "ALL"]).await;
        let probe = shop.buyer(&format!("hang{n}"));
        let answer = probe.api.buy(&probe.wish(1), Some("k1")).await.expect("an answer of ours");
        assert!(matches!(answer.status, 202 | 503), "{answer:?}");
        fired += u32::from(answer.took > Duration::from_millis(500));
        worst = worst.max(answer.took);
        pass(Duration::from_secs(1)).await;
    }
    assert!(worst < Duration::from_secs(7), "an answer took {worst:?}");
    let tally = stream.ends().await;
    tally.assert_all_served();
    let what = format!("the slowest answer took {} ms; {tally}", worst.as_millis());
    Seen::new(&shop, fired, "CLIENT PAUSE 700 that a buyer felt", what)
}

/// The script ran and its reply was lost, once and then always.
pub(crate) async fn lost_replies() -> Seen {
    let shop = Shop::open(Offer { total: PLENTY, ..Offer::default() }).await;
    let stream = Stream::of(&shop);
    let redis_url = shop.local.deployed("buy").await.environment["REDIS_URL"].clone();
    pass(BEFORE).await;
    let mut lost = 0;
    for (buyer, replies, status) in [("once", 1, 202), ("always", u32::MAX, 503)] {
        let buyer = shop.buyer(buyer);
        let redis = LossyRedis::before(&redis_url, replies).await;
        let function = FunctionProcess::start_with(&shop.local, "buy", &[("REDIS_URL", redis.url())]).await;
        let answer = function.invoke(&buyer.buy_event(1, "k1")).await;
        assert_eq!(answer["statusCode"], status, "{answer}");
        lost += replies - redis.left();
        let held = hold_of(&shop, &buyer).await;
        let retried = buyer.buy(1, "k1").await;
        assert!(retried.headers.is_replay());
        assert_eq!(e2e::shop::accepted(retried), held.as_str());
        assert_eq!(decided(&shop, &held).await.status, OrderStatus::Unpaid);
    }
    let tally = stream.ends().await;
    tally.assert_undisturbed();
    Seen::new(&shop, lost, "replies of scripts that ran", format!("the retries are the same orders; {tally}"))
}
