//! Who serves whom.

use futures_util::future::join_all;
use serde_json::json;
use suite::chat_house::types;

use crate::hall::{Hall, first, seqs};

/// C15.
#[tokio::test]
async fn ten_sessions_two_agents_of_four_and_a_queue_of_two() {
    let hall = Hall::open().await;
    let users: Vec<String> = (0..10).map(|n| format!("u{n}")).collect();
    for agent in ["g1", "g2"] {
        hall.agent(agent).await;
        hall.house.desk.set_capacity(&agent.parse().unwrap(), 4).await.unwrap();
    }
    for user in &users {
        hall.customer(user).await;
    }
    let mut sessions = Vec::new();
    for user in &users {
        hall.house.clock.advance_millis(1);
        sessions.push(hall.session(user).await);
    }
    let mut by_agent = std::collections::BTreeMap::new();
    for session in &sessions {
        *by_agent.entry(hall.with(session).await).or_insert(0) += 1;
    }
    assert_eq!(by_agent, [("open g1".into(), 4), ("open g2".into(), 4), ("waiting".into(), 2)].into());
    assert_eq!(hall.state(&sessions[8]).await["queuePosition"], 1);
    assert_eq!(hall.state(&sessions[9]).await["queuePosition"], 2);
    // While one waits, each heartbeat tells the place.
    let pong = hall.say("u9", json!({"type": "ping"})).await;
    assert_eq!((types(&pong), &pong[1]["queuePosition"]), (vec!["pong", "session"], &json!(2)));
    // One is closed: the one that has waited longest gets its place.
    hall.heard("u8");
    hall.say("u0", json!({"type": "close", "sessionId": sessions[0]})).await;
    assert!(hall.with(&sessions[8]).await.starts_with("open"));
    let heard = hall.heard("u8");
    assert_eq!((types(&heard), &heard[0]["content"]["event"]), (vec!["message", "session"], &json!("joined")));
    assert_eq!(hall.state(&sessions[9]).await["queuePosition"], 1);
    hall.audit().await;
}

/// C14, C38.
#[tokio::test]
async fn who_has_waited_longest_is_served_first_up_to_capacity() {
    let hall = Hall::open().await;
    let mut sessions = Vec::new();
    for user in ["u3", "u1", "u2"] {
        hall.customer(user).await;
        hall.house.clock.advance_millis(1);
        sessions.push(hall.session(user).await);
    }
    hall.house.desk.set_capacity(&"g1".parse().unwrap(), 2).await.unwrap();
    hall.agent("g1").await;
    let with = async || [hall.with(&sessions[0]).await, hall.with(&sessions[1]).await, hall.with(&sessions[2]).await];
    assert_eq!(with().await, ["open g1", "open g1", "waiting"]);
    // A new one comes when the agent has room again: the older is served.
    hall.customer("u4").await;
    hall.house.clock.advance_millis(1);
    let newest = hall.session("u4").await;
    hall.say("g1", json!({"type": "close", "sessionId": sessions[0]})).await;
    assert_eq!((hall.with(&sessions[2]).await, hall.with(&newest).await), ("open g1".into(), "waiting".into()));
    // More capacity, and a drain.
    hall.house.desk.set_capacity(&"g1".parse().unwrap(), 3).await.unwrap();
    assert_eq!(hall.drain().await, 1);
    assert_eq!(hall.with(&newest).await, "open g1");
    hall.audit().await;
}

/// C16, and many at once.
#[tokio::test]
async fn a_session_is_claimed_once_however_many_claim_at_once() {
    let hall = Hall::open().await;
    let mut sessions = Vec::new();
    for n in 0..6 {
        let user = format!("u{n}");
        hall.customer(&user).await;
        sessions.push(hall.session(&user).await);
    }
    for agent in ["g1", "g2", "g3"] {
        let agent = agent.parse().unwrap();
        let online = chat::desk::agents::AgentStatus::Online;
        hall.house.desk.set_status(&agent, online, hall.house.now(), hall.house.now()).await.unwrap();
    }
    let claimed: u32 = join_all((0..6).map(|_| hall.drain())).await.into_iter().sum();
    let mut given = 0;
    for session in &sessions {
        given += u32::from(hall.with(session).await.starts_with("open"));
    }
    assert_eq!(claimed, given, "each claim is of another session");
    hall.audit().await;
    hall.drain().await;
    for session in &sessions {
        assert!(hall.with(session).await.starts_with("open"));
    }
    hall.audit().await;
}

