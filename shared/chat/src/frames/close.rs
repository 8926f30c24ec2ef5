//! `close`: a session is over, for its customer or its agent.

use serde::Deserialize;

use super::ErrorCode;
use crate::desk::life::Closed;
use crate::ids::SessionId;
use crate::service::{Caller, News, Reaction, Service, Then};
use crate::store::StoreError;

#[derive(Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Close {
    pub(super) session_id: SessionId,
}

impl Close {
    pub(crate) async fn handle(self, service: &Service, caller: &Caller<'_>) -> Result<Reaction, StoreError> {
        let Some(session) = caller.session(&self.session_id) else {
            return Ok(caller.refuse(ErrorCode::NotFound));
        };
        let party = &caller.party;
        let may = |session: &crate::session::Session| session.has_member(party);
        let closed = service.desk().close(session.clone(), Some(party.side), may, service.now()).await?;
        Ok(match closed {
            Closed::Now(step) => {
                let answer = service.session_frame(&step.session.session_id, caller.language).await?;
                let agent = step.session.last_agent_id.clone();
                Reaction::answers(answer).and_tell(News::changed(*step, agent)).and_then(Then::Drain)
            }
            Closed::Otherwise(session) if session.has_member(party) => {
                Reaction::answers(service.session_frame(&session.session_id, caller.language).await?)
            }
            Closed::Otherwise(_) => caller.refuse(ErrorCode::NotFound),
        })
    }
}
