//! Whether the rows of the customer service keep what they promise: the oracle of the tests and of the demo.
//!
//! It looks at a whole table that nobody writes to meanwhile, and believes nothing that a client or a test has counted.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use aws_sdk_dynamodb::types::AttributeValue;
use kernel::ids::UserId;

use crate::desk::agents::Agent;
use crate::desk::read::{Pointer, Sorted};
use crate::desk::{PK_AGENTS, PK_QUEUE, SK_ACTIVE, SK_DEDUPE, parse, queue_sk};
use crate::ids::{Seq, SessionId};
use crate::message::{Counts, Message, Sender};
use crate::session::{Session, SessionStatus};
use crate::store::{Item, PK, SK, StoreError};

/// What is not as it must be, a sentence each; nothing, if all is well.
pub fn violations(rows: Vec<HashMap<String, AttributeValue>>) -> Result<Vec<String>, StoreError> {
    let mut table = Rows::default();
    for row in rows {
        table.take(row)?;
    }
    let mut found = Vec::new();
    for (session_id, session) in &table.sessions {
        let messages = table.messages.get(session_id).map(Vec::as_slice).unwrap_or_default();
        judge_messages(session, messages, &mut found);
    }
    table.judge_names(&mut found);
    table.judge_cursors(&mut found);
    table.judge_assignment(&mut found);
    table.judge_pointers(&mut found);
    Ok(found)
}

#[derive(Default)]
struct Rows {
    sessions: BTreeMap<SessionId, Session>,
    messages: BTreeMap<SessionId, Vec<Message>>,
    /// Partition, sender and name of each message that is known to be stored, and its number.
    names: Vec<(String, String, u64)>,
    cursors: BTreeMap<SessionId, crate::session::Cursors>,
    agents: Vec<Agent>,
    queue: BTreeSet<String>,
    pointers: BTreeMap<String, Pointer>,
}

impl Rows {
    fn take(&mut self, row: Item) -> Result<(), StoreError> {
        let name = |name: &str| row.get(name).and_then(|value| value.as_s().ok()).cloned().unwrap_or_default();
        let (pk, sk) = (name(PK), name(SK));
        if pk == PK_AGENTS {
            self.agents.push(parse(row)?);
        } else if pk == PK_QUEUE {
            self.queue.insert(sk);
        } else if sk == SK_ACTIVE {
            self.pointers.insert(pk, parse(row)?);
        } else if let Some(name) = sk.strip_prefix(SK_DEDUPE) {
            #[derive(serde::Deserialize)]
            struct Stored {
                seq: u64,
            }
            let Stored { seq } = parse(row)?;
            self.names.push((pk, name.to_owned(), seq));
        } else if let Some(session) = pk.strip_prefix("S#") {
            let session: SessionId = session.to_owned().try_into().map_err(|_| StoreError::Missing)?;
            let sorted = Sorted::from_rows(vec![row])?;
            self.sessions.extend(sorted.sessions.into_iter().map(|(id, known)| (id, known.session)));
            self.messages.entry(session.clone()).or_default().extend(sorted.messages);
            for (_, cursors) in sorted.cursors {
                let known = self.cursors.entry(session.clone()).or_default();
                for side in [crate::ids::Side::User, crate::ids::Side::Agent] {
                    if cursors.of(side).last_seq > Seq::ZERO {
                        known.set(side, *cursors.of(side));
                    }
                }
            }
        }
        Ok(())
    }

    /// No message of a sender is stored twice, and whatever is known to be stored is.
    fn judge_names(&self, found: &mut Vec<String>) {
        for (session_id, messages) in &self.messages {
            let mut seen: BTreeSet<(String, &str)> = BTreeSet::new();
            for message in messages {
                let Some(name) = &message.client_msg_id else { continue };
                if !seen.insert((format!("{:?}", message.from), name.as_str())) {
                    found.push(format!(
                        "session {session_id}: {} of {:?} is stored twice",
                        name.as_str(),
                        message.from
                    ));
                }
            }
        }
        for (pk, name, seq) in &self.names {
            let session_id = pk.trim_start_matches("S#");
            let parts: Vec<&str> = name.splitn(4, '#').collect();
            let &[side, sender, kind, id] = &parts[..] else {
                found.push(format!("session {session_id}: {name} names no message"));
                continue;
            };
            let messages =
                self.messages.iter().find(|(known, _)| known.as_str() == session_id).map(|(_, messages)| messages);
            let message = messages.into_iter().flatten().find(|message| message.seq.get() == *seq);
            let is_it = message.is_some_and(|message| {
                let by = match &message.from {
                    Sender::User(user) => ("user", user.as_str()),
                    Sender::Agent(agent) => ("agent", agent.as_str()),
                    Sender::System => ("system", ""),
                };
                let named =
                    message.client_msg_id.as_ref().map_or(kind == "g", |name| kind == "c" && name.as_str() == id);
                by == (side, sender) && named
            });
            if !is_it {
                found.push(format!("session {session_id}: message {seq} is not what {name} says"));
            }
        }
    }

