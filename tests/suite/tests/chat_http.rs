//! The chat over HTTP: who may ask, what is answered, and that whatever is not theirs is not there.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test file: its helpers fail the test too")]

use backoffice::{ChangeLog, SYSTEM};
use chat::tickets::{Ticket, Tickets};
use client::{Jwt, Role, Secret as ClientSecret, TokenBuilder};
use platform::auth::{AuthConfig, Verifier};
use platform::http::Request;
use platform::secrets::Secret;
use sale::store::Offers;
use serde_json::{Value, json};
use suite::chat_house::{ChatHouse, START, types};
use suite::dynamo::{CONNECTIONS, OFFERS};

const KEY: &str = "a shared secret of more than thirty-two bytes";
const SESSIONS: &str = "GET /api/chat/sessions";
const MESSAGES: &str = "GET /api/chat/sessions/{sessionId}/messages";
const RATE: &str = "POST /api/chat/sessions/{sessionId}/rate";
const UPLOADS: &str = "POST /api/chat/uploads";
const AGENTS: &str = "GET /api/chat/agents";
const AGENT: &str = "PUT /api/admin/agents/{agentId}";

/// A house with the function in it.
struct Desk {
    house: ChatHouse,
    api: chat_api::State,
}

/// A call in the making.
struct Call {
    event: Value,
}

impl Call {
    fn of(role: Role, who: &str, route: &str) -> Self {
        let jwt = Jwt {
            kid: "k".into(),
            secret: ClientSecret::new(KEY),
            iss: "i".into(),
            aud: "shop".into(),
            admin_aud: "admins".into(),
        };
        let token = TokenBuilder::new(&jwt, role, who).claim("exp", START.secs() + 3_600).sign().unwrap();
        let event = json!({
            "version": "2.0", "routeKey": route, "rawPath": "/", "rawQueryString": "",
            "headers": {"authorization": format!("Bearer {}", token.text()), "accept-language": "en"},
            "requestContext": {"requestId": "r", "routeKey": route, "http": {"method": "GET", "path": "/"}},
            "isBase64Encoded": false,
        });
        Self { event }
    }

    fn query(mut self, query: &str) -> Self {
        self.event["rawQueryString"] = query.into();
        self
    }

    fn session(mut self, session_id: &str) -> Self {
        self.event["pathParameters"] = json!({"sessionId": session_id});
        self
    }

    fn agent(mut self, agent_id: &str) -> Self {
        self.event["pathParameters"] = json!({"agentId": agent_id});
        self
    }

    fn body(mut self, body: Value) -> Self {
        self.event["body"] = body.to_string().into();
        self
    }
}

impl Desk {
    async fn open() -> Self {
        let house = ChatHouse::open().await;
        let config = AuthConfig {
            secret_arn: String::new(),
            issuer: "i".into(),
            audience: "shop".into(),
            admin_audience: "admins".into(),
        };
        let keys = Secret::new(json!({"kid": "k", "alg": "HS256", "key": KEY}).to_string());
        let api = chat_api::State {
            service: house.another_service(),
            tickets: Tickets::new(house.dynamo.client.clone(), CONNECTIONS.to_owned()),
            changes: ChangeLog::new(Offers::new(house.dynamo.client.clone(), OFFERS.to_owned())),
            verifier: Verifier::new(&config, &keys).unwrap(),
            clock: house.clock.clone(),
        };
        Self { house, api }
    }

    async fn ask(&self, call: Call) -> Result<Value, (u16, &'static str)> {
        let request: Request = serde_json::from_value(call.event).unwrap();
        match chat_api::handle(&self.api, request).await {
            Ok(response) => Ok(serde_json::from_str(response.body()).unwrap()),
            Err(problem) => Err((problem.status(), problem.code())),
        }
    }

    async fn user(&self, who: &str, route: &str) -> Result<Value, (u16, &'static str)> {
        self.ask(Call::of(Role::User, who, route)).await
    }

    /// A session that `user` has opened on the socket `c-<user>`.
    async fn session_of(&self, user: &str) -> String {
        let id = format!("c-{user}");
        self.house.live(&id, user).await;
        self.opened(&id).await
    }

