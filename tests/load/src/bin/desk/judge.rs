//! What is promised, and whether a record of the day keeps it. No IO: a record that somebody has doctored is judged the same.
//!
//! The history that a customer can read over HTTP is what the service says it has stored. It is held against what was
//! answered with `sent`, against what each client has, and against the rules of the desk. What the rows say beside it, the
//! oracle of the chat knows ([`chat::audit`]).

use std::collections::BTreeMap;
use std::time::Duration;

use client::chat::{Body, Message};
use client::documents::AgentList;
use client::frames::{AgentStatus, ChatRole, NoteEvent, SessionStatus};
use jiff::{SignedDuration, Timestamp};
use load::ledger::Promised;

use crate::hall::{Said, Who, essence};

pub(crate) type Ledger = load::ledger::Ledger<Promise>;

/// Claims carry the time at which they were begun, and one that meets another is tried again for some moments: of two that
/// are closer than this nobody can say which was first.
const CLAIM_MOMENT: SignedDuration = SignedDuration::from_secs(2);
/// A session is given out right after the step that made room for it. This is for the slowness of one machine that is the
/// cloud, the crowd and the demo at once.
pub(crate) const IDLE_WITHIN: Duration = Duration::from_secs(10);
/// An agent who says that they go is relieved at once; one of whom nothing is heard, after the lease of 90 s and within the
/// minute of the sweep. Both with time for a slow machine.
pub(crate) const AWAY_WITHIN: Duration = Duration::from_secs(15);
pub(crate) const LOST_WITHIN: Duration = Duration::from_secs(90 + 60 + 30);

/// The promises, in the order in which they are reported.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Promise {
    StoredOnce,
    BothSidesAlike,
    ReturnedHasAll,
    LostSentIsThere,
    ImageIsShown,
    CardIsShown,
    PlaceIsTold,
    QueueInOrder,
    NobodyIdle,
    RoomHolds,
    OneAgent,
    EverybodyServed,
    TransferKeepsWords,
    AwayIsRelieved,
    LostIsRelieved,
    FormerAgentIsOut,
    ClosedIsClosed,
    RatingIsKept,
    NothingUnexpected,
}

impl Promised for Promise {
    const ALL: &'static [Self] = &[
        Self::StoredOnce,
        Self::BothSidesAlike,
        Self::ReturnedHasAll,
        Self::LostSentIsThere,
        Self::ImageIsShown,
        Self::CardIsShown,
        Self::PlaceIsTold,
        Self::QueueInOrder,
        Self::NobodyIdle,
        Self::RoomHolds,
        Self::OneAgent,
        Self::EverybodyServed,
        Self::TransferKeepsWords,
        Self::AwayIsRelieved,
        Self::LostIsRelieved,
        Self::FormerAgentIsOut,
        Self::ClosedIsClosed,
        Self::RatingIsKept,
        Self::NothingUnexpected,
    ];

    fn text(self) -> &'static str {
        match self {
            Self::StoredOnce => "every word that was answered with `sent` is stored, once, and nothing else",
            Self::BothSidesAlike => "both sides have the same messages, in order, without a gap",
            Self::ReturnedHasAll => "who was cut off and came back had all that was said meanwhile",
            Self::LostSentIsThere => "a word whose `sent` was lost was sent again, and is there once",
            Self::ImageIsShown => "an image that was sent is the image that was seen",
            Self::CardIsShown => "a card shows the order",
            Self::PlaceIsTold => "who came was told the place in the queue",
            Self::QueueInOrder => "nobody was served before somebody who had waited longer",
            Self::NobodyIdle => "nobody waited while an agent was free",
            Self::RoomHolds => "no agent had more customers than there is room",
            Self::OneAgent => "nobody had two agents, and only the one they had spoke",
            Self::EverybodyServed => "everybody was served, and every conversation came to its end",
            Self::TransferKeepsWords => "after a transfer the next agent had every word from before",
            Self::AwayIsRelieved => "customers of an agent who went away were given to others or kept their place",
            Self::LostIsRelieved => "so were those of an agent who was cut off, after lease and sweep",
            Self::FormerAgentIsOut => "who is no longer the agent can say nothing",
            Self::ClosedIsClosed => "a word to a closed conversation is refused (SESSION_CLOSED)",
            Self::RatingIsKept => "a rating is kept as it was given",
            Self::NothingUnexpected => "nothing else went wrong",
        }
    }
}

