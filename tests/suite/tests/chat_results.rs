//! Results: stored first, pushed second, repeated until they were seen.

use std::time::{Duration, Instant};

use chat::connections::Connection;
use chat::postman::PUSH_BUDGET;
use chat::results::{ACK_FLIGHT_SECS, KEPT_SECS, MAX_REPEATED, ResultNotice};
use chat::{Delivery, Postman};
use kernel::text::Text;
use serde_json::json;
use suite::chat_house::{ChatHouse, TOKEN_SECS, results, types};
use suite::dynamo::CONNECTIONS;
use suite::sockets::Answer;

const PING: &str = r#"{"type":"ping"}"#;
const SYNC: &str = r#"{"type":"sync","sessions":{}}"#;

fn ack(order_no: &str, order_status: &str) -> String {
    json!({"type": "result_ack", "orderNo": order_no, "orderStatus": order_status}).to_string()
}

fn unnamed_ack(order_no: &str) -> String {
    json!({"type": "result_ack", "orderNo": order_no}).to_string()
}

/// P29.
#[tokio::test]
async fn a_result_decided_before_the_socket_opens_comes_at_sync() {
    let house = ChatHouse::open().await;
    let delivery = house.postman.deliver(&[house.notice("u1", "SK1", "UNPAID")]).await.unwrap();
    assert_eq!(delivery, Delivery { offline: 1, ..Delivery::default() });

    house.clock.advance_millis(150);
    house.register(&house.connection("c1", "u1")).await;
    let expected = json!({
        "type": "seckill_result", "orderNo": "SK1", "status": "success", "orderStatus": "UNPAID", "message": "SK1 is UNPAID",
    });
    assert_eq!(house.say("c1", SYNC).await, [expected]);
}

#[tokio::test]
async fn a_socket_that_has_not_spoken_is_not_pushed_to_and_misses_nothing() {
    let house = ChatHouse::open().await;
    house.register(&house.connection("c1", "u1")).await;
    let delivery = house.postman.deliver(&[house.notice("u1", "SK1", "UNPAID")]).await.unwrap();
    assert_eq!(delivery, Delivery { offline: 1, ..Delivery::default() });
    assert_eq!(house.gateway.posts("c1"), 0);

    // The first frame of any type will do, even one that cannot be read.
    assert_eq!(types(&house.say("c1", "hello").await), ["BAD_FRAME"]);
    let delivery = house.postman.deliver(&[house.notice("u1", "SK2", "FAILED")]).await.unwrap();
    assert_eq!(delivery, Delivery { delivered: 1, ..Delivery::default() });
    assert_eq!(results(&house.gateway.take_frames("c1")), ["SK2 FAILED"]);
    assert_eq!(results(&house.say("c1", PING).await), ["SK1 UNPAID", "SK2 FAILED"]);
}

#[tokio::test]
async fn every_device_of_a_user_is_told_in_its_language_and_nobody_else() {
    let house = ChatHouse::open().await;
    house.live("desk", "u1").await;
    let phone = Connection { language: kernel::text::Language::Zh, ..house.connection("phone", "u1") };
    house.register(&phone).await;
    house.say("phone", PING).await;
    house.live("foreign", "u2").await;

    let notices = [house.notice("u1", "SK1", "UNPAID"), house.notice("u1", "SK2", "FAILED")];
    let delivery = house.postman.deliver(&notices).await.unwrap();
    assert_eq!(delivery, Delivery { delivered: 4, ..Delivery::default() });
    let desk = house.gateway.take_frames("desk");
    assert_eq!(results(&desk), ["SK1 UNPAID", "SK2 FAILED"]);
    assert_eq!((&desk[1]["status"], &desk[1]["message"]), (&json!("fail"), &json!("SK2 is FAILED")));
    assert_eq!(house.gateway.take_frames("phone")[0]["message"], "SK1 是 UNPAID");
    assert_eq!(house.gateway.posts("foreign"), 1, "only the answer to its ping");
    assert_eq!(results(&house.say("foreign", SYNC).await), [""; 0]);
}

#[tokio::test]
async fn an_expired_connection_is_told_nothing() {
    let house = ChatHouse::open().await;
    house.live("c1", "u1").await;
    house.pass_secs(TOKEN_SECS);
    let delivery = house.postman.deliver(&[house.notice("u1", "SK1", "UNPAID")]).await.unwrap();
    assert_eq!(delivery, Delivery { offline: 1, ..Delivery::default() });
    assert_eq!(house.gateway.posts("c1"), 1, "the pong before");
}

