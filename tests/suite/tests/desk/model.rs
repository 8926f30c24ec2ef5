//! The desk against a model of it: whatever is done in whatever order, both say the same, and end in the same state.
//!
//! The model is what the rules mean, in memory and without a word about rows: one list of agents, one of sessions.

use std::collections::BTreeMap;

use chat::audit;
use chat::desk::agents::{Agent, AgentStatus, LEASE_SECS};
use chat::desk::assign::{Claimed, Destination, Moved, Reason};
use chat::desk::life::{Closed, Opened};
use chat::desk::send::{Draft, Name, Refusal, Sent};
use chat::ids::{Party, Seq, SessionId, Side};
use chat::message::Body;
use chat::session::{Cursor, SessionStatus};
use kernel::ids::UserId;
use kernel::time::UnixMillis;
use proptest::prelude::*;
use suite::chat_house::{ChatHouse, START};
use suite::dynamo::CHAT;

const USERS: [&str; 3] = ["u0", "u1", "u2"];
const AGENTS: [&str; 3] = ["g0", "g1", "g2"];
/// So few that names are used again, rightly and wrongly.
const NAMES: usize = 4;
const TEXTS: [&str; 2] = ["hello", "good bye"];

/// Who: an index into `USERS` or `AGENTS`. Which session: an index into those opened so far, modulo their number.
#[derive(Debug, Clone)]
enum Op {
    Open {
        user: usize,
    },
    Reopen {
        user: usize,
        session: usize,
    },
    Say {
        side: Side,
        who: usize,
        session: usize,
        name: Option<usize>,
        text: usize,
    },
    Ack {
        side: Side,
        session: usize,
        seq: u64,
    },
    Close {
        side: Side,
        who: usize,
        session: usize,
    },
    /// `late`: milliseconds by which the frame was overtaken.
    Status {
        agent: usize,
        status: AgentStatus,
        late: i64,
    },
    Capacity {
        agent: usize,
        capacity: u32,
    },
    Heartbeat {
        agent: usize,
    },
    Claim,
    Move {
        agent: usize,
        session: usize,
        to: Option<usize>,
        forced: bool,
    },
    Pass {
        secs: i64,
    },
}

fn op() -> impl Strategy<Value = Op> {
    let side = prop_oneof![Just(Side::User), Just(Side::Agent)];
    let status = prop_oneof![Just(AgentStatus::Online), Just(AgentStatus::Busy), Just(AgentStatus::Away)];
    prop_oneof![
        3 => (0..3usize).prop_map(|user| Op::Open { user }),
        1 => (0..3usize, 0..9usize).prop_map(|(user, session)| Op::Reopen { user, session }),
        6 => (side.clone(), 0..3usize, 0..9usize, prop::option::of(0..NAMES), 0..2usize)
            .prop_map(|(side, who, session, name, text)| Op::Say { side, who, session, name, text }),
        2 => (side.clone(), 0..9usize, 0..12u64).prop_map(|(side, session, seq)| Op::Ack { side, session, seq }),
        2 => (side, 0..3usize, 0..9usize).prop_map(|(side, who, session)| Op::Close { side, who, session }),
        3 => (0..3usize, status, prop_oneof![3 => Just(0i64), 1 => 1..5_000i64])
            .prop_map(|(agent, status, late)| Op::Status { agent, status, late }),
        1 => (0..3usize, 0..3u32).prop_map(|(agent, capacity)| Op::Capacity { agent, capacity }),
        2 => (0..3usize).prop_map(|agent| Op::Heartbeat { agent }),
        4 => Just(Op::Claim),
        3 => (0..3usize, 0..9usize, prop::option::of(0..3usize), any::<bool>())
            .prop_map(|(agent, session, to, forced)| Op::Move { agent, session, to, forced }),
        1 => (1..60i64).prop_map(|secs| Op::Pass { secs }),
    ]
}

