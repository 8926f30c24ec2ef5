//! `open`: a customer wants to talk.

use serde::Deserialize;

use super::ErrorCode;
use crate::desk::life::Opened;
use crate::ids::{SessionId, Side};
use crate::service::{Caller, News, Reaction, Service, Then};
use crate::store::StoreError;

#[derive(Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Open {
    /// One to be opened again.
    #[serde(default, deserialize_with = "super::given")]
    pub(super) session_id: Option<SessionId>,
}

impl Open {
    /// Answered with the session as it is now; who serves it is told when somebody does.
    pub(crate) async fn handle(self, service: &Service, caller: &Caller<'_>) -> Result<Reaction, StoreError> {
        if caller.party.side != Side::User {
            return Ok(caller.refuse(ErrorCode::NotFound));
        }
        let (desk, user_id, now) = (service.desk(), &caller.party.id, service.now());
        let opened = match &self.session_id {
            None => desk.open(user_id, now).await?,
            Some(session_id) => desk.reopen(user_id, session_id, now).await?,
        };
        let answer = async |session_id| service.session_frame(session_id, caller.language).await;
        Ok(match opened {
            Opened::New(session) => {
                let reaction = Reaction::answers(answer(&session.session_id).await?);
                reaction.and_tell(News::opened(session)).and_then(Then::Drain)
            }
            Opened::Reopened(step) => Reaction::answers(answer(&step.session.session_id).await?)
                .and_tell(News::changed(*step, None))
                .and_then(Then::Drain),
            // One that waits beside somebody who is free: whoever opened it died before it was given out.
            Opened::Active(session) => Reaction::answers(answer(&session.session_id).await?).and_then(Then::Drain),
            Opened::Unknown => caller.refuse(ErrorCode::NotFound),
        })
    }
}