/// P30, C11.
#[tokio::test]
async fn a_dead_connection_is_removed_and_the_others_are_served() {
    let house = ChatHouse::open().await;
    for id in ["a", "dead", "z"] {
        house.live(id, "u1").await;
    }
    house.pass_secs(31);
    house.gateway.always("dead", Answer::Status(410));

    let delivery = house.postman.deliver(&[house.notice("u1", "SK1", "UNPAID")]).await.unwrap();
    assert_eq!(delivery, Delivery { delivered: 2, gone: 1, left: 1, ..Delivery::default() });
    for id in ["a", "z"] {
        assert_eq!(results(&house.gateway.take_frames(id)), ["SK1 UNPAID"]);
    }
    assert_eq!(house.gateway.posts("dead"), 2, "the pong before, and one try: gone is no reason to try again");
    let keys = house.keys().await;
    assert!(!keys.iter().any(|key| key.contains("dead")), "{keys:?}");
    assert_eq!(keys.len(), 5, "two connections and a result: {keys:?}");
}

/// C12.
#[tokio::test]
async fn a_connection_younger_than_half_a_minute_stays_though_the_gateway_does_not_know_it() {
    let house = ChatHouse::open().await;
    house.live("c1", "u1").await;
    house.gateway.next("c1", [Answer::Status(410), Answer::Status(410)]);

    house.pass_secs(30);
    let delivery = house.postman.deliver(&[house.notice("u1", "SK1", "UNPAID")]).await.unwrap();
    assert_eq!(delivery, Delivery { left: 1, ..Delivery::default() });
    assert_eq!(house.keys().await.len(), 3);

    house.clock.advance_millis(1);
    let delivery = house.postman.deliver(&[house.notice("u1", "SK1", "UNPAID")]).await.unwrap();
    assert_eq!(delivery, Delivery { gone: 1, left: 1, ..Delivery::default() });
    assert_eq!(house.keys().await, ["USER#u1 RESULT#SK1#UNPAID"]);
}

#[tokio::test]
async fn a_gateway_in_trouble_is_asked_a_few_times() {
    for answers in [[429, 429], [500, 503], [504, 429]] {
        let house = ChatHouse::open().await;
        house.live("c1", "u1").await;
        house.gateway.next("c1", answers.map(Answer::Status));
        let delivery = house.postman.deliver(&[house.notice("u1", "SK1", "UNPAID")]).await.unwrap();
        assert_eq!(delivery, Delivery { delivered: 1, ..Delivery::default() }, "{answers:?}");
        assert_eq!(house.gateway.posts("c1"), 1 + 3);
        assert_eq!(results(&house.gateway.take_frames("c1")), ["SK1 UNPAID"]);
    }
}

#[tokio::test]
async fn a_gateway_that_refuses_is_not_asked_again() {
    for status in [403, 413] {
        let house = ChatHouse::open().await;
        house.live("c1", "u1").await;
        house.pass_secs(60);
        house.gateway.next("c1", [Answer::Status(status)]);
        let delivery = house.postman.deliver(&[house.notice("u1", "SK1", "UNPAID")]).await.unwrap();
        assert_eq!(delivery, Delivery { left: 1, ..Delivery::default() });
        assert_eq!(house.gateway.posts("c1"), 2);
        assert_eq!(house.keys().await.len(), 3, "the connection is not gone");
    }
}

#[tokio::test]
async fn a_gateway_that_is_silent_once_is_asked_again() {
    let house = ChatHouse::open().await;
    house.live("c1", "u1").await;
    house.gateway.next("c1", [Answer::Silence]);
    let delivery = house.postman.deliver(&[house.notice("u1", "SK1", "UNPAID")]).await.unwrap();
    assert_eq!(delivery, Delivery { delivered: 1, ..Delivery::default() });
    assert_eq!(house.gateway.posts("c1"), 1 + 2);
}

