//! Agents, as agents and admins see them, and how much an admin lets them do.

use std::collections::BTreeSet;

use backoffice::SYSTEM;
use chat::StoreError;
use chat::desk::agents::{Agent, AgentStatus, MAX_CAPACITY};
use chat::ids::SessionId;
use kernel::ids::UserId;
use kernel::time::{Rfc3339, UnixMillis};
use platform::auth::Role;
use platform::http::{Problem, Request, Response, Text};
use serde::{Deserialize, Serialize};

use crate::{State, failed};

/// How long a higher capacity is filled: the gateway waits for the answer.
const DRAIN_MILLIS: i64 = 3_000;

/// One agent; also what `PUT /api/admin/agents/{agentId}` answers.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct AgentDocument<'a> {
    agent_id: &'a UserId,
    status: AgentStatus,
    /// Heard of lately.
    present: bool,
    capacity: u32,
    /// How many sessions they have.
    open: usize,
    sessions: &'a BTreeSet<SessionId>,
    /// Absent: never heard of.
    #[serde(skip_serializing_if = "Option::is_none")]
    seen_at: Option<Rfc3339>,
}

impl<'a> AgentDocument<'a> {
    fn new(agent: &'a Agent, now: UnixMillis) -> Self {
        Self {
            agent_id: &agent.agent_id,
            status: agent.status,
            present: !agent.is_lost(now),
            capacity: agent.capacity,
            open: agent.sessions.len(),
            sessions: &agent.sessions,
            seen_at: Some(agent.seen_at).filter(|at| *at > UnixMillis::default()).map(Rfc3339),
        }
    }
}

/// `GET /api/chat/agents`.
#[derive(Serialize)]
struct AgentsDocument<'a> {
    agents: Vec<AgentDocument<'a>>,
    /// Sessions in the queue.
    waiting: u32,
}

pub(crate) async fn everybody(state: &State, request: &Request) -> Result<Response, Problem> {
    let now = state.clock.now();
    request.authenticate_one_of(&state.verifier, now, &[Role::Agent, Role::Admin])?;
    let agents = state.service.desk().agents().await.map_err(failed)?;
    let waiting = state.service.desk().count_waiting(None).await.map_err(failed)?;
    let agents = agents.iter().map(|agent| AgentDocument::new(agent, now)).collect();
    Response::json(200, &AgentsDocument { agents, waiting })
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct AgentBody {
    capacity: u32,
}

/// What they have beyond a lower capacity stays with them; with a higher one they are given what waits.
pub(crate) async fn set_capacity(state: &State, request: &Request) -> Result<Response, Problem> {
    let admin = request.authenticate(&state.verifier, state.clock.now(), Role::Admin)?;
    let agent_id: UserId = request.path("agentId")?;
    let AgentBody { capacity } = request.json()?;
    if capacity > MAX_CAPACITY {
        return Err(Problem::validation(Text::of(
            format!("capacity is 0 to {MAX_CAPACITY}."),
            format!("capacity 的取值范围为 0 到 {MAX_CAPACITY}。"),
        )));
    }
    let before = state.service.desk().set_capacity(&agent_id, capacity).await.map_err(failed)?;
    tracing::info!(admin = %admin.id, %agent_id, capacity, "capacity set");
    let before = before.map(|before| AgentBody { capacity: before.capacity });
    let action = format!("put-agent {agent_id}");
    state.changes.note(SYSTEM, &admin.id, state.clock.now(), action, before.as_ref(), &AgentBody { capacity }).await;
    let claimed = state.service.drain(state.clock.now().plus_millis(DRAIN_MILLIS)).await;
    tracing::info!(claimed, "drained");
    // As they are now, with what they have just been given.
    let agent = state.service.desk().agent(&agent_id).await.and_then(|agent| agent.ok_or(StoreError::Missing));
    let agent = agent.map_err(failed)?;
    Response::json(200, &AgentDocument::new(&agent, state.clock.now()))
}