#[tokio::test]
async fn the_agent_whose_customers_wait_for_the_fewest_answers_is_next() {
    let hall = Hall::open().await;
    hall.agent("g1").await;
    hall.agent("g2").await;
    let mut sessions = Vec::new();
    for user in ["u1", "u2"] {
        hall.customer(user).await;
        hall.house.clock.advance_millis(1);
        sessions.push(hall.session(user).await);
    }
    assert_eq!((hall.with(&sessions[0]).await, hall.with(&sessions[1]).await), ("open g1".into(), "open g2".into()));
    // g2's customer has written twice and is not answered; g1's once.
    hall.text("u1", &sessions[0], "a").await;
    hall.text("u2", &sessions[1], "a").await;
    hall.text("u2", &sessions[1], "b").await;
    hall.customer("u3").await;
    let third = hall.session("u3").await;
    assert_eq!(hall.with(&third).await, "open g1");
    // g2 reads: two against one with nothing unread, and fewer sessions.
    hall.say("g2", json!({"type": "ack", "sessionId": sessions[1], "lastSeq": 3})).await;
    hall.customer("u4").await;
    let fourth = hall.session("u4").await;
    assert_eq!(hall.with(&fourth).await, "open g2");
    hall.audit().await;
}

/// C17.
#[tokio::test]
async fn a_transfer_takes_the_session_and_its_history_along() {
    let hall = Hall::open().await;
    hall.agent("g1").await;
    hall.customer("u1").await;
    let session = hall.session("u1").await;
    hall.text("u1", &session, "one").await;
    hall.text("g1", &session, "two").await;
    hall.say("g1", json!({"type": "ack", "sessionId": session, "lastSeq": 2})).await;
    let transfer =
        async |id: &str, to: &str| hall.say(id, json!({"type": "transfer", "sessionId": session, "to": to})).await;
    for nobody in ["g2", "g1", "u1"] {
        assert_eq!(types(&transfer("g1", nobody).await), ["AGENT_UNAVAILABLE"], "{nobody}");
    }
    hall.agent("g2").await;
    hall.status("g2", "busy").await;
    assert_eq!(types(&transfer("g1", "g2").await), ["AGENT_UNAVAILABLE"], "busy takes nothing");
    hall.status("g2", "online").await;
    for id in ["u1", "g1", "g2"] {
        hall.heard(id);
    }
    let answers = transfer("g1", "g2").await;
    assert_eq!((types(&answers), &answers[0]["agentId"]), (vec!["session"], &json!("g2")));
    assert_eq!(types(&hall.heard("g2")), ["message", "session"]);
    assert_eq!(types(&hall.heard("u1")), ["message", "session"]);
    assert_eq!(types(&hall.text("g1", &session, "mine").await), ["NOT_FOUND"], "it is not theirs any more");
    let replay = hall.say("g2", json!({"type": "sync", "sessions": {session.clone(): 0}})).await;
    assert_eq!(seqs(&replay), [1, 2, 3, 4]);
    // They begin where the one before them was.
    assert_eq!(first(&replay, "session")["adminSeq"], 2);
    hall.text("g2", &session, "three").await;
    assert_eq!(seqs(&hall.heard("u1")), [5]);
    hall.audit().await;
}

#[tokio::test]
async fn a_transfer_to_nobody_in_particular_finds_somebody_or_the_queue() {
    let hall = Hall::open().await;
    hall.agent("g1").await;
    hall.customer("u1").await;
    let session = hall.session("u1").await;
    let back = hall.say("g1", json!({"type": "transfer", "sessionId": session})).await;
    // Nobody else is there: it goes to the queue, and from there to whoever is free, who is g1 again.
    assert_eq!(back[0]["type"], "session");
    let events: Vec<_> = back.iter().filter_map(|frame| frame["content"]["event"].as_str()).collect();
    assert_eq!(events, ["joined"], "who gave it away does not hear of what follows, and then has it anew");
    assert_eq!(hall.with(&session).await, "open g1");
    hall.agent("g2").await;
    hall.say("g1", json!({"type": "transfer", "sessionId": session})).await;
    assert_eq!(hall.with(&session).await, "open g2");
    hall.audit().await;
}

