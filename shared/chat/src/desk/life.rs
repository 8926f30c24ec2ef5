//! A session's life around what is said in it: opened, reopened, closed, rated.
//!
//! A user has one session at a time that is not closed. The pointer that says which is written in the same transaction as the
//! session, so of two openings at once one makes it and the other finds it.

use std::collections::HashMap;

use aws_sdk_dynamodb::types::{ConditionCheck, ReturnValue, TransactWriteItem};
use kernel::crash;
use kernel::ids::UserId;
use kernel::time::{UnixMillis, utc_day};
use serde::{Deserialize, Serialize};

use super::read::Pointer;
use super::{
    Desk, PK_COUNTER, SK_RATING, TRIES, active_key, agent_key, delete, listed_sk, parse, put, queue_key, row,
    session_key, session_pk, session_row, update, user_pk,
};
use crate::ids::{SessionId, Side};
use crate::message::is_broken;
use crate::session::{Session, SessionStatus, Step};
use crate::store::{Item, PK, StoreError, TTL, Transacted, key, number, pause, text, unavailable};

/// How long a day's counter is kept: until no clock anywhere is still in that day.
const COUNTER_SECS: i64 = 3 * 24 * 60 * 60;
/// The longest comment, in characters.
pub const MAX_COMMENT_CHARS: usize = 500;

/// What came of asking for a session.
#[derive(Debug)]
pub enum Opened {
    /// A new one.
    New(Session),
    Reopened(Box<Step>),
    /// The user's session that is not closed; nothing changed.
    Active(Session),
    /// The user has no such session.
    Unknown,
}

/// What came of closing one.
#[derive(Debug)]
pub enum Closed {
    Now(Box<Step>),
    /// It was closed before, or is somebody else's by now: as it is.
    Otherwise(Box<Session>),
}

/// What a customer thinks of a session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Rating {
    pub score: Score,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub comment: Option<Comment>,
    pub rated_at: UnixMillis,
}

/// 1 to 5.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "u8", into = "u8")]
pub struct Score(u8);

/// At most [`MAX_COMMENT_CHARS`] characters, none of them a control character but line breaks and tabs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Comment(String);

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RatingError {
    #[error("a score is a whole number from 1 to 5")]
    Score,
    #[error("a comment has at most {MAX_COMMENT_CHARS} characters, of control characters line breaks and tabs only")]
    Comment,
}

impl TryFrom<u8> for Score {
    type Error = RatingError;

    fn try_from(score: u8) -> Result<Self, RatingError> {
        if (1..=5).contains(&score) { Ok(Self(score)) } else { Err(RatingError::Score) }
    }
}

impl From<Score> for u8 {
    fn from(score: Score) -> u8 {
        score.0
    }
}

impl TryFrom<String> for Comment {
    type Error = RatingError;

    fn try_from(comment: String) -> Result<Self, RatingError> {
        let fits = comment.chars().count() <= MAX_COMMENT_CHARS && !comment.chars().any(is_broken);
        if fits { Ok(Self(comment)) } else { Err(RatingError::Comment) }
    }
}

impl From<Comment> for String {
    fn from(comment: Comment) -> String {
        comment.0
    }
}

impl Desk {
    /// The user's active session, or a new one, which then waits.
    pub async fn open(&self, user_id: &UserId, now: UnixMillis) -> Result<Opened, StoreError> {
        for attempt in 0..TRIES {
            if let Some(active) = self.active(&self.pointer(user_id).await?).await? {
                return Ok(Opened::Active(active));
            }
            let session = Session::opened(SessionId::random()?, self.next_session_no(now).await?, user_id.clone(), now);
            let listed = Listed { session_id: &session.session_id, created_at: session.created_at };
            let listed_key = key(user_pk(user_id), listed_sk(session.created_at, &session.session_id));
            let new = self
                .put()
                .set_item(Some(session_row(&session)?))
                .condition_expression("attribute_not_exists(pk)")
                .build();
            let actions = vec![
                self.take_pointer(user_id, &session.session_id)?,
                put(new)?,
                put(self.put().set_item(Some(row(&listed, listed_key)?)).build())?,
                self.enqueue(&session)?,
            ];
            if let Transacted::Done = self.table.try_transact(actions).await? {
                crash::point("chat.open.after");
                return Ok(Opened::New(session));
            }
            pause(attempt).await;
        }
        Err(StoreError::Contended { operation: "TransactWriteItems" })
    }

