//! `sync`: repeat what this client has missed.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, de::Error};

use super::{ErrorCode, ServerFrame};
use crate::connections::Connection;
use crate::ids::SessionId;
use crate::postman::Postman;
use crate::store::StoreError;

/// Sessions that one `sync` may name: far more than anyone has open.
pub(super) const MAX_SESSIONS: usize = 32;

#[derive(Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sync {
    /// The highest sequence number that the client has of each session.
    #[serde(default, deserialize_with = "bounded")]
    sessions: BTreeMap<SessionId, u64>,
}

fn bounded<'de, D: Deserializer<'de>>(deserializer: D) -> Result<BTreeMap<SessionId, u64>, D::Error> {
    let sessions = BTreeMap::deserialize(deserializer)?;
    if sessions.len() > MAX_SESSIONS {
        return Err(D::Error::custom("too many sessions"));
    }
    Ok(sessions)
}

impl Sync {
    /// First the results, then a word on each session: nobody is a member of one yet.
    pub(crate) async fn handle(
        self,
        postman: &Postman,
        connection: &Connection,
    ) -> Result<Vec<ServerFrame>, StoreError> {
        let mut answers = postman.unacknowledged(connection).await?;
        answers.extend(self.sessions.keys().map(|_| ServerFrame::error(ErrorCode::NotFound, connection.language)));
        Ok(answers)
    }
}
