//! `ping`: the heartbeat.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::ServerFrame;
use crate::connections::Connection;
use crate::postman::Postman;
use crate::store::StoreError;

#[derive(Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ping {}

impl Ping {
    pub(crate) async fn handle(
        self,
        postman: &Postman,
        connection: &Connection,
    ) -> Result<Vec<ServerFrame>, StoreError> {
        pong(postman, connection).await
    }
}

/// The answer to a heartbeat, and with it what the client has not acknowledged: a push that was lost comes again here.
pub(super) async fn pong(postman: &Postman, connection: &Connection) -> Result<Vec<ServerFrame>, StoreError> {
    let mut answers = vec![ServerFrame::Pong { heads: BTreeMap::new() }];
    answers.extend(postman.unacknowledged(connection).await?);
    Ok(answers)
}
