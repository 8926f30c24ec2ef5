//! Nobody reads or writes a session that is not theirs. [C19]

use client::documents::{ProblemCode, RatePost, Stretch, UploadPost};
use client::frames::{FrameErrorCode, ServerFrame};
use client::{Answer, Role};
use e2e::refusal;
use serde_json::json;

use crate::floor::Floor;
use crate::line::text;

fn not_found<T: std::fmt::Debug>(answer: Answer<T>) {
    refusal(answer, ProblemCode::NotFound);
}

#[tokio::test]
async fn a_session_is_not_there_for_anybody_but_its_members() {
    let floor = Floor::alone().await;
    let agent = floor.agent("g1").await;
    let customer = floor.customer("u1").await;
    let session_id = customer.is_served().await;
    customer.text(&session_id, "a secret").await.unwrap();
    agent.has(&session_id, 2).await;
    agent.settled(e2e::SOON).await.unwrap();
    let before = floor.session(&session_id).await;

    // Another customer, another agent, and somebody of the customer's name who is an agent; and the other way round.
    let strangers = [
        (Role::User, floor.id("u2")),
        (Role::Agent, floor.id("g2")),
        (Role::Agent, customer.id.clone()),
        (Role::User, agent.id.clone()),
    ];
    for (role, id) in strangers {
        let mut line = floor.live(role, &id).await;
        let frames = [
            text(&session_id, "let me in", "m1"),
            json!({"type": "image", "sessionId": session_id, "content": format!("{session_id}/0123456789abcdef0123456789abcdef.png")}),
            json!({"type": "card", "sessionId": session_id, "content": "SKAAAAAAAAAAAAAAAAAAAAAAAAAA"}),
            json!({"type": "ack", "sessionId": session_id, "lastSeq": 1}),
            json!({"type": "pull", "sessionId": session_id, "from": 1, "to": 2}),
            json!({"type": "sync", "sessions": {&session_id: 0}}),
            json!({"type": "typing", "sessionId": session_id}),
            json!({"type": "transfer", "sessionId": session_id}),
            json!({"type": "close", "sessionId": session_id}),
            json!({"type": "open", "sessionId": session_id}),
        ];
        for frame in frames {
            let refused = line.refused(frame.clone()).await;
            assert_eq!(refused.code, FrameErrorCode::NotFound, "{role:?}: {frame}");
            assert_eq!(refused.session_id.as_deref(), Some(session_id.as_str()), "{role:?}: {frame}");
        }
        assert!(line.pong().await.is_empty());
        let nothing = line.heard.iter().all(|frame| matches!(frame, ServerFrame::Error(_) | ServerFrame::Pong { .. }));
        assert!(nothing, "{:?}", line.heard);

        let api = floor.api(role, &id);
        not_found(api.chat_messages(&session_id, Stretch::Newest, None).await.unwrap());
        let upload = UploadPost { session_id: session_id.clone(), content_type: "image/png".to_owned(), size: 10 };
        not_found(api.chat_upload(&upload).await.unwrap());
        let rating = api.rate(&session_id, &RatePost { score: 1, comment: None }).await.unwrap();
        let expected = if role == Role::User { ProblemCode::NotFound } else { ProblemCode::Forbidden };
        refusal(rating, expected);
        assert!(e2e::shop::done(api.chat_sessions(None, None).await).items.is_empty());
    }
    let after = floor.session(&session_id).await;
    assert_eq!(after, before, "nothing of it has come to anything");
    assert_eq!(floor.with(&session_id).await, "open g1");
    // Nor is there anything where there is no session.
    let mut line = floor.live(Role::User, &floor.id("u2")).await;
    assert_eq!(line.code(text("nosuchsession", "hello", "m1")).await, FrameErrorCode::NotFound);
    // Each side has what is its own.
    assert_eq!(line.code(json!({"type": "status", "status": "online"})).await, FrameErrorCode::NotFound);
    let mut line = floor.live(Role::Agent, &floor.id("g2")).await;
    assert_eq!(line.code(json!({"type": "open"})).await, FrameErrorCode::NotFound);
    refusal(floor.api(Role::User, &floor.id("u2")).chat_agents().await.unwrap(), ProblemCode::Forbidden);
    floor.close().await;
}
