//! `auth`: a fresh token for the connection, in place.

use std::fmt;

use kernel::ids::UserId;
use kernel::time::UnixMillis;
use serde::Deserialize;

use super::ping::pong;
use super::{ErrorCode, ServerFrame};
use crate::connections::Connection;
use crate::postman::Postman;
use crate::store::StoreError;

#[derive(Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Auth {
    token: Token,
}

/// A credential: never shown.
#[derive(PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub struct Token(String);

impl Token {
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(…)")
    }
}

/// What a good token says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Credentials {
    pub user_id: UserId,
    pub expires_at: UnixMillis,
}

impl Auth {
    /// `verify`: what the token says, if it is good. One of somebody else is not: a connection keeps its user.
    pub(crate) async fn handle(
        self,
        postman: &Postman,
        connection: &Connection,
        verify: impl FnOnce(&Token) -> Option<Credentials>,
    ) -> Result<Vec<ServerFrame>, StoreError> {
        let refused = || Ok(vec![ServerFrame::error(ErrorCode::AuthExpired, connection.language)]);
        let Some(credentials) = verify(&self.token) else {
            return refused();
        };
        // The verifier lets a token pass for a moment longer than it says, for clocks that differ. That renews nothing.
        if credentials.user_id != connection.user_id || credentials.expires_at <= postman.now() {
            return refused();
        }
        postman.connections().renew(connection, credentials.expires_at).await?;
        pong(postman, connection).await
    }
}
