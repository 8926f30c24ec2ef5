//! The customer service's rows: sessions and what is said in them, agents, the queue.
//!
//! | partition | sort key | row |
//! | --- | --- | --- |
//! | `S#<session>` | `META` | the session ([`Session`]) |
//! | | `M#<seq>` | a message |
//! | | `D#<side>#<sender>#<c or g>#<id>` | that a message was stored, by the name its sender or the gateway gave it, for a week |
//! | | `CUR#user`, `CUR#agent` | what each side has acknowledged |
//! | | `RATING` | what its customer thinks of it |
//! | `U#<user>` | `ACTIVE` | the one session of a user that is not closed, and the one that was closed last |
//! | | `S#<created>#<session>` | every session of a user |
//! | `AGENTS` | `<agent>` | an agent, with the set of sessions they have |
//! | `QUEUE` | `<waiting since>#<session>` | a session that waits |
//! | `COUNTER` | `<day>` | sessions opened on a day |
//!
//! Everything that is decided by is read consistently, from the table itself. Reading order: this file (keys), [`read`],
//! [`send`], [`life`] (open, close, reopen, rate), [`agents`], [`assign`] (who serves whom).

pub mod agents;
pub mod assign;
pub mod life;
pub mod read;
pub mod send;

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::types::{Delete, Put, ReturnValuesOnConditionCheckFailure, TransactWriteItem, Update};
use kernel::ids::UserId;
use kernel::time::UnixMillis;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::ids::{Seq, SessionId, Side};
use crate::session::{Session, Step};
use crate::store::{Item, StoreError, Table, key, number, text, unavailable};

/// Tries of a change that others get in the way of.
const TRIES: u32 = 6;

pub(crate) const SK_META: &str = "META";
pub(crate) const SK_MESSAGE: &str = "M#";
pub(crate) const SK_DEDUPE: &str = "D#";
const SK_RATING: &str = "RATING";
pub(crate) const SK_ACTIVE: &str = "ACTIVE";
const SK_SESSION: &str = "S#";
pub(crate) const PK_AGENTS: &str = "AGENTS";
pub(crate) const PK_QUEUE: &str = "QUEUE";
const PK_COUNTER: &str = "COUNTER";
/// Width of a number in a sort key, so that text order is number order: of an instant, and of a message's.
const INSTANT_DIGITS: usize = 13;
const SEQ_DIGITS: usize = 12;

/// The chat table.
#[derive(Debug, Clone)]
pub struct Desk {
    pub(crate) table: Table,
}

impl Desk {
    pub fn new(client: Client, table: String) -> Self {
        Self { table: Table { client, name: table } }
    }

    fn put(&self) -> aws_sdk_dynamodb::types::builders::PutBuilder {
        Put::builder().table_name(&self.table.name)
    }

    fn update(&self, key: Item) -> aws_sdk_dynamodb::types::builders::UpdateBuilder {
        Update::builder().table_name(&self.table.name).set_key(Some(key))
    }

    fn delete(&self, key: Item) -> aws_sdk_dynamodb::types::builders::DeleteBuilder {
        Delete::builder().table_name(&self.table.name).set_key(Some(key))
    }

    /// What a step writes: the session, if it is still `before`, and its message. The first answers with the row it found.
    ///
    /// Every step takes the next number, so a row with the same number is the same row; epoch and status are asked for
    /// as well since what the step was decided on should be legible in its condition.
    fn write_step(&self, before: &Session, step: &Step) -> Result<[TransactWriteItem; 2], StoreError> {
        let session = self
            .put()
            .set_item(Some(session_row(&step.session)?))
            .condition_expression("seq = :seq AND assignEpoch = :epoch AND #status = :status")
            .expression_attribute_names("#status", "status")
            .expression_attribute_values(":seq", seq_number(before.seq))
            .expression_attribute_values(":epoch", unsigned(before.assign_epoch))
            .expression_attribute_values(":status", text(before.status.as_str()))
            .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld)
            .build();
        let message = self
            .put()
            .set_item(Some(row(&step.message, message_key(&step.message.session_id, step.message.seq))?))
            .condition_expression("attribute_not_exists(pk)")
            .build();
        Ok([put(session)?, put(message)?])
    }
}

type Built<T> = Result<T, aws_sdk_dynamodb::error::BuildError>;

fn put(put: Built<Put>) -> Result<TransactWriteItem, StoreError> {
    put.map(|put| TransactWriteItem::builder().put(put).build()).map_err(unavailable("TransactWriteItems"))
}

fn update(update: Built<Update>) -> Result<TransactWriteItem, StoreError> {
    let built = update.map(|update| TransactWriteItem::builder().update(update).build());
    built.map_err(unavailable("TransactWriteItems"))
}

fn delete(delete: Built<Delete>) -> Result<TransactWriteItem, StoreError> {
    let built = delete.map(|delete| TransactWriteItem::builder().delete(delete).build());
    built.map_err(unavailable("TransactWriteItems"))
}

fn row<T: Serialize>(value: &T, key: Item) -> Result<Item, StoreError> {
    let mut row: Item = serde_dynamo::to_item(value).map_err(StoreError::Corrupt)?;
    row.extend(key);
    Ok(row)
}

pub(crate) fn parse<T: DeserializeOwned>(row: Item) -> Result<T, StoreError> {
    serde_dynamo::from_item(row).map_err(StoreError::Corrupt)
}

fn session_row(session: &Session) -> Result<Item, StoreError> {
    row(session, session_key(&session.session_id))
}

pub(crate) fn session_pk(session_id: &SessionId) -> String {
    format!("S#{session_id}")
}

pub(crate) fn session_key(session_id: &SessionId) -> Item {
    key(session_pk(session_id), SK_META.to_owned())
}

pub(crate) fn message_key(session_id: &SessionId, seq: Seq) -> Item {
    key(session_pk(session_id), message_sk(seq))
}

fn message_sk(seq: Seq) -> String {
    format!("{SK_MESSAGE}{:0SEQ_DIGITS$}", seq.get())
}

pub(crate) fn cursor_key(session_id: &SessionId, side: Side) -> Item {
    key(session_pk(session_id), cursor_sk(side).to_owned())
}

pub(crate) const fn cursor_sk(side: Side) -> &'static str {
    match side {
        Side::User => "CUR#user",
        Side::Agent => "CUR#agent",
    }
}

fn user_pk(user_id: &UserId) -> String {
    format!("U#{user_id}")
}

fn active_key(user_id: &UserId) -> Item {
    key(user_pk(user_id), SK_ACTIVE.to_owned())
}

fn listed_sk(created_at: UnixMillis, session_id: &SessionId) -> String {
    format!("{SK_SESSION}{:0INSTANT_DIGITS$}#{session_id}", created_at.get())
}

fn agent_key(agent_id: &UserId) -> Item {
    key(PK_AGENTS.to_owned(), agent_id.as_str().to_owned())
}

pub(crate) fn queue_sk(session: &Session) -> String {
    format!("{:0INSTANT_DIGITS$}#{}", session.waiting_since.get(), session.session_id)
}

fn queue_key(session: &Session) -> Item {
    key(PK_QUEUE.to_owned(), queue_sk(session))
}

fn unsigned(value: u64) -> aws_sdk_dynamodb::types::AttributeValue {
    aws_sdk_dynamodb::types::AttributeValue::N(value.to_string())
}

fn seq_number(seq: Seq) -> aws_sdk_dynamodb::types::AttributeValue {
    unsigned(seq.get())
}

fn instant(at: UnixMillis) -> aws_sdk_dynamodb::types::AttributeValue {
    number(at.get())
}