    /// One that was closed is opened again; one that is not closed is answered, and so is another active one of the user.
    pub async fn reopen(
        &self,
        user_id: &UserId,
        session_id: &SessionId,
        now: UnixMillis,
    ) -> Result<Opened, StoreError> {
        for attempt in 0..TRIES {
            let Some(session) = self.session(session_id).await?.filter(|session| session.user_id == *user_id) else {
                return Ok(Opened::Unknown);
            };
            if session.status != SessionStatus::Closed {
                return Ok(Opened::Active(session));
            }
            if let Some(active) = self.active(&self.pointer(user_id).await?).await? {
                return Ok(Opened::Active(active));
            }
            let step = session.reopened(now);
            let mut actions = self.write_step(&session, &step)?.to_vec();
            actions.extend([self.take_pointer(user_id, session_id)?, self.enqueue(&step.session)?]);
            if let Transacted::Done = self.table.try_transact(actions).await? {
                return Ok(Opened::Reopened(Box::new(step)));
            }
            pause(attempt).await;
        }
        Err(StoreError::Contended { operation: "TransactWriteItems" })
    }

    /// `may`: whether whoever closes it still may, by the session as it is. `by`: their side; `None`: the sweep.
    pub async fn close(
        &self,
        mut session: Session,
        by: Option<Side>,
        may: impl Fn(&Session) -> bool,
        now: UnixMillis,
    ) -> Result<Closed, StoreError> {
        for attempt in 0..TRIES {
            if session.status == SessionStatus::Closed || !may(&session) {
                return Ok(Closed::Otherwise(Box::new(session)));
            }
            let step = session.closed(by, now);
            let mut actions = self.write_step(&session, &step)?.to_vec();
            actions.push(self.release_pointer(&session)?);
            match &session.agent_id {
                Some(agent_id) => actions.push(self.drop_session(agent_id, &session.session_id)?),
                None => actions.push(delete(self.delete(queue_key(&session)).build())?),
            }
            if let Transacted::Done = self.table.try_transact(actions).await? {
                crash::point("chat.close.after");
                return Ok(Closed::Now(Box::new(step)));
            }
            pause(attempt).await;
            session = self.reread(&session).await?;
        }
        Err(StoreError::Contended { operation: "TransactWriteItems" })
    }

    /// `false`: it is not closed.
    pub async fn rate(&self, session: &Session, rating: &Rating) -> Result<bool, StoreError> {
        let closed = ConditionCheck::builder()
            .table_name(&self.table.name)
            .set_key(Some(session_key(&session.session_id)))
            .condition_expression("#status = :closed")
            .expression_attribute_names("#status", "status")
            .expression_attribute_values(":closed", text(SessionStatus::Closed.as_str()))
            .build()
            .map_err(unavailable("TransactWriteItems"))?;
        let rating = row(rating, rating_key(&session.session_id))?;
        let actions = vec![
            TransactWriteItem::builder().condition_check(closed).build(),
            put(self.put().set_item(Some(rating)).build())?,
        ];
        Ok(self.table.transact(actions).await? == crate::store::Written::Done(()))
    }

    /// What customers thought of these sessions; one that was not rated is left out.
    pub async fn ratings(
        &self,
        session_ids: impl IntoIterator<Item = &SessionId>,
    ) -> Result<HashMap<SessionId, Rating>, StoreError> {
        let mut by_pk: HashMap<String, &SessionId> = session_ids.into_iter().map(|id| (session_pk(id), id)).collect();
        let keys: Vec<_> = by_pk.values().map(|session_id| rating_key(session_id)).collect();
        if keys.is_empty() {
            return Ok(HashMap::new());
        }
        let rows = self.table.get_all(keys).await?.into_iter();
        rows.filter_map(|row| {
            let session_id = by_pk.remove(row.get(PK)?.as_s().ok()?)?;
            Some(parse(row).map(|rating| (session_id.clone(), rating)))
        })
        .collect()
    }

