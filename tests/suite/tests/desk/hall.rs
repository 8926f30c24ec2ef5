//! A hall in which customers and agents stand, each with sockets, and the verbs they have.

use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use chat::audit;
use serde_json::{Value, json};
use suite::chat_house::{ChatHouse, types};
use suite::dynamo::CHAT;

pub(crate) struct Hall {
    pub(crate) house: ChatHouse,
    messages: AtomicU64,
    /// What came on a socket before its last frame was sent, and was not asked for yet.
    earlier: Mutex<HashMap<String, Vec<Value>>>,
}

impl Hall {
    pub(crate) async fn open() -> Self {
        Self { house: ChatHouse::open().await, messages: AtomicU64::new(0), earlier: Mutex::default() }
    }

    /// A customer with a socket of the same name.
    pub(crate) async fn customer(&self, user: &str) {
        self.house.live(user, user).await;
    }

    /// An agent with a socket of the same name, online.
    pub(crate) async fn agent(&self, agent: &str) {
        self.house.agent(agent, agent).await;
        self.house.gateway.take_frames(agent);
    }

    /// Sends a frame, and returns what comes on the socket until it is handled. Each frame has a name of its own at the gateway.
    pub(crate) async fn say(&self, id: &str, frame: Value) -> Vec<Value> {
        let earlier = self.house.gateway.take_frames(id);
        self.earlier.lock().unwrap().entry(id.to_owned()).or_default().extend(earlier);
        let nth = self.messages.fetch_add(1, Ordering::SeqCst);
        self.house.receive_as(id, Ok(&frame.to_string()), &format!("gw{nth}"), None).await.1
    }

    /// What has come on a socket besides what its own frames were answered with.
    pub(crate) fn heard(&self, id: &str) -> Vec<Value> {
        let mut heard = self.earlier.lock().unwrap().remove(id).unwrap_or_default();
        heard.extend(self.house.gateway.take_frames(id));
        heard
    }

    /// Opens a session.
    pub(crate) async fn session(&self, id: &str) -> String {
        let answers = self.say(id, json!({"type": "open"})).await;
        first(&answers, "session")["sessionId"].as_str().unwrap().to_owned()
    }

    pub(crate) async fn text(&self, id: &str, session: &str, content: &str) -> Vec<Value> {
        self.say(id, json!({"type": "text", "sessionId": session, "content": content})).await
    }

    pub(crate) async fn named(&self, id: &str, session: &str, content: &str, name: &str) -> Vec<Value> {
        self.say(id, json!({"type": "text", "sessionId": session, "content": content, "clientMsgId": name})).await
    }

    pub(crate) async fn status(&self, id: &str, status: &str) -> Vec<Value> {
        self.say(id, json!({"type": "status", "status": status})).await
    }

    /// The state of a session, as its customer is told it.
    pub(crate) async fn state(&self, session: &str) -> Value {
        let session_id = session.parse().unwrap();
        let known = self.house.desk.known([&session_id]).await.unwrap().pop().unwrap();
        let position = self.house.service.position(&known.session).await.unwrap();
        let language = kernel::text::Language::En;
        serde_json::to_value(chat::frames::server::SessionDocument::new(&known, position, language)).unwrap()
    }

    /// Status and agent of a session: `open g1`, `waiting`, …
    pub(crate) async fn with(&self, session: &str) -> String {
        let state = self.state(session).await;
        let agent = state["agentId"].as_str().map(|agent| format!(" {agent}")).unwrap_or_default();
        format!("{}{agent}", state["status"].as_str().unwrap())
    }

    /// Gives out what waits, as whoever comes by does.
    pub(crate) async fn drain(&self) -> u32 {
        self.house.service.drain(self.house.now().plus_secs(3)).await
    }

    pub(crate) async fn audit(&self) {
        let found = audit::violations(self.house.dynamo.rows(CHAT).await).unwrap();
        assert_eq!(found, [""; 0]);
    }

    /// Time passes, and those who are still there send their heartbeats.
    pub(crate) async fn pass_secs(&self, secs: i64, there: &[&str]) {
        let mut left = secs;
        while left > 0 {
            let step = left.min(30);
            self.house.pass_secs(step);
            for id in there {
                assert_eq!(types(&self.say(id, json!({"type": "ping"})).await)[..1], ["pong"], "{id}");
            }
            left -= step;
        }
    }
}

/// The first frame of a type.
pub(crate) fn first<'a>(frames: &'a [Value], wanted: &str) -> &'a Value {
    frames.iter().find(|frame| frame["type"] == wanted).unwrap_or_else(|| panic!("a {wanted} among {frames:?}"))
}

/// The numbers of all messages among frames, in their order.
pub(crate) fn seqs(frames: &[Value]) -> Vec<u64> {
    let mut seqs = Vec::new();
    for frame in frames {
        match frame["type"].as_str().unwrap() {
            "message" => seqs.push(frame["seq"].as_u64().unwrap()),
            "messages" => {
                seqs.extend(frame["items"].as_array().unwrap().iter().map(|item| item["seq"].as_u64().unwrap()));
            }
            _ => {}
        }
    }
    seqs
}
