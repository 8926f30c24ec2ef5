//! Brings frames to those they are for, and results to their users.

use std::collections::BTreeMap;
use std::time::Duration;

use aws_sdk_apigatewaymanagement::Client as ManagementClient;
use aws_sdk_dynamodb::Client as DynamoClient;
use futures_util::{StreamExt, stream};
use kernel::ids::UserId;
use kernel::text::Language;
use kernel::time::{Clock, UnixMillis};
use tracing::warn;

use crate::connections::{Connection, Connections};
use crate::frames::{ErrorCode, ServerFrame};
use crate::gateway::{Gateway, Posted};
use crate::ids::{ClientMsgId, ConnectionId, Party, SessionId};
use crate::results::{ResultNotice, Results, StoredResult};
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

/// What became of a push to somebody.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pushed {
    /// They are not connected.
    Offline,
    /// It is not known where they are.
    Unknown,
    To(Delivery),
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

    pub(crate) fn results(&self) -> &Results {
        &self.results
    }

    fn now(&self) -> UnixMillis {
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
            .map(|(user_id, results)| async move { (count(&results), self.push_results(user_id, &results).await) })
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

    async fn push_results(&self, user_id: UserId, results: &[StoredResult]) -> Delivery {
        let frames = |connection: &Connection| {
            results.iter().map(|result| ServerFrame::result(result, connection.language)).collect()
        };
        match self.push(&Party::user(user_id), &frames).await {
            Pushed::Offline => Delivery { offline: count(results), ..Delivery::default() },
            Pushed::Unknown => Delivery { left: count(results), ..Delivery::default() },
            Pushed::To(delivery) => delivery,
        }
    }

    /// To every connection of somebody, what `frames` says for it; never an error.
    pub(crate) async fn push(&self, party: &Party, frames: &impl Fn(&Connection) -> Vec<ServerFrame>) -> Pushed {
        let connections = match self.connections.live(party, self.now()).await {
            Ok(connections) if connections.is_empty() => return Pushed::Offline,
            Ok(connections) => connections,
            Err(error) => {
                warn!(%party, error = &error as &dyn std::error::Error, "connections not read; left to sync");
                return Pushed::Unknown;
            }
        };
        let posts = connections.iter().map(|connection| async move {
            let frames = frames(connection);
            self.send(connection, &frames).await
        });
        // As many at once as somebody may have connections, which is few.
        let sent = futures_util::future::join_all(posts).await;
        Pushed::To(sent.into_iter().fold(Delivery::default(), |sum, sent| Delivery {
            delivered: sum.delivered + sent.delivered,
            gone: sum.gone + sent.gone,
            left: sum.left + sent.left,
            ..sum
        }))
    }

    /// Frames to one connection, in order. After one that did not get through the others are not tried: `sync` brings them
    /// in order.
    pub(crate) async fn send(&self, connection: &Connection, frames: &[ServerFrame]) -> Delivery {
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
                    let error = &error as &dyn std::error::Error;
                    warn!(alarm = "PUSH_FAILED", %connection_id, error, "a frame is left to sync");
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

    /// Closes a socket of which nothing is known any more.
    pub(crate) async fn close(&self, connection_id: &ConnectionId) {
        if let Err(error) = self.gateway.close(connection_id).await {
            warn!(%connection_id, error = &error as &dyn std::error::Error, "a connection stays open");
        }
    }

    /// An error to a connection of which nothing is known, its language least of all.
    pub(crate) async fn tell_unknown(
        &self,
        connection_id: &ConnectionId,
        code: ErrorCode,
        (session_id, client_msg_id): (Option<SessionId>, Option<ClientMsgId>),
    ) {
        let Ok(json) = ServerFrame::refused(code, session_id, client_msg_id, Language::default()).to_json() else {
            return;
        };
        if let Posted::Failed(error) = self.gateway.post(connection_id, &json).await {
            warn!(%connection_id, error = &error as &dyn std::error::Error, "a client waits for an answer");
        }
    }
}

fn count<T>(items: &[T]) -> u32 {
    // Bounded by the batch and by the bounds on rows, far below.
    u32::try_from(items.len()).unwrap_or(u32::MAX)
}
