//! Where the seed documents' own algorithms go wrong at the gate, and ours does not. Each test first has the seed's rule
//! fail: a rule that no longer fails would make the comparison worthless.

use kernel::time::UnixMillis;
use redis::AsyncCommands as _;
use redis::aio::MultiplexedConnection;
use sale::admission::{Admission, Refusal};
use sale::gate::Followed;
use suite::gate_house::{GateHouse, hold_of, on_both, order_no, request, settings};
use suite::redis_server::Shape;

const SEED_BUY: &str = include_str!("../../seeds/buy.lua");
const SEED_UNLIMITED: &str = include_str!("../../seeds/unlimited.lua");
const SEED_STOCK: &str = "seckill:stock:a1:s10";

/// The first seed's purchase: its code and its word.
async fn seed_buys(redis: &mut MultiplexedConnection, user: &str, limit: u32) -> redis::RedisResult<(i64, String)> {
    let mut command = redis::cmd("EVAL");
    command.arg(SEED_BUY).arg(3).arg(SEED_STOCK);
    command.arg(format!("seckill:bought:a1:s10:{user}")).arg(format!("seckill:user_count:a1:s10:{user}")).arg(limit);
    command.query_async(redis).await
}

async fn seed_house(stock: Option<i64>) -> (GateHouse, MultiplexedConnection) {
    // Stand-alone: its keys have no common hash tag.
    let house = GateHouse::start(Shape::StandAlone).await;
    let mut redis = house.server.operator().await;
    if let Some(stock) = stock {
        let () = redis.set(SEED_STOCK, stock).await.unwrap();
    }
    (house, redis)
}

/// What every timer in Redis comes to in the end: a key that may expire is gone.
async fn let_timers_run_out(redis: &mut MultiplexedConnection) -> usize {
    let keys: Vec<String> = redis.keys("*").await.unwrap();
    let mut gone = 0;
    for key in keys {
        let millis: i64 = redis.pttl(&key).await.unwrap();
        if millis >= 0 {
            gone += redis.del::<_, usize>(&key).await.unwrap();
        }
    }
    gone
}

#[tokio::test]
async fn s1_a_purchase_takes_as_many_units_as_it_asks_for() {
    let (_house, mut redis) = seed_house(Some(100)).await;
    let asked_for = 5;
    assert_eq!(seed_buys(&mut redis, "u1", 10).await.unwrap().0, 0);
    let gate: i64 = redis.get(SEED_STOCK).await.unwrap();
    let shelf = 100 - asked_for; // its consumer: decrStock(skuId, quantity)
    assert_eq!((gate, shelf), (99, 95), "the seed's gate goes on selling what its shelf no longer has");

    on_both(async |house| {
        house.open(&settings(100, 10)).await;
        assert!(matches!(house.buy(&request("u1", 5, "k1")).await, Admission::Admitted(_)));
        let counters = house.counters().await;
        assert_eq!((counters.available, counters.held()), (95, 5));
    })
    .await;
}

#[tokio::test]
async fn s2_a_limit_of_three_lets_a_buyer_come_twice() {
    let (_house, mut redis) = seed_house(Some(10)).await;
    assert_eq!(seed_buys(&mut redis, "u1", 3).await.unwrap().1, "OK");
    assert_eq!(seed_buys(&mut redis, "u1", 3).await.unwrap().1, "ALREADY_BOUGHT", "one of three allowed");

    on_both(async |house| {
        house.open(&settings(10, 3)).await;
        for key in ["k1", "k2", "k3"] {
            assert!(matches!(house.buy(&request("u1", 1, key)).await, Admission::Admitted(_)), "{key}");
        }
        let fourth = house.buy(&request("u1", 1, "k4")).await;
        assert_eq!(fourth, Admission::Refused(Refusal::LimitExceeded { remaining: 0 }));
    })
    .await;
}

