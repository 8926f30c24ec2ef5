//! `auth`: a fresh token for the connection, in place.

use std::fmt;

use kernel::time::UnixMillis;
use serde::Deserialize;

use super::ErrorCode;
use super::ping::pong;
use crate::ids::Party;
use crate::service::{Caller, Outside, Reaction, Service};
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
    pub party: Party,
    pub expires_at: UnixMillis,
}

impl Auth {
    /// A token of somebody else is no good: a connection keeps its party.
    pub(crate) async fn handle(
        self,
        service: &Service,
        caller: &Caller<'_>,
        outside: &impl Outside,
    ) -> Result<Reaction, StoreError> {
        let is_good = |good: &Credentials| good.party == caller.party && good.expires_at > service.now();
        let Some(credentials) = outside.verify(&self.token).filter(is_good) else {
            return Ok(caller.refuse(ErrorCode::AuthExpired));
        };
        service.postman().connections().renew(caller.connection, credentials.expires_at).await?;
        pong(service, caller).await
    }
}
