//! Reading sessions and messages, and how far they have been read.

use std::collections::{BTreeSet, HashMap};

use aws_sdk_dynamodb::operation::update_item::UpdateItemError;
use aws_sdk_dynamodb::types::{AttributeValue, ReturnValuesOnConditionCheckFailure};
use kernel::ids::UserId;
use kernel::time::UnixMillis;
use serde::Deserialize;

use super::{
    Desk, SK_MESSAGE, SK_META, SK_SESSION, active_key, cursor_key, cursor_sk, listed_sk, message_sk, parse, seq_number,
    session_key, session_pk, user_pk,
};
use crate::ids::{Seq, SessionId, Side};
use crate::message::Message;
use crate::session::{Cursor, Cursors, Session};
use crate::store::{Item, PK, SK, StoreError, conditional_or_found, text, unavailable};

/// A session and how far each side has read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Known {
    pub session: Session,
    pub cursors: Cursors,
}

/// The sessions of a user that matter now.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Pointer {
    /// The one that is not closed.
    pub active: Option<SessionId>,
    /// The one that was closed last.
    pub last: Option<SessionId>,
}

/// Where a page of a user's sessions ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    created_at: UnixMillis,
    session_id: SessionId,
}

/// A text that is no place in a list of ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the cursor is not one that this list gave out")]
pub struct PlaceError;

impl Place {
    /// The opaque form for clients. Not signed: whatever it says, only the caller's own sessions are listed.
    pub fn encode(&self) -> String {
        let place = format!("{}#{}", self.created_at.get(), self.session_id);
        data_encoding::BASE64URL_NOPAD.encode(place.as_bytes())
    }
}

impl std::str::FromStr for Place {
    type Err = PlaceError;

    fn from_str(opaque: &str) -> Result<Self, PlaceError> {
        let bytes = data_encoding::BASE64URL_NOPAD.decode(opaque.as_bytes()).map_err(|_| PlaceError)?;
        let place = String::from_utf8(bytes).map_err(|_| PlaceError)?;
        let (created_at, session_id) = place.split_once('#').ok_or(PlaceError)?;
        let created_at = created_at.parse().ok().filter(|millis| *millis >= 0).ok_or(PlaceError)?;
        let session_id = session_id.parse().map_err(|_| PlaceError)?;
        Ok(Self { created_at: UnixMillis::new(created_at), session_id })
    }
}

/// Which messages of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Page {
    /// From this number on, forwards.
    From(Seq),
    /// Up to this number, backwards.
    UpTo(Seq),
}

/// What became of an acknowledgement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Acknowledged {
    /// What is stored now.
    pub cursor: Cursor,
    /// `false`: that much had been acknowledged before.
    pub moved: bool,
}

/// The keys of a session's row and both its cursors.
pub(crate) fn known_keys(session_id: &SessionId) -> [Item; 3] {
    [session_key(session_id), cursor_key(session_id, Side::User), cursor_key(session_id, Side::Agent)]
}

/// Sessions, cursors and messages, out of rows in any order.
#[derive(Debug, Default)]
pub(crate) struct Sorted {
    pub(crate) sessions: HashMap<SessionId, Known>,
    pub(crate) messages: Vec<Message>,
    /// Of sessions whose own rows are not among them, by their partition.
    pub(crate) cursors: HashMap<String, Cursors>,
}

impl Sorted {
    pub(crate) fn from_rows(rows: Vec<Item>) -> Result<Self, StoreError> {
        let mut sorted = Self::default();
        for row in rows {
            let sk = row.get(SK).and_then(|sk| sk.as_s().ok()).cloned().unwrap_or_default();
            let side = [Side::User, Side::Agent].into_iter().find(|side| cursor_sk(*side) == sk);
            if let Some(side) = side {
                let pk = row.get(PK).and_then(|pk| pk.as_s().ok()).cloned().unwrap_or_default();
                sorted.cursors.entry(pk).or_default().set(side, parse(row)?);
            } else if sk == SK_META {
                let session: Session = parse(row)?;
                let known = Known { session, cursors: Cursors::default() };
                sorted.sessions.insert(known.session.session_id.clone(), known);
            } else if sk.starts_with(SK_MESSAGE) {
                sorted.messages.push(parse(row)?);
            }
        }
        for (session_id, known) in &mut sorted.sessions {
            known.cursors = sorted.cursors.remove(&session_pk(session_id)).unwrap_or_default();
        }
        Ok(sorted)
    }
}

impl Desk {
    pub async fn session(&self, session_id: &SessionId) -> Result<Option<Session>, StoreError> {
        self.table.get(session_key(session_id)).await?.map(parse).transpose()
    }

    /// Sessions in no order; what is not there is left out.
    pub async fn sessions(
        &self,
        session_ids: impl IntoIterator<Item = &SessionId>,
    ) -> Result<Vec<Session>, StoreError> {
        // DynamoDB refuses a key that is named twice; a list that was read in two goes may name one twice.
        let session_ids: BTreeSet<_> = session_ids.into_iter().collect();
        let keys: Vec<_> = session_ids.into_iter().map(session_key).collect();
        if keys.is_empty() {
            return Ok(Vec::new());
        }
        self.table.get_all(keys).await?.into_iter().map(parse).collect()
    }