/// What somebody has of a session.
#[derive(Debug, Clone)]
pub(crate) struct View {
    pub(crate) who: Who,
    pub(crate) messages: Vec<Message>,
}

/// One conversation.
#[derive(Debug, Clone)]
pub(crate) struct Conversation {
    pub(crate) session_id: String,
    pub(crate) session_no: String,
    pub(crate) customer: Who,
    pub(crate) created_at: Timestamp,
    pub(crate) status: SessionStatus,
    /// As the service tells it.
    pub(crate) history: Vec<Message>,
    /// As the clients have it: the customer, and every agent who was its agent.
    pub(crate) views: Vec<View>,
}

/// What a supervisor saw of the desk.
#[derive(Debug, Clone)]
pub(crate) struct Sample {
    pub(crate) at: Duration,
    pub(crate) desk: AgentList,
}

/// An agent was not there any more.
#[derive(Debug, Clone)]
pub(crate) struct Absence {
    pub(crate) agent_id: String,
    pub(crate) at: Timestamp,
    /// They did not say so.
    pub(crate) is_lost: bool,
    pub(crate) sessions: Vec<String>,
}

/// The day.
#[derive(Debug, Default)]
pub(crate) struct Record {
    pub(crate) said: Vec<Said>,
    pub(crate) conversations: Vec<Conversation>,
    pub(crate) samples: Vec<Sample>,
    pub(crate) absences: Vec<Absence>,
}

/// A time in which a session waited, and the place it had.
#[derive(Debug, Clone, Copy)]
struct Wait<'a> {
    session_id: &'a str,
    since: Timestamp,
    from: Timestamp,
    /// `None`: nobody took it.
    until: Option<Timestamp>,
}

impl Conversation {
    pub(crate) fn notes(&self) -> impl Iterator<Item = (&Message, NoteEvent, Option<&str>)> {
        self.history.iter().filter_map(|message| match &message.body {
            Body::System(note) => Some((message, note.event, note.agent_id.as_deref())),
            Body::Text(_) | Body::Image { .. } | Body::Card { .. } => None,
        })
    }

    /// Who was its agent when a message was said.
    pub(crate) fn agent_at(&self, seq: u64) -> Option<&str> {
        let mut agent = None;
        for (_, event, id) in self.notes().take_while(|(message, ..)| message.seq <= seq) {
            agent = match event {
                NoteEvent::Joined | NoteEvent::Transferred => id,
                NoteEvent::Requeued | NoteEvent::Closed | NoteEvent::Expired => None,
                NoteEvent::Reopened => agent,
            };
        }
        agent
    }

    fn waits(&self) -> Vec<Wait<'_>> {
        let (session_id, since) = (self.session_id.as_str(), self.created_at);
        let mut waits = Vec::new();
        let mut from = Some(self.created_at);
        for (message, event, _) in self.notes() {
            match event {
                NoteEvent::Requeued | NoteEvent::Reopened => from = Some(message.at),
                NoteEvent::Joined => {
                    waits.extend(from.take().map(|from| Wait { session_id, since, from, until: Some(message.at) }));
                }
                // It waits no more, and nobody has taken it.
                NoteEvent::Closed | NoteEvent::Expired => from = None,
                NoteEvent::Transferred => {}
            }
        }
        waits.extend(from.map(|from| Wait { session_id, since, from, until: None }));
        waits
    }

    /// From coming to the first agent.
    pub(crate) fn waited(&self) -> Option<Duration> {
        let until = self.waits().first()?.until?;
        Duration::try_from(until.duration_since(self.created_at)).ok()
    }
}

pub(crate) fn judge(record: &Record) -> Ledger {
    let mut ledger = Ledger::default();
    judge_stored(record, &mut ledger);
    for conversation in &record.conversations {
        judge_views(conversation, &mut ledger);
        judge_agents(conversation, &mut ledger);
        judge_end(conversation, &mut ledger);
    }
    judge_queue(record, &mut ledger);
    judge_desk(&record.samples, &mut ledger);
    judge_absences(record, &mut ledger);
    ledger
}

