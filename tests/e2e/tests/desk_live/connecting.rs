//! How a socket begins, and how it goes on when its token does not.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use aws_sdk_dynamodb::types::AttributeValue;
use chat::connections::ConnectionState;
use chat::ids::Party;
use client::frames::{FrameErrorCode, ServerFrame};
use client::{ChatOptions, ClientError, ConnectOptions, Role, Socket, Token};
use e2e::local::frame_is_documented;
use e2e::shop::done;
use e2e::{FunctionProcess, SOON, events, eventually};
use serde_json::{Value, json};

use crate::floor::{Floor, NO_HEARTBEAT, frame_event, now};
use crate::line::{Line, seqs, text};

async fn ticket(floor: &Floor, role: Role, id: &str) -> Token {
    Token::from_text(done(floor.api(role, id).chat_ticket().await).ticket.reveal())
}

/// The status that a handshake is refused with.
async fn refused(floor: &Floor, options: ConnectOptions) -> u16 {
    match Socket::connect(&floor.local.outputs, options).await {
        Err(ClientError::HandshakeRefused { status }) => status,
        other => panic!("{other:?} instead of a refusal"),
    }
}

/// [C24]
#[tokio::test]
async fn a_ticket_opens_one_socket_within_half_a_minute() {
    let floor = Floor::beside().await;
    let (user, agent) = (floor.id("u1"), floor.id("g1"));
    for (role, id) in [(Role::User, &user), (Role::Agent, &agent)] {
        let ticket = ticket(&floor, role, id).await;
        let options = ConnectOptions::with_ticket(ticket).heartbeat(NO_HEARTBEAT).watched(frame_is_documented);
        let mut line = Line::new(Socket::connect(&floor.local.outputs, options.clone()).await.unwrap());
        assert!(line.pong().await.is_empty());
        // It is that party: only a customer opens sessions.
        line.say(json!({"type": "open"})).await;
        let opened = line.until("an answer", |frame| match frame {
            ServerFrame::Session(session) => Some(Ok(session.user_id.clone())),
            ServerFrame::Error(error) => Some(Err(error.code)),
            _ => None,
        });
        let expected = if role == Role::User { Ok(user.clone()) } else { Err(FrameErrorCode::NotFound) };
        assert_eq!(opened.await, expected);
        assert_eq!(refused(&floor, options).await, 401, "used before");
    }
    let late = ticket(&floor, Role::User, &user).await;
    // Half a minute passes.
    floor
        .dynamo
        .update_item()
        .table_name(&floor.local.outputs.tables.connections)
        .key("pk", AttributeValue::S(format!("TICKET#{}", late.text())))
        .key("sk", AttributeValue::S("META".to_owned()))
        .update_expression("SET expiresAt = :then")
        .condition_expression("expiresAt > :then")
        .expression_attribute_values(":then", AttributeValue::N((now().get() - 1_000).to_string()))
        .send()
        .await
        .unwrap();
    assert_eq!(refused(&floor, ConnectOptions::with_ticket(late)).await, 401);
    let unknown = Token::from_text("A".repeat(43));
    assert_eq!(refused(&floor, ConnectOptions::with_ticket(unknown)).await, 401);
    // A bad ticket is not made up for by a good token.
    let mut both = ConnectOptions::new(floor.local.outputs.user_token(&user).unwrap());
    both.ticket = Some(Token::from_text("A".repeat(43)));
    assert_eq!(refused(&floor, both).await, 401);
    let admin = floor.local.admin.chat_ticket().await.unwrap();
    assert_eq!((admin.status, floor.local.api.chat_ticket().await.unwrap().status), (403, 401));

    // The reference client gets a ticket for each of its connections.
    let api = floor.local.api.clone();
    let customer = floor.person(Role::User, &user, |options| options.with_tickets(&api)).await;
    customer.drop_connection().await.unwrap();
    customer.reconnect().await.unwrap();
    floor.close().await;
}

#[tokio::test]
async fn a_socket_from_the_page_of_somebody_else_is_refused() {
    let floor = Floor::beside().await;
    let ours = "https://shop.example";
    let door = FunctionProcess::start_with(&floor.local, "chat-connect", &[("ALLOWED_ORIGINS", ours)]).await;
    let knock = async |origin: Option<&str>| {
        let mut event = events::sample("chat-connect/token.accepted");
        event["requestContext"]["connectionId"] = format!("e2e{:x}", rand::random::<u64>()).into();
        let token = floor.local.outputs.user_token(&floor.id("u1")).unwrap();
        event["queryStringParameters"] = json!({"token": token.text()});
        if let Value::Object(query) = &mut event["multiValueQueryStringParameters"] {
            query.insert("token".to_owned(), json!([token.text()]));
        }
        for headers in ["headers", "multiValueHeaders"] {
            if let Value::Object(headers) = &mut event[headers] {
                headers.retain(|name, _| !name.eq_ignore_ascii_case("origin"));
            }
        }
        if let Some(origin) = origin {
            event["headers"]["Origin"] = origin.into();
            event["multiValueHeaders"]["Origin"] = json!([origin]);
        }
        door.invoke(&event).await["statusCode"].clone()
    };
    assert_eq!(knock(Some("https://shop.example.evil.example")).await, 403);
    assert_eq!(knock(Some("null")).await, 403);
    assert_eq!((knock(Some(ours)).await, knock(None).await), (json!(200), json!(200)));
    // Deployed as it is, every page may.
    let id = floor.id("u2");
    let mut line = floor.line(Role::User, &id, |options| options.from_origin("https://anywhere.example")).await;
    line.pong().await;
    floor.close().await;
}