#[tokio::test]
async fn s3_a_cluster_runs_the_script() {
    let house = GateHouse::start(Shape::Cluster).await;
    let mut redis = house.server.operator().await;
    let refused = seed_buys(&mut redis, "u1", 1).await.unwrap_err();
    assert_eq!(refused.code(), Some("CROSSSLOT"));

    house.open(&settings(10, 1)).await;
    assert!(matches!(house.buy(&request("u1", 1, "k1")).await, Admission::Admitted(_)));
}

#[tokio::test]
async fn s4_a_sale_that_is_not_there_is_not_sold_out() {
    let (_house, mut redis) = seed_house(None).await;
    assert_eq!(seed_buys(&mut redis, "u1", 1).await.unwrap().1, "STOCK_EMPTY", "before any stock was loaded");

    on_both(async |house| {
        assert_eq!(house.buy(&request("u1", 1, "k1")).await, Admission::Refused(Refusal::NotReady));
        assert_eq!(house.gate.counters(&house.offer).await.unwrap(), None);
    })
    .await;
}

#[tokio::test]
async fn s5_a_limit_lasts_as_long_as_the_sale() {
    let (_house, mut redis) = seed_house(Some(10)).await;
    assert_eq!(seed_buys(&mut redis, "u1", 1).await.unwrap().1, "OK");
    assert_eq!(let_timers_run_out(&mut redis).await, 2, "bought, and the count");
    assert_eq!(seed_buys(&mut redis, "u1", 1).await.unwrap().1, "OK", "a limit of one, and a second unit after a day");

    on_both(async |house| {
        let mut redis = house.server.operator().await;
        house.open(&settings(10, 1)).await;
        assert!(matches!(house.buy(&request("u1", 1, "k1")).await, Admission::Admitted(_)));
        assert_eq!(let_timers_run_out(&mut redis).await, 0);
        assert_eq!(house.buy(&request("u1", 1, "k2")).await, Admission::Refused(Refusal::AlreadyBought));
    })
    .await;
}

#[tokio::test]
async fn s7_a_message_that_comes_twice_gives_nothing_back() {
    let (_house, mut redis) = seed_house(Some(1)).await;
    assert_eq!(seed_buys(&mut redis, "u1", 1).await.unwrap().1, "OK");
    // Its consumer, when the same message comes again: DuplicateKeyException → incrStock.
    let () = redis.incr(SEED_STOCK, 1).await.unwrap();
    assert_eq!(seed_buys(&mut redis, "u2", 1).await.unwrap().1, "OK", "one unit, sold twice");

    on_both(async |house| {
        house.open(&settings(1, 1)).await;
        assert!(matches!(house.buy(&request("u1", 1, "k1")).await, Admission::Admitted(_)));
        let orders = [order_no("u1", "k1")];
        for _ in 0..2 {
            house.gate.confirm(&house.offer, &orders).await.unwrap();
        }
        assert_eq!(house.counters().await.available, 0);
        assert_eq!(house.buy(&request("u2", 1, "k1")).await, Admission::Refused(Refusal::StockEmpty));
    })
    .await;
}

#[tokio::test]
async fn s10_a_count_below_zero_sells_nothing() {
    let (_house, mut redis) = seed_house(Some(-1)).await;
    for _ in 0..5 {
        let sold: i64 =
            redis::cmd("EVAL").arg(SEED_UNLIMITED).arg(1).arg(SEED_STOCK).query_async(&mut redis).await.unwrap();
        assert_eq!(sold, 1, "a count that drifted to -1 sells without end");
    }

    on_both(async |house| {
        house.open(&settings(1, 1)).await;
        let lost = [request("u1", 1, "k1"), request("u2", 1, "k1")].map(|lost| hold_of(&lost, UnixMillis::new(0)));
        assert_eq!(house.gate.take(&house.offer, &lost).await.unwrap(), [Followed::Changed; 2]);
        assert_eq!(house.counters().await.available, -1);
        for user in ["u3", "u4", "u5"] {
            assert_eq!(house.buy(&request(user, 1, "k1")).await, Admission::Refused(Refusal::StockEmpty), "{user}");
        }
    })
    .await;
}