#[derive(Debug, Clone)]
struct Conversation {
    user: usize,
    status: SessionStatus,
    agent: Option<usize>,
    last_agent: Option<usize>,
    /// Who said each message; `None`: the service.
    said: Vec<Option<Side>>,
    /// What each sender has called what: its number and its text.
    named: BTreeMap<(Side, usize, usize), (u64, usize)>,
    seen: [u64; 2],
    waiting_since: i64,
    order: usize,
}

#[derive(Debug, Clone, Copy)]
struct Worker {
    status: AgentStatus,
    epoch: i64,
    capacity: u32,
    seen_at: i64,
    last_assigned_at: i64,
}

#[derive(Debug, Default)]
struct Model {
    sessions: Vec<Conversation>,
    agents: [Option<Worker>; 3],
    now: i64,
}

const fn at(side: Side) -> usize {
    match side {
        Side::User => 0,
        Side::Agent => 1,
    }
}

impl Conversation {
    fn has_member(&self, side: Side, who: usize) -> bool {
        match side {
            Side::User => who == self.user,
            Side::Agent => Some(who) == self.agent,
        }
    }

    fn unread(&self, side: Side) -> u64 {
        let unseen = self.said.iter().skip(self.seen[at(side)] as usize);
        unseen.filter(|by| **by == Some(side.other())).count() as u64
    }

    fn note(&mut self) {
        self.said.push(None);
    }
}

impl Model {
    fn pick(&self, session: usize) -> Option<usize> {
        (!self.sessions.is_empty()).then(|| session % self.sessions.len())
    }

    fn active(&self, user: usize) -> Option<usize> {
        self.sessions.iter().position(|session| session.user == user && session.status != SessionStatus::Closed)
    }

    fn held(&self, agent: usize) -> usize {
        self.sessions.iter().filter(|session| session.agent == Some(agent)).count()
    }

    fn is_lost(&self, worker: Worker) -> bool {
        worker.seen_at + LEASE_SECS * 1_000 < self.now
    }

    fn is_free(&self, agent: usize) -> bool {
        self.agents[agent].is_some_and(|worker| {
            worker.status == AgentStatus::Online && !self.is_lost(worker) && self.held(agent) < worker.capacity as usize
        })
    }

    fn best(&self, but: Option<usize>) -> Option<usize> {
        let free = (0..AGENTS.len()).filter(|agent| Some(*agent) != but && self.is_free(*agent));
        free.min_by_key(|agent| {
            let of_agent = self.sessions.iter().filter(|session| session.agent == Some(*agent));
            let unread: u64 = of_agent.map(|session| session.unread(Side::Agent)).sum();
            (unread, self.held(*agent), self.agents[*agent].map(|worker| worker.last_assigned_at), *agent)
        })
    }

    fn give(&mut self, session: usize, agent: usize) {
        self.sessions[session].agent = Some(agent);
        self.sessions[session].status = SessionStatus::Open;
        if let Some(worker) = &mut self.agents[agent] {
            worker.last_assigned_at = self.now;
        }
    }