    async fn opened(&self, id: &str) -> String {
        let answers = self.house.say(id, r#"{"type":"open"}"#).await;
        let session = answers.iter().find(|frame| frame["type"] == "session").unwrap();
        session["sessionId"].as_str().unwrap().to_owned()
    }

    async fn text(&self, id: &str, session_id: &str, content: &str) {
        let frame = json!({"type": "text", "sessionId": session_id, "content": content, "clientMsgId": content});
        assert!(types(&self.house.say(id, &frame.to_string()).await).contains(&"sent"), "{content}");
    }

    async fn close(&self, id: &str, session_id: &str) {
        let frame = json!({"type": "close", "sessionId": session_id});
        assert!(types(&self.house.say(id, &frame.to_string()).await).contains(&"session"));
    }

    async fn reopen(&self, id: &str, session_id: &str) {
        let frame = json!({"type": "open", "sessionId": session_id});
        assert!(types(&self.house.say(id, &frame.to_string()).await).contains(&"session"));
    }
}

fn contents(history: &Value) -> Vec<&str> {
    history["items"].as_array().unwrap().iter().map(|item| item["content"].as_str().unwrap_or("·")).collect()
}

#[tokio::test]
async fn a_ticket_is_for_customers_and_agents_and_says_how_long_it_is_good() {
    let desk = Desk::open().await;
    for role in [Role::User, Role::Agent] {
        let document = desk.ask(Call::of(role, "x1", "POST /api/chat/ticket")).await.unwrap();
        assert_eq!(document["expiresAt"], "2026-05-28T20:27:10.000Z");
        let ticket = Ticket::parse(document["ticket"].as_str().unwrap()).unwrap();
        let holder = desk.api.tickets.redeem(&ticket, START).await.unwrap().unwrap();
        assert_eq!(holder.party.to_string(), if role == Role::User { "user x1" } else { "agent x1" });
    }
    let ticket = "POST /api/chat/ticket";
    assert_eq!(desk.ask(Call::of(Role::Admin, "a1", ticket)).await, Err((403, "FORBIDDEN")));
    let with_body = Call::of(Role::User, "u1", ticket).body(json!({"device": "d"}));
    assert_eq!(desk.ask(with_body).await, Err((400, "VALIDATION")));
    let mut nobody = Call::of(Role::User, "u1", ticket);
    nobody.event["headers"] = json!({});
    assert_eq!(desk.ask(nobody).await, Err((401, "UNAUTHENTICATED")));
}

#[tokio::test]
async fn the_history_is_read_in_pages_from_either_end() {
    let desk = Desk::open().await;
    let session = desk.session_of("u1").await;
    for n in 1..=7 {
        desk.text("c-u1", &session, &format!("m{n}")).await;
    }
    let read = async |query: &str| {
        let call = Call::of(Role::User, "u1", MESSAGES).session(&session).query(query);
        desk.ask(call).await.unwrap()
    };
    let newest = read("").await;
    assert_eq!((contents(&newest).len(), newest["head"].as_u64()), (7, Some(7)));
    assert_eq!(newest["items"][6]["seq"], 7);
    assert_eq!(contents(&read("limit=2").await), ["m6", "m7"]);
    assert_eq!(contents(&read("limit=2&before=6").await), ["m4", "m5"]);
    assert_eq!(contents(&read("limit=2&after=2").await), ["m3", "m4"]);
    assert_eq!(contents(&read("before=1").await), [""; 0]);
    assert_eq!(contents(&read("before=0").await), [""; 0]);
    assert_eq!(contents(&read("after=7").await), [""; 0]);
    assert_eq!(contents(&read("after=0").await).len(), 7);
    assert_eq!(contents(&read("limit=1&before=18446744073709551615").await), ["m7"]);
    assert_eq!(contents(&read("after=18446744073709551615").await), [""; 0]);
    for bad in ["before=3&after=1", "limit=0", "limit=101", "limit=x", "before=-1", "after=1.5", "limit=2&limit=3"] {
        let call = Call::of(Role::User, "u1", MESSAGES).session(&session).query(bad);
        assert_eq!(desk.ask(call).await, Err((400, "VALIDATION")), "{bad}");
    }
}

/// C19, over HTTP.
#[tokio::test]
async fn what_is_somebody_elses_is_not_there() {
    let desk = Desk::open().await;
    let session = desk.session_of("u1").await;
    desk.text("c-u1", &session, "secret").await;
    let upload = json!({"sessionId": session, "contentType": "image/png", "size": 9});
    for (role, who) in [(Role::User, "u2"), (Role::Agent, "u1"), (Role::Agent, "g1")] {
        let history = Call::of(role, who, MESSAGES).session(&session);
        assert_eq!(desk.ask(history).await, Err((404, "NOT_FOUND")), "{role:?} {who}");
        let form = Call::of(role, who, UPLOADS).body(upload.clone());
        assert_eq!(desk.ask(form).await, Err((404, "NOT_FOUND")), "{role:?} {who}");
        let list = desk.ask(Call::of(role, who, SESSIONS)).await.unwrap();
        assert_eq!(list, json!({"items": []}), "{role:?} {who}");
    }
    let rating = Call::of(Role::User, "u2", RATE).session(&session).body(json!({"score": 5}));
    assert_eq!(desk.ask(rating).await, Err((404, "NOT_FOUND")));
    for nothing in ["none", "a b", "", "00112233445566778899aabbccddeeff"] {
        let history = Call::of(Role::User, "u1", MESSAGES).session(nothing);
        assert_eq!(desk.ask(history).await, Err((404, "NOT_FOUND")), "{nothing:?}");
    }
}

#[tokio::test]
async fn an_agent_sees_what_is_open_with_them_and_only_while_it_is() {
    let desk = Desk::open().await;
    desk.house.agent("c-g1", "g1").await;
    let first = desk.session_of("u1").await;
    desk.house.pass_secs(1);
    let second = desk.session_of("u2").await;
    desk.house.pass_secs(1);
    desk.text("c-u1", &first, "last").await;
    let listed = async || {
        let list = desk.ask(Call::of(Role::Agent, "g1", SESSIONS)).await.unwrap();
        let items = list["items"].as_array().unwrap().clone();
        items.into_iter().map(|item| item["sessionId"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(listed().await, [first.clone(), second.clone()], "the last spoken in first");
    let history = Call::of(Role::Agent, "g1", MESSAGES).session(&first);
    assert!(contents(&desk.ask(history).await.unwrap()).contains(&"last"));

    desk.close("c-g1", &first).await;
    assert_eq!(listed().await, [second]);
    let history = Call::of(Role::Agent, "g1", MESSAGES).session(&first);
    assert_eq!(desk.ask(history).await, Err((404, "NOT_FOUND")));
}

#[tokio::test]
async fn a_customers_sessions_are_listed_newest_first_in_pages() {
    let desk = Desk::open().await;
    let mut made = vec![desk.session_of("u1").await];
    for _ in 0..4 {
        desk.close("c-u1", made.last().unwrap()).await;
        desk.house.pass_secs(60);
        made.push(desk.opened("c-u1").await);
    }
    made.reverse();
    let (mut seen, mut cursor, mut pages) = (Vec::new(), String::new(), 0);
    loop {
        let call = Call::of(Role::User, "u1", SESSIONS).query(&format!("limit=2{cursor}"));
        let page = desk.ask(call).await.unwrap();
        seen.extend(page["items"].as_array().unwrap().clone());
        pages += 1;
        match page["cursor"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => break,
        }
    }
    let ids: Vec<_> = seen.iter().map(|item| item["sessionId"].as_str().unwrap()).collect();
    assert_eq!((ids, pages), (made.iter().map(String::as_str).collect(), 3));
    assert_eq!((&seen[0]["status"], &seen[0]["queuePosition"]), (&json!("waiting"), &json!(1)));
    assert_eq!((&seen[1]["status"], &seen[1]["queuePosition"]), (&json!("closed"), &Value::Null));
    let bad = Call::of(Role::User, "u1", SESSIONS).query("cursor=bm9wZQ");
    assert_eq!(desk.ask(bad).await, Err((400, "VALIDATION")));
}

#[tokio::test]
async fn a_session_is_rated_when_it_is_closed_and_may_be_again() {
    let desk = Desk::open().await;
    let session = desk.session_of("u1").await;
    let rate = async |body: Value| desk.ask(Call::of(Role::User, "u1", RATE).session(&session).body(body)).await;
    assert_eq!(rate(json!({"score": 5})).await, Err((409, "SESSION_STATE")));
    desk.close("c-u1", &session).await;
    let rated = json!({"sessionId": session, "score": 5, "ratedAt": "2026-05-28T20:26:40.000Z"});
    assert_eq!(rate(json!({"score": 5})).await, Ok(rated));
    let again = rate(json!({"score": 1, "comment": "字".repeat(500)})).await.unwrap();
    assert_eq!((&again["score"], again["comment"].as_str().unwrap().chars().count()), (&json!(1), 500));
    for bad in [
        json!({"score": 0}),
        json!({"score": 6}),
        json!({"score": 4.5}),
        json!({"score": "5"}),
        json!({}),
        json!({"score": 5, "comment": "x".repeat(501)}),
        json!({"score": 5, "stars": 5}),
    ] {
        assert_eq!(rate(bad.clone()).await, Err((400, "VALIDATION")), "{bad}");
    }
    // The customer sees what they gave, as long as nothing new is to be rated.
    let listed = async || desk.ask(Call::of(Role::User, "u1", SESSIONS)).await.unwrap()["items"][0]["rating"].clone();
    assert_eq!(listed().await, again);
    desk.house.clock.advance_millis(1);
    desk.reopen("c-u1", &session).await;
    assert_eq!(listed().await, Value::Null);
    desk.close("c-u1", &session).await;
    assert_eq!(listed().await, Value::Null, "it may be rated anew");
    let agent = Call::of(Role::Agent, "u1", RATE).session(&session).body(json!({"score": 5}));
    assert_eq!(desk.ask(agent).await, Err((403, "FORBIDDEN")));
}

#[tokio::test]
async fn a_form_is_for_an_image_of_a_session_that_is_not_closed() {
    let desk = Desk::open().await;
    let session = desk.session_of("u1").await;
    let form = async |content_type: &str, size: Value| {
        let body = json!({"sessionId": session, "contentType": content_type, "size": size});
        desk.ask(Call::of(Role::User, "u1", UPLOADS).body(body)).await
    };
    let document = form("image/png", json!(5_242_880)).await.unwrap();
    let key = document["key"].as_str().unwrap();
    assert!(key.starts_with(&format!("{session}/")) && key.ends_with(".png"), "{key}");
    assert_eq!((&document["fields"]["key"], &document["fields"]["Content-Type"]), (&json!(key), &json!("image/png")));
    assert_eq!(document["expiresAt"], "2026-05-28T20:31:40.000Z");
    for (content_type, size) in [
        ("image/svg+xml", json!(9)),
        ("IMAGE/PNG", json!(9)),
        ("text/html", json!(9)),
        ("", json!(9)),
        ("image/png", json!(0)),
        ("image/png", json!(5_242_881)),
        ("image/png", json!(-1)),
        ("image/png", json!("9")),
    ] {
        assert_eq!(form(content_type, size.clone()).await, Err((400, "VALIDATION")), "{content_type} {size}");
    }
    desk.close("c-u1", &session).await;
    assert_eq!(form("image/png", json!(9)).await, Err((409, "SESSION_STATE")));
}

/// A desk shows all its conversations at once: an agent has no next page to ask for.
#[tokio::test]
async fn an_agent_sees_everything_they_serve() {
    const MANY: usize = 23;
    let desk = Desk::open().await;
    let call = Call::of(Role::Admin, "a1", AGENT).agent("g1").body(json!({"capacity": MANY}));
    desk.ask(call).await.unwrap();
    desk.house.agent("c-g1", "g1").await;
    for n in 0..MANY {
        desk.session_of(&format!("u{n}")).await;
    }
    let listed = desk.ask(Call::of(Role::Agent, "g1", SESSIONS)).await.unwrap();
    assert_eq!((listed["items"].as_array().unwrap().len(), &listed["cursor"]), (MANY, &Value::Null));
}

/// The emulator takes every key to be the one that the policy names.
#[test]
fn the_policy_names_the_log_that_capacities_are_noted_in() {
    let template = std::fs::read_to_string(contract::root().join("template.yaml")).unwrap();
    let condition = format!(r#""dynamodb:LeadingKeys": ["CHANGE#{SYSTEM}"]"#);
    assert_eq!(template.matches("dynamodb:LeadingKeys").count(), 1);
    assert!(template.contains(&condition), "{condition} is not in template.yaml");
}

#[tokio::test]
async fn a_capacity_that_grows_is_used_at_once() {
    let desk = Desk::open().await;
    let set = async |capacity: Value| {
        desk.ask(Call::of(Role::Admin, "a1", AGENT).agent("g1").body(json!({"capacity": capacity}))).await
    };
    let unheard_of = set(json!(0)).await.unwrap();
    let expected =
        json!({"agentId": "g1", "status": "away", "present": false, "capacity": 0, "open": 0, "sessions": []});
    assert_eq!(unheard_of, expected);
    desk.house.agent("c-g1", "g1").await;
    let session = desk.session_of("u1").await;
    desk.house.gateway.take_frames("c-u1");
    let waiting = desk.ask(Call::of(Role::Agent, "g1", AGENTS)).await.unwrap();
    assert_eq!((&waiting["waiting"], &waiting["agents"][0]["open"]), (&json!(1), &json!(0)));

    let given = set(json!(2)).await.unwrap();
    assert_eq!((&given["open"], &given["sessions"], &given["present"]), (&json!(1), &json!([session]), &json!(true)));
    let told = desk.house.gateway.take_frames("c-u1");
    assert!(told.iter().any(|frame| frame["type"] == "session" && frame["agentId"] == "g1"), "{told:?}");
    let agents = desk.ask(Call::of(Role::Admin, "a1", AGENTS)).await.unwrap();
    assert_eq!((&agents["waiting"], &agents["agents"][0]["capacity"]), (&json!(0), &json!(2)));

    for bad in [json!(101), json!(-1), json!(1.5), json!("3"), Value::Null] {
        assert_eq!(set(bad.clone()).await, Err((400, "VALIDATION")), "{bad}");
    }
    for role in [Role::User, Role::Agent] {
        let call = Call::of(role, "g1", AGENT).agent("g1").body(json!({"capacity": 9}));
        assert_eq!(desk.ask(call).await, Err((403, "FORBIDDEN")));
    }
    assert_eq!(desk.user("u1", AGENTS).await, Err((403, "FORBIDDEN")));

    // It is among what admins did, and what was refused is not.
    let offers = Offers::new(desk.house.dynamo.client.clone(), OFFERS.to_owned());
    let noted = offers.changes_of(SYSTEM, 100, None).await.unwrap().items;
    let noted: Vec<_> =
        noted.iter().map(|it| (it.by.as_str(), it.action.as_str(), it.before.as_deref(), &*it.after)).collect();
    let (made, raised) = (r#"{"capacity":0}"#, r#"{"capacity":2}"#);
    assert_eq!(noted, [("a1", "put-agent g1", None, made), ("a1", "put-agent g1", Some(made), raised)]);
}

#[tokio::test]
async fn the_sweep_gives_out_what_a_crash_left_waiting() {
    let desk = Desk::open().await;
    let session = desk.session_of("u1").await;
    // Online, and whoever was to give out what waits died before it did.
    let g1 = "g1".parse().unwrap();
    let now = desk.house.now();
    desk.house.desk.set_status(&g1, chat::desk::agents::AgentStatus::Online, now, now).await.unwrap();
    let sweep = chat_sweep::State { service: desk.house.another_service() };
    let tick = platform::schedule::Tick { deadline: now.plus_secs(50) };
    chat_sweep::handle(&sweep, tick).await.unwrap();
    let agent = desk.house.desk.agent(&g1).await.unwrap().unwrap();
    assert_eq!(agent.sessions.iter().map(|id| id.as_str()).collect::<Vec<_>>(), [session]);
}
