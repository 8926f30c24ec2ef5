//! What is read: replayed after a break, pulled, acknowledged.

use serde_json::{Value, json};
use suite::chat_house::types;
use suite::sockets::Answer;

use crate::hall::{Hall, first, seqs};

/// C1: said while the client is between open and live.
#[tokio::test]
async fn what_was_said_before_the_first_frame_comes_with_it_once() {
    let hall = Hall::open().await;
    hall.agent("g1").await;
    hall.customer("u1").await;
    let session = hall.session("u1").await;
    hall.house.register(&hall.house.connection("late", "u1")).await;
    hall.text("g1", &session, "hello").await;
    assert_eq!(hall.heard("late"), [Value::Null; 0], "nothing can be pushed to it yet");
    let answers = hall.say("late", json!({"type": "sync", "sessions": {session.clone(): 0}})).await;
    assert_eq!(types(&answers), ["messages", "session", "sync_end"]);
    assert_eq!(seqs(&answers), [1, 2]);
    assert_eq!(answers[2]["head"], 2);
    hall.text("g1", &session, "again").await;
    assert_eq!(seqs(&hall.heard("late")), [3], "from now on it is pushed");
}

/// C3: the last push is lost, and nothing follows it.
#[tokio::test]
async fn a_lost_push_is_seen_in_the_next_pong() {
    let hall = Hall::open().await;
    hall.agent("g1").await;
    hall.customer("u1").await;
    let session = hall.session("u1").await;
    hall.house.gateway.next("u1", [Answer::Status(500); 3]);
    hall.text("g1", &session, "hello").await;
    assert_eq!(seqs(&hall.heard("u1")), [0; 0]);
    let pong = hall.say("u1", json!({"type": "ping"})).await;
    assert_eq!(pong[0], json!({"type": "pong", "heads": {session.clone(): 2}}));
    let pulled = hall.say("u1", json!({"type": "pull", "sessionId": session, "from": 2, "to": 2})).await;
    assert_eq!((types(&pulled), seqs(&pulled)), (vec!["messages"], vec![2]));
    // An agent's heads are the sessions they have.
    assert_eq!(hall.say("g1", json!({"type": "ping"})).await[0]["heads"], json!({session.clone(): 2}));
    // After the end its customer can still see that there was one; the agent has it no more.
    hall.say("g1", json!({"type": "close", "sessionId": session})).await;
    assert_eq!(hall.say("u1", json!({"type": "ping"})).await[0]["heads"], json!({session.clone(): 3}));
    assert_eq!(hall.say("g1", json!({"type": "ping"})).await[0]["heads"], json!({}));
}

/// C7, C8, C9.
#[tokio::test]
async fn an_acknowledgement_only_moves_forwards_and_lowers_the_readers_own_unread() {
    let hall = Hall::open().await;
    hall.agent("g1").await;
    hall.customer("u1").await;
    let session = hall.session("u1").await;
    for word in 0..11 {
        hall.text("g1", &session, &word.to_string()).await;
    }
    hall.text("u1", &session, "hi").await;
    for id in ["u1", "g1"] {
        hall.heard(id);
    }
    let ack =
        async |id: &str, seq: u64| hall.say(id, json!({"type": "ack", "sessionId": session, "lastSeq": seq})).await;
    let read = |by: &str, seq: u64| json!({"type": "read", "sessionId": session, "by": by, "lastSeq": seq});

    assert_eq!(ack("u1", 9).await, [read("user", 9)]);
    assert_eq!(hall.heard("g1"), [read("user", 9)], "the other side sees it");
    assert_eq!(ack("u1", 7).await, [read("user", 9)], "answered with what is stored");
    assert_eq!(hall.heard("g1"), [Value::Null; 0]);
    let state = hall.state(&session).await;
    assert_eq!((&state["userSeq"], &state["userUnread"], &state["adminUnread"]), (&json!(9), &json!(3), &json!(1)));

    let beyond = ack("u1", 9_999).await;
    assert_eq!(types(&beyond), ["ACK_OUT_OF_RANGE"]);
    assert_eq!(hall.state(&session).await["userSeq"], 9);

    // Two more arrive while everything is acknowledged.
    ack("u1", 13).await;
    hall.text("g1", &session, "one").await;
    hall.text("g1", &session, "two").await;
    ack("u1", 13).await;
    assert_eq!(hall.state(&session).await["userUnread"], 2);
    assert_eq!(ack("u1", 0).await, [read("user", 13)]);
    ack("g1", 15).await;
    let state = hall.state(&session).await;
    assert_eq!((&state["adminSeq"], &state["adminUnread"], &state["userUnread"]), (&json!(15), &json!(0), &json!(2)));
    hall.audit().await;
}

