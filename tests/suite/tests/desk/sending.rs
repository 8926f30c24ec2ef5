//! What is said: stored once, numbered without gaps, told to everybody it concerns.

use futures_util::future::join_all;
use serde_json::{Value, json};
use suite::chat_house::{connection_id, types};
use suite::sockets::Answer;

use crate::hall::{Hall, first, seqs};

#[tokio::test]
async fn a_word_goes_to_both_sides_and_all_devices() {
    let hall = Hall::open().await;
    hall.agent("g1").await;
    hall.customer("u1").await;
    let session = hall.session("u1").await;
    hall.house.live("tablet", "u1").await;
    for id in ["u1", "g1"] {
        hall.heard(id);
    }
    let answers = hall.named("u1", &session, "你好", "m1").await;
    assert_eq!(types(&answers), ["sent"], "the sender's own socket is told `sent` and nothing else");
    let sent = &answers[0];
    assert_eq!((&sent["clientMsgId"], &sent["seq"], sent.get("duplicate")), (&json!("m1"), &json!(2), None));
    let (tablet, agent) = (hall.heard("tablet"), hall.heard("g1"));
    assert_eq!((types(&tablet), types(&agent)), (vec!["message"], vec!["message"]));
    assert_eq!(
        agent[0],
        json!({"type": "message", "id": format!("{session}-2"), "sessionId": session, "seq": 2,
            "from": {"role": "user", "id": "u1"}, "kind": "text", "content": "你好", "at": sent["at"]})
    );
    assert_eq!(tablet[0]["clientMsgId"], "m1", "only the sender's side knows its name");

    hall.text("g1", &session, "hello").await;
    assert_eq!(seqs(&hall.heard("u1")), [3]);
    let state = hall.state(&session).await;
    assert_eq!((&state["userUnread"], &state["adminUnread"], &state["head"]), (&json!(1), &json!(1), &json!(3)));
    assert_eq!(state["lastMessage"], "hello");
    hall.audit().await;
}

/// C4: resent after 31 s, and after an hour. C5: the same name for something else.
#[tokio::test]
async fn a_word_that_is_sent_again_is_stored_once() {
    let hall = Hall::open().await;
    hall.customer("u1").await;
    let session = hall.session("u1").await;
    let sent = hall.named("u1", &session, "once", "m1").await;
    for secs in [31, 3_600 - 31 - 60] {
        hall.pass_secs(secs, &[]).await;
        let again = hall.named("u1", &session, "once", "m1").await;
        assert_eq!((&again[0]["seq"], &again[0]["at"]), (&sent[0]["seq"], &sent[0]["at"]));
        assert_eq!(again[0]["duplicate"], true);
    }
    let other = hall.named("u1", &session, "twice", "m1").await;
    assert_eq!(types(&other), ["CLIENT_MSG_ID_REUSED"]);
    assert_eq!((&other[0]["sessionId"], &other[0]["clientMsgId"]), (&json!(session), &json!("m1")));
    // Another kind with the same content is another message.
    let card = hall.say("u1", json!({"type": "card", "sessionId": session, "content": "SK-u1", "clientMsgId": "m1"}));
    assert_eq!(types(&card.await), ["CLIENT_MSG_ID_REUSED"]);
    // A name belongs to its sender.
    hall.agent("g1").await;
    assert_eq!(types(&hall.named("g1", &session, "mine", "m1").await), ["sent"]);
    // Of what was stored before, a session that is closed since still says so.
    hall.say("u1", json!({"type": "close", "sessionId": session})).await;
    assert_eq!(hall.named("u1", &session, "once", "m1").await[0]["duplicate"], true);
    assert_eq!(types(&hall.named("u1", &session, "new", "m2").await), ["SESSION_CLOSED"]);
    hall.audit().await;
}

/// The gateway may call a function twice with one frame that has no name of its own.
#[tokio::test]
async fn a_frame_that_the_gateway_repeats_is_stored_once() {
    let hall = Hall::open().await;
    hall.customer("u1").await;
    let session = hall.session("u1").await;
    let frame = json!({"type": "text", "sessionId": session, "content": "hi"}).to_string();
    let one = hall.house.receive_as("u1", Ok(&frame), "gw-x", None).await.1;
    let two = hall.house.receive_as("u1", Ok(&frame), "gw-x", None).await.1;
    assert_eq!((&two[0]["seq"], &two[0]["duplicate"]), (&one[0]["seq"], &json!(true)));
    assert_eq!(one[0].get("clientMsgId"), None);
    // And a client may say the same twice.
    let three = hall.house.receive_as("u1", Ok(&frame), "gw-y", None).await.1;
    assert_eq!(three[0]["seq"], 2);
    hall.audit().await;
}

