//! `ping`: the heartbeat.

use std::collections::BTreeMap;

use kernel::ids::UserId;
use kernel::time::UnixMillis;
use serde::Deserialize;

use super::ServerFrame;
use crate::desk::agents::{AgentStatus, SEEN_EVERY_SECS};
use crate::ids::{Seq, SessionId, Side};
use crate::service::{Caller, Reaction, Service, Then};
use crate::session::{Session, SessionStatus};
use crate::store::StoreError;

/// When a connection is to be replaced: the gateway cuts it at two hours, and a client needs time for another.
const ROTATE_AFTER_SECS: i64 = 110 * 60;

#[derive(Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ping {}

impl Ping {
    pub(crate) async fn handle(self, service: &Service, caller: &Caller<'_>) -> Result<Reaction, StoreError> {
        pong(service, caller).await
    }
}

/// The answer to a heartbeat, and with it what the client may have missed: where its sessions end, and the results that it has
/// not acknowledged. A push that was lost is noticed here.
pub(super) async fn pong(service: &Service, caller: &Caller<'_>) -> Result<Reaction, StoreError> {
    let party = &caller.party;
    let mut reaction = match party.side {
        Side::User => {
            let (sessions, results) =
                tokio::try_join!(sessions_of_user(service, &party.id), service.results(caller.connection))?;
            let reaction = Reaction::answers([heads(&sessions)].into_iter().chain(results));
            match sessions.iter().find(|session| session.status == SessionStatus::Waiting) {
                // Its place moves without a message.
                Some(waiting) => reaction.and(service.session_frame(&waiting.session_id, caller.language).await?),
                None => reaction,
            }
        }
        Side::Agent => {
            let now = service.now();
            let (sessions, is_back) = of_agent(service, &party.id, now).await?;
            let reaction = Reaction::answer(heads(&sessions));
            if is_back { reaction.and_then(Then::Drain) } else { reaction }
        }
    };
    if caller.connection.connected_at.plus_secs(ROTATE_AFTER_SECS) <= service.now() {
        reaction.answers.insert(1, ServerFrame::Rotate {});
    }
    Ok(reaction)
}

fn heads(sessions: &[Session]) -> ServerFrame {
    let heads: BTreeMap<SessionId, Seq> =
        sessions.iter().map(|session| (session.session_id.clone(), session.seq)).collect();
    ServerFrame::Pong { heads }
}

/// The active one and the one closed last, whose end may have been missed.
async fn sessions_of_user(service: &Service, user_id: &UserId) -> Result<Vec<Session>, StoreError> {
    let pointer = service.desk().pointer(user_id).await?;
    let session_ids: Vec<_> = pointer.active.iter().chain(&pointer.last).collect();
    service.desk().sessions(session_ids).await
}

/// The sessions that an agent has, and whether they had been lost and take sessions again.
async fn of_agent(service: &Service, agent_id: &UserId, now: UnixMillis) -> Result<(Vec<Session>, bool), StoreError> {
    let desk = service.desk();
    let Some(agent) = desk.agent(agent_id).await? else { return Ok((Vec::new(), false)) };
    if agent.seen_at.plus_secs(SEEN_EVERY_SECS) <= now {
        desk.note_seen(agent_id, now).await?;
    }
    let is_back = agent.is_lost(now) && agent.status == AgentStatus::Online;
    let mut sessions = desk.sessions(&agent.sessions).await?;
    // Read after the agent: one may have gone to somebody else in between.
    sessions.retain(|session| session.agent_id.as_ref() == Some(agent_id));
    Ok((sessions, is_back))
}
