//! The frames of `chat`, and those of `asyncapi.yaml`.

use std::collections::{BTreeMap, BTreeSet};

use chat::frames::{ClientFrame, ErrorCode, ServerFrame};
use contract::Contract;
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

#[test]
fn what_the_server_sends_is_as_documented() {
    let contract = Contract::read();
    let mut frames = vec![
        ServerFrame::Pong { heads: BTreeMap::new() },
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
    ];
    frames.extend(ErrorCode::ALL.map(|code| ServerFrame::Error {
        code,
        message: code.text().en.into_owned(),
        // as `chat` says it: only what may succeed later names a wait
        retry_after_ms: (code == ErrorCode::RetryLater).then_some(1_000),
    }));
    let mut seen = BTreeSet::new();
    for frame in frames {
        // A new frame has to be tried here: without it, this does not compile.
        let name = match frame {
            ServerFrame::SeckillResult { .. } => "seckill_result",
            ServerFrame::OrderStatus { .. } => "order_status",
            ServerFrame::Pong { .. } => "pong",
            ServerFrame::Error { .. } => "error",
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
    assert!(contract.check_server_frame(&json!({"type": "rotate"})).is_err());
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
    ];
    let bad = [
        json!({}),
        json!({"type": "dance"}),
        json!({"type": "text", "sessionId": "s1", "content": "hello"}),
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
        });
    }
    assert_eq!(seen, contract.messages("fromClient").into_keys().collect());
    for frame in bad {
        assert!(contract.check_client_frame(&frame).is_err(), "documented: {frame}");
        assert!(ClientFrame::parse(&frame.to_string()).is_err(), "read: {frame}");
    }
}
