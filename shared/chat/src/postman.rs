//! Brings results to their users, and answers what comes over a socket.

use std::collections::BTreeMap;
use std::time::Duration;

use aws_sdk_apigatewaymanagement::Client as ManagementClient;
use aws_sdk_dynamodb::Client as DynamoClient;
use futures_util::{StreamExt, stream};
use kernel::ids::{OrderNo, UserId};
use kernel::time::{Clock, UnixMillis};
use tracing::warn;

use crate::connections::{Connection, ConnectionState, Connections};
use crate::frames::{ClientFrame, Credentials, ErrorCode, ServerFrame, Token};
use crate::gateway::{Gateway, Posted};
use crate::ids::ConnectionId;
use crate::results::{Acknowledgement, ResultNotice, Results, StatusWord, StoredResult};
use crate::store::StoreError;

/// The longest time that all pushes of one delivery take together. The caller has a deadline of its own, and whoever is
/// not reached by then gets the result with the next `sync` or `pong`.
pub const PUSH_BUDGET: Duration = Duration::from_secs(8);
/// Users being told at once.
const USERS_AT_ONCE: usize = 32;
/// A connection younger than this may not be open yet: the gateway says "gone" of it, and it stays.
const YOUNG_MILLIS: i64 = 30_000;

/// What became of a delivery, for the log. All of it is stored; these count the pushes. What came twice counts once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Delivery {
    /// Frames taken by the gateway: one for each result and live connection of its user.
    pub delivered: u32,
    /// Results that their user has acknowledged before: not pushed again.
    pub seen: u32,
    /// Results whose user is not connected.
    pub offline: u32,
    /// Connections found dead, and removed.
    pub gone: u32,
    /// Frames, or results of users not reached in time, that are left to `sync`.
    pub left: u32,
}

/// What became of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Received {
    Handled,
    /// The sender's connection is not known, or over. It has been closed.
    UnknownConnection,
}

/// The connections, the results, and the way to the sockets.
#[derive(Debug, Clone)]
pub struct Postman {
    connections: Connections,
    results: Results,
    gateway: Gateway,
    clock: Clock,
}

impl Postman {
    /// `table`: the connections table. `management`: a client with the endpoint of the WebSocket stage.
    pub fn new(dynamo: DynamoClient, table: String, management: &ManagementClient, clock: Clock) -> Self {
        Self {
            connections: Connections::new(dynamo.clone(), table.clone()),
            results: Results::new(dynamo, table),
            gateway: Gateway::new(management),
            clock,
        }
    }

    pub(crate) fn connections(&self) -> &Connections {
        &self.connections
    }

    pub(crate) fn now(&self) -> UnixMillis {
        self.clock.now()
    }

    /// Stores results, then pushes those that were not seen yet to every live connection of their users.
    ///
    /// An error means that not all are stored: deliver them again, which does no harm. That a push fails is no error.
    pub async fn deliver(&self, notices: &[ResultNotice]) -> Result<Delivery, StoreError> {
        let now = self.now();
        let mut sum = Delivery::default();
        let mut unreached = 0;
        let mut by_user: BTreeMap<UserId, Vec<StoredResult>> = BTreeMap::new();
        for (user_id, result) in self.results.put(notices, now).await? {
            if result.is_acknowledged() {
                sum.seen += 1;
            } else {
                unreached += 1;
                by_user.entry(user_id).or_default().push(result);
            }
        }
        let pushes = stream::iter(by_user)
            .map(|(user_id, results)| async move { (count(&results), self.push(&user_id, &results).await) })
            .buffer_unordered(USERS_AT_ONCE)
            .take_until(tokio::time::sleep(PUSH_BUDGET));
        let mut pushes = std::pin::pin!(pushes);
        while let Some((results, of_user)) = pushes.next().await {
            unreached -= results;
            sum.delivered += of_user.delivered;
            sum.offline += of_user.offline;
            sum.gone += of_user.gone;
            sum.left += of_user.left;
        }
        sum.left += unreached;
        Ok(sum)
    }

    /// To every connection of one user; never an error.
    async fn push(&self, user_id: &UserId, results: &[StoredResult]) -> Delivery {
        let connections = match self.connections.live(user_id, self.now()).await {
            Ok(connections) if connections.is_empty() => {
                return Delivery { offline: count(results), ..Delivery::default() };
            }
            Ok(connections) => connections,
            Err(error) => {
                warn!(%user_id, error = &error as &dyn std::error::Error, "connections not read; results left to sync");
                return Delivery { left: count(results), ..Delivery::default() };
            }
        };
        let posts = connections.iter().map(|connection| async move {
            let frames: Vec<_> =
                results.iter().map(|result| ServerFrame::result(result, connection.language)).collect();
            self.send(connection, &frames).await
        });
        // As many at once as a user may have connections, which is few.
        let sent = futures_util::future::join_all(posts).await;
        sent.into_iter().fold(Delivery::default(), |sum, sent| Delivery {
            delivered: sum.delivered + sent.delivered,
            gone: sum.gone + sent.gone,
            left: sum.left + sent.left,
            ..sum
        })
    }