/// C37, C3.
#[tokio::test]
async fn a_push_that_was_lost_comes_with_the_next_pong() {
    let house = ChatHouse::open().await;
    house.live("c1", "u1").await;
    house.say("c1", SYNC).await;
    house.gateway.next("c1", [429, 429, 429].map(Answer::Status));

    let notices = [house.notice("u1", "SK1", "UNPAID"), house.notice("u1", "SK2", "UNPAID")];
    let delivery = house.postman.deliver(&notices).await.unwrap();
    assert_eq!(delivery, Delivery { left: 2, ..Delivery::default() }, "what follows a lost one is not sent before it");
    assert_eq!(house.gateway.take_frames("c1").len(), 0);

    let frames = house.say("c1", PING).await;
    assert_eq!(types(&frames), ["pong", "seckill_result", "seckill_result"]);
    assert_eq!(frames[0], json!({"type": "pong", "heads": {}}));
    assert_eq!(results(&frames), ["SK1 UNPAID", "SK2 UNPAID"]);
}

#[tokio::test]
#[allow(clippy::disallowed_methods, reason = "measures that a wait is bounded")]
async fn a_storm_of_silent_sockets_holds_the_caller_up_for_a_bounded_time() {
    let house = ChatHouse::open().await;
    let notices: Vec<ResultNotice> = (0..50).map(|n| house.notice(&format!("u{n}"), "SK1", "UNPAID")).collect();
    for n in 0..50 {
        let id = format!("c{n}");
        house.live(&id, &format!("u{n}")).await;
        house.gateway.always(&id, Answer::Silence);
    }
    let start = Instant::now();
    let delivery = house.postman.deliver(&notices).await.unwrap();
    assert!(start.elapsed() < PUSH_BUDGET + Duration::from_secs(2), "{:?}", start.elapsed());
    assert_eq!(delivery, Delivery { left: 50, ..Delivery::default() });
    // Nothing is lost: all of it is stored.
    house.gateway.always("c49", Answer::Status(200));
    assert_eq!(results(&house.say("c49", PING).await), ["SK1 UNPAID"]);
}

#[tokio::test]
async fn a_result_is_repeated_until_it_is_acknowledged_and_the_row_stays() {
    let house = ChatHouse::open().await;
    house.live("c1", "u1").await;
    house.postman.deliver(&[house.notice("u1", "SK1", "UNPAID")]).await.unwrap();
    assert_eq!(results(&house.gateway.take_frames("c1")), ["SK1 UNPAID"]);
    for frame in [SYNC, PING, SYNC, PING] {
        assert_eq!(results(&house.say("c1", frame).await), ["SK1 UNPAID"]);
    }
    house.live("c2", "u1").await;

    assert_eq!(house.say("c1", &unnamed_ack("SK1")).await.len(), 0, "an acknowledgement is not answered");
    for (id, frame) in [("c1", SYNC), ("c1", PING), ("c2", SYNC), ("c2", PING)] {
        assert_eq!(results(&house.say(id, frame).await), [""; 0]);
    }
    // Again, from the other device.
    assert_eq!(house.say("c2", &unnamed_ack("SK1")).await.len(), 0);
    let rows = house.dynamo.rows(CONNECTIONS).await;
    let row = rows.iter().find(|row| row["sk"].as_s().unwrap() == "RESULT#SK1#UNPAID").unwrap();
    assert!(row.contains_key("acknowledgedAt"));
}

#[tokio::test]
async fn a_later_result_of_the_order_is_told_though_the_first_was_acknowledged() {
    let house = ChatHouse::open().await;
    house.live("c1", "u1").await;
    house.postman.deliver(&[house.notice("u1", "SK1", "UNPAID")]).await.unwrap();
    house.say("c1", &unnamed_ack("SK1")).await;
    house.pass_secs(900);
    house.gateway.take_frames("c1");
    house.postman.deliver(&[house.notice("u1", "SK1", "CANCELLED")]).await.unwrap();
    assert_eq!(results(&house.gateway.take_frames("c1")), ["SK1 CANCELLED"]);
    assert_eq!(results(&house.say("c1", SYNC).await), ["SK1 CANCELLED"]);
}

