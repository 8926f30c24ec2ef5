//! The chat on a DynamoDB of its own and a gateway that can misbehave, at a time that the test sets.

use aws_sdk_dynamodb::config::{Credentials as AwsCredentials, SharedCredentialsProvider};
use chat::connections::{Connection, ConnectionState, Connections, Registration};
use chat::frames::{Credentials, ErrorCode, Token};
use chat::ids::{ConnectionId, Party, Side};
use chat::message::Card;
use chat::postman::Postman;
use chat::results::ResultNotice;
use chat::service::{Outside, Receipt, Received};
use chat::uploads::Uploads;
use chat::{Desk, Service, StoreError};
use kernel::ids::{OrderNo, UserId};
use kernel::text::{Language, Text};
use kernel::time::{Clock, UnixMillis};
use serde_json::Value;

use crate::dynamo::{CHAT, CONNECTIONS, Dynamo};
use crate::sockets::FakeGateway;

/// When the tests begin: 2026-05-28T20:26:40Z, as in the sample events.
pub const START: UnixMillis = UnixMillis::new(1_780_000_000_000);
/// How long the tokens of connections made here are good.
pub const TOKEN_SECS: i64 = 3_600;

pub struct ChatHouse {
    pub dynamo: Dynamo,
    pub gateway: FakeGateway,
    pub clock: Clock,
    pub connections: Connections,
    pub postman: Postman,
    pub desk: Desk,
    pub service: Service,
}

/// The chat's surroundings: what a token means is what the test says, and every customer has the order `SK-<customer>`.
struct Lobby(Option<Credentials>);

impl Outside for Lobby {
    fn verify(&self, _token: &Token) -> Option<Credentials> {
        self.0.clone()
    }

    async fn card(&self, customer: &UserId, order_no: &OrderNo) -> Result<Option<Card>, StoreError> {
        let known = order_no.as_str() == format!("SK-{customer}");
        Ok(known.then(|| Card {
            order_no: order_no.clone(),
            title: "Phone".into(),
            qty: 1,
            amount: 99_900,
            currency: "CNY".into(),
            status: "UNPAID".into(),
        }))
    }
}

impl ChatHouse {
    pub async fn open() -> Self {
        let (dynamo, gateway) = tokio::join!(Dynamo::start(), FakeGateway::start());
        let clock = Clock::manual(START);
        let connections = Connections::new(dynamo.client.clone(), CONNECTIONS.to_owned());
        let postman = Postman::new(dynamo.client.clone(), CONNECTIONS.to_owned(), &gateway.client, clock.clone());
        let desk = Desk::new(dynamo.client.clone(), CHAT.to_owned());
        let service = Service::new(postman.clone(), desk.clone(), uploads(), clock.clone());
        Self { dynamo, gateway, clock, connections, postman, desk, service }
    }

    /// The customer service as another environment has it.
    pub fn another_service(&self) -> Service {
        Service::new(self.postman.clone(), self.desk.clone(), uploads(), self.clock.clone())
    }

    /// The service with another connections table, which may not be there.
    pub fn service_on(&self, connections_table: &str) -> Service {
        let (client, clock) = (self.dynamo.client.clone(), self.clock.clone());
        let postman = Postman::new(client, connections_table.to_owned(), &self.gateway.client, clock.clone());
        Service::new(postman, self.desk.clone(), uploads(), clock)
    }

    /// The customer service over a client of the test, which sees what is asked of the tables.
    pub fn service_over(&self, client: &aws_sdk_dynamodb::Client) -> Service {
        let postman = Postman::new(client.clone(), CONNECTIONS.to_owned(), &self.gateway.client, self.clock.clone());
        Service::new(postman, Desk::new(client.clone(), CHAT.to_owned()), uploads(), self.clock.clone())
    }

    pub fn now(&self) -> UnixMillis {
        self.clock.now()
    }

    pub fn pass_secs(&self, secs: i64) {
        self.clock.advance_millis(secs * 1_000);
    }

    /// A connection of `user`, made now with a good token, not yet stored.
    pub fn connection(&self, id: &str, user: &str) -> Connection {
        Connection {
            connection_id: connection_id(id),
            side: Side::User,
            user_id: user.parse().unwrap(),
            device: None,
            language: Language::En,
            connected_at: self.now(),
            expires_at: self.now().plus_secs(TOKEN_SECS),
            last_ack_seq: None,
            state: ConnectionState::Connecting,
        }
    }

    /// The same of an agent.
    pub fn agent_connection(&self, id: &str, agent: &str) -> Connection {
        Connection { side: Side::Agent, ..self.connection(id, agent) }
    }

