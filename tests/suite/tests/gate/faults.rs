//! Servers that forget, are full, or are the wrong one.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use redis::AsyncCommands as _;
use sale::admission::{Admission, HoldState, Refusal};
use sale::gate::{Followed, Gate, GateError, GateSettings, Loading, Synced};
use sale::offer::SaleState;
use suite::gate_house::{FAR_AHEAD, GateHouse, hold_of, on_both, order_no, request, settings};
use suite::redis_server::{RedisServer, Shape};

#[tokio::test]
async fn p15_a_script_cache_that_is_flushed_mid_sale_is_not_noticed() {
    on_both(async |house| {
        house.open(&settings(10_000, 1)).await;
        let done = AtomicBool::new(false);
        let flush = async {
            let mut redis = house.server.operator().await;
            let mut flushes = 0;
            while !done.load(Ordering::SeqCst) {
                let () = redis::cmd("SCRIPT").arg("FLUSH").exec_async(&mut redis).await.unwrap();
                flushes += 1;
            }
            flushes
        };
        let sell = async {
            for buyer in 0..300 {
                let user = format!("u{buyer}");
                assert!(matches!(house.buy(&request(&user, 1, "k")).await, Admission::Admitted(_)), "{user}");
                let order = [order_no(&user, "k")];
                house.gate.confirm(&house.offer, &order).await.unwrap();
                assert_eq!(house.gate.release(&house.offer, &order).await.unwrap(), [Followed::Changed]);
            }
            done.store(true, Ordering::SeqCst);
        };
        let (flushes, ()) = tokio::join!(flush, sell);
        assert!(flushes > 10, "{flushes}");
    })
    .await;
}

#[tokio::test]
async fn p33_a_full_memory_takes_no_order_and_lets_the_others_go() {
    on_both(async |house| {
        let sale = settings(10, 9);
        house.open(&sale).await;
        for key in ["k1", "k2", "k3"] {
            assert!(matches!(house.buy(&request("u1", 1, key)).await, Admission::Admitted(_)));
        }
        let mut redis = house.server.operator().await;
        let () = redis::cmd("CONFIG").arg("SET").arg("maxmemory").arg(1).exec_async(&mut redis).await.unwrap();

        let refused = house.try_buy(&request("u2", 1, "k1")).await.unwrap_err();
        assert!(matches!(refused, GateError::Unavailable(_)), "{refused:?}");
        assert_eq!(house.counters().await.available, 7, "nothing was taken");
        // What needs no memory is answered: a retry, and a refusal.
        let retry = house.buy(&request("u1", 1, "k1")).await;
        assert_eq!(retry, Admission::Replayed(HoldState::Held, sale.terms.clone()));
        let over_limit = house.buy(&request("u1", 7, "k4")).await;
        assert_eq!(over_limit, Admission::Refused(Refusal::LimitExceeded { remaining: 6 }));

        // What follows a row goes on, and an admin may stop the sale.
        let (gate, offer) = (&house.gate, &house.offer);
        gate.confirm(offer, &[order_no("u1", "k1")]).await.unwrap();
        assert_eq!(gate.release(offer, &[order_no("u1", "k2")]).await.unwrap(), [Followed::Changed]);
        assert_eq!(gate.sell(offer, &[order_no("u1", "k3")]).await.unwrap(), [Followed::Changed]);
        let lost = hold_of(&request("u3", 1, "k1"), FAR_AHEAD);
        assert_eq!(gate.take(offer, &[lost]).await.unwrap(), [Followed::Changed]);
        let paused = GateSettings { version: 2, state: SaleState::Paused, ..sale.clone() };
        assert_eq!(gate.sync(offer, &paused).await.unwrap(), Synced::Applied);
        let counters = house.counters().await;
        assert_eq!((counters.available, counters.held(), counters.sold), (7, 2, 1));

        let () = redis::cmd("CONFIG").arg("SET").arg("maxmemory").arg(0).exec_async(&mut redis).await.unwrap();
        let resumed = GateSettings { version: 3, ..sale.clone() };
        assert_eq!(gate.sync(offer, &resumed).await.unwrap(), Synced::Applied);
        assert!(matches!(house.buy(&request("u2", 1, "k1")).await, Admission::Admitted(_)));
    })
    .await;
}

