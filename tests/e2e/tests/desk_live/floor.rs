//! Where the customers and the agents of one test meet.
//!
//! All tests share one table, and an agent who is online is given whoever waits. So a test with agents online has the desk for
//! itself ([`Floor::alone`]), and begins by sending everybody home whom an earlier one has left behind. Tests whose customers
//! only wait go side by side ([`Floor::beside`]). The service's own sweep ticks meanwhile, and may be the one that does what
//! a test waits for.

use std::any::Any;
use std::collections::{BTreeSet, HashMap};
use std::ops::Deref;
use std::sync::Mutex;
use std::time::Duration;

use aws_sdk_dynamodb::types::AttributeValue;
use chat::desk::agents::AgentStatus as StoredStatus;
use chat::ids::{Party, SessionId};
use chat::session::{Session, SessionStatus as Stored};
use chat::{Desk, audit};
use client::chat::Body;
use client::frames::{AgentStatus, ChatRole, SessionFrame, SessionStatus};
use client::{Api, ChatClient, ChatOptions, ConnectOptions, Role, Socket};
use e2e::local::frame_is_documented;
use e2e::{FunctionProcess, Local, SOON, events, eventually};
use kernel::time::{Clock, UnixMillis};
use serde_json::{Value, json};
use tokio::sync::{Mutex as AsyncMutex, RwLock};

use crate::line::Line;

static FLOOR: RwLock<()> = RwLock::const_new(());
/// One sweep runs at a time.
static SWEEPING: AsyncMutex<()> = AsyncMutex::const_new(());

/// What a test counts is what it asked for.
pub(crate) const NO_HEARTBEAT: Duration = Duration::from_secs(3_600);
/// More sessions than one look at the queue shows are not left behind by tests.
const MAX_WAITING: u16 = 1_000;

pub(crate) struct Floor {
    pub(crate) local: Local,
    pub(crate) desk: Desk,
    pub(crate) dynamo: aws_sdk_dynamodb::Client,
    tag: String,
    /// The customers of this test: their sessions are what its audit looks at.
    customers: Mutex<BTreeSet<String>>,
    _turn: Box<dyn Any + Send + Sync>,
}

/// A customer or an agent with a client that keeps all the rules.
pub(crate) struct Person {
    pub(crate) id: String,
    pub(crate) api: Api,
    pub(crate) chat: ChatClient,
}

impl Deref for Person {
    type Target = ChatClient;

    fn deref(&self) -> &ChatClient {
        &self.chat
    }
}

pub(crate) fn now() -> UnixMillis {
    Clock::System.now()
}

impl Floor {
    /// Nobody else is there: for tests with agents.
    pub(crate) async fn alone() -> Self {
        let turn = FLOOR.write().await;
        let floor = Self::of(Box::new(turn)).await;
        floor.clear().await;
        floor
    }

    /// No agent is there, and customers of other tests may be.
    pub(crate) async fn beside() -> Self {
        let turn = FLOOR.read().await;
        let floor = Self::of(Box::new(turn)).await;
        floor.send_agents_home().await;
        floor
    }

    async fn of(turn: Box<dyn Any + Send + Sync>) -> Self {
        let local = Local::up().await;
        let dynamo = aws_sdk_dynamodb::Client::new(&local.aws);
        let desk = Desk::new(dynamo.clone(), local.outputs.tables.chat.clone());
        let tag = format!("{:08x}", rand::random::<u32>());
        Self { local, desk, dynamo, tag, customers: Mutex::default(), _turn: turn }
    }

    async fn send_agents_home(&self) {
        for agent in self.desk.agents().await.unwrap() {
            if agent.status != StoredStatus::Away {
                self.desk.set_status(&agent.agent_id, StoredStatus::Away, now(), now()).await.unwrap();
            }
        }
    }

    async fn clear(&self) {
        self.send_agents_home().await;
        eventually("the desk is empty", 2 * SOON, async || {
            let served = self.desk.agents().await.unwrap().into_iter().flat_map(|agent| agent.sessions);
            let waiting = self.desk.waiting(MAX_WAITING).await.unwrap();
            let left: Vec<SessionId> = served.chain(waiting).collect();
            for session in self.desk.sessions(&left).await.unwrap() {
                // A function that is still at work on it may be in the way; it is looked at again.
                self.desk.close(session, None, |_| true, now()).await.ok();
            }
            left.is_empty().then_some(())
        })
        .await;
    }

    /// The test is over: what it has left in the table is right, and its agents go home.
    pub(crate) async fn close(self) {
        self.audit().await;
        self.send_agents_home().await;
    }

    // ---- people

    /// An id that no other test has.
    pub(crate) fn id(&self, name: &str) -> String {
        format!("{name}-{}", self.tag)
    }

