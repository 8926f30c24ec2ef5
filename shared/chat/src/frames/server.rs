//! What a client is told.

use std::borrow::Cow;
use std::collections::BTreeMap;

use kernel::ids::{OrderNo, UserId};
use kernel::text::Language;
use kernel::time::Rfc3339;
use serde::Serialize;

use super::ErrorCode;
use crate::desk::agents::AgentStatus;
use crate::desk::read::Known;
use crate::ids::{ClientMsgId, Seq, SessionId, Side};
use crate::message::{Body, Card, Message, Note, Sender};
use crate::results::StoredResult;
use crate::session::SessionStatus;
use crate::uploads::Links;

/// Statuses that an order gets when its purchase was a success long ago: told in a frame of their own.
const AFTER_PURCHASE: [&str; 2] = ["PAID", "CANCELLED"];
/// The longest `messages` frame, in bytes: below the gateway's 32 KB.
const MAX_MESSAGES_BYTES: usize = 30 * 1024;
/// What a `messages` frame is besides its items, generously.
const ENVELOPE_BYTES: usize = 200;

/// What a client is told.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "type", rename_all = "snake_case", rename_all_fields = "camelCase")]
pub enum ServerFrame {
    /// What became of a purchase.
    SeckillResult {
        order_no: OrderNo,
        status: Cow<'static, str>,
        order_status: Cow<'static, str>,
        message: String,
    },
    /// What became of an order later on: it was paid, or cancelled.
    OrderStatus {
        order_no: OrderNo,
        status: Cow<'static, str>,
        order_status: Cow<'static, str>,
        message: String,
    },
    /// Answers `ping` and `auth`: every session the client is a member of, with its highest sequence number.
    Pong {
        heads: BTreeMap<SessionId, Seq>,
    },
    /// The gateway will cut this connection soon: make another before.
    Rotate {},
    /// Said in a session just now.
    Message(Box<MessageDocument>),
    /// Messages of a session in order: answers `sync` and `pull`.
    Messages {
        session_id: SessionId,
        items: Vec<MessageDocument>,
    },
    /// The sender's message is stored.
    Sent {
        #[serde(skip_serializing_if = "Option::is_none")]
        client_msg_id: Option<ClientMsgId>,
        session_id: SessionId,
        seq: Seq,
        at: Rfc3339,
        #[serde(skip_serializing_if = "std::ops::Not::not")]
        duplicate: bool,
    },
    /// All that a `sync` replays of a session has been said. A client that is below `head` asks again.
    SyncEnd {
        session_id: SessionId,
        head: Seq,
    },
    /// A side has seen everything up to a message.
    Read {
        session_id: SessionId,
        by: Side,
        last_seq: Seq,
    },
    Session(Box<SessionDocument>),
    /// Somebody is writing.
    Typing {
        session_id: SessionId,
        from: Sender,
    },
    /// An agent's status, as it is stored.
    Status {
        status: AgentStatus,
        at: Rfc3339,
    },
    /// A frame that could not be used. The socket stays open.
    Error(Refused),
}

/// Why a frame could not be used, and which one it was.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Refused {
    pub code: ErrorCode,
    pub message: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_id: Option<SessionId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_msg_id: Option<ClientMsgId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry_after_ms: Option<u32>,
}

/// A message, as clients read it: over the socket and over HTTP.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct MessageDocument {
    pub id: String,
    pub session_id: SessionId,
    pub seq: Seq,
    pub from: Sender,
    #[serde(flatten)]
    pub body: BodyDocument,
    pub at: Rfc3339,
    /// Only on the sender's own side.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_msg_id: Option<ClientMsgId>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "kind", content = "content", rename_all = "lowercase")]
pub enum BodyDocument {
    Text(String),
    Image(ImageDocument),
    Card(Card),
    System(NoteDocument),
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ImageDocument {
    pub key: String,
    /// Good for an hour; a later reader gets another one. Absent, when there was nothing to sign it with.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    pub content_type: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct NoteDocument {
    #[serde(flatten)]
    note: Note,
    text: String,
}

/// A session, as clients read it: over the socket and over HTTP.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SessionDocument {
    pub session_id: SessionId,
    pub session_no: String,
    pub status: SessionStatus,
    pub user_id: UserId,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent_id: Option<UserId>,
    /// The highest sequence number.
    pub head: Seq,
    /// What each side has acknowledged, and how many messages of the other side it has not.
    pub user_seq: Seq,
    pub admin_seq: Seq,
    pub user_unread: u64,
    pub admin_unread: u64,
    /// While it waits: 1 is next.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue_position: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_message: Option<String>,
    pub last_time: Rfc3339,
    pub created_at: Rfc3339,
}

