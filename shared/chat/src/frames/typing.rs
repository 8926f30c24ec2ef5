//! `typing`: the other side may show it. Nothing is written.

use serde::Deserialize;

use super::ErrorCode;
use crate::ids::SessionId;
use crate::service::{Caller, News, Reaction};

#[derive(Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Typing {
    pub(super) session_id: SessionId,
}

impl Typing {
    pub(crate) fn handle(self, caller: &Caller<'_>) -> Reaction {
        let Some(session) = caller.session(&self.session_id) else {
            return caller.refuse(ErrorCode::NotFound);
        };
        Reaction::silence().and_tell(News::typing(session.clone(), &caller.party))
    }
}
