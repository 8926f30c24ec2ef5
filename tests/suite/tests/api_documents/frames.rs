//! The frames of `chat`, and those of `asyncapi.yaml`.

use std::collections::{BTreeMap, BTreeSet};

use chat::desk::agents::AgentStatus;
use chat::desk::read::Known;
use chat::frames::server::{MessageDocument, Refused, SessionDocument};
use chat::frames::{ClientFrame, ErrorCode, ServerFrame};
use chat::ids::{Party, Seq, Side};
use chat::message::{Body, Card, ImageKey, Sender};
use chat::session::{Cursors, Session, SessionStatus, Step};
use chat::uploads::Links;
use contract::Contract;
use kernel::ids::UserId;
use kernel::text::Language;
use kernel::time::{Rfc3339, UnixMillis};
use serde_json::{Value, json};

use crate::source::{Members, Source};
use crate::{properties, required, texts};

#[test]
fn messages_have_the_members_of_the_frames_behind_them() {
    let contract = Contract::read();
    let source = Source::read("shared/chat");
    for (frames, operation) in [("ClientFrame", "fromClient"), ("ServerFrame", "toClient")] {
        let expected: BTreeMap<String, Members> = source
            .variants(frames)
            .into_iter()
            .map(|(name, mut members)| {
                members.all.insert("type".into());
                members.required.insert("type".into());
                (name, members)
            })
            .collect();
        let documented: BTreeMap<String, Members> = contract
            .messages(operation)
            .into_iter()
            .map(|(name, message)| {
                let payload = contract.payload(message);
                assert_eq!(payload["additionalProperties"], false, "{name}");
                assert_eq!(payload["properties"]["type"]["const"], name.as_str());
                (name, Members { all: properties(payload), required: required(payload) })
            })
            .collect();
        assert_eq!(documented, expected, "{frames}");
    }
}

/// One of each frame, and of each kind of message.
fn server_frames() -> Vec<ServerFrame> {
    let now = UnixMillis::new(1_780_000_000_000);
    let (user, agent): (UserId, UserId) = ("u1".parse().unwrap(), "g1".parse().unwrap());
    let mut frames = vec![
        ServerFrame::Pong { heads: BTreeMap::from([("s1".parse().unwrap(), Seq::new(7))]) },
        ServerFrame::Rotate {},
        ServerFrame::SeckillResult {
            order_no: "SK1".parse().unwrap(),
            status: "success".into(),
            order_status: "UNPAID".into(),
            message: "ok".to_owned(),
        },
        ServerFrame::OrderStatus {
            order_no: "SK1".parse().unwrap(),
            status: "fail".into(),
            order_status: "CANCELLED".into(),
            message: "ok".to_owned(),
        },
        ServerFrame::SyncEnd { session_id: "s1".parse().unwrap(), head: Seq::ZERO },
        ServerFrame::Read { session_id: "s1".parse().unwrap(), by: Side::Agent, last_seq: Seq::new(3) },
        ServerFrame::Typing { session_id: "s1".parse().unwrap(), from: Sender::User(user.clone()) },
        ServerFrame::Status { status: AgentStatus::Busy, at: Rfc3339(now) },
    ];
    for (client_msg_id, duplicate) in [(Some("m1".to_owned().try_into().unwrap()), true), (None, false)] {
        let (session_id, seq) = ("s1".parse().unwrap(), Seq::new(1));
        frames.push(ServerFrame::Sent { client_msg_id, session_id, seq, at: Rfc3339(now), duplicate });
    }
    for code in ErrorCode::ALL {
        // As `chat` says it: only what may succeed later names a wait.
        let retry_after_ms = matches!(code, ErrorCode::RetryLater | ErrorCode::RateLimited).then_some(1_000);
        let (session_id, client_msg_id) = (Some("s1".parse().unwrap()), Some("m1".to_owned().try_into().unwrap()));
        let message = code.text().en.into_owned();
        frames.push(ServerFrame::Error(Refused { code, message, session_id, client_msg_id, retry_after_ms }));
    }
    let waiting = Session::opened("s1".parse().unwrap(), "CS20260528001".into(), user.clone(), now);
    let open = waiting.claimed(&agent, now);
    let said = |sender: &Party, body| open.session.said(sender, body, Some("m1".to_owned().try_into().unwrap()), now);
    let (customer, serving) = (Party::user(user), Party::agent(agent.clone()));
    let key: ImageKey = format!("s1/{}.png", "0".repeat(32)).try_into().unwrap();
    let card = Card {
        order_no: "SK1".parse().unwrap(),
        title: "Phone".into(),
        qty: 1,
        amount: 99_900,
        currency: "CNY".into(),
        status: "PAID".into(),
    };
    let steps = [
        said(&customer, Body::Text("你好".to_owned().try_into().unwrap())).unwrap(),
        said(&customer, Body::Image(key)).unwrap(),
        said(&serving, Body::Card(card)).unwrap(),
        open.clone(),
        open.session.transferred(&agent, now),
        open.session.requeued(now),
        open.session.closed(Some(Side::User), now),
        open.session.closed(None, now),
        open.session.closed(Some(Side::Agent), now).session.reopened(now),
    ];
    let document = |step: &Step| MessageDocument::new(&step.message, Side::User, Language::Zh, &Links::default());
    frames.extend(steps.iter().map(|step| ServerFrame::Message(Box::new(document(step)))));
    let items = steps.iter().map(document).collect();
    frames.push(ServerFrame::Messages { session_id: "s1".parse().unwrap(), items });
    for session in steps.into_iter().map(|step| step.session).chain([waiting]) {
        let position = (session.status == SessionStatus::Waiting).then_some(1);
        let known = Known { session, cursors: Cursors::default() };
        frames.push(ServerFrame::Session(Box::new(SessionDocument::new(&known, position, Language::En))));
    }
    frames
}

