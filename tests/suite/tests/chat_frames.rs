//! Frames: what is answered to each, and that none can do harm.

use chat::frames::ErrorCode;
use chat::service::Receipt;
use serde_json::json;
use suite::chat_house::{ChatHouse, TOKEN_SECS, results, types};

const PING: &str = r#"{"type":"ping"}"#;

/// C20.
#[tokio::test]
async fn a_frame_that_cannot_be_used_is_answered_and_the_socket_stays_usable() {
    let house = ChatHouse::open().await;
    house.live("c1", "u1").await;
    let deep = "[".repeat(200) + &"]".repeat(200);
    let deep_member = format!(r#"{{"type":"sync","sessions":{deep}}}"#);
    for frame in [
        "hello",
        "[]",
        "null",
        "{}",
        r#"["ping"]"#,
        &deep,
        &deep_member,
        r#"{"type":"dance"}"#,
        r#"{"type":"ping","at":1}"#,
    ] {
        let answers = house.say("c1", frame).await;
        assert_eq!(
            answers,
            [json!({"type": "error", "code": "BAD_FRAME", "message": "This frame could not be read."})],
            "{frame}"
        );
        assert_eq!(types(&house.say("c1", PING).await), ["pong"]);
    }
    let (_, answers) = house.receive("c1", Err(ErrorCode::TooLarge), None).await;
    assert_eq!(types(&answers), ["TOO_LARGE"]);
    assert_eq!(types(&house.say("c1", PING).await), ["pong"]);
    assert_eq!(house.gateway.closed(), [""; 0]);
}

/// C23.
#[tokio::test]
async fn after_the_tokens_expiry_only_a_new_token_is_taken_and_renews_in_place() {
    let house = ChatHouse::open().await;
    house.live("c1", "u1").await;
    house.postman.deliver(&[house.notice("u1", "SK1", "UNPAID")]).await.unwrap();
    house.gateway.take_frames("c1");

    house.clock.advance_millis(TOKEN_SECS * 1_000 - 1);
    assert_eq!(types(&house.say("c1", PING).await), ["pong", "seckill_result"]);
    house.clock.advance_millis(1);
    for frame in [PING, r#"{"type":"sync","sessions":{}}"#, r#"{"type":"result_ack","orderNo":"SK1"}"#, "hello"] {
        assert_eq!(types(&house.say("c1", frame).await), ["AUTH_EXPIRED"], "{frame}");
    }
    let (_, answers) = house.receive("c1", Err(ErrorCode::TooLarge), None).await;
    assert_eq!(types(&answers), ["AUTH_EXPIRED"]);

    // A token that is no good, somebody else's, and one that is over as well.
    assert_eq!(types(&house.say("c1", r#"{"type":"auth","token":"nonsense"}"#).await), ["AUTH_EXPIRED"]);
    assert_eq!(types(&house.renew("c1", "u2", house.now().plus_secs(3_600)).await), ["AUTH_EXPIRED"]);
    assert_eq!(types(&house.renew("c1", "u1", house.now()).await), ["AUTH_EXPIRED"]);
    assert_eq!(types(&house.say("c1", PING).await), ["AUTH_EXPIRED"]);

    // The result was not acknowledged by the frame that was refused.
    let answers = house.renew("c1", "u1", house.now().plus_secs(3_600)).await;
    assert_eq!(types(&answers), ["pong", "seckill_result"]);
    assert_eq!(types(&house.say("c1", PING).await), ["pong", "seckill_result"]);
    let delivery = house.postman.deliver(&[house.notice("u1", "SK2", "UNPAID")]).await.unwrap();
    assert_eq!(delivery.delivered, 1, "pushes reach it again");
}

#[tokio::test]
async fn a_token_that_was_overtaken_by_a_newer_one_shortens_nothing() {
    let house = ChatHouse::open().await;
    let connection = house.live("c1", "u1").await;
    house.renew("c1", "u1", house.now().plus_secs(2 * TOKEN_SECS)).await;
    // Looked up before the newer one was stored, written after it.
    house.connections.renew(&connection, house.now().plus_secs(TOKEN_SECS + 1)).await.unwrap();
    assert_eq!(types(&house.renew("c1", "u1", house.now().plus_secs(TOKEN_SECS + 1)).await), ["pong"]);
    house.pass_secs(2 * TOKEN_SECS - 1);
    assert_eq!(types(&house.say("c1", PING).await), ["pong", "rotate"]);
}

#[tokio::test]
async fn a_sender_who_is_not_known_is_closed() {
    let house = ChatHouse::open().await;
    let (received, answers) = house.receive("stranger", Ok(PING), None).await;
    assert_eq!((received, answers.len()), (Receipt::UnknownConnection, 0));
    assert_eq!(house.gateway.closed(), ["stranger"]);
    assert_eq!(house.keys().await, [""; 0]);
}

#[tokio::test]
async fn sync_repeats_results_first_and_then_says_of_each_session_that_it_is_not_there() {
    let house = ChatHouse::open().await;
    house.postman.deliver(&[house.notice("u1", "SK1", "UNPAID")]).await.unwrap();
    house.register(&house.connection("c1", "u1")).await;
    let answers = house.say("c1", r#"{"type":"sync","sessions":{"s1":7,"s2":0}}"#).await;
    assert_eq!(types(&answers), ["seckill_result", "NOT_FOUND", "NOT_FOUND"]);
}

#[tokio::test]
async fn anothers_order_cannot_be_told_from_one_that_does_not_exist() {
    let house = ChatHouse::open().await;
    house.postman.deliver(&[house.notice("u1", "SK1", "UNPAID")]).await.unwrap();
    house.live("c2", "u2").await;
    for (frame, of_nobody) in [
        (r#"{"type":"result_ack","orderNo":"SK1"}"#, r#"{"type":"result_ack","orderNo":"SK9"}"#),
        (
            r#"{"type":"result_ack","orderNo":"SK1","orderStatus":"UNPAID"}"#,
            r#"{"type":"result_ack","orderNo":"SK9","orderStatus":"UNPAID"}"#,
        ),
    ] {
        let answers = house.say("c2", frame).await;
        assert_eq!(types(&answers), ["NOT_FOUND"]);
        assert_eq!(answers, house.say("c2", of_nobody).await);
    }
    house.live("c1", "u1").await;
    assert_eq!(results(&house.say("c1", PING).await), ["SK1 UNPAID"], "nothing changed");
    assert_eq!(house.keys().await.len(), 5, "and no row was made");
}

#[tokio::test]
async fn when_the_table_does_not_answer_the_client_is_asked_to_try_again() {
    let house = ChatHouse::open().await;
    let lost = house.service_on("no-such-table");
    assert!(house.receive_by(&lost, "c1", Ok(PING), "m1", None).await.is_err());
    let answers = house.gateway.take_frames("c1");
    assert_eq!(types(&answers), ["RETRY_LATER"]);
    assert_eq!(answers[0]["retryAfterMs"], 1_000);
    assert_eq!(house.gateway.closed(), [""; 0], "it may well be known");
}