    /// Sessions with their cursors, in no order; what is not there is left out.
    pub async fn known(&self, session_ids: impl IntoIterator<Item = &SessionId>) -> Result<Vec<Known>, StoreError> {
        let session_ids: BTreeSet<_> = session_ids.into_iter().collect();
        let keys: Vec<_> = session_ids.into_iter().flat_map(known_keys).collect();
        if keys.is_empty() {
            return Ok(Vec::new());
        }
        Ok(Sorted::from_rows(self.table.get_all(keys).await?)?.sessions.into_values().collect())
    }

    /// Messages in the order of the page, at most `limit` and as many as DynamoDB reads in one call (1 MB).
    pub async fn messages(&self, session_id: &SessionId, page: Page, limit: u16) -> Result<Vec<Message>, StoreError> {
        let (from, to, forward) = match page {
            Page::From(seq) => (message_sk(seq), format!("{SK_MESSAGE}~"), true),
            Page::UpTo(seq) => (SK_MESSAGE.to_owned(), message_sk(seq), false),
        };
        let call = self
            .table
            .client
            .query()
            .table_name(&self.table.name)
            .consistent_read(true)
            .scan_index_forward(forward)
            .limit(i32::from(limit))
            .key_condition_expression("pk = :pk AND sk BETWEEN :from AND :to")
            .expression_attribute_values(":pk", text(session_pk(session_id)))
            .expression_attribute_values(":from", text(from))
            .expression_attribute_values(":to", text(to));
        let answer = Box::pin(call.send()).await.map_err(unavailable("Query"))?;
        answer.items.unwrap_or_default().into_iter().map(parse).collect()
    }

    pub async fn pointer(&self, user_id: &UserId) -> Result<Pointer, StoreError> {
        self.table.get(active_key(user_id)).await?.map_or_else(|| Ok(Pointer::default()), parse)
    }

    /// A user's sessions, newest first, and where the page ended if there are more.
    pub async fn sessions_of(
        &self,
        user_id: &UserId,
        limit: u8,
        after: Option<&Place>,
    ) -> Result<(Vec<Known>, Option<Place>), StoreError> {
        /// The members of a row that the list is made of.
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Listed {
            session_id: SessionId,
            created_at: UnixMillis,
        }
        let to = after.map_or(format!("{SK_SESSION}~"), |place| listed_sk(place.created_at, &place.session_id));
        let call = self
            .table
            .client
            .query()
            .table_name(&self.table.name)
            .consistent_read(true)
            .scan_index_forward(false)
            // One more than wanted: whether there are more. With a place, the row it names comes first and is dropped.
            .limit(i32::from(limit) + 2)
            .key_condition_expression("pk = :pk AND sk BETWEEN :from AND :to")
            .expression_attribute_values(":pk", text(user_pk(user_id)))
            .expression_attribute_values(":from", text(SK_SESSION))
            .expression_attribute_values(":to", text(to));
        let answer = Box::pin(call.send()).await.map_err(unavailable("Query"))?;
        let rows = answer.items.unwrap_or_default().into_iter();
        let mut listed: Vec<Listed> = rows.map(parse).collect::<Result<_, _>>()?;
        listed.retain(|row| after.is_none_or(|place| row.session_id != place.session_id));
        let more = listed.len() > usize::from(limit);
        listed.truncate(usize::from(limit));
        let place = listed.last().filter(|_| more);
        let place = place.map(|last| Place { created_at: last.created_at, session_id: last.session_id.clone() });
        let mut known = self.known(listed.iter().map(|row| &row.session_id)).await?;
        known.sort_by(|a, b| {
            let newest_first = |known: &Known| (known.session.created_at, known.session.session_id.clone());
            newest_first(b).cmp(&newest_first(a))
        });
        Ok((known, place))
    }

    /// `side` has seen everything up to the message that `cursor` names. Less than what is stored changes nothing.
    pub async fn acknowledge(
        &self,
        session_id: &SessionId,
        side: Side,
        cursor: Cursor,
    ) -> Result<Acknowledged, StoreError> {
        let counts: AttributeValue = serde_dynamo::to_attribute_value(cursor.counts).map_err(StoreError::Corrupt)?;
        let call = self
            .table
            .client
            .update_item()
            .table_name(&self.table.name)
            .set_key(Some(cursor_key(session_id, side)))
            .update_expression("SET lastSeq = :seq, counts = :counts")
            .condition_expression("attribute_not_exists(pk) OR lastSeq < :seq")
            .expression_attribute_values(":seq", seq_number(cursor.last_seq))
            .expression_attribute_values(":counts", counts)
            .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld);
        let stored = conditional_or_found(
            "UpdateItem",
            || call.clone().send(),
            |error| match error {
                UpdateItemError::ConditionalCheckFailedException(refused) => refused.item.clone(),
                _ => None,
            },
        );
        Ok(match stored.await? {
            None => Acknowledged { cursor, moved: true },
            Some(stored) => Acknowledged { cursor: parse(stored)?, moved: false },
        })
    }
}
