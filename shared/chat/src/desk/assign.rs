//! Who serves whom: sessions go from the queue to agents, and from agents who leave to others or back.
//!
//! Each step is one transaction over the session, its message, every agent involved and the queue's row. So a session is
//! never with two agents or with none and not in the queue, whoever dies in between; and of two steps at once one is made,
//! and the other is decided again on what is there then.

use std::cmp::Reverse;
use std::collections::HashMap;

use aws_sdk_dynamodb::types::{Select, TransactWriteItem};
use kernel::crash;
use kernel::ids::UserId;
use kernel::time::UnixMillis;

use super::agents::{Agent, AgentStatus, LEASE_SECS};
use super::life::{Queued, one};
use super::{Desk, PK_QUEUE, TRIES, agent_key, delete, instant, parse, queue_key, queue_sk, update};
use crate::ids::{SessionId, Side};
use crate::session::{Session, SessionStatus, Step};
use crate::store::{PK, StoreError, Transacted, pause, text, unavailable};

/// Sessions of the queue's head that are looked at for one that can be given out.
const LOOKED_AT: u16 = 10;

/// What came of looking for work for an agent.
#[derive(Debug)]
pub enum Claimed {
    Claimed(Box<Step>),
    /// Nothing waits, or nobody is free.
    Rest,
}

/// What came of moving a session.
#[derive(Debug)]
pub enum Moved {
    Moved(Box<Step>),
    /// It is not with that agent any more, or they need not give it away any more.
    NotTheirs,
    /// Whom it was to go to is not free.
    NobodyThere,
}

/// Where a session goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Destination {
    /// To this agent.
    Agent(UserId),
    /// To the best of the others, or back to the queue.
    Anybody,
}

/// Why a session is moved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// Its agent wants it.
    Wish,
    /// Its agent is away or lost, and only while they are.
    Absence,
}

impl Desk {
    /// The session that has waited longest goes to the best free agent.
    pub async fn claim_next(&self, now: UnixMillis) -> Result<Claimed, StoreError> {
        for attempt in 0..TRIES {
            let Some(session) = self.longest_waiting().await? else { return Ok(Claimed::Rest) };
            let Some(agent) = self.best_agent(None, now).await? else { return Ok(Claimed::Rest) };
            let step = session.claimed(&agent.agent_id, now);
            let mut actions = self.write_step(&session, &step)?.to_vec();
            actions.push(self.give(&agent, &session.session_id, now)?);
            let waits = self.delete(queue_key(&session)).condition_expression("attribute_exists(pk)");
            actions.push(delete(waits.build())?);
            if let Transacted::Done = self.table.try_transact(actions).await? {
                crash::point("chat.claim.after");
                return Ok(Claimed::Claimed(Box::new(step)));
            }
            // Somebody else has claimed it, or a word was said in it.
            pause(attempt).await;
        }
        // Whoever else claimed drains on; where it was words, the sweep does.
        Ok(Claimed::Rest)
    }

    /// A session leaves its agent.
    pub async fn move_on(
        &self,
        session_id: &SessionId,
        agent_id: &UserId,
        destination: &Destination,
        reason: Reason,
        now: UnixMillis,
    ) -> Result<Moved, StoreError> {
        for attempt in 0..TRIES {
            let Some(session) = self.session(session_id).await? else {
                return Err(StoreError::Missing);
            };
            let Some(from) = self.agent(agent_id).await? else { return Ok(Moved::NotTheirs) };
            let theirs = session.agent_id.as_ref() == Some(agent_id);
            if !theirs || (reason == Reason::Absence && !from.must_leave(now)) {
                return Ok(Moved::NotTheirs);
            }
            let to = match destination {
                Destination::Agent(to) if to == agent_id => return Ok(Moved::NobodyThere),
                Destination::Agent(to) => match self.agent(to).await?.filter(|to| to.is_free(now)) {
                    Some(to) => Some(to),
                    None => return Ok(Moved::NobodyThere),
                },
                Destination::Anybody => self.best_agent(Some(agent_id), now).await?,
            };
            let step = match &to {
                Some(to) => session.transferred(&to.agent_id, now),
                None => session.requeued(now),
            };
            let mut actions = self.write_step(&session, &step)?.to_vec();
            actions.push(match reason {
                Reason::Wish => self.drop_session(agent_id, session_id)?,
                Reason::Absence => self.take_from_absent(&from, session_id)?,
            });
            actions.push(match &to {
                Some(to) => self.give(to, session_id, now)?,
                None => self.enqueue(&step.session)?,
            });
            if let Transacted::Done = self.table.try_transact(actions).await? {
                crash::point("chat.move.after");
                return Ok(Moved::Moved(Box::new(step)));
            }
            pause(attempt).await;
        }
        Err(StoreError::Contended { operation: "TransactWriteItems" })
    }