#[test]
fn what_the_server_sends_is_as_documented() {
    let contract = Contract::read();
    let mut seen = BTreeSet::new();
    for frame in server_frames() {
        // A new frame has to be tried here: without it, this does not compile.
        let name = match frame {
            ServerFrame::SeckillResult { .. } => "seckill_result",
            ServerFrame::OrderStatus { .. } => "order_status",
            ServerFrame::Pong { .. } => "pong",
            ServerFrame::Rotate {} => "rotate",
            ServerFrame::Message(_) => "message",
            ServerFrame::Messages { .. } => "messages",
            ServerFrame::Sent { .. } => "sent",
            ServerFrame::SyncEnd { .. } => "sync_end",
            ServerFrame::Read { .. } => "read",
            ServerFrame::Session(_) => "session",
            ServerFrame::Typing { .. } => "typing",
            ServerFrame::Status { .. } => "status",
            ServerFrame::Error(_) => "error",
        };
        seen.insert(name.to_owned());
        contract.check_server_frame(&serde_json::to_value(frame).unwrap()).unwrap_or_else(|drift| panic!("{drift}"));
    }
    assert_eq!(seen, contract.messages("toClient").into_keys().collect());

    let codes: BTreeSet<String> = ErrorCode::ALL.iter().map(|code| json!(code).as_str().unwrap().to_owned()).collect();
    assert_eq!(texts(&contract.payload(contract.messages("toClient")["error"])["properties"]["code"]["enum"]), codes);

    // Whatever the sale tells of an order can be told, in one frame and no other: what is pending is not told.
    use sale::order::OrderStatus::{Cancelled, Failed, Paid, PreCreated, Unpaid};
    for status in sale::order::OrderStatus::ALL {
        let told_in = match status {
            PreCreated => None,
            Unpaid | Failed => Some("seckill_result"),
            Paid | Cancelled => Some("order_status"),
        };
        for kind in ["seckill_result", "order_status"] {
            let frame = json!({
                "type": kind, "orderNo": "SK1", "message": "ok",
                "status": status.result().as_str(), "orderStatus": status.as_str(),
            });
            assert_eq!(contract.check_server_frame(&frame).is_ok(), told_in == Some(kind), "{frame}");
        }
    }
    assert!(contract.check_server_frame(&json!({"type": "dance"})).is_err());
    assert!(contract.check_server_frame(&json!({"type": "pong", "heads": {}, "at": 1})).is_err());
}