#[tokio::test]
async fn p34_a_replica_never_says_sold_out() {
    let house = GateHouse::start(Shape::StandAlone).await;
    house.open(&settings(1, 1)).await;
    assert!(matches!(house.buy(&request("u1", 1, "k")).await, Admission::Admitted(_)));
    assert_eq!(house.buy(&request("u2", 1, "k")).await, Admission::Refused(Refusal::StockEmpty));

    let replica = replica_of(&house.server).await;
    let gate = Gate::new(replica.connect());
    assert_eq!(gate.counters(&house.offer).await.unwrap().unwrap().available, 0, "it has the book");
    // A hold, a refusal, a newcomer: it answers none of them.
    for user in ["u1", "u2", "u3"] {
        let answer = gate.admit(&house.offer, &request(user, 1, "k")).await.unwrap_err();
        assert!(matches!(&answer, GateError::Unavailable(error) if error.code() == Some("READONLY")), "{answer:?}");
    }
    let answer = gate.release(&house.offer, &[order_no("u1", "k")]).await.unwrap_err();
    assert!(answer.is_unavailable());

    // The seed's script reads a replica's stock, however old, and answers.
    let mut redis = replica.operator().await;
    let seed: (i64, String) = redis::cmd("EVAL")
        .arg(include_str!("../../seeds/buy.lua"))
        .arg(3)
        .arg(&["seckill:stock:a1:s10", "seckill:bought:a1:s10:u2", "seckill:user_count:a1:s10:u2", "1"])
        .query_async(&mut redis)
        .await
        .unwrap();
    assert_eq!(seed.1, "STOCK_EMPTY");

    // Promoted, it sells.
    let () = redis::cmd("REPLICAOF").arg("NO").arg("ONE").exec_async(&mut redis).await.unwrap();
    assert_eq!(
        gate.admit(&house.offer, &request("u2", 1, "k")).await.unwrap(),
        Admission::Refused(Refusal::StockEmpty)
    );
}

async fn replica_of(server: &RedisServer) -> RedisServer {
    let port = server.port().to_string();
    let replica = RedisServer::start_with(Shape::StandAlone, &["--replicaof", "127.0.0.1", &port]).await;
    let mut redis = replica.operator().await;
    for _ in 0..500 {
        let info: String = redis::cmd("INFO").arg("replication").query_async(&mut redis).await.unwrap();
        if info.contains("master_link_status:up") {
            return replica;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("the replica does not follow");
}

#[tokio::test]
async fn a_server_that_is_gone_is_unavailable() {
    let house = GateHouse::start(Shape::StandAlone).await;
    let (gate, offer) = (house.gate.clone(), house.offer.clone());
    house.open(&settings(1, 1)).await;
    drop(house);
    let error = gate.admit(&offer, &request("u1", 1, "k")).await.unwrap_err();
    assert!(error.is_unavailable(), "{error:?}");
    assert_eq!(error.to_string(), "the gate is unavailable", "the cause is in the chain");
    assert!(std::error::Error::source(&error).is_some());
}

/// A book that somebody broke is a defect, and is said to be one; and nothing is taken half.
#[tokio::test]
async fn a_broken_book_is_corrupt_not_unavailable() {
    on_both(async |house| {
        let mut redis = house.server.operator().await;
        let (book, pending) = ("seckill:book:{a1:s10}", "seckill:pending:{a1:s10}");
        let corrupt = async |what: &str| {
            let error = house.try_buy(&request("u1", 1, "k")).await.unwrap_err();
            assert!(matches!(error, GateError::Corrupt(_)), "{what}: {error:?}");
        };
        house.open(&settings(5, 1)).await;
        for (field, value) in [("gate", "0 what is this"), ("gate", "NEWS"), ("avail", "many"), ("terms", "none")] {
            let good: String = redis.hget(book, field).await.unwrap();
            let () = redis.hset(book, field, value).await.unwrap();
            corrupt(field).await;
            let () = redis.hset(book, field, good).await.unwrap();
            let () = redis.hdel(book, &[order_no("u1", "k").as_str(), "u:u1"]).await.unwrap();
            let () = redis.hset(book, "avail", 5).await.unwrap();
        }

        let () = redis.del(pending).await.unwrap();
        let () = redis.set(pending, "text").await.unwrap();
        corrupt("pending of another kind").await;
        assert_eq!(house.counters().await.available, 5, "nothing was taken");

        let () = redis.del(book).await.unwrap();
        let () = redis.set(book, "text").await.unwrap();
        corrupt("book of another kind").await;
        let error = house.gate.snapshot(&house.offer).await.unwrap_err();
        assert!(matches!(error, GateError::Corrupt(_)), "{error:?}");
        // A load sweeps it away.
        let () = redis.del(book).await.unwrap();
        assert_eq!(house.gate.load_begin(&house.offer, 2).await.unwrap(), Loading::Going);
    })
    .await;
}