#[tokio::test]
async fn a_socket_that_says_how_much_it_has_is_told_the_rest() {
    let floor = Floor::beside().await;
    let id = floor.id("u1");
    let mut phone = floor.live(Role::User, &id).await;
    let session_id = phone.open().await.session_id;
    for word in 1..=5 {
        phone.text(&session_id, &format!("word {word}"), &format!("m{word}")).await;
    }
    let end = |frame: &ServerFrame| match frame {
        ServerFrame::SyncEnd { head, .. } => Some(*head),
        _ => None,
    };
    // One says nothing at all, the other one asks for something else.
    let mut silent = floor.line(Role::User, &id, |options| options.last_ack_seq(2)).await;
    let mut busy = floor.line(Role::User, &id, |options| options.last_ack_seq(3)).await;
    assert_eq!(busy.pong().await[&session_id], 5);
    assert_eq!(busy.until("the rest", end).await, 5);
    assert_eq!(seqs(&busy.replayed()), [4, 5]);
    assert_eq!(silent.until("the rest", end).await, 5);
    assert_eq!(seqs(&silent.replayed()), [3, 4, 5]);
    // It is live: what is said now is pushed, and no second replay comes.
    phone.text(&session_id, "six", "m6").await;
    silent.until("the push", |frame| matches!(frame, ServerFrame::Message(_)).then_some(())).await;
    assert_eq!(seqs(&silent.pushed()), [6]);
    silent.pong().await;
    busy.pong().await;
    assert_eq!((silent.replayed().len(), busy.replayed().len()), (3, 2));
    floor.close().await;
}

#[tokio::test]
async fn a_silent_connection_is_greeted_and_hears_what_is_said() {
    let floor = Floor::beside().await;
    let id = floor.id("u1");
    let mut phone = floor.live(Role::User, &id).await;
    let session_id = phone.open().await.session_id;
    let mut silent = floor.line(Role::User, &id, |options| options).await;
    let party = Party::user(id.parse().unwrap());
    eventually("both are live", SOON, async || {
        let connections = floor.local.connections().live(&party, now()).await.unwrap();
        let live = connections.iter().filter(|connection| connection.state == ConnectionState::Live);
        (live.count() == 2).then_some(())
    })
    .await;
    phone.text(&session_id, "hello", "m1").await;
    silent.until("the push", |frame| matches!(frame, ServerFrame::Message(_)).then_some(())).await;
    assert_eq!((seqs(&silent.pushed()), silent.replayed().len()), (vec![1], 0));
    floor.close().await;
}

/// [C23]
#[tokio::test]
async fn an_expired_token_is_renewed_in_place_and_nothing_is_lost() {
    let floor = Floor::beside().await;
    let id = floor.id("u1");
    let life = Duration::from_secs(6);
    let short = {
        let outputs = floor.local.outputs.clone();
        move |id: &str| outputs.token(Role::User, id).expires_in(life).sign().unwrap()
    };
    let token = short(&id);
    let mut line = floor.line(Role::User, &id, |options| ConnectOptions { token: Some(token), ..options }).await;
    let session_id = line.open().await.session_id;
    let mut other = floor.live(Role::User, &id).await;
    tokio::time::sleep(life).await;
    let expired = line.refused(text(&session_id, "late", "m1")).await;
    assert_eq!((expired.code, expired.client_msg_id.as_deref()), (FrameErrorCode::AuthExpired, Some("m1")));
    assert_eq!(line.code(json!({"type": "close", "sessionId": session_id})).await, FrameErrorCode::AuthExpired);
    // Nothing is told to it meanwhile.
    assert_eq!(other.text(&session_id, "from elsewhere", "m2").await.seq, 1);
    let strangers = floor.local.outputs.user_token(&floor.id("u2")).unwrap();
    let auth = |token: &Token| json!({"type": "auth", "token": token.text()});
    assert_eq!(line.code(auth(&strangers)).await, FrameErrorCode::AuthExpired);
    assert_eq!(line.pushed().len(), 0);

    line.say(auth(&floor.local.outputs.user_token(&id).unwrap())).await;
    let heads = line.until("a pong", |frame| match frame {
        ServerFrame::Pong { heads } => Some(heads.clone()),
        _ => None,
    });
    assert_eq!(heads.await[&session_id], 1);
    assert_eq!(line.sync(&session_id, 0).await, 1);
    let sent = line.text(&session_id, "late", "m1").await;
    assert_eq!((sent.seq, sent.duplicate), (2, false));
    assert_eq!(floor.with(&session_id).await, "waiting", "the close was not done");

    // Who talks through the reference client does not notice.
    let renewed = Arc::new(AtomicU32::new(0));
    let tokens = {
        let (renewed, outputs, id) = (Arc::clone(&renewed), floor.local.outputs.clone(), id.clone());
        Arc::new(move || match renewed.fetch_add(1, Ordering::SeqCst) {
            0 => outputs.token(Role::User, &id).expires_in(life).sign(),
            _ => outputs.user_token(&id),
        })
    };
    let ws_url = floor.local.outputs.ws_url.clone();
    let options = ChatOptions::with_tokens(ws_url, Role::User, &id, tokens).watched(frame_is_documented);
    let customer = floor.person(Role::User, &id, |_| options).await;
    tokio::time::sleep(life).await;
    other.text(&session_id, "three", "m3").await;
    assert_eq!(customer.text(&session_id, "four").await.unwrap().seq, 4);
    customer.has(&session_id, 4).await;
    assert_eq!(renewed.load(Ordering::SeqCst), 2);
    floor.close().await;
}

