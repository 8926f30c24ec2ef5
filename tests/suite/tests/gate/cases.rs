//! Buyers at the gate.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use kernel::time::UnixMillis;
use redis::AsyncCommands as _;
use sale::admission::{Admission, AdmitRequest, HoldState, Refusal};
use sale::gate::model::Model;
use sale::gate::{Followed, Gate, GateSettings, Loading, Lowered, Synced};
use sale::offer::SaleState;
use suite::gate_house::{
    FAR_AHEAD, GateHouse, LONG_AGO, hold_of, offer_id, on_both, order_no, request, settings, user_id,
};
use suite::redis_server::Shape;

fn admitted(settings: &GateSettings) -> Admission {
    Admission::Admitted(settings.terms.clone())
}

fn refused(refusal: Refusal) -> Admission {
    Admission::Refused(refusal)
}

/// Checks that what the gate counts is what its holds say, and returns its counts as (available, held, sold).
async fn balance(house: &GateHouse) -> (i64, i64, i64) {
    let snapshot = house.gate.snapshot(&house.offer).await.unwrap().unwrap();
    assert!(snapshot.settled);
    let sum = |state: HoldState| -> i64 {
        snapshot.holds.values().filter(|hold| hold.state == state).map(|hold| hold.quantity.units()).sum()
    };
    assert_eq!(snapshot.counters.held(), sum(HoldState::Held));
    assert_eq!(snapshot.counters.sold, sum(HoldState::Sold));
    (snapshot.counters.available, snapshot.counters.held(), snapshot.counters.sold)
}

