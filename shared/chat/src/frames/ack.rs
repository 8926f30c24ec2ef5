//! `ack`: everything up to a message was seen.

use serde::Deserialize;

use super::{ErrorCode, ServerFrame};
use crate::desk::read::Acknowledged;
use crate::ids::{Seq, SessionId};
use crate::service::{Caller, News, Reaction, Service};
use crate::session::Cursor;
use crate::store::StoreError;

#[derive(Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Ack {
    pub(super) session_id: SessionId,
    pub(super) last_seq: Seq,
}

impl Ack {
    /// It lowers what the reader has not read, and nothing of anybody else's.
    pub(crate) async fn handle(self, service: &Service, caller: &Caller<'_>) -> Result<Reaction, StoreError> {
        let Some(known) = caller.known(&self.session_id) else {
            return Ok(caller.refuse(ErrorCode::NotFound));
        };
        if self.last_seq > known.session.seq {
            return Ok(caller.refuse(ErrorCode::AckOutOfRange));
        }
        let side = caller.party.side;
        let stored = *known.cursors.of(side);
        let read = |last_seq| ServerFrame::Read { session_id: self.session_id.clone(), by: side, last_seq };
        if self.last_seq <= stored.last_seq {
            return Ok(Reaction::answer(read(stored.last_seq)));
        }
        let Some(message) = caller.message(self.last_seq) else {
            // It is within the head, so it is there: read a moment too early.
            return Err(StoreError::Contended { operation: "BatchGetItem" });
        };
        let cursor = Cursor { last_seq: self.last_seq, counts: message.counts };
        let Acknowledged { cursor, moved } = service.desk().acknowledge(&self.session_id, side, cursor).await?;
        let reaction = Reaction::answer(read(cursor.last_seq));
        Ok(if moved { reaction.and_tell(News::read(known.session.clone(), side, cursor.last_seq)) } else { reaction })
    }
}