    /// An agent gets a session, if they are still as free as they were read.
    fn give(&self, agent: &Agent, session_id: &SessionId, now: UnixMillis) -> Result<TransactWriteItem, StoreError> {
        update(
            self.update(agent_key(&agent.agent_id))
                .update_expression("ADD #sessions :session SET lastAssignedAt = :now")
                .condition_expression(
                    "#status = :online AND statusEpoch = :epoch AND seenAt >= :alive \
                     AND ((attribute_not_exists(#sessions) AND #capacity > :none) OR size(#sessions) < #capacity)",
                )
                .expression_attribute_names("#status", "status")
                .expression_attribute_names("#sessions", "sessions")
                .expression_attribute_names("#capacity", "capacity")
                .expression_attribute_values(":session", one(session_id))
                .expression_attribute_values(":now", instant(now))
                .expression_attribute_values(":online", text(AgentStatus::Online.as_str()))
                .expression_attribute_values(":epoch", instant(agent.status_epoch))
                .expression_attribute_values(":alive", instant(now.plus_secs(-LEASE_SECS)))
                .expression_attribute_values(":none", super::unsigned(0))
                .build(),
        )
    }

    /// A session is taken from an agent who is as absent as they were read: not heard of since, and with the same status.
    fn take_from_absent(&self, agent: &Agent, session_id: &SessionId) -> Result<TransactWriteItem, StoreError> {
        update(
            self.update(agent_key(&agent.agent_id))
                .update_expression("DELETE #sessions :session")
                .expression_attribute_names("#sessions", "sessions")
                .condition_expression("statusEpoch = :epoch AND seenAt = :seen")
                .expression_attribute_values(":session", one(session_id))
                .expression_attribute_values(":epoch", instant(agent.status_epoch))
                .expression_attribute_values(":seen", instant(agent.seen_at))
                .build(),
        )
    }

    async fn longest_waiting(&self) -> Result<Option<Session>, StoreError> {
        for session_id in self.waiting(LOOKED_AT).await? {
            match self.session(&session_id).await {
                Ok(Some(session)) if session.status == SessionStatus::Waiting => return Ok(Some(session)),
                // Claimed since the queue was read.
                Ok(Some(_)) => {}
                Ok(None) => tracing::error!(%session_id, "what waits is not there: it is passed over"),
                // Nobody behind it should wait for ever.
                Err(error @ StoreError::Corrupt(_)) => {
                    let error = &error as &dyn std::error::Error;
                    tracing::error!(%session_id, error, "what waits cannot be read: it is passed over");
                }
                Err(error) => return Err(error),
            }
        }
        Ok(None)
    }

    /// Sessions that wait, the longest first.
    pub async fn waiting(&self, limit: u16) -> Result<Vec<SessionId>, StoreError> {
        let call = self
            .table
            .client
            .query()
            .table_name(&self.table.name)
            .consistent_read(true)
            .limit(i32::from(limit))
            .key_condition_expression("#pk = :pk")
            .expression_attribute_names("#pk", PK)
            .expression_attribute_values(":pk", text(PK_QUEUE));
        let answer = Box::pin(call.send()).await.map_err(unavailable("Query"))?;
        let queued = answer.items.unwrap_or_default().into_iter().map(parse::<Queued>);
        queued.map(|queued| queued.map(|queued| queued.session_id)).collect()
    }

    /// The place of a session that waits: 1 is next. Beyond some thousands it is a lower bound.
    pub async fn position(&self, session: &Session) -> Result<u32, StoreError> {
        let answer = self.count_waiting(Some(&queue_sk(session))).await?;
        Ok(answer.saturating_add(1))
    }

    /// How many wait: all of them, or those before a place.
    pub async fn count_waiting(&self, before: Option<&str>) -> Result<u32, StoreError> {
        let call = self
            .table
            .client
            .query()
            .table_name(&self.table.name)
            .consistent_read(true)
            .select(Select::Count)
            .key_condition_expression("pk = :pk AND sk < :before")
            .expression_attribute_values(":pk", text(PK_QUEUE))
            .expression_attribute_values(":before", text(before.unwrap_or("~")));
        let answer = Box::pin(call.send()).await.map_err(unavailable("Query"))?;
        Ok(u32::try_from(answer.count).unwrap_or_default())
    }

    /// Of those who are free: whose customers wait for the fewest answers, who has the fewest sessions, who has been given
    /// one longest ago. `but`: not this one.
    async fn best_agent(&self, but: Option<&UserId>, now: UnixMillis) -> Result<Option<Agent>, StoreError> {
        let mut free = self.agents().await?;
        free.retain(|agent| agent.is_free(now) && Some(&agent.agent_id) != but);
        if free.len() < 2 {
            return Ok(free.pop());
        }
        let known = self.known(free.iter().flat_map(|agent| &agent.sessions)).await?;
        let unread: HashMap<&SessionId, u64> = known
            .iter()
            .map(|known| (&known.session.session_id, known.session.unread(&known.cursors, Side::Agent)))
            .collect();
        let sum = |agent: &Agent| -> u64 { agent.sessions.iter().filter_map(|session| unread.get(session)).sum() };
        Ok(free
            .into_iter()
            .min_by_key(|agent| (sum(agent), agent.sessions.len(), agent.last_assigned_at, agent.agent_id.clone())))
    }

    /// Agents who have sessions and must not.
    pub async fn absent(&self, now: UnixMillis) -> Result<Vec<Agent>, StoreError> {
        let mut agents = self.agents().await?;
        agents.retain(|agent| agent.must_leave(now) && !agent.sessions.is_empty());
        agents.sort_by_key(|agent| Reverse(agent.sessions.len()));
        Ok(agents)
    }
}
