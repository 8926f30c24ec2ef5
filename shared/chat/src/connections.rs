//! Who is connected.
//!
//! Two rows tell of one socket. `CONN#<id> / META` answers "who sent this frame?" (a frame carries only the connection's
//! id); `USER#<user> / CONN#<id>` (of an agent `AGENT#<agent> / …`) answers "where is this user?". Both say the same and are written in one transaction, so
//! neither is ever there alone, save for what a crash leaves of a removal: that ends with the first push (410) or by its
//! time to live.
//!
//! A socket cannot be written to before `$connect` has been answered, so its rows begin as `connecting`. The first frame
//! of any type shows that it is open and makes it live. Then a client that wants to miss nothing asks for what it missed
//! (`sync`): live first, replayed second, so whatever is stored in between comes by one of the two ways.
//!
//! Every change demands that the rows are there. A frame or a renewal that comes late, after the end of its connection,
//! cannot bring it back.

use aws_sdk_dynamodb::operation::delete_item::DeleteItemOutput;
use aws_sdk_dynamodb::types::{
    AttributeValue, DeleteRequest, Put, ReturnValue, TransactWriteItem, Update, WriteRequest,
};
use kernel::ids::{DeviceId, UserId};
use kernel::text::Language;
use kernel::time::UnixMillis;
use serde::{Deserialize, Serialize};

use crate::ids::{ConnectionId, Party, Seq, Side};
use crate::store::{Item, StoreError, TTL, Table, Written, conditional, key, number, party_pk, unavailable};

/// How long rows count after `connectedAt`: the gateway cuts every socket at two hours.
pub const LIFETIME_SECS: i64 = (2 * 60 + 10) * 60;
/// Sockets of one user. The oldest goes when there are more: a client that reconnects in a loop must not make every push
/// to its user slower and dearer.
pub const MAX_PER_USER: usize = 10;
/// How long a connection that ended before it was stored cannot be stored any more: far longer than a `$connect` may run.
const BARRED_SECS: i64 = 10 * 60;

const SK_META: &str = "META";
const SK_CONNECTION: &str = "CONN#";
const USER_ID: &str = "userId";

/// Holds for both rows that `register` writes. The mark of a barred connection has no user.
const IS_REGISTERED: &str = "attribute_exists(userId)";

/// One socket.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Connection {
    pub connection_id: ConnectionId,
    /// Whether `user_id` is a customer's or an agent's.
    pub side: Side,
    pub user_id: UserId,
    /// The device it was opened from, if the client says: a new socket takes the place of older ones of the same device.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device: Option<DeviceId>,
    pub language: Language,
    /// By the gateway's clock.
    pub connected_at: UnixMillis,
    /// When the token it was opened or renewed with expires. From then on it is told nothing.
    pub expires_at: UnixMillis,
    /// What `$connect` said about the user's active session, for its replay.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_ack_seq: Option<Seq>,
    pub state: ConnectionState,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ConnectionState {
    /// `$connect` is not known to be over.
    Connecting,
    /// Has sent a frame: can be written to.
    Live,
}

/// What became of a new connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Registration {
    Registered,
    /// It had ended before it was stored.
    AlreadyEnded,
}

impl Connection {
    pub fn is_expired(&self, now: UnixMillis) -> bool {
        self.expires_at <= now
    }

    /// DynamoDB may take days to drop a row whose time is up, so every reader looks for itself.
    fn is_over(&self, now: UnixMillis) -> bool {
        self.connected_at.plus_secs(LIFETIME_SECS) <= now
    }

    /// Who is at its other end.
    pub fn party(&self) -> Party {
        Party { side: self.side, id: self.user_id.clone() }
    }

    fn meta_key(&self) -> Item {
        meta_key(&self.connection_id)
    }

    fn user_key(&self) -> Item {
        key(party_pk(&self.party()), format!("{SK_CONNECTION}{}", self.connection_id))
    }

    fn row(&self, key: Item) -> Result<Item, StoreError> {
        let mut row: Item = serde_dynamo::to_item(self).map_err(StoreError::Corrupt)?;
        row.insert(TTL.to_owned(), number(self.connected_at.plus_secs(LIFETIME_SECS).secs()));
        row.extend(key);
        Ok(row)
    }
}

pub(crate) fn meta_key(connection_id: &ConnectionId) -> Item {
    key(format!("CONN#{connection_id}"), SK_META.to_owned())
}

/// The rows of all sockets.
#[derive(Debug, Clone)]
pub struct Connections {
    table: Table,
}

impl Connections {
    pub fn new(client: aws_sdk_dynamodb::Client, table: String) -> Self {
        Self { table: Table { client, name: table } }
    }