/// C6.
#[tokio::test]
async fn eight_senders_at_once_leave_no_gap_and_no_double() {
    const SENDERS: usize = 8;
    const WORDS: usize = 12;
    let hall = Hall::open().await;
    hall.customer("u1").await;
    let session = hall.session("u1").await;
    for device in 0..SENDERS {
        hall.house.live(&format!("d{device}"), "u1").await;
    }
    let speak = async |device: usize| {
        let id = format!("d{device}");
        let mut own = Vec::new();
        for nth in 0..WORDS {
            let name = format!("{device}.{nth}");
            // One in flight, and on RETRY_LATER the same again.
            let mut tries = 0;
            let sent = loop {
                let frame = json!({"type": "text", "sessionId": session, "content": name, "clientMsgId": name});
                let answers = hall.say(&id, frame).await;
                let answer = answers
                    .iter()
                    .find(|answer| answer["type"] == "sent" || answer["type"] == "error")
                    .unwrap()
                    .clone();
                if answer["type"] == "sent" {
                    break answer;
                }
                assert!(matches!(answer["code"].as_str(), Some("RETRY_LATER" | "RATE_LIMITED")), "{answer}");
                tries += 1;
                assert!(tries < 50, "{answer}");
                hall.house.clock.advance_millis(200);
            };
            own.push(sent["seq"].as_u64().unwrap());
        }
        own
    };
    let spoken = join_all((0..SENDERS).map(speak)).await;
    for own in &spoken {
        assert!(own.is_sorted(), "each sender's own order is kept: {own:?}");
    }
    let mut all: Vec<u64> = spoken.concat();
    all.sort_unstable();
    assert_eq!(all, (1..=(SENDERS * WORDS) as u64).collect::<Vec<_>>());
    hall.audit().await;
}

/// C11, C12.
#[tokio::test]
async fn a_push_that_fails_fails_no_send_and_takes_only_old_rows() {
    let hall = Hall::open().await;
    hall.agent("g1").await;
    hall.customer("u1").await;
    let session = hall.session("u1").await;
    hall.house.connections.register(&hall.house.agent_connection("g1-b", "g1"), hall.house.now()).await.unwrap();
    hall.say("g1-b", json!({"type": "ping"})).await;
    hall.pass_secs(31, &["g1"]).await;
    hall.house.connections.register(&hall.house.agent_connection("g1-young", "g1"), hall.house.now()).await.unwrap();
    hall.say("g1-young", json!({"type": "ping"})).await;
    for gone in ["g1-b", "g1-young"] {
        hall.house.gateway.always(gone, Answer::Status(410));
    }
    hall.heard("g1");
    assert_eq!(types(&hall.text("u1", &session, "hi").await), ["sent"]);
    assert_eq!(seqs(&hall.heard("g1")), [2]);
    let keys = hall.house.keys().await;
    let has = |id: &str| keys.iter().any(|key| key.starts_with(&format!("CONN#{id} ")));
    assert_eq!((has("g1"), has("g1-b"), has("g1-young"), has("u1")), (true, false, true, true));
}

/// C18, C19.
#[tokio::test]
async fn nobody_speaks_in_a_session_that_is_not_theirs_or_is_over() {
    let hall = Hall::open().await;
    hall.agent("g1").await;
    hall.agent("g2").await;
    for customer in ["u1", "u2"] {
        hall.customer(customer).await;
    }
    let session = hall.session("u1").await;
    let agent = hall.state(&session).await["agentId"].as_str().unwrap().to_owned();
    let other = if agent == "g1" { "g2" } else { "g1" };
    let key = format!("{session}/{}.png", "0".repeat(32));
    let rows = hall.house.dynamo.rows(suite::dynamo::CHAT).await.len();
    for stranger in ["u2", other] {
        for frame in [
            json!({"type": "text", "sessionId": session, "content": "hi"}),
            json!({"type": "image", "sessionId": session, "content": key}),
            json!({"type": "card", "sessionId": session, "content": "SK-u1"}),
            json!({"type": "ack", "sessionId": session, "lastSeq": 1}),
            json!({"type": "pull", "sessionId": session, "from": 1, "to": 5}),
            json!({"type": "typing", "sessionId": session}),
            json!({"type": "close", "sessionId": session}),
            json!({"type": "transfer", "sessionId": session, "to": stranger}),
            json!({"type": "sync", "sessions": {session.clone(): 0}}),
            json!({"type": "text", "sessionId": "nowhere", "content": "hi"}),
        ] {
            let answers = hall.say(stranger, frame.clone()).await;
            assert_eq!(types(&answers), ["NOT_FOUND"], "{stranger} {frame}");
        }
    }
    assert_eq!(types(&hall.say("u2", json!({"type": "open", "sessionId": session})).await), ["NOT_FOUND"]);
    assert_eq!(hall.house.dynamo.rows(suite::dynamo::CHAT).await.len(), rows, "nothing was stored");
    assert_eq!(hall.with(&session).await, format!("open {agent}"));

    hall.say("u1", json!({"type": "close", "sessionId": session})).await;
    let before = hall.house.dynamo.rows(suite::dynamo::CHAT).await.len();
    for member in ["u1", &agent] {
        assert_eq!(types(&hall.text(member, &session, "late").await), ["SESSION_CLOSED"], "{member}");
    }
    assert_eq!(types(&hall.text(other, &session, "late").await), ["NOT_FOUND"]);
    assert_eq!(hall.house.dynamo.rows(suite::dynamo::CHAT).await.len(), before);
    hall.audit().await;
}