#[test]
fn what_a_client_may_send_is_what_is_read() {
    let contract = Contract::read();
    let many = |count: usize| -> Value { (0..count).map(|n| (format!("s{n}"), json!(n))).collect() };
    let token = "eyJhbGciOi.eyJpc3MiOi.c2lnbmF0dXJl";
    let good = [
        json!({"type": "sync"}),
        json!({"type": "sync", "sessions": {}}),
        json!({"type": "sync", "sessions": {"s1": 0, "s2": u64::MAX}}),
        json!({"type": "sync", "sessions": many(32)}),
        json!({"type": "ping"}),
        json!({"type": "auth", "token": token}),
        json!({"type": "result_ack", "orderNo": "SK1"}),
        json!({"type": "result_ack", "orderNo": "SK1", "orderStatus": "UNPAID"}),
        json!({"type": "result_ack", "orderNo": "SK1", "orderStatus": null}),
        json!({"type": "open"}),
        json!({"type": "open", "sessionId": "s1"}),
        json!({"type": "text", "sessionId": "s1", "content": "hello"}),
        json!({"type": "text", "sessionId": "s1", "content": "字".repeat(4_000), "clientMsgId": "a.b:c-1"}),
        json!({"type": "image", "sessionId": "s1", "content": format!("s1/{}.webp", "0".repeat(32))}),
        json!({"type": "card", "sessionId": "s1", "content": "SK1", "clientMsgId": "m1"}),
        json!({"type": "ack", "sessionId": "s1", "lastSeq": 0}),
        json!({"type": "pull", "sessionId": "s1", "from": 1, "to": 1}),
        json!({"type": "typing", "sessionId": "s1"}),
        json!({"type": "status", "status": "online"}),
        json!({"type": "transfer", "sessionId": "s1"}),
        json!({"type": "transfer", "sessionId": "s1", "to": "g2"}),
        json!({"type": "close", "sessionId": "s1"}),
    ];
    let bad = [
        json!({}),
        json!({"type": "dance"}),
        json!({"type": "Ping"}),
        json!({"type": "ping", "at": 1}),
        json!({"type": "sync", "sessions": []}),
        json!({"type": "sync", "sessions": null}),
        json!({"type": "sync", "sessions": {"s 1": 1}}),
        json!({"type": "sync", "sessions": {"s1": -1}}),
        json!({"type": "sync", "sessions": {"s1": 1.5}}),
        json!({"type": "sync", "sessions": {"s1": "1"}}),
        json!({"type": "sync", "sessions": many(33)}),
        json!({"type": "auth"}),
        json!({"type": "auth", "token": 7}),
        json!({"type": "result_ack"}),
        json!({"type": "result_ack", "orderNo": "SK 1"}),
        json!({"type": "result_ack", "orderNo": "x".repeat(65)}),
        json!({"type": "result_ack", "orderNo": "SK1", "orderStatus": "unpaid"}),
        json!({"type": "result_ack", "orderNo": "SK1", "seen": true}),
        json!({"type": "open", "sessionId": "s 1"}),
        json!({"type": "text", "content": "hello"}),
        json!({"type": "text", "sessionId": "s1"}),
        json!({"type": "text", "sessionId": "s1", "content": 7}),
        json!({"type": "text", "sessionId": "s1", "content": " \n"}),
        json!({"type": "text", "sessionId": "s1", "content": "a\u{0}b"}),
        json!({"type": "text", "sessionId": "s1", "content": "a\u{9f}b"}),
        json!({"type": "text", "sessionId": "s1", "content": "字".repeat(4_001)}),
        json!({"type": "text", "sessionId": "s1", "content": "hi", "clientMsgId": ""}),
        json!({"type": "text", "sessionId": "s1", "content": "hi", "clientMsgId": "a b"}),
        json!({"type": "text", "sessionId": "s1", "content": "hi", "seq": 1}),
        json!({"type": "image", "sessionId": "s1", "content": "s1/cat.png"}),
        json!({"type": "card", "sessionId": "s1", "content": "SK 1"}),
        json!({"type": "ack", "sessionId": "s1", "lastSeq": -1}),
        json!({"type": "pull", "sessionId": "s1", "from": 0, "to": 1}),
        json!({"type": "status", "status": "asleep"}),
        json!({"type": "transfer", "sessionId": "s1", "to": "g 2"}),
        json!({"type": "close"}),
    ];
    let mut seen = BTreeSet::new();
    for frame in good {
        contract.check_client_frame(&frame).unwrap_or_else(|drift| panic!("{drift}"));
        let read = ClientFrame::parse(&frame.to_string()).unwrap_or_else(|code| panic!("{code:?}: {frame}"));
        // A new frame has to be tried here: without it, this does not compile.
        seen.insert(match read {
            ClientFrame::Sync(_) => "sync".to_owned(),
            ClientFrame::Ping(_) => "ping".to_owned(),
            ClientFrame::Auth(_) => "auth".to_owned(),
            ClientFrame::ResultAck(_) => "result_ack".to_owned(),
            ClientFrame::Open(_) => "open".to_owned(),
            ClientFrame::Text(_) => "text".to_owned(),
            ClientFrame::Image(_) => "image".to_owned(),
            ClientFrame::Card(_) => "card".to_owned(),
            ClientFrame::Ack(_) => "ack".to_owned(),
            ClientFrame::Pull(_) => "pull".to_owned(),
            ClientFrame::Typing(_) => "typing".to_owned(),
            ClientFrame::Status(_) => "status".to_owned(),
            ClientFrame::Transfer(_) => "transfer".to_owned(),
            ClientFrame::Close(_) => "close".to_owned(),
        });
    }
    assert_eq!(seen, contract.messages("fromClient").into_keys().collect());
    for frame in bad {
        assert!(contract.check_client_frame(&frame).is_err(), "documented: {frame}");
        assert!(ClientFrame::parse(&frame.to_string()).is_err(), "read: {frame}");
    }
}
