//! `transfer`: an agent gives a session away.

use kernel::ids::UserId;
use serde::Deserialize;

use super::ErrorCode;
use crate::desk::assign::{Destination, Moved, Reason};
use crate::ids::{SessionId, Side};
use crate::service::{Caller, News, Reaction, Service, Then};
use crate::store::StoreError;

#[derive(Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Transfer {
    pub(super) session_id: SessionId,
    /// An agent; without one the best of the others, or the queue.
    #[serde(default, deserialize_with = "super::given")]
    to: Option<UserId>,
}

impl Transfer {
    pub(crate) async fn handle(self, service: &Service, caller: &Caller<'_>) -> Result<Reaction, StoreError> {
        if caller.party.side != Side::Agent || caller.session(&self.session_id).is_none() {
            return Ok(caller.refuse(ErrorCode::NotFound));
        }
        let from = &caller.party.id;
        let destination = self.to.map_or(Destination::Anybody, Destination::Agent);
        let moved = service.desk().move_on(&self.session_id, from, &destination, Reason::Wish, service.now()).await?;
        Ok(match moved {
            Moved::Moved(step) => {
                let answer = service.session_frame(&step.session.session_id, caller.language).await?;
                Reaction::answers(answer).and_tell(News::changed(*step, Some(from.clone()))).and_then(Then::Drain)
            }
            Moved::NotTheirs => caller.refuse(ErrorCode::NotFound),
            Moved::NobodyThere => caller.refuse(ErrorCode::AgentUnavailable),
        })
    }
}