/// C27.
#[tokio::test]
async fn an_agent_who_goes_away_leaves_nothing_behind() {
    let hall = Hall::open().await;
    hall.agent("g1").await;
    let mut sessions = Vec::new();
    for user in ["u1", "u2", "u3"] {
        hall.customer(user).await;
        hall.house.clock.advance_millis(1);
        sessions.push(hall.session(user).await);
    }
    hall.agent("g2").await;
    hall.house.desk.set_capacity(&"g2".parse().unwrap(), 1).await.unwrap();
    // Somebody who came later waits already.
    hall.status("g1", "busy").await;
    hall.heard("g1");
    let echo = hall.status("g1", "away").await;
    assert_eq!((types(&echo)[0], &echo[0]["status"]), ("status", &json!("away")));
    let mut with = Vec::new();
    for session in &sessions {
        with.push(hall.with(session).await);
    }
    with.sort();
    assert_eq!(with, ["open g2", "waiting", "waiting"]);
    assert_eq!(hall.house.desk.agent(&"g1".parse().unwrap()).await.unwrap().unwrap().sessions.len(), 0);
    // Back at the head: somebody new is behind them.
    hall.customer("u4").await;
    hall.house.clock.advance_millis(1);
    let newest = hall.session("u4").await;
    assert_eq!(hall.state(&newest).await["queuePosition"], 3);
    hall.audit().await;
}

/// C35.
#[tokio::test]
async fn statuses_that_arrive_in_reverse_are_taken_in_the_order_they_were_sent() {
    let hall = Hall::open().await;
    let house = &hall.house;
    house.agent("g1", "g1").await;
    hall.customer("u1").await;
    let session = hall.session("u1").await;
    let (away_at, online_at) = (house.now().plus_millis(10), house.now().plus_millis(20));
    house.clock.advance_millis(30);
    let g1 = "g1".parse().unwrap();
    use chat::desk::agents::AgentStatus::{Away, Online};
    house.desk.set_status(&g1, Online, online_at, house.now()).await.unwrap();
    let after = house.desk.set_status(&g1, Away, away_at, house.now()).await.unwrap();
    assert_eq!((after.status, after.status_epoch), (Online, online_at));
    assert_eq!(hall.with(&session).await, "open g1");
}

/// C10, C13: an agent is cut off without a word.
#[tokio::test]
async fn a_lost_agents_sessions_go_on_with_somebody_else() {
    let hall = Hall::open().await;
    hall.agent("g1").await;
    hall.customer("u1").await;
    let session = hall.session("u1").await;
    hall.pass_secs(90, &["u1"]).await;
    hall.text("u1", &session, "are you there?").await;
    let swept = hall.house.service.sweep(hall.house.now().plus_secs(10)).await.unwrap();
    assert_eq!(swept.moved, 0, "within the lease it may be a bad line");
    hall.house.clock.advance_millis(1);
    let swept = hall.house.service.sweep(hall.house.now().plus_secs(10)).await.unwrap();
    assert_eq!((swept.moved, hall.with(&session).await), (1, "waiting".to_owned()));
    hall.agent("g2").await;
    assert_eq!(hall.with(&session).await, "open g2");
    let replay = hall.say("g2", json!({"type": "sync", "sessions": {session.clone(): 0}})).await;
    assert_eq!(seqs(&replay), [1, 2, 3, 4]);
    // The lost one comes back: to work, but not to this session.
    let pong = hall.say("g1", json!({"type": "ping"})).await;
    assert_eq!(pong[0]["heads"], json!({}));
    assert_eq!(types(&hall.text("g1", &session, "sorry").await), ["NOT_FOUND"]);
    hall.audit().await;
}