    pub(crate) const fn table(&self) -> &Table {
        &self.table
    }

    /// Stores a new connection, and lets go the oldest of its user beyond [`MAX_PER_USER`].
    ///
    /// `$disconnect` may have come first, when the client gave up while `$connect` was still at work. It left a mark, and
    /// nothing is stored: nobody would ever remove it.
    pub async fn register(&self, connection: &Connection, now: UnixMillis) -> Result<Registration, StoreError> {
        let meta = Put::builder()
            .table_name(&self.table.name)
            .set_item(Some(connection.row(connection.meta_key())?))
            .condition_expression("attribute_not_exists(pk)")
            .build();
        let of_user =
            Put::builder().table_name(&self.table.name).set_item(Some(connection.row(connection.user_key())?)).build();
        let actions =
            [meta, of_user].into_iter().map(|put| put.map(|put| TransactWriteItem::builder().put(put).build()));
        let actions = actions.collect::<Result<_, _>>().map_err(unavailable("TransactWriteItems"))?;
        match self.table.transact(actions).await? {
            Written::Refused => Ok(Registration::AlreadyEnded),
            Written::Done(()) => {
                // The handshake goes on: refused, it would leave the rows of a connection that never was. What is too much
                // now goes with the next one.
                if let Err(error) = self.let_go_beyond_bound(connection, now).await {
                    let party = connection.party();
                    tracing::warn!(%party, error = &error as &dyn std::error::Error, "older connections stay for now");
                }
                Ok(Registration::Registered)
            }
        }
    }

    /// Looks after the new one is stored, so of two that register at once the later to look sees both.
    async fn let_go_beyond_bound(&self, newest: &Connection, now: UnixMillis) -> Result<(), StoreError> {
        let mut others = self.of_party(&newest.party()).await?;
        others.retain(|other| other.connection_id != newest.connection_id);
        others.sort_by_key(|other| std::cmp::Reverse(other.connected_at));
        let mut kept = 1;
        others.retain(|other| {
            let keep = kept < MAX_PER_USER && !other.is_over(now);
            kept += usize::from(keep);
            !keep
        });
        self.remove(&others).await
    }

    /// The connection that a frame came by.
    pub async fn find(&self, connection_id: &ConnectionId, now: UnixMillis) -> Result<Option<Connection>, StoreError> {
        let found = self
            .table
            .client
            .get_item()
            .table_name(&self.table.name)
            .set_key(Some(meta_key(connection_id)))
            .consistent_read(true)
            .send()
            .await
            .map_err(unavailable("GetItem"))?;
        known(found.item, now)
    }

    /// The connection has sent its first frame. Older ones of the same device are over: a device that opens a new socket has
    /// lost or left the one before. Never newer ones, or a late frame of the old socket would end the new one.
    ///
    /// Answers those older ones, whose rows are gone now. `None`: the connection itself ended meanwhile.
    pub async fn go_live(&self, connection: &Connection) -> Result<Option<Vec<Connection>>, StoreError> {
        let live = serde_dynamo::to_attribute_value(ConnectionState::Live).map_err(StoreError::Corrupt)?;
        if !self.change(connection, "state", live, IS_REGISTERED).await? {
            return Ok(None);
        }
        if connection.device.is_none() {
            return Ok(Some(Vec::new()));
        }
        // It is live whatever becomes of the older ones: what stays of them now goes with their next frame, or by its time.
        let removed = async {
            let mut older = self.of_party(&connection.party()).await?;
            older.retain(|other| other.device == connection.device && other.connected_at < connection.connected_at);
            self.remove(&older).await?;
            Ok::<_, StoreError>(older)
        };
        Ok(Some(removed.await.unwrap_or_else(|error| {
            let party = connection.party();
            tracing::warn!(%party, error = &error as &dyn std::error::Error, "older connections stay for now");
            Vec::new()
        })))
    }

    /// The client has shown a token. One that expires earlier than what is known changes nothing: frames of one socket may
    /// overtake each other. Nor does one for a connection that has ended.
    pub async fn renew(&self, connection: &Connection, expires_at: UnixMillis) -> Result<(), StoreError> {
        let condition = format!("{IS_REGISTERED} AND expiresAt < :value");
        self.change(connection, "expiresAt", number(expires_at.get()), &condition).await?;
        Ok(())
    }

