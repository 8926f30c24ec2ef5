//! The functions of the socket, by their sample events and by what a gateway may send besides.
#![allow(clippy::unwrap_used, reason = "a test file: its helpers fail the test too")]

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use chat::greetings::Greeting;
use chat::ids::{Party, Seq, Side};
use chat::tickets::{Holder, LIFETIME_SECS, Ticket, Tickets};
use client::{Jwt, Role, Secret as ClientSecret, TokenBuilder};
use kernel::text::Language;
use platform::auth::{AuthConfig, Verifier};
use platform::secrets::Secret;
use platform::sqs::{Batch, Disposition, Message};
use platform::ws::{Event, Reply};
use sale::store::Orders;
use serde_json::{Value, json};
use suite::chat_house::{ChatHouse, START, connection_id, results, types};
use suite::dynamo::{CONNECTIONS, ORDERS};
use suite::queue::{TestQueue, TestSqs};
use suite::sockets::Answer;
use tracing_subscriber::filter::LevelFilter;

/// The keys of the local stack, which the sample events' tokens are signed with.
const LOCAL_KEY: &str = "hotcake-local-development-key-not-a-secret";
/// The connection of the sample events, and their user.
const SAMPLE: (&str, &str) = ("L0SM9cOFvHcCIhw=", "u1001");

/// A house with the functions in it.
struct Functions {
    house: ChatHouse,
    greetings: TestQueue,
    _sqs: TestSqs,
    connect: chat_connect::State,
    message: chat_message::State,
    disconnect: chat_disconnect::State,
}

impl Functions {
    async fn open() -> Self {
        let (house, sqs) = tokio::join!(ChatHouse::open(), TestSqs::start());
        let greetings = sqs.queue("greetings");
        let connect = chat_connect::State {
            connections: house.connections.clone(),
            tickets: Tickets::new(house.dynamo.client.clone(), CONNECTIONS.to_owned()),
            greetings: greetings.greetings(),
            verifier: verifier(),
            allow_token_in_query: true,
            allowed_origins: "*".parse().unwrap(),
            clock: house.clock.clone(),
        };
        let orders = Orders::new(house.dynamo.client.clone(), ORDERS.to_owned());
        let message = chat_message::State {
            service: house.another_service(),
            lobby: chat_message::Lobby { verifier: verifier(), orders, clock: house.clock.clone() },
        };
        let disconnect = chat_disconnect::State { connections: house.connections.clone(), clock: house.clock.clone() };
        Self { house, greetings, _sqs: sqs, connect, message, disconnect }
    }

    async fn connect(&self, event: Value) -> Reply {
        chat_connect::handle(&self.connect, parsed(event)).await
    }

    /// A ticket got now, with a token that is good for `token_secs`.
    async fn ticket(&self, party: Party, token_secs: i64) -> Ticket {
        let now = self.house.now();
        let holder = Holder { party, expires_at: now.plus_secs(token_secs) };
        self.connect.tickets.issue(&holder, now).await.unwrap().0
    }

    /// The frames that a frame is answered with.
    async fn message(&self, event: Value) -> Vec<Value> {
        let id = event["requestContext"]["connectionId"].as_str().unwrap().to_owned();
        assert_eq!(chat_message::handle(&self.message, parsed(event)).await, Reply::Accepted);
        self.house.gateway.take_frames(&id)
    }
}

fn verifier() -> Verifier {
    let config = AuthConfig {
        secret_arn: String::new(),
        issuer: "https://hotcake.local".to_owned(),
        audience: "hotcake".to_owned(),
        admin_audience: "hotcake-admin".to_owned(),
    };
    let key = json!({"kid": "local", "alg": "HS256", "key": LOCAL_KEY});
    Verifier::new(&config, &Secret::new(key.to_string())).unwrap()
}

/// A token of a user, good until an hour after the tests' beginning.
fn token(user: &str) -> TokenBuilder {
    let jwt = Jwt {
        kid: "local".to_owned(),
        secret: ClientSecret::new(LOCAL_KEY),
        iss: "https://hotcake.local".to_owned(),
        aud: "hotcake".to_owned(),
        admin_aud: "hotcake-admin".to_owned(),
    };
    TokenBuilder::new(&jwt, Role::User, user).claim("exp", START.secs() + 3_600)
}

fn parsed(event: Value) -> Event {
    serde_json::from_value(event).unwrap()
}

