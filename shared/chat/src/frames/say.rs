//! `text`, `image`, `card`: a word in a session.

use kernel::ids::OrderNo;
use kernel::time::Rfc3339;
use serde::Deserialize;

use super::{ErrorCode, ServerFrame};
use crate::desk::send::{Draft, Name, Refusal, Sent};
use crate::ids::{ClientMsgId, SessionId};
use crate::message::{Body, ImageKey, MessageText};
use crate::service::{Caller, News, Outside, Reaction, Service};
use crate::store::StoreError;

/// `T`: what is said, as the client sends it.
#[derive(Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Say<T> {
    pub(super) session_id: SessionId,
    content: T,
    /// The same on every try. Without one a message that is sent again may be stored again.
    #[serde(default, deserialize_with = "super::given")]
    pub(super) client_msg_id: Option<ClientMsgId>,
}

impl Say<MessageText> {
    pub(crate) async fn handle(self, service: &Service, caller: &Caller<'_>) -> Result<Reaction, StoreError> {
        let content = self.content.as_str().to_owned();
        say(service, caller, &self.session_id, Body::Text(self.content), &content, self.client_msg_id).await
    }
}

impl Say<ImageKey> {
    pub(crate) async fn handle(self, service: &Service, caller: &Caller<'_>) -> Result<Reaction, StoreError> {
        if !self.content.is_of(&self.session_id) {
            return Ok(caller.refuse(ErrorCode::NotFound));
        }
        let content = self.content.as_str().to_owned();
        say(service, caller, &self.session_id, Body::Image(self.content), &content, self.client_msg_id).await
    }
}

impl Say<OrderNo> {
    /// The order has to be the customer's, whoever shows it.
    pub(crate) async fn handle(
        self,
        service: &Service,
        caller: &Caller<'_>,
        outside: &impl Outside,
    ) -> Result<Reaction, StoreError> {
        let Some(session) = caller.anybodys(&self.session_id) else {
            return Ok(caller.refuse(ErrorCode::NotFound));
        };
        let card = outside.card(&session.user_id, &self.content).await?;
        let Some(card) = card else { return Ok(caller.refuse(ErrorCode::NotFound)) };
        let content = self.content.as_str();
        say(service, caller, &self.session_id, Body::Card(card), content, self.client_msg_id).await
    }
}

async fn say(
    service: &Service,
    caller: &Caller<'_>,
    session_id: &SessionId,
    body: Body,
    content: &str,
    client_msg_id: Option<ClientMsgId>,
) -> Result<Reaction, StoreError> {
    let Some(session) = caller.anybodys(session_id) else {
        return Ok(caller.refuse(ErrorCode::NotFound));
    };
    let name = client_msg_id.clone().map_or_else(|| Name::Gateway(caller.message_id.to_owned()), Name::Client);
    let draft = Draft::new(body, content, name);
    let sent = service.desk().send(session.clone(), &caller.party, &draft, service.now()).await?;
    Ok(match sent {
        Sent::Stored(step) => {
            let message = &step.message;
            let sent = ServerFrame::Sent {
                client_msg_id,
                session_id: session_id.clone(),
                seq: message.seq,
                at: Rfc3339(message.at),
                duplicate: false,
            };
            Reaction::answer(sent).and_tell(News::said(*step))
        }
        Sent::Duplicate { seq, at } => Reaction::answer(ServerFrame::Sent {
            client_msg_id,
            session_id: session_id.clone(),
            seq,
            at: Rfc3339(at),
            duplicate: true,
        }),
        Sent::Refused(refusal) => caller.refuse(match refusal {
            Refusal::Closed => ErrorCode::SessionClosed,
            Refusal::NotAMember => ErrorCode::NotFound,
            Refusal::Reused => ErrorCode::ClientMsgIdReused,
        }),
    })
}