    /// A connection of an agent who has said that they are online.
    pub async fn agent(&self, id: &str, agent: &str) -> Connection {
        let connection = self.agent_connection(id, agent);
        self.register(&connection).await;
        assert_eq!(types(&self.say(id, r#"{"type":"status","status":"online"}"#).await)[..1], ["status"]);
        connection
    }

    /// The same from a device.
    pub fn connection_from(&self, id: &str, user: &str, device: &str) -> Connection {
        Connection { device: Some(device.parse().unwrap()), ..self.connection(id, user) }
    }

    /// Stores a connection, as `$connect` does.
    pub async fn register(&self, connection: &Connection) {
        let registration = self.connections.register(connection, self.now()).await.unwrap();
        assert_eq!(registration, Registration::Registered);
    }

    /// A connection of `user` that has sent its first frame.
    pub async fn live(&self, id: &str, user: &str) -> Connection {
        let connection = self.connection(id, user);
        self.register(&connection).await;
        assert_eq!(types(&self.say(id, r#"{"type":"ping"}"#).await)[..1], ["pong"]);
        connection
    }

    /// Sends a frame, and returns what comes back on the socket. No token is good.
    pub async fn say(&self, id: &str, frame: &str) -> Vec<Value> {
        self.receive(id, Ok(frame), None).await.1
    }

    /// Sends an `auth` frame whose token means `credentials`.
    pub async fn renew(&self, id: &str, user: &str, expires_at: UnixMillis) -> Vec<Value> {
        let credentials = Credentials { party: Party::user(user.parse().unwrap()), expires_at };
        self.receive(id, Ok(r#"{"type":"auth","token":"t"}"#), Some(credentials)).await.1
    }

    pub async fn receive(
        &self,
        id: &str,
        frame: Result<&str, ErrorCode>,
        credentials: Option<Credentials>,
    ) -> (Receipt, Vec<Value>) {
        self.receive_as(id, frame, "m1", credentials).await
    }

    /// A frame handled by a service of the test's own.
    pub async fn receive_by(
        &self,
        service: &Service,
        id: &str,
        frame: Result<&str, ErrorCode>,
        message_id: &str,
        credentials: Option<Credentials>,
    ) -> Result<Receipt, StoreError> {
        let connection_id = connection_id(id);
        let received = Received { connection_id: &connection_id, text: frame, message_id, received_at: self.now() };
        service.receive(received, &Lobby(credentials)).await
    }

    /// As [`ChatHouse::receive`], with the gateway's name for the frame.
    pub async fn receive_as(
        &self,
        id: &str,
        frame: Result<&str, ErrorCode>,
        message_id: &str,
        credentials: Option<Credentials>,
    ) -> (Receipt, Vec<Value>) {
        let receipt = self.receive_by(&self.service, id, frame, message_id, credentials).await.unwrap();
        (receipt, self.gateway.take_frames(id))
    }

    /// The keys of all rows, as `pk sk`, in order.
    pub async fn keys(&self) -> Vec<String> {
        let rows = self.dynamo.rows(CONNECTIONS).await;
        let mut keys: Vec<_> =
            rows.iter().map(|row| format!("{} {}", row["pk"].as_s().unwrap(), row["sk"].as_s().unwrap())).collect();
        keys.sort();
        keys
    }

    /// The result of an order, decided now.
    pub fn notice(&self, user: &str, order_no: &str, order_status: &'static str) -> ResultNotice {
        let status = if matches!(order_status, "UNPAID" | "PAID") { "success" } else { "fail" };
        ResultNotice {
            user_id: user.parse().unwrap(),
            order_no: order_no.parse().unwrap(),
            status: status.into(),
            order_status: order_status.into(),
            message: Text::of(format!("{order_no} is {order_status}"), format!("{order_no} 是 {order_status}")),
            decided_at: self.now(),
        }
    }
}

/// A bucket that nobody asks.
fn uploads() -> Uploads {
    let credentials = SharedCredentialsProvider::new(AwsCredentials::new("test", "test", None, None, "test"));
    let url = "https://images.test".parse().unwrap();
    Uploads::new(credentials, "us-east-1".into(), "images".into(), url)
}

pub fn connection_id(id: &str) -> ConnectionId {
    ConnectionId::try_from(id.to_owned()).unwrap()
}

/// The types of frames, in order; of errors the code.
pub fn types(frames: &[Value]) -> Vec<&str> {
    let words = frames.iter().map(|frame| if frame["type"] == "error" { &frame["code"] } else { &frame["type"] });
    words.map(|word| word.as_str().unwrap()).collect()
}

/// The results among frames, as `orderNo orderStatus`, in order.
pub fn results(frames: &[Value]) -> Vec<String> {
    let results = frames.iter().filter(|frame| frame["type"] == "seckill_result" || frame["type"] == "order_status");
    results
        .map(|frame| format!("{} {}", frame["orderNo"].as_str().unwrap(), frame["orderStatus"].as_str().unwrap()))
        .collect()
}