/// C26: far behind.
#[tokio::test]
async fn a_client_that_is_far_behind_gets_all_in_order_in_frames_that_fit() {
    const WORDS: u64 = 420;
    let hall = Hall::open().await;
    hall.customer("u1").await;
    let session = hall.session("u1").await;
    let long = "字".repeat(3_000);
    for _ in 0..WORDS {
        hall.house.clock.advance_millis(60);
        assert_eq!(types(&hall.text("u1", &session, &long).await), ["sent"]);
    }
    let (mut have, mut syncs) = (0, 0);
    loop {
        hall.house.pass_secs(1);
        let answers = hall.say("u1", json!({"type": "sync", "sessions": {session.clone(): have}})).await;
        syncs += 1;
        assert!(syncs < 50);
        let frames: Vec<_> = answers.iter().filter(|frame| frame["type"] == "messages").collect();
        assert!(frames.len() <= 32);
        for frame in frames {
            assert!(frame.to_string().len() <= 30 * 1024, "{}", frame.to_string().len());
        }
        for seq in seqs(&answers) {
            assert_eq!(seq, have + 1);
            have = seq;
        }
        let end = answers.last().unwrap();
        assert_eq!((&end["type"], &end["head"]), (&json!("sync_end"), &json!(WORDS)));
        if have == WORDS {
            break;
        }
    }
    assert!(syncs > 1, "more than one sync holds");
    let pulled = hall.say("u1", json!({"type": "pull", "sessionId": session, "from": 5, "to": 7})).await;
    assert_eq!(seqs(&pulled), [5, 6, 7]);
    let beyond = hall.say("u1", json!({"type": "pull", "sessionId": session, "from": 500, "to": 600})).await;
    assert_eq!(beyond, [json!({"type": "messages", "sessionId": session, "items": []})]);
    for bad in [(0, 5), (7, 5)] {
        let refused = hall.say("u1", json!({"type": "pull", "sessionId": session, "from": bad.0, "to": bad.1})).await;
        assert_eq!(types(&refused), ["BAD_FRAME"], "{bad:?}");
    }
}

#[tokio::test]
async fn a_handshake_that_says_how_much_is_there_is_a_sync() {
    let hall = Hall::open().await;
    hall.agent("g1").await;
    hall.customer("u1").await;
    let session = hall.session("u1").await;
    for word in ["a", "b", "c"] {
        hall.text("g1", &session, word).await;
    }
    let connect = async |id: &str| {
        let connection = hall.house.connection(id, "u1");
        let last_ack_seq = Some(chat::ids::Seq::new(2));
        hall.house.register(&chat::connections::Connection { last_ack_seq, ..connection }).await;
    };
    // Its first frame is another: that one is answered, and then what a sync would say.
    connect("c1").await;
    let answers = hall.text("c1", &session, "d").await;
    assert_eq!(types(&answers), ["sent", "messages", "session", "sync_end"]);
    assert_eq!(seqs(&answers), [3, 4, 5]);
    assert_eq!(seqs(&hall.text("c1", &session, "e").await), [0; 0], "only once");
    // It asks by itself: once is enough.
    connect("c2").await;
    let answers = hall.say("c2", json!({"type": "sync", "sessions": {session.clone(): 5}})).await;
    assert_eq!(seqs(&answers), [6]);
    // It says nothing: somebody greets it.
    connect("c3").await;
    let id = suite::chat_house::connection_id("c3");
    assert!(hall.house.service.greet(&id).await.unwrap());
    assert_eq!(seqs(&hall.heard("c3")), [3, 4, 5, 6]);
    assert!(!hall.house.service.greet(&id).await.unwrap(), "it is live now");
    hall.text("g1", &session, "f").await;
    assert_eq!(seqs(&hall.heard("c3")), [7]);
    assert!(!hall.house.service.greet(&suite::chat_house::connection_id("nobody")).await.unwrap());
}

#[tokio::test]
async fn whoever_never_speaks_is_made_live_without_a_word_about_sessions() {
    let hall = Hall::open().await;
    hall.house.register(&hall.house.connection("c1", "u1")).await;
    hall.house.postman.deliver(&[hall.house.notice("u1", "SK1", "UNPAID")]).await.unwrap();
    assert_eq!(hall.heard("c1"), [Value::Null; 0]);
    assert!(hall.house.service.greet(&suite::chat_house::connection_id("c1")).await.unwrap());
    assert_eq!(types(&hall.heard("c1")), ["seckill_result"]);
}

/// C25, the server's part.
#[tokio::test]
async fn a_connection_that_will_be_cut_is_asked_to_be_replaced() {
    let hall = Hall::open().await;
    hall.house.live("c1", "u1").await;
    hall.house.renew("c1", "u1", hall.house.now().plus_secs(3 * 3_600)).await;
    hall.house.pass_secs(110 * 60 - 1);
    assert_eq!(types(&hall.say("c1", json!({"type": "ping"})).await), ["pong"]);
    hall.house.pass_secs(1);
    assert_eq!(types(&hall.say("c1", json!({"type": "ping"})).await), ["pong", "rotate"]);
}

/// C32, and the older socket of a device is closed rather than left silent.
#[tokio::test]
async fn a_newer_socket_of_a_device_takes_the_place_of_the_older_for_good() {
    let hall = Hall::open().await;
    hall.house.register(&hall.house.connection_from("old", "u1", "phone")).await;
    hall.house.clock.advance_millis(5);
    hall.house.register(&hall.house.connection_from("new", "u1", "phone")).await;
    hall.say("new", json!({"type": "sync"})).await;
    assert_eq!(hall.house.gateway.closed(), ["old"]);
    // A late frame of the old one.
    hall.say("old", json!({"type": "sync"})).await;
    let session = hall.session("new").await;
    assert_eq!(types(&hall.text("new", &session, "hi").await), ["sent"]);
}

/// C21.
#[tokio::test]
async fn a_frame_that_is_too_large_is_refused_and_one_that_just_fits_is_not() {
    let hall = Hall::open().await;
    hall.customer("u1").await;
    let session = hall.session("u1").await;
    let answers = hall.text("u1", &session, &"字".repeat(4_000)).await;
    assert_eq!(types(&answers), ["sent"]);
    let answers = hall.text("u1", &session, &"字".repeat(4_001)).await;
    assert_eq!(types(&answers), ["BAD_FRAME"]);
    let (_, answers) = hall.house.receive("u1", Err(chat::frames::ErrorCode::TooLarge), None).await;
    assert_eq!(types(&answers), ["TOO_LARGE"]);
    assert_eq!(first(&hall.say("u1", json!({"type": "ping"})).await, "pong")["heads"], json!({session: 1}));
}