fn judge_stored(record: &Record, ledger: &mut Ledger) {
    let histories: BTreeMap<&str, &Conversation> =
        record.conversations.iter().map(|conversation| (conversation.session_id.as_str(), conversation)).collect();
    for said in &record.said {
        let history = histories.get(said.session_id.as_str()).map_or(&[][..], |conversation| &conversation.history);
        let is_it = |message: &Message| message.from == said.by.author() && essence(message) == said.words.essence();
        let at_its_number = history.iter().find(|message| message.seq == said.seq).is_some_and(is_it);
        // Somebody may say the same again, and then means it.
        let told = record
            .said
            .iter()
            .filter(|other| (&other.session_id, &other.by, &other.words) == (&said.session_id, &said.by, &said.words))
            .count();
        let stored = history.iter().filter(|message| is_it(message)).count();
        ledger.judge(Promise::StoredOnce, at_its_number && stored == told, Some(&said.session_id), || {
            format!(
                "{} of {}: told {told} times, stored {stored} times: {}",
                said.seq,
                said.by.name,
                said.words.essence()
            )
        });
    }
    for conversation in &record.conversations {
        for message in conversation.history.iter().filter(|message| message.from.role != ChatRole::System) {
            let known =
                record.said.iter().any(|said| said.session_id == conversation.session_id && said.seq == message.seq);
            ledger.judge(Promise::StoredOnce, known, Some(&conversation.session_id), || {
                format!("{} was answered to nobody: {}", message.seq, essence(message))
            });
        }
    }
}

fn judge_views(conversation: &Conversation, ledger: &mut Ledger) {
    let Conversation { session_id, history, views, customer, .. } = conversation;
    let mut judge = |kept, detail: &dyn Fn() -> String| {
        ledger.judge(Promise::BothSidesAlike, kept, Some(session_id), detail);
    };
    let numbers: Vec<u64> = history.iter().map(|message| message.seq).collect();
    let gapless = numbers.iter().copied().eq(1..=numbers.len() as u64);
    let forwards = history.windows(2).all(|pair| pair[0].at <= pair[1].at);
    judge(gapless && forwards, &|| format!("the history has {numbers:?}, times go forwards: {forwards}"));
    let shape = |message: &Message| (message.seq, message.from.clone(), essence(message));
    let whole: Vec<_> = history.iter().map(shape).collect();
    // The last agent has it all, those before have it up to where it left them.
    let last_agent = conversation
        .notes()
        .filter(|(_, event, _)| matches!(event, NoteEvent::Joined | NoteEvent::Transferred))
        .filter_map(|(_, _, agent)| agent)
        .last();
    for who in [Some(customer.id.as_str()), last_agent].into_iter().flatten() {
        let is_there = views.iter().any(|view| view.who.id == who);
        judge(is_there, &|| format!("{who} has nothing of it"));
    }
    // With the end an agent's membership ends, so that note alone may pass them by.
    let is_end = |message: &&Message| matches!(&message.body, Body::System(note) if note.event == NoteEvent::Closed);
    let for_agent = whole.len() - history.last().filter(is_end).into_iter().count();
    for View { who, messages } in views {
        let has: Vec<_> = messages.iter().map(shape).collect();
        let least = match (who.is_agent, last_agent == Some(who.id.as_str())) {
            (false, _) => whole.len(),
            (true, true) => for_agent,
            (true, false) => 0,
        };
        judge(whole.starts_with(&has) && has.len() >= least, &|| {
            let differs = has.iter().zip(&whole).position(|(has, whole)| has != whole);
            format!("{} has {} of {} messages, the first that differs: {differs:?}", who.name, has.len(), whole.len())
        });
    }
    for (message, _, agent) in conversation.notes().filter(|(_, event, _)| *event == NoteEvent::Transferred) {
        let next = views.iter().find(|view| Some(view.who.id.as_str()) == agent);
        let has = next.map_or(0, |view| view.messages.len() as u64);
        ledger.judge(Promise::TransferKeepsWords, has >= message.seq, Some(session_id), || {
            format!("{agent:?} has {has} messages, {} came before", message.seq)
        });
    }
}

fn judge_agents(conversation: &Conversation, ledger: &mut Ledger) {
    let mut agent: Option<&str> = None;
    let mut wrong = Vec::new();
    for message in &conversation.history {
        let seq = message.seq;
        if let Body::System(note) = &message.body {
            let next = note.agent_id.as_deref();
            match note.event {
                NoteEvent::Joined => {
                    if agent.is_some() || next.is_none() {
                        wrong.push(format!("{seq}: {next:?} joins, {agent:?} is there"));
                    }
                    agent = next;
                }
                NoteEvent::Transferred => {
                    if agent.is_none() || next.is_none() || agent == next {
                        wrong.push(format!("{seq}: {agent:?} hands over to {next:?}"));
                    }
                    agent = next;
                }
                NoteEvent::Requeued => {
                    if agent.is_none() {
                        wrong.push(format!("{seq}: nobody leaves"));
                    }
                    agent = None;
                }
                NoteEvent::Closed | NoteEvent::Expired => agent = None,
                NoteEvent::Reopened => {}
            }
        } else if message.from.role == ChatRole::Agent && message.from.id.as_deref() != agent {
            let detail = format!("{seq}: {:?} speaks, the agent is {agent:?}", message.from.id);
            ledger.judge(Promise::FormerAgentIsOut, false, Some(&conversation.session_id), || detail.clone());
            wrong.push(detail);
        }
    }
    ledger.judge(Promise::OneAgent, wrong.is_empty(), Some(&conversation.session_id), || wrong.join("; "));
}