impl SessionDocument {
    pub fn new(known: &Known, queue_position: Option<u32>, language: Language) -> Self {
        let Known { session, cursors } = known;
        Self {
            session_id: session.session_id.clone(),
            session_no: session.session_no.clone(),
            status: session.status,
            user_id: session.user_id.clone(),
            agent_id: session.agent_id.clone(),
            head: session.seq,
            user_seq: cursors.user.last_seq,
            admin_seq: cursors.agent.last_seq,
            user_unread: session.unread(cursors, Side::User),
            admin_unread: session.unread(cursors, Side::Agent),
            queue_position,
            last_message: session.last_message.as_ref().map(|text| text.in_language(language).to_owned()),
            last_time: Rfc3339(session.last_time),
            created_at: Rfc3339(session.created_at),
        }
    }
}

impl MessageDocument {
    /// `reader`: the side it is for.
    pub fn new(message: &Message, reader: Side, language: Language, links: &Links) -> Self {
        let body = match &message.body {
            Body::Text(text) => BodyDocument::Text(text.as_str().to_owned()),
            Body::Image(key) => BodyDocument::Image(ImageDocument {
                url: links.get(key),
                key: key.as_str().to_owned(),
                content_type: key.content_type(),
            }),
            Body::Card(card) => BodyDocument::Card(card.clone()),
            Body::System(note) => {
                let text = note.text().in_language(language).to_owned();
                BodyDocument::System(NoteDocument { note: note.clone(), text })
            }
        };
        Self {
            id: message.id(),
            session_id: message.session_id.clone(),
            seq: message.seq,
            from: message.from.clone(),
            body,
            at: Rfc3339(message.at),
            client_msg_id: message.client_msg_id.clone().filter(|_| message.from.side() == Some(reader)),
        }
    }
}

impl ServerFrame {
    pub(crate) fn result(result: &StoredResult, language: Language) -> Self {
        let (order_no, status, order_status) =
            (result.order_no.clone(), result.status.clone(), result.order_status.clone());
        let message = result.message.in_language(language).to_owned();
        if AFTER_PURCHASE.contains(&&*order_status) {
            Self::OrderStatus { order_no, status, order_status, message }
        } else {
            Self::SeckillResult { order_no, status, order_status, message }
        }
    }

    pub(crate) fn session(known: &Known, queue_position: Option<u32>, language: Language) -> Self {
        Self::Session(Box::new(SessionDocument::new(known, queue_position, language)))
    }

    /// `items` in order, in as few frames as their bound allows; at least one.
    pub(crate) fn messages(
        session_id: &SessionId,
        items: Vec<MessageDocument>,
    ) -> Result<Vec<Self>, serde_json::Error> {
        let frame = |items| Self::Messages { session_id: session_id.clone(), items };
        let (mut frames, mut open, mut bytes) = (Vec::new(), Vec::new(), ENVELOPE_BYTES);
        for item in items {
            let item_bytes = serde_json::to_vec(&item)?.len() + 1;
            if bytes + item_bytes > MAX_MESSAGES_BYTES && !open.is_empty() {
                frames.push(frame(std::mem::take(&mut open)));
                bytes = ENVELOPE_BYTES;
            }
            bytes += item_bytes;
            open.push(item);
        }
        if !open.is_empty() || frames.is_empty() {
            frames.push(frame(open));
        }
        Ok(frames)
    }

    pub(crate) fn refused(
        code: ErrorCode,
        session_id: Option<SessionId>,
        client_msg_id: Option<ClientMsgId>,
        language: Language,
    ) -> Self {
        Self::Error(Refused {
            code,
            message: code.text().in_language(language).to_owned(),
            session_id,
            client_msg_id,
            retry_after_ms: code.retry_after_ms(),
        })
    }

    /// As it goes over the socket.
    pub(crate) fn to_json(&self) -> Result<String, serde_json::Error> {
        serde_json::to_string(self)
    }
}
