//! One session as the client has it: an unbroken beginning, and what came ahead of its turn.

use std::collections::BTreeMap;

use jiff::Timestamp;

use super::machine::{LinkId, Moment};
use crate::frames::{Author, Card, ChatRole, Content, MessageFrame, Note, SessionFrame};

/// Messages that may wait for one that is missing. Beyond it those furthest ahead are forgotten; they are asked for again.
const MAX_AHEAD: usize = 1_000;

/// A message as it is shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    pub session_id: String,
    pub seq: u64,
    pub from: Author,
    pub body: Body,
    pub at: Timestamp,
    /// Of the side's own messages.
    pub client_msg_id: Option<String>,
}

/// What is said. Of an image and a card that this client sent, only what it said itself is known until the service
/// delivers it (to another device, or in a replay); a page has the file, and the order, at hand.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Body {
    Text(String),
    Image { key: String, url: Option<String> },
    Card { order_no: String, card: Option<Card> },
    System(Note),
}

impl Body {
    fn is_whole(&self) -> bool {
        !matches!(self, Self::Image { url: None, .. } | Self::Card { card: None, .. })
    }
}

impl From<MessageFrame> for Message {
    fn from(frame: MessageFrame) -> Self {
        let body = match frame.content {
            Content::Text(text) => Body::Text(text),
            Content::Image(image) => Body::Image { key: image.key, url: image.url },
            Content::Card(card) => Body::Card { order_no: card.order_no.clone(), card: Some(card) },
            Content::System(note) => Body::System(note),
        };
        let MessageFrame { session_id, seq, from, at, client_msg_id, .. } = frame;
        Self { session_id, seq, from, body, at, client_msg_id }
    }
}

/// Where the replay of a session stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Replay {
    Idle,
    /// To be asked for, not before.
    Due(Moment),
    /// Asked for over a connection, when there were `had` messages; last heard of at `heard`.
    Under {
        link: LinkId,
        heard: Moment,
        had: u64,
    },
}

/// What the client knows of a session.
#[derive(Debug)]
pub(super) struct Thread {
    /// The client is a member. What was heard while it was one stays.
    pub(super) followed: bool,
    pub(super) followed_since: Moment,
    pub(super) state: Option<SessionFrame>,
    /// Message n stands at n − 1.
    pub(super) messages: Vec<Message>,
    ahead: BTreeMap<u64, Message>,
    /// The highest number heard of.
    pub(super) head: u64,
    pub(super) replay: Replay,
    /// When to pull what is missing.
    pub(super) pull_at: Option<Moment>,
    /// The highest number acknowledged by this side, and by the other.
    pub(super) acked: u64,
    pub(super) seen_by_peer: u64,
    /// The last acknowledgement that went out.
    pub(super) ack_sent: Option<(Moment, u64)>,
    /// The reader has seen everything up to here.
    read: u64,
    /// The last message, of those in order, that is not this side's own.
    last_of_others: u64,
    pub(super) typed_at: Option<Moment>,
}

impl Thread {
    pub(super) fn new(now: Moment) -> Self {
        Self {
            followed: true,
            followed_since: now,
            state: None,
            messages: Vec::new(),
            ahead: BTreeMap::new(),
            head: 0,
            replay: Replay::Idle,
            pull_at: None,
            acked: 0,
            seen_by_peer: 0,
            ack_sent: None,
            read: 0,
            last_of_others: 0,
            typed_at: None,
        }
    }

    /// The unbroken beginning: messages 1 to this are here.
    pub(super) fn have(&self) -> u64 {
        self.messages.len() as u64
    }

    pub(super) fn is_complete(&self) -> bool {
        self.replay == Replay::Idle && self.gap().is_none()
    }

    pub(super) fn heard_of(&mut self, seq: u64) {
        self.head = self.head.max(seq);
    }

    /// Takes a message, whatever its turn. Answers how many could be shown before: those after it are new.
    pub(super) fn take(&mut self, message: Message, own: ChatRole) -> usize {
        let before = self.messages.len();
        self.heard_of(message.seq);
        let have = self.have();
        if message.seq <= have {
            // Repeated. Only what it fills in is news.
            if let Some(known) = usize::try_from(message.seq - 1).ok().and_then(|index| self.messages.get_mut(index))
                && !known.body.is_whole()
                && message.body.is_whole()
            {
                known.body = message.body;
            }
            return before;
        }
        self.ahead.entry(message.seq).or_insert(message);
        while let Some(next) = self.ahead.remove(&(self.have() + 1)) {
            if next.from.role != own {
                self.last_of_others = next.seq;
            }
            self.messages.push(next);
        }
        while self.ahead.len() > MAX_AHEAD {
            self.ahead.pop_last();
        }
        if self.messages.len() > before {
            self.pull_at = None;
        }
        before
    }

    /// What is missing first, if anything is.
    pub(super) fn gap(&self) -> Option<(u64, u64)> {
        let have = self.have();
        let until = self.ahead.first_key_value().map_or(self.head, |(seq, _)| seq - 1);
        (have < self.head).then_some((have + 1, until))
    }

    /// The reader has seen all that is in order.
    pub(super) fn was_read(&mut self) {
        self.read = self.have();
    }

    /// What to acknowledge: all that was read, once something of it is not this side's own.
    pub(super) fn to_acknowledge(&self) -> Option<u64> {
        (self.last_of_others.min(self.read) > self.acked).then_some(self.read)
    }

    /// Messages of the other side, in order, that this side has not acknowledged.
    pub(super) fn unread(&self, own: ChatRole) -> usize {
        let seen = usize::try_from(self.acked).unwrap_or(usize::MAX).min(self.messages.len());
        let peers = |message: &&Message| message.from.role != own && message.from.role != ChatRole::System;
        self.messages[seen..].iter().filter(peers).count()
    }
}
