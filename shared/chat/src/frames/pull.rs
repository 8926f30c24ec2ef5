//! `pull`: a gap to be filled.

use serde::Deserialize;

use super::ErrorCode;
use crate::ids::{Seq, SessionId};
use crate::service::{Caller, Reaction, Service};
use crate::store::StoreError;

#[derive(Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Pull {
    pub(super) session_id: SessionId,
    /// Both included.
    from: Seq,
    to: Seq,
}

impl Pull {
    pub(super) fn is_a_range(&self) -> bool {
        Seq::ZERO < self.from && self.from <= self.to
    }

    /// At most so much as a `sync` replays; whoever needs more asks for the rest.
    pub(crate) async fn handle(self, service: &Service, caller: &Caller<'_>) -> Result<Reaction, StoreError> {
        let Some(session) = caller.session(&self.session_id) else {
            return Ok(caller.refuse(ErrorCode::NotFound));
        };
        let frames = service.replay(caller, session, self.from, self.to, super::sync::MAX_FRAMES).await?;
        Ok(Reaction::answers(frames.messages))
    }
}