/// [C32]
#[tokio::test]
async fn a_late_word_of_an_older_socket_of_a_device_does_not_bring_it_back() {
    let floor = Floor::beside().await;
    let id = floor.id("u1");
    let mut old = floor.line(Role::User, &id, |options| options.on_device("phone")).await;
    old.pong().await;
    let old_id = floor.connection_of(Role::User, &id).await;
    let mut new = floor.line(Role::User, &id, |options| options.on_device("phone")).await;
    new.pong().await;
    let new_id = floor.connection_of(Role::User, &id).await;
    assert_ne!(old_id, new_id);

    // What the old one said last is handled now.
    let function = floor.function(&[]).await;
    let late = frame_event(&old_id, &json!({"type": "sync", "sessions": {}}), now());
    assert_eq!(function.invoke(&late).await["statusCode"], 200);
    assert_eq!(floor.connection_of(Role::User, &id).await, new_id);
    let over = eventually("the old socket is closed", SOON, async || {
        old.next(Duration::from_secs(1)).await.err().filter(|error| matches!(error, ClientError::SocketClosed))
    });
    over.await;
    let session_id = new.open().await.session_id;
    let mut tablet = floor.live(Role::User, &id).await;
    tablet.text(&session_id, "hello", "m1").await;
    new.until("the push", |frame| matches!(frame, ServerFrame::Message(_)).then_some(())).await;
    floor.close().await;
}

/// [C20]
#[tokio::test]
async fn a_frame_that_cannot_be_used_is_answered_and_the_socket_stays_usable() {
    let floor = Floor::beside().await;
    let mut line = floor.live(Role::User, &floor.id("u1")).await;
    let session = line.open().await.session_id;
    let deep = format!(r#"{{"type":"text","content":{}{}}}"#, "[".repeat(200), "]".repeat(200));
    let in_session = |rest: &str| format!(r#"{{"sessionId":"{session}",{rest}}}"#);
    let frames = [
        "hello".to_owned(),
        "[]".to_owned(),
        "null".to_owned(),
        "{}".to_owned(),
        "7".to_owned(),
        String::from(r#""ping""#),
        deep,
        r#"{"type":"sing"}"#.to_owned(),
        r#"{"type":"open","urgent":true}"#.to_owned(),
        r#"{"type":"text"}"#.to_owned(),
        in_session(r#""type":"text""#),
        in_session(r#""type":"text","content":7"#),
        in_session(r#""type":"text","content":"a","seq":9"#),
        in_session(r#""type":"text","content":"a","clientMsgId":"a b""#),
        in_session(r#""type":"text","content":"a","clientMsgId":"""#),
        in_session(r#""type":"ack""#),
        in_session(r#""type":"ack","lastSeq":-1"#),
        in_session(r#""type":"pull","from":0,"to":1"#),
        in_session(r#""type":"pull","from":2,"to":1"#),
        in_session(r#""type":"typing","text":"half a wo""#),
        r#"{"type":"status","status":"asleep"}"#.to_owned(),
        r#"{"type":"close","sessionId":"S 1"}"#.to_owned(),
        r#"{"type":"close"}"#.to_owned(),
    ];
    for frame in &frames {
        let error = line.refused_raw(frame).await;
        assert_eq!(error.code, FrameErrorCode::BadFrame, "{frame}");
    }
    let sent = line.text(&session, "still here", "m1").await;
    assert_eq!(sent.seq, 1);
    floor.close().await;
}