    fn known(&self, role: Role, id: &str) {
        if role == Role::User {
            self.customers.lock().unwrap().insert(id.to_owned());
        }
    }

    pub(crate) fn api(&self, role: Role, id: &str) -> Api {
        self.local.api.signed_in(self.local.outputs.token(role, id).sign().unwrap())
    }

    /// Somebody with a connection, as the options say.
    pub(crate) async fn person(
        &self,
        role: Role,
        id: &str,
        options: impl FnOnce(ChatOptions) -> ChatOptions,
    ) -> Person {
        self.known(role, id);
        let chosen = options(ChatOptions::new(&self.local.outputs, role, id).watched(frame_is_documented));
        let chat = ChatClient::connect(chosen).await.unwrap();
        chat.settled(SOON).await.unwrap();
        Person { id: id.to_owned(), api: self.api(role, id), chat }
    }

    pub(crate) async fn customer(&self, name: &str) -> Person {
        self.person(Role::User, &self.id(name), |options| options).await
    }

    /// An agent who takes sessions from now on.
    pub(crate) async fn agent(&self, name: &str) -> Person {
        let agent = self.agent_at_the_door(name).await;
        agent.status(AgentStatus::Online).await.unwrap();
        agent
    }

    /// An agent who is connected and has said nothing yet.
    pub(crate) async fn agent_at_the_door(&self, name: &str) -> Person {
        self.person(Role::Agent, &self.id(name), |options| options).await
    }

    /// A bare socket, open and not live yet.
    pub(crate) async fn line(
        &self,
        role: Role,
        id: &str,
        options: impl FnOnce(ConnectOptions) -> ConnectOptions,
    ) -> Line {
        self.known(role, id);
        let token = self.local.outputs.token(role, id).sign().unwrap();
        let chosen = options(ConnectOptions::new(token).heartbeat(NO_HEARTBEAT).watched(frame_is_documented));
        Line::new(Socket::connect(&self.local.outputs, chosen).await.unwrap())
    }

    /// The same, and it has been heard of.
    pub(crate) async fn live(&self, role: Role, id: &str) -> Line {
        let mut line = self.line(role, id, |options| options).await;
        line.pong().await;
        line
    }

    // ---- the desk, seen from behind

    pub(crate) async fn session(&self, session_id: &str) -> Session {
        self.desk.session(&session_id.parse().unwrap()).await.unwrap().expect("the session is there")
    }

    /// Status and agent of a session: `open g1`, `waiting`, …
    pub(crate) async fn with(&self, session_id: &str) -> String {
        let session = self.session(session_id).await;
        let agent = session.agent_id.as_ref().map(|agent| agent.as_str().trim_end_matches(&self.tag));
        let agent = agent.map(|agent| format!(" {}", agent.trim_end_matches('-'))).unwrap_or_default();
        match session.status {
            Stored::Waiting => "waiting".to_owned(),
            Stored::Open => format!("open{agent}"),
            Stored::Closed => "closed".to_owned(),
        }
    }

    /// Waits until a session stands so.
    pub(crate) async fn comes_to(&self, session_id: &str, expected: &str) {
        let mut last = String::new();
        let stands = tokio::time::timeout(SOON, async {
            while last != expected {
                tokio::time::sleep(Duration::from_millis(200)).await;
                last = self.with(session_id).await;
            }
        });
        let in_time = stands.await.is_ok();
        assert!(in_time, "session {session_id} is {last}, not {expected}");
    }

    /// One run of the chat's sweep, now.
    pub(crate) async fn sweep(&self) {
        let _alone = SWEEPING.lock().await;
        let answer = self.local.invoke("chat-sweep", &json!({})).await;
        assert_eq!(answer.error, None, "the sweep failed: {}", answer.payload);
    }

    /// Nothing has been heard of an agent for so long.
    pub(crate) async fn age(&self, agent_id: &str, secs: i64) {
        self.dynamo
            .update_item()
            .table_name(&self.local.outputs.tables.chat)
            .key("pk", AttributeValue::S("AGENTS".to_owned()))
            .key("sk", AttributeValue::S(agent_id.to_owned()))
            .update_expression("SET seenAt = :then")
            .expression_attribute_values(":then", AttributeValue::N(now().plus_secs(-secs).get().to_string()))
            .send()
            .await
            .unwrap();
    }

    /// Nothing in the rows of this test's customers is otherwise than it must be. A function may be at work yet, so it takes
    /// some looks; what is broken stays broken.
    pub(crate) async fn audit(&self) {
        let mut found = Vec::new();
        let passed = tokio::time::timeout(SOON, async {
            loop {
                found = audit::violations(self.own_rows().await).unwrap();
                if found.is_empty() {
                    return;
                }
                tokio::time::sleep(Duration::from_millis(500)).await;
            }
        });
        let passed = passed.await.is_ok();
        assert!(passed, "the rows are wrong: {found:#?}");
    }