    /// Sets one attribute in both rows, if both meet the condition.
    async fn change(
        &self,
        connection: &Connection,
        attribute: &str,
        value: AttributeValue,
        condition: &str,
    ) -> Result<bool, StoreError> {
        let update = |key| {
            let update = Update::builder()
                .table_name(&self.table.name)
                .set_key(Some(key))
                .condition_expression(condition)
                .update_expression("SET #attribute = :value")
                .expression_attribute_names("#attribute", attribute)
                .expression_attribute_values(":value", value.clone())
                .build();
            update.map(|update| TransactWriteItem::builder().update(update).build())
        };
        let actions = [connection.meta_key(), connection.user_key()].into_iter().map(update);
        let actions = actions.collect::<Result<_, _>>().map_err(unavailable("TransactWriteItems"))?;
        Ok(self.table.transact(actions).await? == Written::Done(()))
    }

    /// Where somebody can be reached now: live, and with a token that has not expired.
    pub async fn live(&self, party: &Party, now: UnixMillis) -> Result<Vec<Connection>, StoreError> {
        let mut connections = self.of_party(party).await?;
        connections.retain(|connection| match connection.state {
            ConnectionState::Live => !connection.is_over(now) && !connection.is_expired(now),
            ConnectionState::Connecting => false,
        });
        Ok(connections)
    }

    /// Every row of somebody, of whatever age and state.
    async fn of_party(&self, party: &Party) -> Result<Vec<Connection>, StoreError> {
        let rows = self.table.rows(party_pk(party), SK_CONNECTION.to_owned()).await?;
        rows.into_iter().map(parse).collect()
    }

    /// Removes both rows of each, there or not.
    pub async fn remove(&self, connections: &[Connection]) -> Result<(), StoreError> {
        let keys = connections.iter().flat_map(|connection| [connection.user_key(), connection.meta_key()]);
        let deletes = keys.map(|key| {
            let delete = DeleteRequest::builder().set_key(Some(key)).build();
            delete.map(|delete| WriteRequest::builder().delete_request(delete).build())
        });
        let deletes = deletes.collect::<Result<_, _>>().map_err(unavailable("BatchWriteItem"))?;
        self.table.write_all(deletes).await
    }

    /// The socket is closed: its rows go. If there are none (yet), a mark is left that `register` stops at, so whichever of
    /// the two comes first, no row stays behind.
    pub async fn end(&self, connection_id: &ConnectionId, now: UnixMillis) -> Result<(), StoreError> {
        if self.end_registered(connection_id).await? || self.bar(connection_id, now).await? {
            return Ok(());
        }
        // Stored between the two looks, which happens once in a connection's life.
        self.end_registered(connection_id).await?;
        Ok(())
    }

    /// `false`: there is no such connection.
    async fn end_registered(&self, connection_id: &ConnectionId) -> Result<bool, StoreError> {
        let Some(connection) = self.take(connection_id).await? else {
            return Ok(false);
        };
        let call = self.table.client.delete_item().table_name(&self.table.name).set_key(Some(connection.user_key()));
        conditional("DeleteItem", || call.clone().send()).await?;
        Ok(true)
    }

    /// Removes the row by which frames find the connection, and says what it was.
    async fn take(&self, connection_id: &ConnectionId) -> Result<Option<Connection>, StoreError> {
        let call = self
            .table
            .client
            .delete_item()
            .table_name(&self.table.name)
            .set_key(Some(meta_key(connection_id)))
            .condition_expression(IS_REGISTERED)
            .return_values(ReturnValue::AllOld);
        match conditional("DeleteItem", || call.clone().send()).await? {
            Written::Done(DeleteItemOutput { attributes: Some(row), .. }) => parse(row).map(Some),
            Written::Done(_) | Written::Refused => Ok(None),
        }
    }

    /// Leaves the mark. `false`: the connection is stored.
    async fn bar(&self, connection_id: &ConnectionId, now: UnixMillis) -> Result<bool, StoreError> {
        let call = self
            .table
            .client
            .put_item()
            .table_name(&self.table.name)
            .set_item(Some(meta_key(connection_id)))
            .item(TTL, number(now.plus_secs(BARRED_SECS).secs()))
            .condition_expression("attribute_not_exists(userId)");
        let written = conditional("PutItem", || call.clone().send()).await?;
        Ok(matches!(written, Written::Done(_)))
    }
}

/// The connection that a row tells of, if there is one and its time is not up.
pub(crate) fn known(row: Option<Item>, now: UnixMillis) -> Result<Option<Connection>, StoreError> {
    let Some(row) = row.filter(is_registered) else {
        return Ok(None);
    };
    let connection = parse(row)?;
    Ok(Some(connection).filter(|connection| !connection.is_over(now)))
}

fn is_registered(row: &Item) -> bool {
    row.contains_key(USER_ID)
}

fn parse(row: Item) -> Result<Connection, StoreError> {
    serde_dynamo::from_item(row).map_err(StoreError::Corrupt)
}