/// The sample events of a function: file, what is expected, event.
fn samples(function: &str) -> Vec<(PathBuf, String, Value)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../events").join(function);
    let mut samples: Vec<_> = fs::read_dir(&folder)
        .unwrap()
        .map(|entry| {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_str().unwrap();
            let expected = name.split('.').nth(1).unwrap().to_owned();
            let event = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
            (path, expected, event)
        })
        .collect();
    samples.sort_by(|a, b| a.0.cmp(&b.0));
    assert!(!samples.is_empty(), "{}", folder.display());
    samples
}

/// A sample, with another connection and other query parameters.
fn handshake(connection_id: &str, query: Value) -> Value {
    let (_, _, mut event) =
        samples("chat-connect").into_iter().find(|(path, ..)| path.ends_with("token.accepted.json")).unwrap();
    event["requestContext"]["connectionId"] = connection_id.into();
    event["queryStringParameters"] = query;
    event
}

/// A sample frame with another body.
fn frame(connection_id: &str, body: &str) -> Value {
    let (_, _, mut event) =
        samples("chat-message").into_iter().find(|(path, ..)| path.ends_with("ping.pong.json")).unwrap();
    event["requestContext"]["connectionId"] = connection_id.into();
    event["body"] = body.into();
    event
}

#[tokio::test]
async fn every_sample_handshake_is_taken_as_its_name_says() {
    for (path, expected, event) in samples("chat-connect") {
        let functions = Functions::open().await;
        let reply = functions.connect(event).await;
        assert_eq!(format!("{reply:?}").to_lowercase(), expected, "{}", path.display());
        let rows = if reply == Reply::Accepted { 2 } else { 0 };
        assert_eq!(functions.house.keys().await.len(), rows, "{}", path.display());
    }
}

#[tokio::test]
async fn every_sample_frame_is_answered_as_its_name_says() {
    for (path, expected, event) in samples("chat-message") {
        let functions = Functions::open().await;
        let house = &functions.house;
        let (id, user) = SAMPLE;
        house.register(&house.connection(id, user)).await;
        if expected != "not_found" && expected != "pong" {
            house.postman.deliver(&[house.notice(user, "SKSAMPLE", "UNPAID")]).await.unwrap();
        }
        let answers = functions.message(event).await;
        let words: Vec<_> = types(&answers).iter().map(|word| word.to_lowercase()).collect();
        let expected = if expected == "silence" { Vec::new() } else { vec![expected] };
        assert_eq!(words, expected, "{}", path.display());
    }
}

#[tokio::test]
async fn the_sample_disconnect_leaves_no_row() {
    for (path, expected, event) in samples("chat-disconnect") {
        let functions = Functions::open().await;
        let house = &functions.house;
        house.live(SAMPLE.0, SAMPLE.1).await;
        let reply = chat_disconnect::handle(&functions.disconnect, parsed(event)).await;
        assert_eq!(format!("{reply:?}").to_lowercase(), expected, "{}", path.display());
        assert_eq!(house.keys().await, [""; 0]);
    }
}

#[tokio::test]
async fn a_handshake_says_who_where_and_in_which_language() {
    let functions = Functions::open().await;
    let query = json!({"token": token("u1").sign().unwrap().text(), "device": "phone-1", "last_ack_seq": "12"});
    assert_eq!(functions.connect(handshake("c1", query)).await, Reply::Accepted);
    let house = &functions.house;
    let connection = house.connections.find(&connection_id("c1"), house.now()).await.unwrap().unwrap();
    assert_eq!(connection.user_id.as_str(), "u1");
    assert_eq!(connection.device.map(String::from).as_deref(), Some("phone-1"));
    assert_eq!((connection.side, connection.last_ack_seq), (Side::User, Some(Seq::new(12))));
    assert_eq!(connection.language, Language::Zh);
    // With the leeway for clocks that differ, as over HTTP.
    assert_eq!((connection.connected_at, connection.expires_at), (START, START.plus_secs(3_630)));

    let answers = functions.message(frame("c1", "hello")).await;
    assert_eq!(answers, [json!({"type": "error", "code": "BAD_FRAME", "message": "无法识别该消息。"})]);

    // Empty is absent.
    let query = json!({"token": token("u1").sign().unwrap().text(), "device": "", "last_ack_seq": ""});
    assert_eq!(functions.connect(handshake("c2", query)).await, Reply::Accepted);
}

