//! Agents: who is there, and how much they have to do.
//!
//! An agent's presence is a lease in their row, renewed by their heartbeats ([`Agent::is_lost`]). It is kept here and not in
//! a cache, since sessions are taken from whoever is lost: a cache that is empty or away must not look like an empty desk.

use std::collections::BTreeSet;

use aws_sdk_dynamodb::types::ReturnValue;
use kernel::ids::UserId;
use kernel::time::UnixMillis;
use serde::{Deserialize, Serialize};

use super::{Desk, PK_AGENTS, agent_key, instant, parse, unsigned};
use crate::ids::SessionId;
use crate::store::{StoreError, Written, conditional, number, text, unavailable};

/// How long an agent of whom nothing is heard is taken to be there: two heartbeats of 30 s may be lost, not three.
pub const LEASE_SECS: i64 = 90;
/// How often a heartbeat (`ping`, `auth`, `status`) is written down: at every one of a client that sends them each 30 s.
pub const SEEN_EVERY_SECS: i64 = 25;
/// Sessions that an agent serves at once, unless an admin says otherwise.
pub const DEFAULT_CAPACITY: u32 = 5;
/// The most an admin may say: beyond it nobody serves anybody.
pub const MAX_CAPACITY: u32 = 100;

/// The row `AGENTS / <agent>`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Agent {
    #[serde(rename = "sk")]
    pub agent_id: UserId,
    pub status: AgentStatus,
    /// When the gateway received the frame that set the status: an older one changes nothing.
    pub status_epoch: UnixMillis,
    pub capacity: u32,
    /// The open sessions they have. Its size is the number of them: no count that could drift.
    #[serde(default, with = "serde_dynamo::string_set")]
    pub sessions: BTreeSet<SessionId>,
    /// When they were last heard of.
    pub seen_at: UnixMillis,
    #[serde(default)]
    pub last_assigned_at: UnixMillis,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AgentStatus {
    /// Takes new sessions.
    Online,
    /// Keeps what they have and takes no more.
    Busy,
    /// Has none: what they had goes to others.
    Away,
}

impl AgentStatus {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Online => "online",
            Self::Busy => "busy",
            Self::Away => "away",
        }
    }
}

impl Agent {
    /// Nothing has been heard of them for too long.
    pub fn is_lost(&self, now: UnixMillis) -> bool {
        self.seen_at.plus_secs(LEASE_SECS) < now
    }

    /// May be given a session.
    pub fn is_free(&self, now: UnixMillis) -> bool {
        self.status == AgentStatus::Online && !self.is_lost(now) && self.sessions.len() < self.capacity as usize
    }

    /// Has to give their sessions away.
    pub fn must_leave(&self, now: UnixMillis) -> bool {
        self.status == AgentStatus::Away || self.is_lost(now)
    }
}

impl Desk {
    pub async fn agent(&self, agent_id: &UserId) -> Result<Option<Agent>, StoreError> {
        self.table.get(agent_key(agent_id)).await?.map(parse).transpose()
    }

    /// Everybody who ever was one.
    pub async fn agents(&self) -> Result<Vec<Agent>, StoreError> {
        let rows = self.table.rows(PK_AGENTS.to_owned(), String::new()).await?;
        rows.into_iter().map(parse).collect()
    }

    /// `at`: when the gateway received it. An older one than what is stored changes nothing. Answers the agent as they are now.
    pub async fn set_status(
        &self,
        agent_id: &UserId,
        status: AgentStatus,
        at: UnixMillis,
        now: UnixMillis,
    ) -> Result<Agent, StoreError> {
        const OPERATION: &str = "UpdateItem";
        let call = self
            .table
            .client
            .update_item()
            .table_name(&self.table.name)
            .set_key(Some(agent_key(agent_id)))
            .update_expression(
                "SET #status = :status, statusEpoch = :at, seenAt = :now, #capacity = if_not_exists(#capacity, :capacity)",
            )
            .condition_expression("attribute_not_exists(statusEpoch) OR statusEpoch <= :at")
            .expression_attribute_names("#status", "status")
            .expression_attribute_names("#capacity", "capacity")
            .expression_attribute_values(":status", text(status.as_str()))
            .expression_attribute_values(":at", instant(at))
            .expression_attribute_values(":now", instant(now))
            .expression_attribute_values(":capacity", number(i64::from(DEFAULT_CAPACITY)))
            .return_values(ReturnValue::AllNew);
        match conditional(OPERATION, || call.clone().send()).await? {
            Written::Done(answer) => parse(answer.attributes.unwrap_or_default()),
            Written::Refused => self.agent(agent_id).await?.ok_or(StoreError::Contended { operation: OPERATION }),
        }
    }

    /// They have been heard of. Whoever has never said a status is no agent yet.
    pub async fn note_seen(&self, agent_id: &UserId, now: UnixMillis) -> Result<(), StoreError> {
        let call = self
            .table
            .client
            .update_item()
            .table_name(&self.table.name)
            .set_key(Some(agent_key(agent_id)))
            .update_expression("SET seenAt = :now")
            .condition_expression("attribute_exists(pk) AND seenAt < :now")
            .expression_attribute_values(":now", instant(now));
        conditional("UpdateItem", || call.clone().send()).await?;
        Ok(())
    }

    /// How many sessions an agent may have at once. What they have beyond it stays with them. One who has never been
    /// heard of is away. Answers the agent as they were before;
    /// when the answer was lost and the call made again, as it had made them.
    pub async fn set_capacity(&self, agent_id: &UserId, capacity: u32) -> Result<Option<Agent>, StoreError> {
        let call = self
            .table
            .client
            .update_item()
            .table_name(&self.table.name)
            .set_key(Some(agent_key(agent_id)))
            .update_expression(
                "SET #capacity = :capacity, #status = if_not_exists(#status, :away), \
                 statusEpoch = if_not_exists(statusEpoch, :never), seenAt = if_not_exists(seenAt, :never)",
            )
            .expression_attribute_names("#status", "status")
            .expression_attribute_names("#capacity", "capacity")
            .expression_attribute_values(":capacity", unsigned(u64::from(capacity)))
            .expression_attribute_values(":away", text(AgentStatus::Away.as_str()))
            .expression_attribute_values(":never", number(0))
            .return_values(ReturnValue::AllOld);
        let answer = Box::pin(call.send()).await.map_err(unavailable("UpdateItem"))?;
        // Of a row that is new there is nothing, or in an emulator its key.
        answer.attributes.filter(|row| row.contains_key("capacity")).map(parse).transpose()
    }
}
