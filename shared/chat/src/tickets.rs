//! Tickets for the handshake.
//!
//! A page cannot set a header on a handshake, so whatever opens a socket stands in its address, and addresses end up in
//! logs of all kinds. A token there would be good for an hour. A ticket is got with the token over HTTP, is good for half a
//! minute, and once: whoever finds it later finds nothing.
//!
//! The row `TICKET#<ticket> / META` says whose it is. It is redeemed by deleting it, and DynamoDB hands the old row to one
//! deleter only.

use std::fmt;

use aws_sdk_dynamodb::types::ReturnValue;
use data_encoding::BASE64URL_NOPAD;
use kernel::ids::UserId;
use kernel::time::UnixMillis;
use serde::{Deserialize, Serialize};

use crate::ids::{Party, Side};
use crate::store::{Item, StoreError, TTL, Table, key, number, unavailable};

/// How long a ticket is good: time for one handshake, on a bad line.
pub const LIFETIME_SECS: i64 = 30;
/// 256 bits: nobody guesses one of the few that are good at a time.
const TICKET_BYTES: usize = 32;
/// As the ticket is written.
const TICKET_CHARS: usize = 43;

const SK_META: &str = "META";

/// What opens one socket, once. Never logged.
#[derive(Clone, PartialEq, Eq)]
pub struct Ticket(String);

/// Who may open a socket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Holder {
    pub party: Party,
    /// When the token expires that the ticket was got with: the socket ends with it.
    pub expires_at: UnixMillis,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Row {
    side: Side,
    id: UserId,
    token_expires_at: UnixMillis,
    expires_at: UnixMillis,
}

impl Ticket {
    fn random() -> Result<Self, getrandom::Error> {
        let mut bytes = [0u8; TICKET_BYTES];
        getrandom::fill(&mut bytes)?;
        Ok(Self(BASE64URL_NOPAD.encode(&bytes)))
    }

    /// What a client brings. `None`: it cannot be one, so nobody need look for it.
    pub fn parse(text: &str) -> Option<Self> {
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
        (text.len() == TICKET_CHARS && text.bytes().all(allowed)).then(|| Self(text.to_owned()))
    }

    /// The text itself, for the client it is made for.
    pub fn expose(&self) -> &str {
        &self.0
    }

    fn key(&self) -> Item {
        key(format!("TICKET#{}", self.0), SK_META.to_owned())
    }
}

impl fmt::Debug for Ticket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Ticket(…)")
    }
}

/// The rows of all tickets.
#[derive(Debug, Clone)]
pub struct Tickets {
    table: Table,
}

impl Tickets {
    /// Over the connections table.
    pub fn new(client: aws_sdk_dynamodb::Client, table: String) -> Self {
        Self { table: Table { client, name: table } }
    }

    /// A new ticket, and until when it is good.
    pub async fn issue(&self, holder: &Holder, now: UnixMillis) -> Result<(Ticket, UnixMillis), StoreError> {
        let ticket = Ticket::random()?;
        let expires_at = now.plus_secs(LIFETIME_SECS).min(holder.expires_at);
        let Holder { party, expires_at: token_expires_at } = holder.clone();
        let row = Row { side: party.side, id: party.id, token_expires_at, expires_at };
        let mut item: Item = serde_dynamo::to_item(row).map_err(StoreError::Corrupt)?;
        item.extend(ticket.key());
        // DynamoDB may come to it days later, and reads are judged by `expiresAt`.
        item.insert(TTL.to_owned(), number(expires_at.secs().saturating_add(1)));
        let put = self.table.client.put_item().table_name(&self.table.name).set_item(Some(item));
        put.send().await.map_err(unavailable("PutItem"))?;
        Ok((ticket, expires_at))
    }

    /// Whose ticket it is, which is over with that. `None`: nobody's, somebody's before, or too late. When the answer of the
    /// table is lost so is the ticket, and the client gets another one.
    pub async fn redeem(&self, ticket: &Ticket, now: UnixMillis) -> Result<Option<Holder>, StoreError> {
        let delete = self
            .table
            .client
            .delete_item()
            .table_name(&self.table.name)
            .set_key(Some(ticket.key()))
            .return_values(ReturnValue::AllOld);
        let deleted = delete.send().await.map_err(unavailable("DeleteItem"))?;
        let Some(item) = deleted.attributes.filter(|attributes| !attributes.is_empty()) else {
            return Ok(None);
        };
        let row: Row = serde_dynamo::from_item(item).map_err(StoreError::Corrupt)?;
        let party = Party { side: row.side, id: row.id };
        Ok((now < row.expires_at).then_some(Holder { party, expires_at: row.token_expires_at }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tickets_are_long_differ_and_are_not_shown() {
        let (one, other) = (Ticket::random().unwrap(), Ticket::random().unwrap());
        assert_ne!(one, other);
        assert_eq!(Ticket::parse(one.expose()), Some(one.clone()));
        assert!(!format!("{one:?}").contains(one.expose()));
        let long = "a".repeat(TICKET_CHARS);
        for bad in ["", "a", &long[1..], &format!("{long}a"), &long.replacen('a', "#", 1), &long.replacen('a', "=", 1)]
        {
            assert_eq!(Ticket::parse(bad), None, "{bad}");
        }
    }
}