    /// The session that a pointer names as not closed.
    async fn active(&self, pointer: &Pointer) -> Result<Option<Session>, StoreError> {
        let Some(session_id) = &pointer.active else { return Ok(None) };
        Ok(self.session(session_id).await?.filter(|session| session.status != SessionStatus::Closed))
    }

    /// The count of a day's sessions, which may have holes: a number is taken before it is known to be needed.
    async fn next_session_no(&self, now: UnixMillis) -> Result<String, StoreError> {
        const OPERATION: &str = "UpdateItem";
        #[derive(Deserialize)]
        struct Counter {
            opened: u64,
        }
        let day = utc_day(now);
        let call = self
            .table
            .client
            .update_item()
            .table_name(&self.table.name)
            .set_key(Some(key(PK_COUNTER.to_owned(), day.clone())))
            .update_expression("ADD opened :one SET #ttl = :ttl")
            .expression_attribute_names("#ttl", TTL)
            .expression_attribute_values(":one", number(1))
            .expression_attribute_values(":ttl", number(now.plus_secs(COUNTER_SECS).secs()))
            .return_values(ReturnValue::UpdatedNew);
        let answer = Box::pin(call.send()).await.map_err(unavailable(OPERATION))?;
        let Counter { opened } = parse(answer.attributes.unwrap_or_default())?;
        Ok(format!("CS{day}{opened:03}"))
    }

    /// The user's pointer goes to this session, if it points to none.
    fn take_pointer(&self, user_id: &UserId, session_id: &SessionId) -> Result<TransactWriteItem, StoreError> {
        update(
            self.update(active_key(user_id))
                .update_expression("SET active = :session")
                .condition_expression("attribute_not_exists(active)")
                .expression_attribute_values(":session", text(session_id.as_str()))
                .build(),
        )
    }

    fn release_pointer(&self, session: &Session) -> Result<TransactWriteItem, StoreError> {
        // `last` is a word of DynamoDB's own.
        update(
            self.update(active_key(&session.user_id))
                .update_expression("REMOVE active SET #last = :session")
                .condition_expression("active = :session")
                .expression_attribute_names("#last", "last")
                .expression_attribute_values(":session", text(session.session_id.as_str()))
                .build(),
        )
    }

    /// It waits, at the place that its row says.
    pub(super) fn enqueue(&self, session: &Session) -> Result<TransactWriteItem, StoreError> {
        let queued = Queued { session_id: session.session_id.clone() };
        put(self.put().set_item(Some(row(&queued, queue_key(session))?)).build())
    }

    /// It is not among an agent's sessions any more.
    pub(super) fn drop_session(
        &self,
        agent_id: &UserId,
        session_id: &SessionId,
    ) -> Result<TransactWriteItem, StoreError> {
        update(
            self.update(agent_key(agent_id))
                .update_expression("DELETE #sessions :session")
                .expression_attribute_names("#sessions", "sessions")
                .expression_attribute_values(":session", one(session_id))
                .build(),
        )
    }
}

/// A row of a user's list of sessions.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Listed<'a> {
    session_id: &'a SessionId,
    created_at: UnixMillis,
}

/// A row of the queue.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Queued {
    pub(super) session_id: SessionId,
}

/// A set of one session.
pub(super) fn one(session_id: &SessionId) -> aws_sdk_dynamodb::types::AttributeValue {
    aws_sdk_dynamodb::types::AttributeValue::Ss(vec![session_id.as_str().to_owned()])
}

fn rating_key(session_id: &SessionId) -> Item {
    key(session_pk(session_id), SK_RATING.to_owned())
}