    /// What the desk should say.
    fn apply(&mut self, op: &Op) -> String {
        match *op {
            Op::Open { user } => match self.active(user) {
                Some(active) => format!("active {active}"),
                None => {
                    let order = self.sessions.len();
                    self.sessions.push(Conversation {
                        user,
                        status: SessionStatus::Waiting,
                        agent: None,
                        last_agent: None,
                        said: Vec::new(),
                        named: BTreeMap::new(),
                        seen: [0, 0],
                        waiting_since: self.now,
                        order,
                    });
                    "new".to_owned()
                }
            },
            Op::Reopen { user, session } => {
                let Some(nth) = self.pick(session) else { return "none".to_owned() };
                if self.sessions[nth].user != user {
                    return "unknown".to_owned();
                }
                if self.sessions[nth].status != SessionStatus::Closed {
                    return format!("active {nth}");
                }
                if let Some(active) = self.active(user) {
                    return format!("active {active}");
                }
                let now = self.now;
                let session = &mut self.sessions[nth];
                session.note();
                session.status = SessionStatus::Waiting;
                session.waiting_since = now;
                format!("reopened {nth}")
            }
            Op::Say { side, who, session, name, text } => {
                let Some(nth) = self.pick(session) else { return "none".to_owned() };
                let session = &mut self.sessions[nth];
                if let Some((seq, said)) = name.and_then(|name| session.named.get(&(side, who, name))) {
                    return if *said == text { format!("duplicate {seq}") } else { "reused".to_owned() };
                }
                let was_theirs =
                    session.has_member(side, who) || (side == Side::Agent && Some(who) == session.last_agent);
                if session.status == SessionStatus::Closed && was_theirs {
                    return "closed".to_owned();
                }
                if !session.has_member(side, who) {
                    return "not a member".to_owned();
                }
                session.said.push(Some(side));
                let seq = session.said.len() as u64;
                if let Some(name) = name {
                    session.named.insert((side, who, name), (seq, text));
                }
                format!("stored {seq}")
            }
            Op::Ack { side, session, seq } => {
                let Some(nth) = self.pick(session) else { return "none".to_owned() };
                let session = &mut self.sessions[nth];
                let seq = seq.min(session.said.len() as u64);
                let moved = seq > session.seen[at(side)];
                session.seen[at(side)] = session.seen[at(side)].max(seq);
                format!("{} {moved}", session.seen[at(side)])
            }
            Op::Close { side, who, session } => {
                let Some(nth) = self.pick(session) else { return "none".to_owned() };
                let session = &mut self.sessions[nth];
                if session.status == SessionStatus::Closed || !session.has_member(side, who) {
                    return "otherwise".to_owned();
                }
                session.note();
                session.status = SessionStatus::Closed;
                session.last_agent = session.agent.take();
                "closed".to_owned()
            }
            Op::Status { agent, status, late } => {
                let (now, sent) = (self.now, self.now - late);
                let known = self.agents[agent];
                if known.is_none_or(|known| known.epoch <= sent) {
                    self.agents[agent] = Some(Worker {
                        status,
                        epoch: sent,
                        seen_at: now,
                        capacity: known.map_or(chat::desk::agents::DEFAULT_CAPACITY, |known| known.capacity),
                        last_assigned_at: known.map_or(0, |known| known.last_assigned_at),
                    });
                }
                self.agents[agent].unwrap().status.as_str().to_owned()
            }
            Op::Capacity { agent, capacity } => {
                let unheard = Worker { status: AgentStatus::Away, epoch: 0, capacity, seen_at: 0, last_assigned_at: 0 };
                let before = self.agents[agent].replace(Worker { capacity, ..self.agents[agent].unwrap_or(unheard) });
                before.map_or_else(|| "new".to_owned(), |before| before.capacity.to_string())
            }
            Op::Heartbeat { agent } => {
                let now = self.now;
                if let Some(worker) = &mut self.agents[agent] {
                    worker.seen_at = worker.seen_at.max(now);
                }
                String::new()
            }
            Op::Claim => {
                let waiting = self.sessions.iter().enumerate();
                let waiting = waiting.filter(|(_, session)| session.status == SessionStatus::Waiting);
                // Those of the same instant are in an order of their own, which the driver takes care not to make.
                let next = waiting.min_by_key(|(_, session)| (session.waiting_since, session.order));
                let next = next.map(|(nth, _)| nth);
                let (Some(next), Some(agent)) = (next, self.best(None)) else { return "rest".to_owned() };
                self.sessions[next].note();
                self.give(next, agent);
                format!("claimed {next} by {agent}")
            }
            Op::Move { agent, session, to, forced } => {
                let Some(nth) = self.pick(session) else { return "none".to_owned() };
                let worker = self.agents[agent];
                let theirs = worker.is_some() && self.sessions[nth].agent == Some(agent);
                let absent = worker.is_some_and(|worker| worker.status == AgentStatus::Away || self.is_lost(worker));
                if !theirs || (forced && !absent) {
                    return "not theirs".to_owned();
                }
                let to = match to {
                    Some(to) if to == agent || !self.is_free(to) => return "nobody there".to_owned(),
                    Some(to) => Some(to),
                    None => self.best(Some(agent)),
                };
                self.sessions[nth].note();
                match to {
                    Some(to) => self.give(nth, to),
                    None => {
                        self.sessions[nth].agent = None;
                        self.sessions[nth].status = SessionStatus::Waiting;
                    }
                }
                format!("moved to {to:?}")
            }
            Op::Pass { secs } => {
                self.now += secs * 1_000;
                String::new()
            }
        }
    }

