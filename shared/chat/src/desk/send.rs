//! A word of a member: stored once, with the next number.
//!
//! One transaction: the session's row with the number moved on, if it is as it was read; the message under its number, if
//! there is none; and the note that this message was stored, if there is none. When it is refused, what its conditions met
//! decides, in this order: it was stored before → the session is closed → the sender is no member → decide again on the row
//! as it is now.

use aws_lc_rs::digest::{SHA256, digest};
use aws_sdk_dynamodb::types::ReturnValuesOnConditionCheckFailure;
use kernel::crash;
use kernel::time::UnixMillis;
use serde::{Deserialize, Serialize};

use super::{Desk, SK_DEDUPE, TRIES, parse, put, row, session_key, session_pk};
use crate::ids::{ClientMsgId, Party, Seq, Side};
use crate::message::Body;
use crate::session::{Session, Silence, Step};
use crate::store::{Item, StoreError, TTL, Transacted, key, number, pause};

/// How long a message that is sent again is known to have been stored.
pub const DEDUPE_SECS: i64 = 7 * 24 * 60 * 60;

/// Something to be said.
#[derive(Debug, Clone)]
pub struct Draft {
    pub body: Body,
    /// By which a repetition is known: the sender's name for the message or, without one, the gateway's.
    pub name: Name,
    /// Of what the client sent. A card's content is looked up anew at each try and may differ; this does not.
    fingerprint: String,
}

/// What a message is called before it has a number.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Name {
    /// By its sender.
    Client(ClientMsgId),
    /// By the gateway, which may call a function twice with one frame.
    Gateway(String),
}

/// What became of it.
#[derive(Debug)]
pub enum Sent {
    Stored(Box<Step>),
    /// It was stored before.
    Duplicate {
        seq: Seq,
        at: UnixMillis,
    },
    Refused(Refusal),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    Closed,
    NotAMember,
    /// The sender has called another message so.
    Reused,
}

/// `D#…`: that a message was stored.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Stored {
    seq: Seq,
    at: UnixMillis,
    fingerprint: String,
}

impl Draft {
    /// `content`: as the client sent it.
    pub fn new(body: Body, content: &str, name: Name) -> Self {
        let kind = match &body {
            Body::Text(_) => "text",
            Body::Image(_) => "image",
            Body::Card(_) => "card",
            Body::System(_) => "system",
        };
        let digest = digest(&SHA256, format!("{kind}\n{content}").as_bytes());
        Self { body, name, fingerprint: data_encoding::BASE64URL_NOPAD.encode(digest.as_ref()) }
    }
}

impl Name {
    const fn client(&self) -> Option<&ClientMsgId> {
        match self {
            Self::Client(id) => Some(id),
            Self::Gateway(_) => None,
        }
    }
}

impl From<Silence> for Refusal {
    fn from(silence: Silence) -> Self {
        match silence {
            Silence::Closed => Self::Closed,
            Silence::NotAMember => Self::NotAMember,
        }
    }
}

fn dedupe_key(session: &Session, party: &Party, name: &Name) -> Item {
    let side = match party.side {
        Side::User => "user",
        Side::Agent => "agent",
    };
    let name = match name {
        Name::Client(id) => format!("c#{}", id.as_str()),
        Name::Gateway(id) => format!("g#{id}"),
    };
    key(session_pk(&session.session_id), format!("{SK_DEDUPE}{side}#{}#{name}", party.id))
}

impl Desk {
    /// `session` is the copy that is decided on first; whoever read the sender's connection has read it along.
    ///
    /// An error means that it is not known whether the message is stored: the same draft again finds out.
    pub async fn send(
        &self,
        mut session: Session,
        party: &Party,
        draft: &Draft,
        now: UnixMillis,
    ) -> Result<Sent, StoreError> {
        for attempt in 0..TRIES {
            let step = match session.said(party, draft.body.clone(), draft.name.client().cloned(), now) {
                Ok(step) => step,
                // It may have been said, and stored, before that.
                Err(silence) => {
                    let stored = self.table.get(dedupe_key(&session, party, &draft.name)).await?;
                    return stored.map_or(Ok(Sent::Refused(silence.into())), |stored| again(stored, draft));
                }
            };
            let [write_session, write_message] = self.write_step(&session, &step)?;
            let actions = vec![write_session, write_message, self.note_stored(&session, party, draft, &step, now)?];
            match self.table.try_transact(actions).await? {
                Transacted::Done => {
                    crash::point("chat.send.after");
                    return Ok(Sent::Stored(Box::new(step)));
                }
                Transacted::Refused(mut found) => {
                    if let Some(stored) = found.pop().flatten().and_then(|found| found.0) {
                        return again(stored, draft);
                    }
                    let moved = found.into_iter().next().flatten().and_then(|found| found.0);
                    session = match moved {
                        Some(moved) => parse(moved)?,
                        None => self.reread(&session).await?,
                    };
                }
                Transacted::Busy => session = self.reread(&session).await?,
            }
            pause(attempt).await;
        }
        Err(StoreError::Contended { operation: "TransactWriteItems" })
    }

    fn note_stored(
        &self,
        session: &Session,
        party: &Party,
        draft: &Draft,
        step: &Step,
        now: UnixMillis,
    ) -> Result<aws_sdk_dynamodb::types::TransactWriteItem, StoreError> {
        let stored = Stored { seq: step.message.seq, at: step.message.at, fingerprint: draft.fingerprint.clone() };
        let mut stored = row(&stored, dedupe_key(session, party, &draft.name))?;
        stored.insert(TTL.to_owned(), number(now.plus_secs(DEDUPE_SECS).secs()));
        put(self
            .put()
            .set_item(Some(stored))
            .condition_expression("attribute_not_exists(pk)")
            .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld)
            .build())
    }

    /// The session as it is now. Sessions are never deleted, so one that was there is there.
    pub(super) async fn reread(&self, session: &Session) -> Result<Session, StoreError> {
        let row = self.table.get(session_key(&session.session_id)).await?;
        row.map_or(Err(StoreError::Missing), parse)
    }
}

fn again(stored: Item, draft: &Draft) -> Result<Sent, StoreError> {
    let stored: Stored = parse(stored)?;
    Ok(if stored.fingerprint == draft.fingerprint {
        Sent::Duplicate { seq: stored.seq, at: stored.at }
    } else {
        Sent::Refused(Refusal::Reused)
    })
}