#[tokio::test]
async fn an_old_acknowledgement_does_not_cover_a_newer_result() {
    let house = ChatHouse::open().await;
    house.live("c1", "u1").await;
    house.postman.deliver(&[house.notice("u1", "SK1", "UNPAID")]).await.unwrap();
    house.pass_secs(900);
    house.postman.deliver(&[house.notice("u1", "SK1", "CANCELLED")]).await.unwrap();
    house.gateway.take_frames("c1");

    // Both were under way for a while. The one that names what was seen is exact, however late.
    house.say("c1", &ack("SK1", "UNPAID")).await;
    house.say("c1", &unnamed_ack("SK1")).await;
    assert_eq!(results(&house.say("c1", PING).await), ["SK1 CANCELLED"]);
    house.pass_secs(ACK_FLIGHT_SECS);
    house.say("c1", &ack("SK1", "UNPAID")).await;
    assert_eq!(results(&house.say("c1", PING).await), ["SK1 CANCELLED"]);

    // By now the one that names nothing can only be about what the client has been told since.
    house.say("c1", &unnamed_ack("SK1")).await;
    assert_eq!(results(&house.say("c1", PING).await), [""; 0]);
}

#[tokio::test]
async fn a_late_copy_of_an_old_result_does_not_cover_a_newer_one() {
    let house = ChatHouse::open().await;
    let unpaid = house.notice("u1", "SK1", "UNPAID");
    house.postman.deliver(std::slice::from_ref(&unpaid)).await.unwrap();
    house.pass_secs(900);
    house.postman.deliver(&[house.notice("u1", "SK1", "CANCELLED")]).await.unwrap();
    house.pass_secs(10);
    // By a function that was frozen meanwhile.
    house.postman.deliver(std::slice::from_ref(&unpaid)).await.unwrap();

    house.live("c1", "u1").await;
    assert_eq!(results(&house.say("c1", SYNC).await), ["SK1 CANCELLED"]);
    house.say("c1", &ack("SK1", "CANCELLED")).await;
    assert_eq!(results(&house.say("c1", SYNC).await), [""; 0], "what came before is not told after it");
}

#[tokio::test]
async fn a_result_that_was_acknowledged_is_not_told_again_however_often_it_is_delivered() {
    let house = ChatHouse::open().await;
    house.live("c1", "u1").await;
    let unpaid = house.notice("u1", "SK1", "UNPAID");
    let again = async || house.postman.deliver(std::slice::from_ref(&unpaid)).await.unwrap();
    again().await;
    house.pass_secs(5);
    // Not seen yet: pushed again, and it stays one result with one time of its own.
    assert_eq!(again().await, Delivery { delivered: 1, ..Delivery::default() });
    assert_eq!(results(&house.gateway.take_frames("c1")), ["SK1 UNPAID", "SK1 UNPAID"]);
    house.say("c1", &ack("SK1", "UNPAID")).await;

    house.pass_secs(60);
    assert_eq!(again().await, Delivery { seen: 1, ..Delivery::default() });
    assert_eq!(house.gateway.take_frames("c1").len(), 0);
    assert_eq!(results(&house.say("c1", SYNC).await), [""; 0]);
}

#[tokio::test]
async fn a_day_counts_from_the_decision_however_late_it_is_stored_again() {
    let house = ChatHouse::open().await;
    let unpaid = house.notice("u1", "SK1", "UNPAID");
    house.postman.deliver(std::slice::from_ref(&unpaid)).await.unwrap();
    let ttl = async || {
        let rows = house.dynamo.rows(CONNECTIONS).await;
        rows[0]["ttl"].as_n().unwrap().parse::<i64>().unwrap()
    };
    assert_eq!(ttl().await, unpaid.decided_at.plus_secs(KEPT_SECS).secs());
    house.pass_secs(KEPT_SECS - 10);
    house.postman.deliver(std::slice::from_ref(&unpaid)).await.unwrap();
    assert_eq!(ttl().await, unpaid.decided_at.plus_secs(KEPT_SECS).secs());
    house.live("c1", "u1").await;
    assert_eq!(results(&house.say("c1", SYNC).await), ["SK1 UNPAID"]);
    house.pass_secs(10);
    assert_eq!(results(&house.say("c1", SYNC).await), [""; 0]);
}