    /// All rows of the table that are about this test's customers.
    async fn own_rows(&self) -> Vec<HashMap<String, AttributeValue>> {
        let scan = self.dynamo.scan().table_name(&self.local.outputs.tables.chat).consistent_read(true);
        let rows: Vec<_> = scan.into_paginator().items().send().collect::<Result<_, _>>().await.unwrap();
        let of = |row: &HashMap<String, AttributeValue>, name: &str| {
            row.get(name).and_then(|value| value.as_s().ok()).cloned().unwrap_or_default()
        };
        let customers = self.customers.lock().unwrap().clone();
        let own: BTreeSet<String> = rows
            .iter()
            .filter(|row| of(row, "sk") == "META" && customers.contains(&of(row, "userId")))
            .map(|row| of(row, "sessionId"))
            .collect();
        let mut kept = Vec::new();
        for mut row in rows {
            let (pk, sk) = (of(&row, "pk"), of(&row, "sk"));
            let is_own = match pk.split_once('#') {
                Some(("S", session)) => own.contains(session),
                Some(("U", user)) => customers.contains(user),
                Some(_) => false,
                None if pk == "QUEUE" => sk.split_once('#').is_some_and(|(_, session)| own.contains(session)),
                None => pk == "AGENTS",
            };
            if pk == "AGENTS" {
                let served = row.remove("sessions").and_then(|served| served.as_ss().ok().cloned()).unwrap_or_default();
                let served: Vec<String> = served.into_iter().filter(|session| own.contains(session)).collect();
                if !served.is_empty() {
                    row.insert("sessions".to_owned(), AttributeValue::Ss(served));
                }
            }
            if is_own {
                kept.push(row);
            }
        }
        kept
    }

    // ---- functions that run beside the stack

    /// `chat-message` as it is deployed, with some variables changed.
    pub(crate) async fn function(&self, changed: &[(&str, &str)]) -> FunctionProcess {
        FunctionProcess::start_with(&self.local, "chat-message", changed).await
    }

    /// The one connection of somebody.
    pub(crate) async fn connection_of(&self, role: Role, id: &str) -> String {
        let id = id.parse().unwrap();
        let party = if role == Role::Agent { Party::agent(id) } else { Party::user(id) };
        let live = self.local.connections().live(&party, now()).await.unwrap();
        let [connection] = &live[..] else { panic!("{live:?} are not one connection") };
        connection.connection_id.as_str().to_owned()
    }
}

/// What the gateway makes of a frame, received at `at`.
pub(crate) fn frame_event(connection_id: &str, frame: &Value, at: UnixMillis) -> Value {
    let mut event = events::sample("chat-message/ping.pong");
    let context = &mut event["requestContext"];
    context["connectionId"] = connection_id.into();
    context["messageId"] = format!("e2e{:x}", rand::random::<u64>()).into();
    context["requestTimeEpoch"] = at.get().into();
    event["body"] = frame.to_string().into();
    event
}

impl Person {
    /// Opens a session and waits until an agent has it: its id.
    pub(crate) async fn is_served(&self) -> String {
        let session_id = self.open().await.unwrap().session_id;
        self.sees(&session_id, "an agent", |session| session.status == SessionStatus::Open).await;
        session_id
    }

    /// Waits until what is known of a session is so.
    pub(crate) async fn sees(
        &self,
        session_id: &str,
        what: &str,
        is_so: impl Fn(&SessionFrame) -> bool,
    ) -> SessionFrame {
        let seen = self.wait_until(what, |machine| machine.session(session_id).filter(|it| is_so(it)).cloned(), SOON);
        seen.await.unwrap_or_else(|error| panic!("{error}; it is {:?}", self.session(session_id)))
    }

    /// Waits until all messages of a session up to a number are here.
    pub(crate) async fn has(&self, session_id: &str, seq: u64) {
        let all = self.wait_for("all messages", |machine| machine.have(session_id) >= seq, SOON);
        all.await.unwrap_or_else(|error| panic!("{error}; here are {:?}", self.said(session_id)));
    }

    /// Who said what, in order, as it is shown here; without the notes of the service.
    pub(crate) fn said(&self, session_id: &str) -> Vec<(ChatRole, String)> {
        let texts = self.messages(session_id).into_iter().filter_map(|message| match message.body {
            Body::Text(text) => Some((message.from.role, text)),
            Body::Image { .. } | Body::Card { .. } | Body::System(_) => None,
        });
        texts.collect()
    }

    /// The sessions that an agent has, by the service's list.
    pub(crate) async fn open_sessions(&self) -> Vec<String> {
        let page = e2e::shop::done(self.api.chat_sessions(None, None).await);
        page.items.into_iter().map(|session| session.session_id).collect()
    }
}
