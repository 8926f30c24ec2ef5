//! What the sweep finds and puts right.

use serde_json::json;
use suite::chat_house::types;

use crate::hall::Hall;

#[tokio::test]
async fn a_session_nobody_speaks_in_is_closed() {
    let hall = Hall::open().await;
    hall.agent("g1").await;
    hall.customer("u1").await;
    let session = hall.session("u1").await;
    hall.pass_secs(20 * 60, &["g1"]).await;
    hall.text("u1", &session, "still here").await;
    hall.pass_secs(30 * 60 - 30, &["g1"]).await;
    let sweep = async || hall.house.service.sweep(hall.house.now().plus_secs(30)).await.unwrap();
    assert_eq!(sweep().await.expired, 0);
    hall.pass_secs(30, &["g1"]).await;
    for id in ["u1", "g1"] {
        hall.heard(id);
    }
    assert_eq!(sweep().await.expired, 1);
    assert_eq!(hall.with(&session).await, "closed");
    for id in ["u1", "g1"] {
        let heard = hall.heard(id);
        assert_eq!(
            (types(&heard), &heard[0]["content"]["event"]),
            (vec!["message", "session"], &json!("expired")),
            "{id}"
        );
    }
    hall.audit().await;
}

#[tokio::test]
async fn whom_nobody_took_for_a_day_waits_no_longer() {
    let hall = Hall::open().await;
    hall.house.live("u1", "u1").await;
    let session = hall.session("u1").await;
    hall.house.pass_secs(24 * 3_600 - 1);
    let sweep = async || hall.house.service.sweep(hall.house.now().plus_secs(30)).await.unwrap();
    assert_eq!((sweep().await.expired, hall.with(&session).await), (0, "waiting".to_owned()));
    hall.house.pass_secs(1);
    assert_eq!((sweep().await.expired, hall.with(&session).await), (1, "closed".to_owned()));
    hall.audit().await;
}

/// C33, seen from the rows: whatever a killed handler has left undone, the next sweep does.
#[tokio::test]
async fn what_a_dead_handler_left_is_done_by_the_sweep() {
    let hall = Hall::open().await;
    hall.agent("g1").await;
    let mut sessions = Vec::new();
    for user in ["u1", "u2"] {
        hall.customer(user).await;
        sessions.push(hall.session(user).await);
    }
    // Dead right after the status was stored: away, with everything still theirs.
    let away = chat::desk::agents::AgentStatus::Away;
    hall.house.clock.advance_millis(5);
    hall.house.desk.set_status(&"g1".parse().unwrap(), away, hall.house.now(), hall.house.now()).await.unwrap();
    assert_eq!(hall.with(&sessions[0]).await, "open g1");
    let online = chat::desk::agents::AgentStatus::Online;
    hall.house.desk.set_status(&"g2".parse().unwrap(), online, hall.house.now(), hall.house.now()).await.unwrap();
    let swept = hall.house.service.sweep(hall.house.now().plus_secs(30)).await.unwrap();
    assert_eq!(swept.moved, 2);
    for session in &sessions {
        assert_eq!(hall.with(session).await, "open g2");
    }
    // Dead right after a session was opened: it waits, and nobody drained.
    let desk = &hall.house.desk;
    desk.open(&"u3".parse().unwrap(), hall.house.now()).await.unwrap();
    let swept = hall.house.service.sweep(hall.house.now().plus_secs(30)).await.unwrap();
    assert_eq!(swept.claimed, 1);
    hall.audit().await;
}
