//! `status`: an agent comes, is busy, or goes.

use kernel::time::Rfc3339;
use serde::Deserialize;

use super::{ErrorCode, ServerFrame};
use crate::desk::agents::AgentStatus;
use crate::ids::Side;
use crate::service::{Caller, Reaction, Service, Then};
use crate::store::StoreError;

#[derive(Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Status {
    status: AgentStatus,
}

impl Status {
    /// What follows depends on the status that is stored, which may be a newer one.
    pub(crate) async fn handle(self, service: &Service, caller: &Caller<'_>) -> Result<Reaction, StoreError> {
        if caller.party.side != Side::Agent {
            return Ok(caller.refuse(ErrorCode::NotFound));
        }
        let id = &caller.party.id;
        let agent = service.desk().set_status(id, self.status, caller.received_at, service.now()).await?;
        let echo = ServerFrame::Status { status: agent.status, at: Rfc3339(agent.status_epoch) };
        let reaction = Reaction::answer(echo);
        Ok(match agent.status {
            AgentStatus::Online => reaction.and_then(Then::Drain),
            AgentStatus::Busy => reaction,
            AgentStatus::Away => reaction.and_then(Then::Leave(agent)),
        })
    }
}