fn judge_end(conversation: &Conversation, ledger: &mut Ledger) {
    let served = conversation.notes().any(|(_, event, _)| event == NoteEvent::Joined);
    let last = conversation.history.last().map(|message| &message.body);
    let closed = matches!(last, Some(Body::System(note)) if note.event == NoteEvent::Closed);
    let kept = served && closed && conversation.status == SessionStatus::Closed;
    ledger.judge(Promise::EverybodyServed, kept, Some(&conversation.session_id), || {
        format!("{}: served {served}, closed {closed}, {:?}", conversation.customer.name, conversation.status)
    });
}

fn judge_queue(record: &Record, ledger: &mut Ledger) {
    let waits: Vec<Wait<'_>> = record.conversations.iter().flat_map(Conversation::waits).collect();
    for taken in &waits {
        let Some(at) = taken.until else { continue };
        let passed_over = waits.iter().find(|other| {
            other.session_id != taken.session_id
                && other.since < taken.since
                && other.from < at - CLAIM_MOMENT
                && other.until.is_none_or(|until| until > at + CLAIM_MOMENT)
        });
        ledger.judge(Promise::QueueInOrder, passed_over.is_none(), Some(taken.session_id), || {
            let other = passed_over.map_or("", |other| other.session_id);
            format!("taken at {at}, when {other} had waited longer and waited on")
        });
    }
}

/// As the desk itself tells it, sample by sample.
fn judge_desk(samples: &[Sample], ledger: &mut Ledger) {
    let mut idle_since: Option<Duration> = None;
    for Sample { at, desk } in samples {
        for agent in &desk.agents {
            let fits = agent.open <= agent.capacity && agent.sessions.len() == agent.open as usize;
            ledger.judge(Promise::RoomHolds, fits, Some(&agent.agent_id), || {
                format!("{} of {} at {at:.0?}: {:?}", agent.open, agent.capacity, agent.sessions)
            });
        }
        if desk.waiting == 0 {
            idle_since = None;
            continue;
        }
        let free = desk
            .agents
            .iter()
            .find(|agent| agent.status == AgentStatus::Online && agent.present && agent.open < agent.capacity);
        let Some(free) = free else {
            idle_since = None;
            ledger.judge(Promise::NobodyIdle, true, None, String::new);
            continue;
        };
        let since = *idle_since.get_or_insert(*at);
        ledger.judge(Promise::NobodyIdle, *at - since <= IDLE_WITHIN, Some(&free.agent_id), || {
            format!("free for {:.0?} while {} waited", *at - since, desk.waiting)
        });
    }
}

/// The next thing that happens to a session whose agent is gone is that it goes to somebody else or back to the queue.
fn judge_absences(record: &Record, ledger: &mut Ledger) {
    for absence in &record.absences {
        let (promise, within) = if absence.is_lost {
            (Promise::LostIsRelieved, LOST_WITHIN)
        } else {
            (Promise::AwayIsRelieved, AWAY_WITHIN)
        };
        for session_id in &absence.sessions {
            let conversation = record.conversations.iter().find(|known| known.session_id == *session_id);
            let next = conversation.and_then(|known| known.notes().find(|(message, ..)| message.at >= absence.at));
            // Who closes it themselves needs nobody.
            let relieved = next.filter(|(_, event, _)| {
                matches!(event, NoteEvent::Transferred | NoteEvent::Requeued | NoteEvent::Closed)
            });
            let after =
                relieved.and_then(|(message, ..)| Duration::try_from(message.at.duration_since(absence.at)).ok());
            ledger.judge(promise, after.is_some_and(|after| after <= within), Some(session_id), || {
                format!("{} was gone at {}, relieved after {after:?}", absence.agent_id, absence.at)
            });
        }
    }
}

#[cfg(test)]
mod tests;