/// C22.
#[tokio::test]
async fn what_is_stored_is_what_was_sent_or_nothing() {
    let hall = Hall::open().await;
    hall.customer("u1").await;
    let session = hall.session("u1").await;
    let family = "👩‍👩‍👧".repeat(60);
    for text in ["e\u{301}", &family, "a\tb\nc", "\u{202e}right to left", "字\u{0}"] {
        let answers = hall.text("u1", &session, text).await;
        if text.contains('\0') {
            assert_eq!(types(&answers), ["BAD_FRAME"]);
            continue;
        }
        let seq = answers[0]["seq"].as_u64().unwrap();
        let pulled = hall.say("u1", json!({"type": "pull", "sessionId": session, "from": seq, "to": seq})).await;
        assert_eq!(pulled[0]["items"][0]["content"], *text);
    }
    let shown = hall.state(&session).await["lastMessage"].as_str().unwrap().to_owned();
    assert_eq!(shown, "\u{202e}right to left");
    hall.text("u1", &session, &family).await;
    let shown = hall.state(&session).await["lastMessage"].as_str().unwrap().to_owned();
    assert!(family.starts_with(shown.trim_end_matches('…')) && shown.trim_end_matches('…').len() % "👩‍👩‍👧".len() == 0);
}

#[tokio::test]
async fn an_image_is_shown_where_it_was_uploaded_and_a_card_is_of_the_customers_order() {
    let hall = Hall::open().await;
    hall.agent("g1").await;
    hall.customer("u1").await;
    let session = hall.session("u1").await;
    hall.heard("u1");
    let key = format!("{session}/{}.png", "a".repeat(32));
    let sent =
        hall.say("u1", json!({"type": "image", "sessionId": session, "content": key, "clientMsgId": "i1"})).await;
    assert_eq!(types(&sent), ["sent"]);
    let heard = hall.heard("g1");
    let image = &heard.iter().find(|frame| frame["kind"] == "image").unwrap()["content"];
    assert_eq!((&image["key"], &image["contentType"]), (&json!(key), &json!("image/png")));
    let url = image["url"].as_str().unwrap();
    assert!(url.starts_with(&format!("https://images.test/{key}?X-Amz-Algorithm=")), "{url}");
    let elsewhere = format!("s2/{}.png", "a".repeat(32));
    let refused = hall.say("u1", json!({"type": "image", "sessionId": session, "content": elsewhere})).await;
    assert_eq!(types(&refused), ["NOT_FOUND"]);

    // The agent shows the customer's order too; nobody shows another's.
    let card = hall.say("g1", json!({"type": "card", "sessionId": session, "content": "SK-u1"})).await;
    assert_eq!(types(&card), ["sent"]);
    let heard = hall.heard("u1");
    assert_eq!(
        first(&heard, "message")["content"],
        json!({"orderNo": "SK-u1", "title": "Phone", "qty": 1, "amount": 99_900, "currency": "CNY", "status": "UNPAID"})
    );
    for id in ["u1", "g1"] {
        let other = hall.say(id, json!({"type": "card", "sessionId": session, "content": "SK-u2"})).await;
        assert_eq!(types(&other), ["NOT_FOUND"], "{id}");
    }
    assert_eq!(hall.state(&session).await["lastMessage"], "[order] Phone");
    hall.audit().await;
}

#[tokio::test]
async fn typing_is_passed_on_and_written_nowhere() {
    let hall = Hall::open().await;
    hall.agent("g1").await;
    hall.customer("u1").await;
    let session = hall.session("u1").await;
    hall.house.live("tablet", "u1").await;
    hall.heard("g1");
    let before = hall.house.dynamo.rows(suite::dynamo::CHAT).await;
    assert_eq!(hall.say("u1", json!({"type": "typing", "sessionId": session})).await, [Value::Null; 0]);
    assert_eq!(
        hall.heard("g1"),
        [json!({"type": "typing", "sessionId": session, "from": {"role": "user", "id": "u1"}})]
    );
    assert_eq!(hall.heard("tablet"), [Value::Null; 0]);
    let after = hall.house.dynamo.rows(suite::dynamo::CHAT).await;
    assert_eq!(before.len(), after.len());
}

#[tokio::test]
async fn one_connection_cannot_flood() {
    let hall = Hall::open().await;
    hall.customer("u1").await;
    hall.customer("u2").await;
    let mut refused = 0;
    for _ in 0..120 {
        let answers = hall.say("u1", json!({"type": "ping"})).await;
        if types(&answers) == ["RATE_LIMITED"] {
            assert_eq!(answers[0]["retryAfterMs"], 1_000);
            assert_eq!(answers[0].get("sessionId"), None, "a ping is about none");
            refused += 1;
        }
    }
    assert!(refused >= 15, "{refused}");
    assert_eq!(types(&hall.say("u2", json!({"type": "ping"})).await), ["pong"]);
    hall.house.pass_secs(1);
    assert_eq!(types(&hall.say("u1", json!({"type": "ping"})).await), ["pong"]);
    assert_eq!(connection_id("u1").as_str(), "u1");
}
