//! `sync`: repeat what this client has missed.

use std::collections::BTreeMap;

use futures_util::future::try_join_all;
use serde::{Deserialize, Deserializer, de::Error};

use super::{ErrorCode, ServerFrame};
use crate::ids::{Seq, SessionId};
use crate::service::{Caller, Reaction, Service};
use crate::store::StoreError;

/// Sessions that one `sync` may name: far more than anyone has open.
pub(super) const MAX_SESSIONS: usize = 32;
/// `messages` frames that one `sync` or `pull` is answered with, of 30 KB each. A client that is still behind asks again.
pub(crate) const MAX_FRAMES: usize = 32;

#[derive(Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sync {
    /// The highest sequence number that the client has of each session.
    #[serde(default, deserialize_with = "bounded")]
    sessions: BTreeMap<SessionId, Seq>,
}

fn bounded<'de, D: Deserializer<'de>>(deserializer: D) -> Result<BTreeMap<SessionId, Seq>, D::Error> {
    let sessions = BTreeMap::deserialize(deserializer)?;
    if sessions.len() > MAX_SESSIONS {
        return Err(D::Error::custom("too many sessions"));
    }
    Ok(sessions)
}

impl Sync {
    pub(super) fn sessions(&self) -> impl Iterator<Item = &SessionId> {
        self.sessions.keys()
    }

    /// First the results, then of each session what is missing, its state, and where it ends.
    pub(crate) async fn handle(self, service: &Service, caller: &Caller<'_>) -> Result<Reaction, StoreError> {
        let share = MAX_FRAMES / self.sessions.len().max(1);
        let replays = self.sessions.iter().map(|(session_id, last)| replay(service, caller, session_id, *last, share));
        let (results, replays) = tokio::try_join!(service.results(caller.connection), try_join_all(replays))?;
        Ok(Reaction::answers(results.into_iter().chain(replays.into_iter().flatten())))
    }
}

/// What a client that has a session up to `last` does not have.
pub(crate) async fn replay(
    service: &Service,
    caller: &Caller<'_>,
    session_id: &SessionId,
    last: Seq,
    max_frames: usize,
) -> Result<Vec<ServerFrame>, StoreError> {
    let Some(known) = caller.known(session_id) else {
        let refused = ServerFrame::refused(ErrorCode::NotFound, Some(session_id.clone()), None, caller.language);
        return Ok(vec![refused]);
    };
    let position = service.position(&known.session);
    let all = Seq::new(u64::MAX);
    let (replay, position) =
        tokio::try_join!(service.replay(caller, &known.session, last.next(), all, max_frames), position)?;
    // Nothing to say is no frame here: the end says it.
    let mut frames = if replay.last.is_some() { replay.messages } else { Vec::new() };
    let head = known.session.seq.max(replay.last.unwrap_or_default());
    frames.push(ServerFrame::session(known, position, caller.language));
    frames.push(ServerFrame::SyncEnd { session_id: session_id.clone(), head });
    Ok(frames)
}