/// A cancelled order that is paid all the same: the refund is news about the same status.
#[tokio::test]
async fn news_about_the_same_status_is_told_though_the_first_word_was_acknowledged() {
    let house = ChatHouse::open().await;
    house.live("c1", "u1").await;
    let cancelled = house.notice("u1", "SK1", "CANCELLED");
    house.postman.deliver(std::slice::from_ref(&cancelled)).await.unwrap();
    house.say("c1", &ack("SK1", "CANCELLED")).await;
    house.gateway.take_frames("c1");

    house.pass_secs(30);
    let refund = ResultNotice {
        message: Text::of("refund".into(), "退款".into()),
        decided_at: house.now(),
        ..cancelled.clone()
    };
    // In one delivery with a late copy of the first word, in whatever order.
    let delivery = house.postman.deliver(&[cancelled.clone(), refund.clone(), cancelled.clone()]).await.unwrap();
    assert_eq!(delivery, Delivery { delivered: 1, ..Delivery::default() });
    assert_eq!(house.gateway.take_frames("c1")[0]["message"], "refund");
    // The first word again, late: what is told is what is stored.
    house.postman.deliver(std::slice::from_ref(&cancelled)).await.unwrap();
    assert_eq!(house.gateway.take_frames("c1")[0]["message"], "refund");
    house.say("c1", &ack("SK1", "CANCELLED")).await;
    assert_eq!(house.postman.deliver(&[refund]).await.unwrap(), Delivery { seen: 1, ..Delivery::default() });
}

#[tokio::test]
async fn what_becomes_of_an_order_after_its_purchase_has_a_frame_of_its_own() {
    let house = ChatHouse::open().await;
    house.live("c1", "u1").await;
    for (order_no, order_status, frame) in [
        ("SK1", "UNPAID", "seckill_result"),
        ("SK2", "FAILED", "seckill_result"),
        ("SK3", "PAID", "order_status"),
        ("SK4", "CANCELLED", "order_status"),
    ] {
        house.postman.deliver(&[house.notice("u1", order_no, order_status)]).await.unwrap();
        assert_eq!(types(&house.gateway.take_frames("c1")), [frame], "{order_status}");
        assert_eq!(types(&house.say("c1", SYNC).await), [frame], "{order_status}: repeated as it was told");
        assert_eq!(house.say("c1", &ack(order_no, order_status)).await.len(), 0);
        assert_eq!(house.say("c1", SYNC).await.len(), 0);
    }
}

#[tokio::test]
async fn any_number_of_results_is_stored_at_once_and_one_that_comes_twice_too() {
    let house = ChatHouse::open().await;
    let mut notices: Vec<_> = (0..60).map(|n| house.notice(&format!("u{n}"), "SK1", "UNPAID")).collect();
    notices.extend_from_within(..10);
    let delivery = house.postman.deliver(&notices).await.unwrap();
    assert_eq!(delivery, Delivery { offline: 60, ..Delivery::default() }, "what comes twice counts once");
    assert_eq!(house.keys().await.len(), 60);
    assert_eq!(house.postman.deliver(&[]).await.unwrap(), Delivery::default());
}

#[tokio::test]
async fn results_are_repeated_for_a_day_and_some_at_a_time() {
    let house = ChatHouse::open().await;
    let notices: Vec<_> = (0..MAX_REPEATED + 5)
        .map(|n| {
            house.pass_secs(1);
            house.notice("u1", &format!("SK{n:02}"), "UNPAID")
        })
        .collect();
    house.postman.deliver(&notices).await.unwrap();
    house.live("c1", "u1").await;
    let told = results(&house.say("c1", SYNC).await);
    assert_eq!(told.len(), MAX_REPEATED);
    assert_eq!((told[0].as_str(), told[MAX_REPEATED - 1].as_str()), ("SK00 UNPAID", "SK49 UNPAID"), "the oldest first");
    for order in &told {
        house.say("c1", &unnamed_ack(order.split(' ').next().unwrap())).await;
    }
    assert_eq!(results(&house.say("c1", SYNC).await).len(), 5);

    // A day counts from when each was decided, which was one a second.
    house.pass_secs(KEPT_SECS - 1);
    house.live("c2", "u1").await;
    assert_eq!(results(&house.say("c2", SYNC).await), ["SK54 UNPAID"]);
    house.pass_secs(1);
    assert_eq!(results(&house.say("c2", SYNC).await).len(), 0);
}

#[tokio::test]
async fn results_that_cannot_be_stored_are_an_error_and_are_not_pushed() {
    let house = ChatHouse::open().await;
    house.live("c1", "u1").await;
    let lost = Postman::new(
        house.dynamo.client.clone(),
        "no-such-table".to_owned(),
        &house.gateway.client,
        house.clock.clone(),
    );
    assert!(lost.deliver(&[house.notice("u1", "SK1", "UNPAID")]).await.is_err());
    assert_eq!(house.gateway.posts("c1"), 1, "the pong before");
}