    fn state(&self) -> Vec<String> {
        let sessions = self.sessions.iter().map(|session| {
            format!(
                "{:?} agent {:?} head {} unread {} {} seen {:?}",
                session.status,
                session.agent,
                session.said.len(),
                session.unread(Side::User),
                session.unread(Side::Agent),
                session.seen,
            )
        });
        sessions.collect()
    }
}

/// The real desk, driven by the same words.
struct Real {
    house: ChatHouse,
    sessions: Vec<SessionId>,
    frames: u64,
}

fn id(name: &str) -> UserId {
    name.parse().unwrap()
}

fn party(side: Side, who: usize) -> Party {
    match side {
        Side::User => Party::user(id(USERS[who])),
        Side::Agent => Party::agent(id(AGENTS[who])),
    }
}

impl Real {
    fn nth(&self, session: &SessionId) -> usize {
        self.sessions.iter().position(|known| known == session).unwrap()
    }

    fn agent(agent: &UserId) -> usize {
        AGENTS.iter().position(|known| *known == agent.as_str()).unwrap()
    }

    async fn apply(&mut self, op: &Op) -> String {
        let (desk, now) = (self.house.desk.clone(), self.house.now());
        let pick =
            |session: usize| (!self.sessions.is_empty()).then(|| self.sessions[session % self.sessions.len()].clone());
        let opened = |real: &Self, opened: &Opened| match opened {
            Opened::New(_) => "new".to_owned(),
            Opened::Reopened(step) => format!("reopened {}", real.nth(&step.session.session_id)),
            Opened::Active(session) => format!("active {}", real.nth(&session.session_id)),
            Opened::Unknown => "unknown".to_owned(),
        };
        match op.clone() {
            Op::Open { user } => {
                let found = desk.open(&id(USERS[user]), now).await.unwrap();
                let said = opened(self, &found);
                if let Opened::New(session) = found {
                    self.sessions.push(session.session_id);
                }
                said
            }
            Op::Reopen { user, session } => {
                let Some(session) = pick(session) else { return "none".to_owned() };
                opened(self, &desk.reopen(&id(USERS[user]), &session, now).await.unwrap())
            }
            Op::Say { side, who, session, name, text } => {
                let Some(session) = pick(session) else { return "none".to_owned() };
                self.frames += 1;
                let name = match name {
                    Some(name) => Name::Client(format!("m{name}").try_into().unwrap()),
                    None => Name::Gateway(format!("gw{}", self.frames)),
                };
                let body = Body::Text(TEXTS[text].to_owned().try_into().unwrap());
                let draft = Draft::new(body, TEXTS[text], name);
                let session = desk.session(&session).await.unwrap().unwrap();
                match desk.send(session, &party(side, who), &draft, now).await.unwrap() {
                    Sent::Stored(step) => format!("stored {}", step.message.seq),
                    Sent::Duplicate { seq, .. } => format!("duplicate {seq}"),
                    Sent::Refused(Refusal::Closed) => "closed".to_owned(),
                    Sent::Refused(Refusal::NotAMember) => "not a member".to_owned(),
                    Sent::Refused(Refusal::Reused) => "reused".to_owned(),
                }
            }
            Op::Ack { side, session, seq } => {
                let Some(session) = pick(session) else { return "none".to_owned() };
                let known = desk.known([&session]).await.unwrap().pop().unwrap();
                let seq = Seq::new(seq).min(known.session.seq);
                let messages = desk.messages(&session, chat::desk::read::Page::From(seq), 1).await.unwrap();
                let counts = messages.first().filter(|message| message.seq == seq).map(|message| message.counts);
                let Some(counts) = counts else {
                    return format!("{} false", known.cursors.of(side).last_seq);
                };
                let acknowledged = desk.acknowledge(&session, side, Cursor { last_seq: seq, counts }).await.unwrap();
                format!("{} {}", acknowledged.cursor.last_seq, acknowledged.moved)
            }
            Op::Close { side, who, session } => {
                let Some(session) = pick(session) else { return "none".to_owned() };
                let session = desk.session(&session).await.unwrap().unwrap();
                let party = party(side, who);
                match desk.close(session, Some(side), |session| session.has_member(&party), now).await.unwrap() {
                    Closed::Now(_) => "closed".to_owned(),
                    Closed::Otherwise(_) => "otherwise".to_owned(),
                }
            }
            Op::Status { agent, status, late } => {
                let sent = now.plus_millis(-late);
                let agent = desk.set_status(&id(AGENTS[agent]), status, sent, now).await.unwrap();
                agent.status.as_str().to_owned()
            }
            Op::Capacity { agent, capacity } => {
                let before = desk.set_capacity(&id(AGENTS[agent]), capacity).await.unwrap();
                before.map_or_else(|| "new".to_owned(), |before| before.capacity.to_string())
            }
            Op::Heartbeat { agent } => {
                desk.note_seen(&id(AGENTS[agent]), now).await.unwrap();
                String::new()
            }
            Op::Claim => match desk.claim_next(now).await.unwrap() {
                Claimed::Claimed(step) => {
                    let agent = Self::agent(step.session.agent_id.as_ref().unwrap());
                    format!("claimed {} by {agent}", self.nth(&step.session.session_id))
                }
                Claimed::Rest => "rest".to_owned(),
            },
            Op::Move { agent, session, to, forced } => {
                let Some(session) = pick(session) else { return "none".to_owned() };
                let destination = to.map_or(Destination::Anybody, |to| Destination::Agent(id(AGENTS[to])));
                let reason = if forced { Reason::Absence } else { Reason::Wish };
                match desk.move_on(&session, &id(AGENTS[agent]), &destination, reason, now).await.unwrap() {
                    Moved::Moved(step) => format!("moved to {:?}", step.session.agent_id.as_ref().map(Self::agent)),
                    Moved::NotTheirs => "not theirs".to_owned(),
                    Moved::NobodyThere => "nobody there".to_owned(),
                }
            }
            Op::Pass { secs } => {
                self.house.pass_secs(secs);
                String::new()
            }
        }
    }

