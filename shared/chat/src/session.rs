//! A session: the conversation of one customer with whoever serves them, and the rules by which it changes. No IO.
//!
//! Every change, a word of either side or a step of the assignment, makes the session's row anew and adds one message, which
//! takes the next number. The row is written only if it is still as it was read (`Desk::write_step`), in one transaction with
//! the message and whatever else has to change. So the numbers have no gaps, no message is without its row, and of two
//! changes at once one is made and the other decided again.

use kernel::ids::UserId;
use kernel::text::Text;
use kernel::time::UnixMillis;
use serde::{Deserialize, Serialize};

use crate::ids::{ClientMsgId, Party, Seq, SessionId, Side};
use crate::message::{Body, Counts, Message, Note, Sender};

/// The row `S#<session> / META`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Session {
    pub session_id: SessionId,
    /// For people: `CS20260601001`, the day (UTC) and a count within it.
    pub session_no: String,
    pub status: SessionStatus,
    pub user_id: UserId,
    /// Who serves it; only while it is open.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent_id: Option<UserId>,
    /// Who served it when it was closed, so that their late words are told so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_agent_id: Option<UserId>,
    /// Grows with every change of status or agent.
    pub assign_epoch: u64,
    /// The highest number given out.
    pub seq: Seq,
    pub counts: Counts,
    /// The beginning of the last message; before the first there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_message: Option<Text>,
    /// When it last changed.
    pub last_time: UnixMillis,
    pub created_at: UnixMillis,
    /// Its place in the queue, whenever it has to wait: since it was opened or reopened.
    pub waiting_since: UnixMillis,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SessionStatus {
    /// For an agent.
    Waiting,
    Open,
    Closed,
}

impl SessionStatus {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Open => "open",
            Self::Closed => "closed",
        }
    }
}

/// What a side of a session has acknowledged. By side, not by agent: a new agent begins where the one before them was.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Cursor {
    pub last_seq: Seq,
    /// As of the message with that number.
    pub counts: Counts,
}

/// Both cursors of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Cursors {
    pub user: Cursor,
    pub agent: Cursor,
}

/// A session and the one message that is new.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    pub session: Session,
    pub message: Message,
}

/// Why somebody may not speak.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Silence {
    Closed,
    NotAMember,
}

impl Session {
    /// A new one, waiting, with nothing said in it.
    pub fn opened(session_id: SessionId, session_no: String, user_id: UserId, now: UnixMillis) -> Self {
        Self {
            session_id,
            session_no,
            status: SessionStatus::Waiting,
            user_id,
            agent_id: None,
            last_agent_id: None,
            assign_epoch: 0,
            seq: Seq::ZERO,
            counts: Counts::default(),
            last_message: None,
            last_time: now,
            created_at: now,
            waiting_since: now,
        }
    }

    /// Its customer always, its agent while it is open with them.
    pub fn has_member(&self, party: &Party) -> bool {
        match party.side {
            Side::User => party.id == self.user_id,
            Side::Agent => Some(&party.id) == self.agent_id.as_ref(),
        }
    }

    /// Everybody who has to hear of what happens in it now.
    pub fn members(&self) -> Vec<Party> {
        let agent = self.agent_id.clone().map(Party::agent);
        std::iter::once(Party::user(self.user_id.clone())).chain(agent).collect()
    }

    /// A word of a member.
    pub fn said(
        &self,
        party: &Party,
        body: Body,
        client_msg_id: Option<ClientMsgId>,
        now: UnixMillis,
    ) -> Result<Step, Silence> {
        let was_theirs =
            self.has_member(party) || (party.side == Side::Agent && Some(&party.id) == self.last_agent_id.as_ref());
        match self.status {
            SessionStatus::Closed if was_theirs => Err(Silence::Closed),
            _ if !self.has_member(party) => Err(Silence::NotAMember),
            SessionStatus::Waiting | SessionStatus::Open | SessionStatus::Closed => {
                let mut step = self.step(Sender::from(party), body, now);
                step.message.client_msg_id = client_msg_id;
                Ok(step)
            }
        }
    }

    /// An agent takes it from the queue.
    #[must_use]
    pub fn claimed(&self, agent_id: &UserId, now: UnixMillis) -> Step {
        let mut step = self.noted(Note::Joined { agent_id: agent_id.clone() }, now);
        step.session.status = SessionStatus::Open;
        step.session.agent_id = Some(agent_id.clone());
        step
    }

    /// It goes to another agent.
    #[must_use]
    pub fn transferred(&self, agent_id: &UserId, now: UnixMillis) -> Step {
        let mut step = self.noted(Note::Transferred { agent_id: agent_id.clone() }, now);
        step.session.agent_id = Some(agent_id.clone());
        step
    }

    /// It goes back to its place in the queue.
    #[must_use]
    pub fn requeued(&self, now: UnixMillis) -> Step {
        let mut step = self.noted(Note::Requeued, now);
        step.session.status = SessionStatus::Waiting;
        step.session.agent_id = None;
        step
    }

    /// Its customer comes back to it, at the end of the queue.
    #[must_use]
    pub fn reopened(&self, now: UnixMillis) -> Step {
        let mut step = self.noted(Note::Reopened, now);
        step.session.status = SessionStatus::Waiting;
        step.session.waiting_since = now;
        step
    }

    /// `by`: who closes it; `None`: nobody, after a long silence.
    #[must_use]
    pub fn closed(&self, by: Option<Side>, now: UnixMillis) -> Step {
        let mut step = self.noted(by.map_or(Note::Expired, |by| Note::Closed { by }), now);
        step.session.status = SessionStatus::Closed;
        step.session.last_agent_id = step.session.agent_id.take();
        step
    }

    /// A change of status or agent: late words and steps of before it are refused.
    fn noted(&self, note: Note, now: UnixMillis) -> Step {
        let mut step = self.step(Sender::System, Body::System(note), now);
        step.session.assign_epoch += 1;
        step
    }

    fn step(&self, from: Sender, body: Body, now: UnixMillis) -> Step {
        let (seq, counts) = (self.seq.next(), self.counts.with(&from));
        // Clocks of two environments differ; times within a session do not go back.
        let at = now.max(self.last_time);
        let session = Self { seq, counts, last_message: Some(body.preview()), last_time: at, ..self.clone() };
        let message = Message { session_id: self.session_id.clone(), seq, from, body, client_msg_id: None, counts, at };
        Step { session, message }
    }

    /// What `side` has not acknowledged: words of the other side only.
    pub fn unread(&self, cursors: &Cursors, side: Side) -> u64 {
        let seen = cursors.of(side).counts.of(side.other());
        self.counts.of(side.other()).saturating_sub(seen)
    }
}

impl Cursors {
    pub const fn of(&self, side: Side) -> &Cursor {
        match side {
            Side::User => &self.user,
            Side::Agent => &self.agent,
        }
    }

    pub fn set(&mut self, side: Side, cursor: Cursor) {
        match side {
            Side::User => self.user = cursor,
            Side::Agent => self.agent = cursor,
        }
    }
}