/// C24.
#[tokio::test]
async fn a_ticket_opens_one_socket_within_half_a_minute() {
    let functions = Functions::open().await;
    let house = &functions.house;
    let user = || Party::user("u1".parse().unwrap());
    let with = |id: &str, ticket: &Ticket| handshake(id, json!({"ticket": ticket.expose()}));

    let ticket = functions.ticket(Party::agent("g1".parse().unwrap()), 600).await;
    assert_eq!(functions.connect(with("c1", &ticket)).await, Reply::Accepted);
    let found = house.connections.find(&connection_id("c1"), house.now()).await.unwrap().unwrap();
    assert_eq!((found.side, found.user_id.as_str()), (Side::Agent, "g1"));
    assert_eq!(found.expires_at, START.plus_secs(600), "as the token it was got with");
    assert_eq!(functions.connect(with("c2", &ticket)).await, Reply::Unauthenticated, "used");

    let (at_the_end, too_late) = (functions.ticket(user(), 600).await, functions.ticket(user(), 600).await);
    let cut_short = functions.ticket(user(), 10).await;
    house.clock.advance_millis(LIFETIME_SECS * 1_000 - 1);
    assert_eq!(functions.connect(with("c3", &at_the_end)).await, Reply::Accepted);
    assert_eq!(functions.connect(with("c4", &cut_short)).await, Reply::Unauthenticated, "its token has run out");
    house.clock.advance_millis(1);
    assert_eq!(functions.connect(with("c5", &too_late)).await, Reply::Unauthenticated);

    // Whatever else is wrong is found before the ticket is used up; a good token does not make up for a bad ticket.
    let ticket = functions.ticket(user(), 600).await;
    let malformed = handshake("c6", json!({"ticket": ticket.expose(), "last_ack_seq": "x"}));
    assert_eq!(functions.connect(malformed).await, Reply::Malformed);
    assert_eq!(functions.connect(with("c6", &ticket)).await, Reply::Accepted);
    let both = json!({"ticket": ticket.expose(), "token": token("u1").sign().unwrap().text()});
    assert_eq!(functions.connect(handshake("c7", both)).await, Reply::Unauthenticated);
    for bad in ["", "x", "a#b"] {
        assert_eq!(functions.connect(handshake("c8", json!({"ticket": bad}))).await, Reply::Unauthenticated, "{bad}");
    }
}

#[tokio::test]
async fn of_two_handshakes_at_once_with_one_ticket_one_is_let_in() {
    let functions = Functions::open().await;
    let ticket = functions.ticket(Party::user("u1".parse().unwrap()), 600).await;
    let with = |id: &str| functions.connect(handshake(id, json!({"ticket": ticket.expose()})));
    let (a, b, c) = tokio::join!(with("c1"), with("c2"), with("c3"));
    let accepted = [a, b, c].into_iter().filter(|reply| *reply == Reply::Accepted).count();
    assert_eq!((accepted, functions.house.keys().await.len()), (1, 2));
}

#[tokio::test]
async fn pages_of_other_origins_are_kept_out() {
    let mut functions = Functions::open().await;
    functions.connect.allowed_origins = "https://shop.example".parse().unwrap();
    let from = |id: &str, origin: Option<&str>| {
        let mut event = handshake(id, json!({"token": token("u1").sign().unwrap().text()}));
        match origin {
            Some(origin) => event["headers"]["Origin"] = origin.into(),
            None => drop(event["headers"].as_object_mut().unwrap().remove("Origin")),
        }
        event
    };
    assert_eq!(functions.connect(from("c1", Some("https://evil.example"))).await, Reply::Forbidden);
    assert_eq!(functions.house.keys().await, [""; 0]);
    assert_eq!(functions.connect(from("c1", Some("https://shop.example"))).await, Reply::Accepted);
    assert_eq!(functions.connect(from("c2", None)).await, Reply::Accepted, "no browser");
}