    fn judge_cursors(&self, found: &mut Vec<String>) {
        for (session_id, cursors) in &self.cursors {
            for cursor in [cursors.user, cursors.agent] {
                let messages = self.messages.get(session_id).into_iter().flatten();
                let at = messages.filter(|message| message.seq == cursor.last_seq).map(|message| message.counts).next();
                if cursor.last_seq > Seq::ZERO && at != Some(cursor.counts) {
                    found.push(format!(
                        "session {session_id}: a cursor at {} counts otherwise than the message",
                        cursor.last_seq
                    ));
                }
            }
        }
    }

    /// Open is with one agent, waiting is in the queue, closed is nowhere.
    fn judge_assignment(&self, found: &mut Vec<String>) {
        let mut queue = self.queue.clone();
        for (session_id, session) in &self.sessions {
            let holders: Vec<&UserId> = self
                .agents
                .iter()
                .filter(|agent| agent.sessions.contains(session_id))
                .map(|agent| &agent.agent_id)
                .collect();
            let expected: Vec<&UserId> = session.agent_id.iter().collect();
            if holders != expected {
                found.push(format!(
                    "session {session_id}: its agent is {expected:?}, and among the sessions of {holders:?}"
                ));
            }
            if (session.status == SessionStatus::Open) != session.agent_id.is_some() {
                found.push(format!("session {session_id}: {:?} with the agent {:?}", session.status, session.agent_id));
            }
            let waits = queue.remove(&queue_sk(session));
            if waits != (session.status == SessionStatus::Waiting) {
                found.push(format!("session {session_id}: {:?}, in the queue: {waits}", session.status));
            }
        }
        for stray in queue {
            found.push(format!("the queue has {stray}, which waits for nothing"));
        }
        for agent in &self.agents {
            for session_id in agent.sessions.iter().filter(|session_id| !self.sessions.contains_key(*session_id)) {
                found.push(format!("agent {} has session {session_id}, which is not there", agent.agent_id));
            }
        }
    }

    /// A user has one session at most that is not closed, and the pointer says which.
    fn judge_pointers(&self, found: &mut Vec<String>) {
        let mut active: BTreeMap<String, Vec<&SessionId>> = BTreeMap::new();
        for session in self.sessions.values().filter(|session| session.status != SessionStatus::Closed) {
            active.entry(format!("U#{}", session.user_id)).or_default().push(&session.session_id);
        }
        let users: BTreeSet<&String> = active.keys().chain(self.pointers.keys()).collect();
        for user in users {
            let sessions = active.get(user).cloned().unwrap_or_default();
            let pointer: Vec<_> =
                self.pointers.get(user).and_then(|pointer| pointer.active.as_ref()).into_iter().collect();
            if sessions != pointer {
                found.push(format!("{user}: not closed are {sessions:?}, the pointer says {pointer:?}"));
            }
        }
    }
}

/// 1, 2, 3, … without a gap up to the head, with counts that add up.
fn judge_messages(session: &Session, messages: &[Message], found: &mut Vec<String>) {
    let session_id = &session.session_id;
    let mut messages: Vec<&Message> = messages.iter().collect();
    messages.sort_by_key(|message| message.seq);
    let numbers: Vec<u64> = messages.iter().map(|message| message.seq.get()).collect();
    if !numbers.iter().copied().eq(1..=session.seq.get()) {
        found.push(format!("session {session_id}: its messages are {numbers:?}, its head is {}", session.seq));
    }
    let mut counts = Counts::default();
    for message in &messages {
        counts = counts.with(&message.from);
        if message.counts != counts {
            found.push(format!(
                "session {session_id}: message {} counts {:?}, not {counts:?}",
                message.seq, message.counts
            ));
        }
    }
    if session.counts != counts {
        found.push(format!("session {session_id}: it counts {:?}, its messages {counts:?}", session.counts));
    }
    if let Some(back) = messages.windows(2).find(|pair| pair[0].at > pair[1].at) {
        found.push(format!("session {session_id}: time goes back after message {}", back[0].seq));
    }
}