/// One who was lost and is heard of again takes what waits.
#[tokio::test]
async fn a_heartbeat_after_a_long_silence_is_a_return() {
    let hall = Hall::open().await;
    hall.agent("g1").await;
    hall.house.pass_secs(100);
    hall.customer("u1").await;
    let session = hall.session("u1").await;
    assert_eq!(hall.with(&session).await, "waiting");
    hall.say("g1", json!({"type": "ping"})).await;
    assert_eq!(hall.with(&session).await, "open g1");
}

/// Whatever is wrong with one, those behind it are served.
#[tokio::test]
async fn a_row_of_the_queue_that_leads_nowhere_holds_nobody_up() {
    let hall = Hall::open().await;
    hall.customer("u1").await;
    hall.customer("u2").await;
    let broken = hall.session("u1").await;
    hall.house.clock.advance_millis(1);
    let behind = hall.session("u2").await;
    let key = |value: &str| aws_sdk_dynamodb::types::AttributeValue::S(value.to_owned());
    let client = &hall.house.dynamo.client;
    let put = client.put_item().table_name(suite::dynamo::CHAT).item("pk", key("QUEUE"));
    put.item("sk", key("0000000000000#nowhere")).item("sessionId", key("nowhere")).send().await.unwrap();
    let spoil = client.update_item().table_name(suite::dynamo::CHAT);
    let spoil = spoil.key("pk", key(&format!("S#{broken}"))).key("sk", key("META"));
    spoil.update_expression("REMOVE assignEpoch").send().await.unwrap();
    hall.agent("g1").await;
    assert_eq!(hall.with(&behind).await, "open g1");
}

/// C34.
#[tokio::test]
async fn two_openings_at_once_make_one_session() {
    let hall = Hall::open().await;
    for device in ["d1", "d2", "d3"] {
        hall.house.live(device, "u1").await;
    }
    let sessions = join_all(["d1", "d2", "d3"].map(|device| hall.session(device))).await;
    assert!(sessions.iter().all(|session| *session == sessions[0]), "{sessions:?}");
    let pointer = hall.house.desk.pointer(&"u1".parse().unwrap()).await.unwrap();
    assert_eq!(pointer.active.unwrap().as_str(), sessions[0]);
    hall.audit().await;
}

#[tokio::test]
async fn a_closed_session_is_reopened_at_the_end_of_the_queue_unless_another_is_active() {
    let hall = Hall::open().await;
    hall.customer("u1").await;
    hall.customer("u2").await;
    let first_one = hall.session("u1").await;
    let no = hall.state(&first_one).await["sessionNo"].as_str().unwrap().to_owned();
    assert!(no.starts_with("CS20260528") && no.len() >= 13, "{no}");
    hall.say("u1", json!({"type": "close", "sessionId": first_one})).await;
    hall.house.clock.advance_millis(10);
    let others = hall.session("u2").await;
    hall.house.clock.advance_millis(10);
    let reopened = hall.say("u1", json!({"type": "open", "sessionId": first_one})).await;
    assert_eq!((&reopened[0]["status"], &reopened[0]["queuePosition"]), (&json!("waiting"), &json!(2)));
    assert_eq!(reopened[0]["sessionNo"], no);
    assert_eq!(hall.state(&others).await["queuePosition"], 1);
    // The session closed last is the active one again: it is named once.
    let pong = hall.say("u1", json!({"type": "ping"})).await;
    assert_eq!((types(&pong), &pong[0]["heads"]), (vec!["pong", "session"], &json!({first_one.clone(): 2})));
    // Another is active: that one is answered.
    hall.say("u1", json!({"type": "close", "sessionId": first_one})).await;
    let second = hall.session("u1").await;
    assert_ne!(second, first_one);
    let answered = hall.say("u1", json!({"type": "open", "sessionId": first_one})).await;
    assert_eq!(answered[0]["sessionId"], second);
    // And an agent opens none.
    hall.agent("g1").await;
    assert_eq!(types(&hall.say("g1", json!({"type": "open"})).await), ["NOT_FOUND"]);
    assert_eq!(types(&hall.say("u1", json!({"type": "status", "status": "online"})).await), ["NOT_FOUND"]);
    hall.audit().await;
}