#[tokio::test]
async fn a_new_connection_is_greeted_in_a_moment() {
    let functions = Functions::open().await;
    let house = &functions.house;
    let query = json!({"token": token("u1").sign().unwrap().text()});
    assert_eq!(functions.connect(handshake("c1", query)).await, Reply::Accepted);
    house.postman.deliver(&[house.notice("u1", "SK1", "UNPAID")]).await.unwrap();
    assert_eq!(house.gateway.take_frames("c1"), [json!(null); 0], "nobody can write to it yet");
    let greetings = functions.greetings.take_bodies();
    assert_eq!(greetings, [(r#"{"connectionId":"c1"}"#.to_owned(), 2)]);

    // It has said nothing: it is live from now on, and gets what `sync` would bring.
    let greet = chat_greet::State { service: house.another_service() };
    let record = json!({"messageId": "m1", "body": greetings[0].0});
    let batch = || greeted(&record);
    assert_eq!(chat_greet::handle(&greet, batch()).await, [Disposition::Done]);
    assert_eq!(results(&house.gateway.take_frames("c1")), ["SK1 UNPAID"]);
    assert_eq!(chat_greet::handle(&greet, batch()).await, [Disposition::Done], "twice");
    assert_eq!(house.gateway.take_frames("c1"), [json!(null); 0]);
}

fn greeted(record: &Value) -> Batch<Greeting> {
    let body = serde_json::from_str(record["body"].as_str().unwrap()).unwrap();
    let message = Message { id: record["messageId"].as_str().unwrap().to_owned(), body };
    Batch { messages: vec![message], deadline: START.plus_secs(10) }
}

/// P38, on `$connect` and in the `auth` frame.
#[tokio::test]
async fn no_bad_token_opens_or_renews_a_connection() {
    let functions = Functions::open().await;
    let house = &functions.house;
    house.live("c1", "u1").await;
    let before = house.keys().await;
    let good = || token("u1");
    let tokens = [
        ("none", good().unsigned()),
        ("another algorithm", good().header("alg", "RS256").sign().unwrap()),
        ("no exp", good().without("exp").sign().unwrap()),
        ("no aud", good().without("aud").sign().unwrap()),
        ("no sub", good().without("sub").sign().unwrap()),
        ("no role", good().without("role").sign().unwrap()),
        ("exp as text", good().claim("exp", (START.secs() + 3_600).to_string()).sign().unwrap()),
        ("nbf in the future", good().claim("nbf", START.secs() + 120).sign().unwrap()),
        ("another issuer", good().claim("iss", "https://elsewhere.example").sign().unwrap()),
        ("unknown kid", good().header("kid", "other").sign().unwrap()),
        ("another key", good().secret("another secret of more than thirty-two bytes").sign().unwrap()),
        ("expired", good().claim("exp", START.secs() - 31).sign().unwrap()),
        ("nothing", client::Token::from_text("")),
        ("not a token", client::Token::from_text("a.b.c")),
    ];
    for (what, token) in tokens {
        let reply = functions.connect(handshake("c2", json!({"token": token.text()}))).await;
        assert_eq!(reply, Reply::Unauthenticated, "{what}");
        let auth = json!({"type": "auth", "token": token.text()}).to_string();
        assert_eq!(types(&functions.message(frame("c1", &auth)).await), ["AUTH_EXPIRED"], "{what}");
    }
    assert_eq!(house.keys().await, before);
    let found = house.connections.find(&connection_id("c1"), house.now()).await.unwrap().unwrap();
    assert_eq!(found.expires_at, START.plus_secs(3_600));
}

#[tokio::test]
async fn the_token_in_the_query_can_be_switched_off() {
    let mut functions = Functions::open().await;
    functions.connect.allow_token_in_query = false;
    let query = json!({"token": token("u1").sign().unwrap().text()});
    assert_eq!(functions.connect(handshake("c1", query)).await, Reply::Unauthenticated);
    assert_eq!(functions.house.keys().await, [""; 0]);
}

#[tokio::test]
async fn a_handshake_whose_client_has_gone_is_not_let_in() {
    let functions = Functions::open().await;
    let (_, _, mut gone) = samples("chat-disconnect").remove(0);
    gone["requestContext"]["connectionId"] = "c1".into();
    assert_eq!(chat_disconnect::handle(&functions.disconnect, parsed(gone)).await, Reply::Accepted);
    let query = json!({"token": token("u1").sign().unwrap().text()});
    assert_eq!(functions.connect(handshake("c1", query)).await, Reply::Unavailable);
    assert_eq!(functions.house.keys().await, ["CONN#c1 META"], "the mark");
}

/// C21.
#[tokio::test]
async fn frames_are_bounded() {
    let functions = Functions::open().await;
    functions.house.live("c1", "u1").await;
    let padded = |len: usize| format!("{:<len$}", r#"{"type":"ping"}"#);
    for (len, expected) in
        [(16 * 1_024, "pong"), (16 * 1_024 + 1, "TOO_LARGE"), (17 * 1_024, "TOO_LARGE"), (33 * 1_024, "TOO_LARGE")]
    {
        assert_eq!(types(&functions.message(frame("c1", &padded(len))).await), [expected], "{len}");
    }
}

/// C23, with real tokens.
#[tokio::test]
async fn a_token_renews_the_connection_in_place() {
    let functions = Functions::open().await;
    let house = &functions.house;
    let query = json!({"token": token("u1").sign().unwrap().text()});
    assert_eq!(functions.connect(handshake("c1", query)).await, Reply::Accepted);
    // Up to the moment from which it would be refused over HTTP too.
    house.pass_secs(3_629);
    assert_eq!(types(&functions.message(frame("c1", r#"{"type":"ping"}"#)).await), ["pong"]);
    house.pass_secs(1);
    assert_eq!(types(&functions.message(frame("c1", r#"{"type":"ping"}"#)).await), ["AUTH_EXPIRED"]);
    let auth = |token: &client::Token| json!({"type": "auth", "token": token.text()}).to_string();

    // The same one again.
    assert_eq!(types(&functions.message(frame("c1", &auth(&token("u1").sign().unwrap()))).await), ["AUTH_EXPIRED"]);
    let admin = token("u1").claim("role", "admin").claim("aud", "hotcake-admin").claim("exp", house.now().secs() + 60);
    assert_eq!(types(&functions.message(frame("c1", &auth(&admin.sign().unwrap()))).await), ["AUTH_EXPIRED"]);

    let fresh = token("u1").claim("exp", house.now().secs() + 60).sign().unwrap();
    assert_eq!(types(&functions.message(frame("c1", &auth(&fresh))).await), ["pong"]);
    assert_eq!(types(&functions.message(frame("c1", r#"{"type":"ping"}"#)).await), ["pong"]);
}

/// P29 from the handshake on.
#[tokio::test]
async fn a_result_decided_between_the_handshake_and_sync_is_told_once_acknowledged_and_not_again() {
    let functions = Functions::open().await;
    let house = &functions.house;
    let query = json!({"token": token("u1").sign().unwrap().text()});
    assert_eq!(functions.connect(handshake("c1", query)).await, Reply::Accepted);
    house.postman.deliver(&[house.notice("u1", "SK1", "UNPAID")]).await.unwrap();
    assert_eq!(house.gateway.posts("c1"), 0);

    let sync = r#"{"type":"sync","sessions":{}}"#;
    assert_eq!(results(&functions.message(frame("c1", sync)).await), ["SK1 UNPAID"]);
    let ack = r#"{"type":"result_ack","orderNo":"SK1","orderStatus":"UNPAID"}"#;
    assert_eq!(functions.message(frame("c1", ack)).await, Vec::<Value>::new());
    assert_eq!(results(&functions.message(frame("c1", sync)).await), [""; 0]);
}

/// P39.
#[tokio::test]
async fn no_token_and_no_frame_is_in_the_log() {
    let log = Log::default();
    let writer = log.clone();
    let subscriber = tracing_subscriber::fmt().with_max_level(LevelFilter::TRACE).with_writer(move || writer.clone());
    // For the whole process: what a thread's own subscriber is asked for is cached by whichever test comes first.
    subscriber.init();

    let functions = Functions::open().await;
    let good = token("u1").claim("note", "canary").sign().unwrap();
    let bad = token("u1").secret("canary canary canary canary canary canary").sign().unwrap();
    for query in [
        json!({"token": good.text()}),
        json!({"token": bad.text()}),
        json!({"token": "canary", "device": "canary#"}),
        json!({"ticket": "canary"}),
    ] {
        functions.connect(handshake("c1", query)).await;
    }
    functions.house.gateway.next("c1", [Answer::Status(403)]);
    for body in ["canary", r#"{"type":"auth","token":"canary"}"#, r#"{"type":"canary"}"#] {
        functions.message(frame("c1", body)).await;
    }
    let log = log.text();
    for written in ["refused", "a frame is left to sync"] {
        assert!(log.contains(written), "the log was read");
    }
    for secret in ["canary", good.text(), bad.text()] {
        let line = log.lines().find(|line| line.contains(secret));
        assert_eq!(line, None, "{secret} is in the log");
    }
}

#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    fn text(&self) -> String {
        String::from_utf8_lossy(&self.0.lock().unwrap()).into_owned()
    }
}

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