    /// Frames to one connection, in order. After one that did not get through the others are not tried: `sync` brings them
    /// in order.
    async fn send(&self, connection: &Connection, frames: &[ServerFrame]) -> Delivery {
        let mut sent = Delivery::default();
        for frame in frames {
            let json = match frame.to_json() {
                Ok(json) => json,
                Err(error) => {
                    warn!(error = &error as &dyn std::error::Error, "a frame cannot be written");
                    break;
                }
            };
            match self.gateway.post(&connection.connection_id, &json).await {
                Posted::Delivered => sent.delivered += 1,
                Posted::Gone => {
                    sent.gone += u32::from(self.bury(connection).await);
                    break;
                }
                Posted::Failed(error) => {
                    let connection_id = &connection.connection_id;
                    warn!(%connection_id, error = &error as &dyn std::error::Error, "a frame is left to sync");
                    break;
                }
            }
        }
        sent.left = count(frames) - sent.delivered;
        sent
    }

    /// Removes the rows of a connection that the gateway does not know, whatever its state, unless it is so young that it
    /// may be about to open.
    async fn bury(&self, connection: &Connection) -> bool {
        if self.now().millis_since(connection.connected_at) <= YOUNG_MILLIS {
            return false;
        }
        match self.connections.remove(std::slice::from_ref(connection)).await {
            Ok(()) => true,
            Err(error) => {
                let connection_id = &connection.connection_id;
                warn!(%connection_id, error = &error as &dyn std::error::Error, "a dead connection stays for now");
                false
            }
        }
    }

    /// Handles what came over a socket, and answers on it.
    ///
    /// `text` is the frame, or why the edge could not read it. `verify` says what a token says, if it is good; only an
    /// `auth` frame needs it. The first frame of a connection makes it live before it is answered, so whatever is decided
    /// from then on is pushed, and whatever was decided before is found by the answer.
    ///
    /// An error means that the sender could not be looked up; they have been told to try again.
    pub async fn receive(
        &self,
        connection_id: &ConnectionId,
        text: Result<&str, ErrorCode>,
        verify: impl FnOnce(&Token) -> Option<Credentials>,
    ) -> Result<Received, StoreError> {
        let connection = match self.look_up(connection_id).await {
            Ok(Some(connection)) => connection,
            Ok(None) => {
                if let Err(error) = self.gateway.close(connection_id).await {
                    warn!(%connection_id, error = &error as &dyn std::error::Error, "an unknown connection stays open");
                }
                return Ok(Received::UnknownConnection);
            }
            Err(error) => {
                self.ask_to_retry(connection_id).await;
                return Err(error);
            }
        };
        let answers = self.answer(&connection, text, verify).await;
        self.send(&connection, &answers).await;
        Ok(Received::Handled)
    }

    /// The sender, live. `None`: not known, or over.
    async fn look_up(&self, connection_id: &ConnectionId) -> Result<Option<Connection>, StoreError> {
        let Some(connection) = self.connections.find(connection_id, self.now()).await? else {
            return Ok(None);
        };
        Ok(match connection.state {
            ConnectionState::Live => Some(connection),
            ConnectionState::Connecting => self.connections.go_live(&connection).await?.then_some(connection),
        })
    }

    async fn answer(
        &self,
        connection: &Connection,
        text: Result<&str, ErrorCode>,
        verify: impl FnOnce(&Token) -> Option<Credentials>,
    ) -> Vec<ServerFrame> {
        let error = |code| vec![ServerFrame::error(code, connection.language)];
        let expired = connection.is_expired(self.now());
        let answers = match text.and_then(ClientFrame::parse) {
            Ok(ClientFrame::Auth(auth)) => auth.handle(self, connection, verify).await,
            Ok(_) | Err(_) if expired => return error(ErrorCode::AuthExpired),
            Err(code) => return error(code),
            Ok(ClientFrame::Sync(sync)) => sync.handle(self, connection).await,
            Ok(ClientFrame::Ping(ping)) => ping.handle(self, connection).await,
            Ok(ClientFrame::ResultAck(ack)) => ack.handle(self, connection).await,
        };
        answers.unwrap_or_else(|cause| {
            let connection_id = &connection.connection_id;
            warn!(%connection_id, error = &cause as &dyn std::error::Error, "a frame could not be handled");
            error(ErrorCode::RetryLater)
        })
    }

    /// To a connection of which nothing is known, its language least of all.
    async fn ask_to_retry(&self, connection_id: &ConnectionId) {
        let Ok(json) = ServerFrame::error(ErrorCode::RetryLater, Default::default()).to_json() else {
            return;
        };
        if let Posted::Failed(error) = self.gateway.post(connection_id, &json).await {
            warn!(%connection_id, error = &error as &dyn std::error::Error, "a client waits for an answer");
        }
    }

    pub(crate) async fn unacknowledged(&self, connection: &Connection) -> Result<Vec<ServerFrame>, StoreError> {
        let results = self.results.unacknowledged(&connection.user_id, self.now()).await?;
        Ok(results.iter().map(|result| ServerFrame::result(result, connection.language)).collect())
    }

    pub(crate) async fn acknowledge(
        &self,
        connection: &Connection,
        order_no: &OrderNo,
        order_status: Option<&StatusWord>,
    ) -> Result<Acknowledgement, StoreError> {
        self.results.acknowledge(&connection.user_id, order_no, order_status, self.now()).await
    }
}

fn count<T>(items: &[T]) -> u32 {
    // Bounded by the batch and by the bounds on rows, far below.
    u32::try_from(items.len()).unwrap_or(u32::MAX)
}