    async fn state(&self) -> Vec<String> {
        let mut state = Vec::new();
        for session in &self.sessions {
            let known = self.house.desk.known([session]).await.unwrap().pop().unwrap();
            let (session, cursors) = (&known.session, &known.cursors);
            state.push(format!(
                "{:?} agent {:?} head {} unread {} {} seen {:?}",
                session.status,
                session.agent_id.as_ref().map(Self::agent),
                session.seq,
                session.unread(cursors, Side::User),
                session.unread(cursors, Side::Agent),
                [cursors.user.last_seq.get(), cursors.agent.last_seq.get()],
            ));
        }
        state
    }
}

async fn compare(ops: &[Op]) {
    let mut real = Real { house: ChatHouse::open().await, sessions: Vec::new(), frames: 0 };
    let mut model = Model { now: START.get(), ..Model::default() };
    for (nth, op) in ops.iter().enumerate() {
        let (expected, found) = (model.apply(op), real.apply(op).await);
        assert_eq!(found, expected, "step {nth}, {op:?} of {ops:#?}");
        // No two things happen in one millisecond.
        real.house.clock.advance_millis(1);
        model.now += 1;
    }
    assert_eq!(real.state().await, model.state(), "{ops:#?}");
    let agents: Vec<Agent> = real.house.desk.agents().await.unwrap();
    for agent in agents {
        assert_eq!(agent.sessions.len(), model.held(Real::agent(&agent.agent_id)));
        assert!(agent.seen_at <= UnixMillis::new(model.now));
    }
    assert_eq!(audit::violations(real.house.dynamo.rows(CHAT).await).unwrap(), [""; 0], "{ops:#?}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, max_shrink_iters: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn desk_and_model_agree_on_everything(ops in prop::collection::vec(op(), 1..60)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(compare(&ops));
    }
}