#[tokio::test]
async fn p1_ten_units_make_ten_buyers() {
    on_both(async |house| {
        let sale = settings(10, 1);
        house.open(&sale).await;
        for buyer in 1..=10 {
            assert_eq!(house.buy(&request(&format!("u{buyer}"), 1, "k")).await, admitted(&sale), "u{buyer}");
        }
        assert_eq!(house.buy(&request("u11", 1, "k")).await, refused(Refusal::StockEmpty));
        assert_eq!(balance(&house).await, (0, 10, 0));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p2_a_hundred_at_once_and_one_unit() {
    on_both(async |house| {
        house.open(&settings(1, 1)).await;
        let done = AtomicBool::new(false);
        let looks = AtomicUsize::new(0);
        let watch = async {
            // On its own connection: it must not wait in line with the buyers.
            let gate = Gate::new(house.server.connect());
            while !done.load(Ordering::SeqCst) {
                let available = gate.counters(&house.offer).await.unwrap().unwrap().available;
                assert!((0..=1).contains(&available), "{available}");
                looks.fetch_add(1, Ordering::SeqCst);
            }
        };
        let rush = async {
            while looks.load(Ordering::SeqCst) == 0 {
                tokio::task::yield_now().await;
            }
            let buyers = (0..100).map(|buyer| {
                let (gate, offer) = (Gate::new(house.server.connect()), house.offer.clone());
                tokio::spawn(async move { gate.admit(&offer, &request(&format!("u{buyer}"), 1, "k")).await.unwrap() })
            });
            let mut winners = 0;
            for answer in buyers.collect::<Vec<_>>() {
                match answer.await.unwrap() {
                    Admission::Admitted(_) => winners += 1,
                    answer => assert_eq!(answer, refused(Refusal::StockEmpty)),
                }
            }
            done.store(true, Ordering::SeqCst);
            winners
        };
        let ((), winners) = tokio::join!(watch, rush);
        assert_eq!(winners, 1);
        assert!(looks.load(Ordering::SeqCst) > 1);
        assert_eq!(balance(&house).await, (0, 1, 0));
    })
    .await;
}

#[tokio::test]
async fn p3_one_buyer_from_two_windows_at_once() {
    on_both(async |house| {
        house.open(&settings(10, 1)).await;
        let (one, other) = (Gate::new(house.server.connect()), Gate::new(house.server.connect()));
        let (first, second) = (request("u1", 1, "k1"), request("u1", 1, "k2"));
        let answers = tokio::join!(one.admit(&house.offer, &first), other.admit(&house.offer, &second));
        let answers = [answers.0.unwrap(), answers.1.unwrap()];
        assert_eq!(answers.iter().filter(|answer| matches!(answer, Admission::Admitted(_))).count(), 1, "{answers:?}");
        assert!(answers.contains(&refused(Refusal::AlreadyBought)), "{answers:?}");
        assert_eq!(balance(&house).await, (9, 1, 0));
    })
    .await;
}

#[tokio::test]
async fn p5_a_retry_meets_its_own_hold() {
    on_both(async |house| {
        let sale = settings(10, 3);
        house.open(&sale).await;
        let request = request("u1", 2, "k1");
        assert_eq!(house.buy(&request).await, admitted(&sale));
        let replayed = |state: HoldState| Admission::Replayed(state, sale.terms.clone());
        assert_eq!(house.buy(&request).await, replayed(HoldState::Held));
        assert_eq!(balance(&house).await, (8, 2, 0));

        // Whatever happened to the order, and to the sale, since: the hold says it.
        let orders = [request.order_no.clone()];
        house.gate.sell(&house.offer, &orders).await.unwrap();
        assert_eq!(house.buy(&request).await, replayed(HoldState::Sold));
        let paused = GateSettings { version: 2, state: SaleState::Paused, ..sale.clone() };
        assert_eq!(house.gate.sync(&house.offer, &paused).await.unwrap(), Synced::Applied);
        assert_eq!(house.buy(&request).await, replayed(HoldState::Sold));
        assert_eq!(balance(&house).await, (8, 0, 2));
    })
    .await;
}

#[tokio::test]
async fn p8_an_order_gives_back_once() {
    on_both(async |house| {
        let sale = settings(10, 3);
        house.open(&sale).await;
        house.buy(&request("u1", 3, "k1")).await;
        let order = order_no("u1", "k1");
        // The same order twice in one call, and again in another.
        let twice = house.gate.release(&house.offer, &[order.clone(), order.clone()]).await.unwrap();
        assert_eq!(twice, [Followed::Changed, Followed::Unchanged]);
        assert_eq!(
            house.gate.release(&house.offer, std::slice::from_ref(&order)).await.unwrap(),
            [Followed::Unchanged]
        );
        assert_eq!(balance(&house).await, (10, 0, 0));
        // A released hold is not sold, and its retry is told so.
        assert_eq!(house.gate.sell(&house.offer, &[order]).await.unwrap(), [Followed::Unchanged]);
        let again = house.buy(&request("u1", 3, "k1")).await;
        assert_eq!(again, Admission::Replayed(HoldState::Released, sale.terms.clone()));
        // The buyer may come anew, for all that the limit allows.
        assert_eq!(house.buy(&request("u1", 3, "k2")).await, admitted(&sale));
    })
    .await;
}

#[tokio::test]
async fn p9_a_limit_counts_units_not_purchases() {
    on_both(async |house| {
        let sale = settings(10, 3);
        house.open(&sale).await;
        assert_eq!(house.buy(&request("u1", 3, "k1")).await, admitted(&sale));
        assert_eq!(house.buy(&request("u1", 3, "k2")).await, refused(Refusal::LimitExceeded { remaining: 0 }));
        assert_eq!(house.buy(&request("u2", 2, "k1")).await, admitted(&sale));
        assert_eq!(house.buy(&request("u2", 2, "k2")).await, refused(Refusal::LimitExceeded { remaining: 1 }));
        assert_eq!(house.buy(&request("u3", 4, "k1")).await, refused(Refusal::LimitExceeded { remaining: 3 }));
        assert_eq!(balance(&house).await, (5, 5, 0));
    })
    .await;
}

#[tokio::test]
async fn less_than_asked_for_is_not_nothing() {
    on_both(async |house| {
        let sale = settings(3, 5);
        house.open(&sale).await;
        assert_eq!(house.buy(&request("u1", 4, "k1")).await, refused(Refusal::InsufficientStock { remaining: 3 }));
        assert_eq!(house.buy(&request("u1", 3, "k2")).await, admitted(&sale));
        assert_eq!(house.buy(&request("u2", 4, "k1")).await, refused(Refusal::StockEmpty));
    })
    .await;
}

/// The instants themselves, by the model; the contract test ties the model to the script.
#[test]
fn p11_the_window_opens_at_its_start_and_closes_at_its_end() {
    let mut sale = settings(10, 1);
    let (start, end) = (UnixMillis::new(1_800_000_000_000), UnixMillis::new(1_800_000_060_000));
    (sale.rules.starts_at, sale.rules.ends_at) = (start, end);
    let mut model = Model::default();
    assert_eq!(model.load_begin(1), Loading::Going);
    assert_eq!(model.load_finish(&sale), Loading::Going);
    for (user, at, answer) in [
        ("u1", start.plus_millis(-1), refused(Refusal::NotStarted { starts_at: start })),
        ("u1", start, admitted(&sale)),
        ("u2", end.plus_millis(-1), admitted(&sale)),
        ("u3", end, refused(Refusal::Ended { ends_at: end })),
    ] {
        assert_eq!(model.admit(&request(user, 1, "k"), at), answer, "{at:?}");
    }
}

/// The script's edges, by the server's clock: asked without a pause across both, and held between two looks at that clock.
#[tokio::test]
async fn p11_the_server_s_clock_opens_and_closes() {
    on_both(async |house| {
        let mut sale = settings(1_000_000, 1);
        let start = house.now().await.plus_millis(300);
        let end = start.plus_millis(300);
        (sale.rules.starts_at, sale.rules.ends_at) = (start, end);
        house.open(&sale).await;

        let (mut before_start, mut open, mut after_end) = (0, 0, 0);
        let mut earlier = house.now().await;
        for buyer in 0.. {
            let answer = house.buy(&request(&format!("u{buyer}"), 1, "k")).await;
            let later = house.now().await;
            match answer {
                Admission::Refused(Refusal::NotStarted { starts_at }) => {
                    assert_eq!(starts_at, start);
                    assert!(earlier < start, "still closed {} ms after the start", earlier.millis_since(start));
                    before_start += 1;
                }
                Admission::Admitted(_) => {
                    assert!(later >= start, "open {} ms before the start", start.millis_since(later));
                    assert!(earlier < end, "still open {} ms after the end", earlier.millis_since(end));
                    open += 1;
                }
                Admission::Refused(Refusal::Ended { ends_at }) => {
                    assert_eq!(ends_at, end);
                    assert!(later >= end, "closed {} ms before the end", end.millis_since(later));
                    after_end += 1;
                }
                answer => panic!("{answer:?}"),
            }
            if after_end > 3 {
                break;
            }
            earlier = later;
        }
        assert!(before_start > 0 && open > 0, "{before_start} before the start, {open} open");
        assert_eq!(house.counters().await.held(), open);
    })
    .await;
}

#[tokio::test]
async fn p25_one_request_id_is_one_wish() {
    on_both(async |house| {
        let sale = settings(10, 3);
        house.open(&sale).await;
        assert_eq!(house.buy(&request("u1", 1, "k")).await, admitted(&sale));
        assert_eq!(house.buy(&request("u1", 2, "k")).await, refused(Refusal::RequestIdReused));
        assert_eq!(balance(&house).await, (9, 1, 0));
    })
    .await;
}

#[tokio::test]
async fn p31_stock_goes_up_at_any_time_and_down_to_what_is_held() {
    on_both(async |house| {
        let sale = settings(2, 5);
        house.open(&sale).await;
        house.buy(&request("u1", 2, "k1")).await;
        assert_eq!(house.buy(&request("u2", 1, "k1")).await, refused(Refusal::StockEmpty));

        let raised = GateSettings { version: 2, total: 7, ..sale.clone() };
        assert_eq!(house.gate.sync(&house.offer, &raised).await.unwrap(), Synced::Applied);
        assert_eq!(balance(&house).await, (5, 2, 0));
        assert_eq!(house.gate.sync(&house.offer, &raised).await.unwrap(), Synced::Unchanged);
        assert_eq!(house.gate.sync(&house.offer, &sale).await.unwrap(), Synced::Stale);
        let of_another_making = GateSettings { epoch: 2, version: 9, ..sale.clone() };
        assert_eq!(house.gate.sync(&house.offer, &of_another_making).await.unwrap(), Synced::EpochDiffers);

        let lower = async |units| house.gate.lower(&house.offer, units, 3).await.unwrap();
        assert_eq!(lower(6).await, Lowered::Insufficient { available: 5 });
        assert_eq!(balance(&house).await, (5, 2, 0));
        assert_eq!(lower(5).await, Lowered::Done);
        assert_eq!(balance(&house).await, (0, 2, 0));
        assert_eq!(lower(5).await, Lowered::Contended);
        // Its row may still come: until then the units stay out.
        assert_eq!(house.gate.sync(&house.offer, &raised).await.unwrap(), Synced::Unchanged);
        assert_eq!(balance(&house).await, (0, 2, 0));
        // The row was never lowered after all: the gate takes what it says.
        let later = GateSettings { version: 3, ..raised };
        assert_eq!(house.gate.sync(&house.offer, &later).await.unwrap(), Synced::Applied);
        assert_eq!(balance(&house).await, (5, 2, 0));
    })
    .await;
}

#[tokio::test]
async fn a_sale_that_is_paused_or_over_says_so() {
    on_both(async |house| {
        let sale = settings(1, 1);
        house.open(&sale).await;
        let over = Refusal::Ended { ends_at: FAR_AHEAD };
        for (version, state, refusal) in [
            (2, SaleState::Paused, Refusal::Paused),
            (3, SaleState::Closed, over.clone()),
            (4, SaleState::Settled, over),
        ] {
            let changed = GateSettings { version, state, ..sale.clone() };
            assert_eq!(house.gate.sync(&house.offer, &changed).await.unwrap(), Synced::Applied);
            assert_eq!(house.buy(&request("u1", 1, "k")).await, refused(refusal));
        }
        let resumed = GateSettings { version: 5, ..sale.clone() };
        assert_eq!(house.gate.sync(&house.offer, &resumed).await.unwrap(), Synced::Applied);
        assert_eq!(house.buy(&request("u1", 1, "k")).await, admitted(&resumed));
    })
    .await;
}

fn hurried(user_interval_ms: u32, device_ip_interval_ms: u32) -> GateSettings {
    let mut sale = settings(10, 9);
    (sale.rules.user_interval_ms, sale.rules.device_ip_interval_ms) = (user_interval_ms, device_ip_interval_ms);
    sale
}

fn retry_after(answer: &Admission) -> u32 {
    match answer {
        Admission::Refused(Refusal::RateLimited { retry_after_ms }) => *retry_after_ms,
        answer => panic!("{answer:?}"),
    }
}

#[tokio::test]
async fn a_buyer_in_a_hurry_is_told_how_long_to_wait() {
    on_both(async |house| {
        house.open(&hurried(60_000, 0)).await;
        let first = house.buy(&request("u1", 1, "k1")).await;
        assert!(matches!(first, Admission::Admitted(_)));
        let wait = retry_after(&house.buy(&request("u1", 1, "k2")).await);
        assert!((50_000..=60_000).contains(&wait), "{wait}");
        // Others do not wait, and a refusal leaves no mark.
        assert!(matches!(house.buy(&request("u2", 1, "k1")).await, Admission::Admitted(_)));
        assert_eq!(balance(&house).await, (8, 2, 0));
    })
    .await;
}

#[tokio::test]
async fn a_device_at_one_address_waits_whoever_uses_it() {
    on_both(async |house| {
        house.open(&hurried(0, 60_000)).await;
        let on_one_device =
            |user: &str| AdmitRequest { device_address: "shared|203.0.113.7".to_owned(), ..request(user, 1, "k") };
        assert!(matches!(house.buy(&on_one_device("u1")).await, Admission::Admitted(_)));
        let wait = retry_after(&house.buy(&on_one_device("u2")).await);
        assert!((50_000..=60_000).contains(&wait), "{wait}");
        assert!(matches!(house.buy(&request("u2", 1, "k")).await, Admission::Admitted(_)), "on a device of one's own");
        assert_eq!(balance(&house).await, (8, 2, 0));
    })
    .await;
}

#[tokio::test]
async fn an_interval_ends() {
    on_both(async |house| {
        house.open(&hurried(200, 0)).await;
        assert!(matches!(house.buy(&request("u1", 1, "k1")).await, Admission::Admitted(_)));
        let wait = retry_after(&house.buy(&request("u1", 1, "k2")).await);
        tokio::time::sleep(Duration::from_millis(u64::from(wait))).await;
        assert!(matches!(house.buy(&request("u1", 1, "k3")).await, Admission::Admitted(_)));
    })
    .await;
}

/// A mark ahead of the clock is what a clock that stepped back leaves behind.
#[tokio::test]
async fn a_clock_that_steps_back_neither_frees_nor_locks_out() {
    on_both(async |house| {
        house.open(&hurried(60_000, 0)).await;
        let mut redis = house.server.operator().await;
        let now = house.now().await;
        for (user, ahead_ms, waits) in [("u1", 1_000, true), ("u2", 50_000, true), ("u3", 600_000, false)] {
            let mark = format!("0 {}", now.plus_millis(ahead_ms).get());
            let () = redis.hset("seckill:book:{a1:s10}", format!("u:{user}"), mark).await.unwrap();
            let answer = house.buy(&request(user, 1, "k")).await;
            if waits {
                assert_eq!(retry_after(&answer), 60_000, "{user}: one interval, as if just left");
            } else {
                assert!(matches!(answer, Admission::Admitted(_)), "{user}: {answer:?}");
            }
        }
    })
    .await;
}

#[tokio::test]
async fn a_gate_is_made_from_rows_and_from_nothing_else() {
    on_both(async |house| {
        let sale = GateSettings { epoch: 2, ..settings(10, 5) };
        house.open(&settings(10, 5)).await;
        house.buy(&request("u9", 4, "lost")).await;
        let load = |user: &str, units: u32, state: HoldState| sale::gate::LoadHold {
            order_no: order_no(user, "k"),
            user_id: user_id(user),

            limit_day: None,
            quantity: units.try_into().unwrap(),
            fingerprint: request(user, units, "k").fingerprint,
            state,
            held_at: LONG_AGO,
            pending: state == HoldState::Held,
        };
        let rows = [load("u1", 1, HoldState::Held), load("u2", 2, HoldState::Sold), load("u3", 3, HoldState::Released)];
        let gate = &house.gate;

        assert_eq!(gate.load_begin(&house.offer, 2).await.unwrap(), Loading::Going);
        assert_eq!(house.buy(&request("u9", 4, "lost")).await, refused(Refusal::NotReady), "replays too");
        let orders = [order_no("u1", "k")];
        assert_eq!(gate.release(&house.offer, &orders).await.unwrap(), [Followed::NotReady]);
        assert_eq!(gate.sell(&house.offer, &orders).await.unwrap(), [Followed::NotReady]);
        let lost = [hold_of(&request("u4", 1, "k"), LONG_AGO)];
        assert_eq!(gate.take(&house.offer, &lost).await.unwrap(), [Followed::NotReady]);
        assert_eq!(gate.sync(&house.offer, &sale).await.unwrap(), Synced::NotReady);
        assert_eq!(gate.lower(&house.offer, 1, 2).await.unwrap(), Lowered::NotReady);
        // A chunk may be sent again, and a load begun again by whoever had no answer.
        for _ in 0..2 {
            assert_eq!(gate.load_chunk(&house.offer, 2, &rows).await.unwrap(), Loading::Going);
            assert_eq!(gate.load_begin(&house.offer, 2).await.unwrap(), Loading::Going);
        }
        assert_eq!(gate.load_begin(&house.offer, 1).await.unwrap(), Loading::Stale);
        assert_eq!(gate.load_chunk(&house.offer, 1, &rows).await.unwrap(), Loading::Stale);
        for _ in 0..2 {
            assert_eq!(gate.load_finish(&house.offer, &sale).await.unwrap(), Loading::Going);
        }
        assert_eq!(gate.load_begin(&house.offer, 2).await.unwrap(), Loading::Stale);
        assert_eq!(balance(&house).await, (7, 1, 2));

        assert_eq!(gate.pending(&house.offer, FAR_AHEAD, 10).await.unwrap(), [(order_no("u1", "k"), LONG_AGO)]);
        let holds = gate.holds(&house.offer, &[order_no("u3", "k"), order_no("u9", "lost")]).await.unwrap();
        assert_eq!(holds[0].as_ref().unwrap().state, HoldState::Released);
        assert_eq!(holds[1], None);
    })
    .await;
}

/// More orders than one script settles, and more rows than one script loads.
#[tokio::test]
async fn long_lists_are_taken_in_parts() {
    let house = GateHouse::start(Shape::StandAlone).await;
    let buyers = 1_234_u32;
    let rows: Vec<_> = (0..buyers)
        .map(|buyer| {
            let request = request(&format!("u{buyer}"), 1, "k");
            sale::gate::LoadHold {
                order_no: request.order_no,
                user_id: request.user_id,

                limit_day: None,
                quantity: request.quantity,
                fingerprint: request.fingerprint,
                state: HoldState::Held,
                held_at: LONG_AGO.plus_secs(i64::from(buyer)),
                pending: true,
            }
        })
        .collect();
    let orders: Vec<_> = rows.iter().map(|row| row.order_no.clone()).collect();
    let gate = &house.gate;
    assert_eq!(gate.load_begin(&house.offer, 1).await.unwrap(), Loading::Going);
    assert_eq!(gate.load_chunk(&house.offer, 1, &rows).await.unwrap(), Loading::Going);
    assert_eq!(gate.load_finish(&house.offer, &settings(2_000, 1)).await.unwrap(), Loading::Going);
    assert_eq!(balance(&house).await, (766, 1_234, 0));

    // Oldest first, no younger than asked for.
    let oldest = gate.pending(&house.offer, LONG_AGO.plus_secs(2), 100).await.unwrap();
    assert_eq!(oldest.iter().map(|(order_no, _)| order_no).collect::<Vec<_>>(), orders[..3].iter().collect::<Vec<_>>());
    assert_eq!(gate.pending(&house.offer, FAR_AHEAD, 5).await.unwrap().len(), 5);

    gate.confirm(&house.offer, &orders[..500]).await.unwrap();
    assert_eq!(gate.sell(&house.offer, &orders[..250]).await.unwrap(), vec![Followed::Changed; 250]);
    assert_eq!(gate.release(&house.offer, &orders[250..]).await.unwrap(), vec![Followed::Changed; 984]);
    assert_eq!(balance(&house).await, (1_750, 0, 250));
    assert_eq!(gate.pending(&house.offer, FAR_AHEAD, 5).await.unwrap(), []);
    assert_eq!(gate.holds(&house.offer, &orders).await.unwrap().iter().flatten().count(), 1_234);
}

#[tokio::test]
async fn offers_do_not_share() {
    on_both(async |house| {
        house.open(&settings(1, 1)).await;
        house.buy(&request("u1", 1, "k")).await;
        let other = offer_id("s11");
        let answer = house.gate.admit(&other, &request("u1", 1, "k")).await.unwrap();
        assert_eq!(answer, refused(Refusal::NotReady));
        assert_eq!(house.gate.snapshot(&other).await.unwrap(), None);
    })
    .await;
}

/// As a list, a book of hundreds of fields would be searched from end to end for every buyer.
#[tokio::test]
async fn the_book_is_a_hash_table_from_its_first_buyer() {
    let house = GateHouse::start(Shape::StandAlone).await;
    house.open(&settings(1, 1)).await;
    let mut redis = house.server.operator().await;
    for (key, encoding) in [("seckill:book:{a1:s10}", "hashtable"), ("seckill:pending:{a1:s10}", "skiplist")] {
        let found: String = redis::cmd("OBJECT").arg("ENCODING").arg(key).query_async(&mut redis).await.unwrap();
        assert_eq!(found, encoding, "{key}");
    }
}
