//! The frames of the WebSocket: one JSON object each, told apart by `type`.
//!
//! What comes is read strictly: a member that the contract does not know, or one that is missing, is an error. The structs
//! of sessions and messages are those of the HTTP routes too.

use std::collections::BTreeMap;
use std::fmt;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::ClientError;
use crate::documents::{OrderStatus, Rating, ResultStatus};

/// What a client sends.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "type", rename_all = "snake_case", rename_all_fields = "camelCase")]
pub enum ClientFrame {
    /// Replays what was missed: results always, messages of the named sessions from the given numbers on.
    Sync {
        sessions: BTreeMap<String, u64>,
    },
    /// The result was shown in this state; it need not come again. A later state of the same order still does.
    ResultAck {
        order_no: String,
        order_status: OrderStatus,
    },
    /// Heartbeat.
    Ping,
    /// Renews the connection's expiry.
    Auth {
        token: String,
    },
    /// A customer wants to talk: answered with `session`. With an id: reopen that one.
    Open {
        #[serde(skip_serializing_if = "Option::is_none")]
        session_id: Option<String>,
    },
    Text {
        session_id: String,
        content: String,
        #[serde(skip_serializing_if = "Option::is_none")]
        client_msg_id: Option<String>,
    },
    /// `content`: the key of an upload.
    Image {
        session_id: String,
        content: String,
        #[serde(skip_serializing_if = "Option::is_none")]
        client_msg_id: Option<String>,
    },
    /// `content`: the number of an order of the session's customer.
    Card {
        session_id: String,
        content: String,
        #[serde(skip_serializing_if = "Option::is_none")]
        client_msg_id: Option<String>,
    },
    /// Everything up to `last_seq` was seen.
    Ack {
        session_id: String,
        last_seq: u64,
    },
    /// These are missing here.
    Pull {
        session_id: String,
        from: u64,
        to: u64,
    },
    Typing {
        session_id: String,
    },
    /// An agent's own state.
    Status {
        status: AgentStatus,
    },
    /// An agent gives a session away: to somebody, or to whoever is best.
    Transfer {
        session_id: String,
        #[serde(skip_serializing_if = "Option::is_none")]
        to: Option<String>,
    },
    Close {
        session_id: String,
    },
}

impl ClientFrame {
    /// As it goes over the socket.
    pub fn to_text(&self) -> Result<String, ClientError> {
        serde_json::to_string(self)
            .map_err(|error| ClientError::FrameDrift { frame: "the request".into(), reason: error.to_string() })
    }
}

/// What a server sends.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case", rename_all_fields = "camelCase", deny_unknown_fields)]
pub enum ServerFrame {
    Pong {
        /// Session to the number of its last message.
        heads: BTreeMap<String, u64>,
    },
    SeckillResult(SeckillResult),
    /// The order of an earlier purchase was paid or cancelled: the same members, the same acknowledgement.
    OrderStatus(SeckillResult),
    /// Somebody said something.
    Message(MessageFrame),
    /// A replay: what `sync` and `pull` asked for, in order.
    Messages {
        session_id: String,
        items: Vec<MessageFrame>,
    },
    Sent(SentFrame),
    /// The replay of a session is over. Below `head`: `sync` again.
    SyncEnd {
        session_id: String,
        head: u64,
    },
    Read(ReadFrame),
    Session(SessionFrame),
    Typing(TypingFrame),
    /// This connection ends soon: open another one, then leave this one.
    Rotate {},
    Status(StatusFrame),
    Error(ErrorFrame),
}

/// How a purchase ended, or what became of its order later.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SeckillResult {
    pub order_no: String,
    pub status: ResultStatus,
    pub order_status: OrderStatus,
    pub message: String,
}

/// The sides of a conversation, and the service itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ChatRole {
    /// The customer.
    User,
    /// The customer service.
    Agent,
    System,
}

/// Who says something.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Author {
    pub role: ChatRole,
    /// Absent for the service.
    #[serde(default)]
    pub id: Option<String>,
}

/// A message as it is delivered.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "WireMessage")]
pub struct MessageFrame {
    /// `<session>-<seq>`: the same however often it is delivered.
    pub id: String,
    pub session_id: String,
    pub seq: u64,
    pub from: Author,
    pub content: Content,
    pub at: Timestamp,
    /// Only towards the side that sent it.
    pub client_msg_id: Option<String>,
}

/// What is said, by kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Content {
    Text(String),
    Image(Image),
    Card(Card),
    System(Note),
}

/// An image. The address is made anew at each delivery and is good for an hour.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Image {
    pub key: String,
    #[serde(default)]
    pub url: Option<String>,
    pub content_type: String,
}

/// An order, as it was when it was shown.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Card {
    pub order_no: String,
    pub title: String,
    pub qty: u32,
    pub amount: i64,
    pub currency: String,
    pub status: OrderStatus,
}

/// A change of the session, noted by the service.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Note {
    pub event: NoteEvent,
    #[serde(default)]
    pub agent_id: Option<String>,
    /// Whose side closed it.
    #[serde(default)]
    pub by: Option<ChatRole>,
    /// In the reader's language.
    pub text: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum NoteEvent {
    Joined,
    Transferred,
    Requeued,
    Reopened,
    Closed,
    Expired,
}

/// As it is written: what `content` is depends on `kind`.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct WireMessage {
    id: String,
    session_id: String,
    seq: u64,
    from: Author,
    kind: Kind,
    content: Value,
    at: Timestamp,
    #[serde(default)]
    client_msg_id: Option<String>,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Kind {
    Text,
    Image,
    Card,
    System,
}

impl TryFrom<WireMessage> for MessageFrame {
    type Error = String;

    fn try_from(wire: WireMessage) -> Result<Self, String> {
        let WireMessage { id, session_id, seq, from, kind, content, at, client_msg_id } = wire;
        let content = match kind {
            Kind::Text => serde_json::from_value(content).map(Content::Text),
            Kind::Image => serde_json::from_value(content).map(Content::Image),
            Kind::Card => serde_json::from_value(content).map(Content::Card),
            Kind::System => serde_json::from_value(content).map(Content::System),
        }
        .map_err(|error| format!("content of message {id}: {error}"))?;
        if seq == 0 || id != format!("{session_id}-{seq}") {
            return Err(format!("{id} is not the id of message {seq} of {session_id}"));
        }
        let by_service = from.role == ChatRole::System;
        if by_service != from.id.is_none() || by_service != matches!(content, Content::System(_)) {
            return Err(format!("{id} has an author who does not say such things"));
        }
        Ok(Self { id, session_id, seq, from, content, at, client_msg_id })
    }
}

/// The message is stored: told to the connection that sent it.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SentFrame {
    /// Absent if the client gave none.
    #[serde(default)]
    pub client_msg_id: Option<String>,
    pub session_id: String,
    pub seq: u64,
    pub at: Timestamp,
    /// It was stored before; this is what was answered then.
    #[serde(default)]
    pub duplicate: bool,
}

/// A side has seen everything up to a number.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ReadFrame {
    pub session_id: String,
    pub by: ChatRole,
    pub last_seq: u64,
}

/// How a session stands: a frame, and an item of `GET /api/chat/sessions`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SessionFrame {
    pub session_id: String,
    /// For people.
    pub session_no: String,
    pub status: SessionStatus,
    pub user_id: String,
    /// Only while it is open.
    #[serde(default)]
    pub agent_id: Option<String>,
    /// The number of its last message.
    pub head: u64,
    /// What each side has acknowledged, and how many messages of the other side it has not.
    pub user_seq: u64,
    pub admin_seq: u64,
    pub user_unread: u64,
    pub admin_unread: u64,
    /// Only while it waits; 1 is next.
    #[serde(default)]
    pub queue_position: Option<u64>,
    /// The beginning of the last message; before the first there is none.
    #[serde(default)]
    pub last_message: Option<String>,
    pub last_time: Timestamp,
    pub created_at: Timestamp,
    /// What its customer gave since it was closed. Only in their list, never in a frame.
    #[serde(default)]
    pub rating: Option<Box<Rating>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SessionStatus {
    /// For an agent.
    Waiting,
    Open,
    Closed,
}

/// The other side is writing.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TypingFrame {
    pub session_id: String,
    pub from: Author,
}

/// An agent's state, as the service has it since `at`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StatusFrame {
    pub status: AgentStatus,
    pub at: Timestamp,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AgentStatus {
    /// Gets new sessions.
    Online,
    /// Keeps the sessions they have and gets no new ones.
    Busy,
    /// Has no sessions.
    Away,
}

/// A frame could not be used. The socket stays open.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ErrorFrame {
    pub code: FrameErrorCode,
    pub message: String,
    /// Of the frame that is refused, when it could be read and had them.
    #[serde(default)]
    pub session_id: Option<String>,
    #[serde(default)]
    pub client_msg_id: Option<String>,
    /// With RATE_LIMITED and RETRY_LATER.
    #[serde(default)]
    pub retry_after_ms: Option<u64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum FrameErrorCode {
    BadFrame,
    TooLarge,
    NotFound,
    SessionClosed,
    AckOutOfRange,
    ClientMsgIdReused,
    AgentUnavailable,
    AuthExpired,
    RateLimited,
    RetryLater,
}

impl FrameErrorCode {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::BadFrame => "BAD_FRAME",
            Self::TooLarge => "TOO_LARGE",
            Self::NotFound => "NOT_FOUND",
            Self::SessionClosed => "SESSION_CLOSED",
            Self::AckOutOfRange => "ACK_OUT_OF_RANGE",
            Self::ClientMsgIdReused => "CLIENT_MSG_ID_REUSED",
            Self::AgentUnavailable => "AGENT_UNAVAILABLE",
            Self::AuthExpired => "AUTH_EXPIRED",
            Self::RateLimited => "RATE_LIMITED",
            Self::RetryLater => "RETRY_LATER",
        }
    }
}

impl fmt::Display for FrameErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use contract::Contract;

    fn read(text: &str) -> Result<ServerFrame, serde_json::Error> {
        serde_json::from_str(text)
    }

    #[test]
    fn frames_are_written_as_the_contract_says() {
        let cases = [
            (ClientFrame::Sync { sessions: BTreeMap::new() }, r#"{"type":"sync","sessions":{}}"#),
            (
                ClientFrame::ResultAck { order_no: "SK1".into(), order_status: OrderStatus::Unpaid },
                r#"{"type":"result_ack","orderNo":"SK1","orderStatus":"UNPAID"}"#,
            ),
            (ClientFrame::Ping, r#"{"type":"ping"}"#),
            (ClientFrame::Auth { token: "t".into() }, r#"{"type":"auth","token":"t"}"#),
            (ClientFrame::Open { session_id: None }, r#"{"type":"open"}"#),
            (ClientFrame::Open { session_id: Some("s1".into()) }, r#"{"type":"open","sessionId":"s1"}"#),
            (
                ClientFrame::Text { session_id: "s1".into(), content: "hi".into(), client_msg_id: None },
                r#"{"type":"text","sessionId":"s1","content":"hi"}"#,
            ),
            (
                ClientFrame::Image {
                    session_id: "s1".into(),
                    content: "s1/0123456789abcdef0123456789abcdef.png".into(),
                    client_msg_id: Some("c1".into()),
                },
                r#"{"type":"image","sessionId":"s1","content":"s1/0123456789abcdef0123456789abcdef.png","clientMsgId":"c1"}"#,
            ),
            (
                ClientFrame::Card { session_id: "s1".into(), content: "SK1".into(), client_msg_id: Some("c2".into()) },
                r#"{"type":"card","sessionId":"s1","content":"SK1","clientMsgId":"c2"}"#,
            ),
            (
                ClientFrame::Ack { session_id: "s1".into(), last_seq: 9 },
                r#"{"type":"ack","sessionId":"s1","lastSeq":9}"#,
            ),
            (
                ClientFrame::Pull { session_id: "s1".into(), from: 2, to: 5 },
                r#"{"type":"pull","sessionId":"s1","from":2,"to":5}"#,
            ),
            (ClientFrame::Typing { session_id: "s1".into() }, r#"{"type":"typing","sessionId":"s1"}"#),
            (ClientFrame::Status { status: AgentStatus::Away }, r#"{"type":"status","status":"away"}"#),
            (
                ClientFrame::Transfer { session_id: "s1".into(), to: Some("g2".into()) },
                r#"{"type":"transfer","sessionId":"s1","to":"g2"}"#,
            ),
            (ClientFrame::Transfer { session_id: "s1".into(), to: None }, r#"{"type":"transfer","sessionId":"s1"}"#),
            (ClientFrame::Close { session_id: "s1".into() }, r#"{"type":"close","sessionId":"s1"}"#),
        ];
        let contract = Contract::read();
        for (frame, text) in cases {
            assert_eq!(serde_json::to_string(&frame).unwrap(), text);
            let written = serde_json::from_str(text).unwrap();
            contract.check_client_frame(&written).unwrap_or_else(|drift| panic!("{drift}"));
        }
    }

    #[test]
    fn every_example_of_the_document_is_read_and_no_frame_is_without_one() {
        let contract = Contract::read();
        for (name, message) in contract.messages("toClient") {
            let examples = message["examples"].as_array().unwrap_or_else(|| panic!("{name} has no example"));
            for example in examples {
                let text = example["payload"].to_string();
                let frame = read(&text).unwrap_or_else(|error| panic!("{error}: {text}"));
                let expected = match frame {
                    ServerFrame::Pong { .. } => "pong",
                    ServerFrame::SeckillResult(_) => "seckill_result",
                    ServerFrame::OrderStatus(_) => "order_status",
                    ServerFrame::Message(_) => "message",
                    ServerFrame::Messages { .. } => "messages",
                    ServerFrame::Sent(_) => "sent",
                    ServerFrame::SyncEnd { .. } => "sync_end",
                    ServerFrame::Read(_) => "read",
                    ServerFrame::Session(_) => "session",
                    ServerFrame::Typing(_) => "typing",
                    ServerFrame::Rotate {} => "rotate",
                    ServerFrame::Status(_) => "status",
                    ServerFrame::Error(_) => "error",
                };
                assert_eq!(name, expected);
                let mut more = example["payload"].clone();
                more["surprise"] = 1.into();
                assert!(serde_json::from_value::<ServerFrame>(more).is_err(), "{name} takes any member");
            }
        }
    }

    /// Whatever of this is read all the same is a mistake of the server; `api_documents` holds its parser against the same page.
    #[test]
    fn the_document_lets_nobody_say_what_makes_no_sense() {
        let contract = Contract::read();
        let long = format!(r#"{{"type":"text","sessionId":"s1","content":"{}"}}"#, "字".repeat(4_001));
        for bad in [
            r#"{"type":"text","sessionId":"s1"}"#,
            r#"{"type":"text","sessionId":"s 1","content":"hi"}"#,
            r#"{"type":"text","sessionId":"s1","content":""}"#,
            r#"{"type":"text","sessionId":"s1","content":" \n\t "}"#,
            r#"{"type":"text","sessionId":"s1","content":"a\u0000b"}"#,
            r#"{"type":"text","sessionId":"s1","content":"\u001b[2J"}"#,
            r#"{"type":"text","sessionId":"s1","content":"\u0085"}"#,
            r#"{"type":"text","sessionId":"s1","content":7}"#,
            r#"{"type":"text","sessionId":"s1","content":"hi","clientMsgId":"a b"}"#,
            r#"{"type":"text","sessionId":"s1","content":"hi","clientMsgId":""}"#,
            r#"{"type":"text","sessionId":"s1","content":"hi","seq":1}"#,
            &long,
            r#"{"type":"image","sessionId":"s1","content":"s1/../0123456789abcdef0123456789abcdef.png"}"#,
            r#"{"type":"image","sessionId":"s1","content":"s1/0123456789abcdef0123456789abcdef.svg"}"#,
            r#"{"type":"card","sessionId":"s1","content":"SK 1"}"#,
            r#"{"type":"ack","sessionId":"s1","lastSeq":-1}"#,
            r#"{"type":"ack","sessionId":"s1"}"#,
            r#"{"type":"pull","sessionId":"s1","from":0,"to":1}"#,
            r#"{"type":"pull","sessionId":"s1","from":1}"#,
            r#"{"type":"typing"}"#,
            r#"{"type":"status","status":"asleep"}"#,
            r#"{"type":"transfer","to":"g2"}"#,
            r#"{"type":"close","sessionId":"s1","why":"done"}"#,
            r#"{"type":"open","sessionId":7}"#,
            r#"{"type":"rotate"}"#,
        ] {
            let frame = serde_json::from_str(bad).unwrap();
            assert!(contract.check_client_frame(&frame).is_err(), "{bad}");
        }
        let good = r#"{"type":"text","sessionId":"s1","content":" 👩‍👩‍👧 e\u0301\r\n\t"}"#;
        contract.check_client_frame(&serde_json::from_str(good).unwrap()).unwrap_or_else(|drift| panic!("{drift}"));
    }

    #[test]
    fn every_code_of_the_document_is_known() {
        let contract = Contract::read();
        let messages = contract.messages("toClient");
        let codes = contract.payload(messages["error"])["properties"]["code"]["enum"].as_array().unwrap().clone();
        assert_eq!(codes.len(), 10);
        for code in codes {
            let read: FrameErrorCode = serde_json::from_value(code.clone()).unwrap();
            assert_eq!(code, read.as_str());
        }
    }

    #[test]
    fn a_result_is_read_and_a_drifted_one_is_not() {
        let good =
            r#"{"type":"seckill_result","orderNo":"SK1","status":"success","orderStatus":"UNPAID","message":"ok"}"#;
        let frame = read(good).unwrap();
        let ServerFrame::SeckillResult(result) = frame else { panic!("{frame:?}") };
        assert_eq!((result.status, result.order_status), (ResultStatus::Success, OrderStatus::Unpaid));
        let later = good.replace("seckill_result", "order_status").replace("UNPAID", "PAID");
        let frame = read(&later).unwrap();
        let ServerFrame::OrderStatus(result) = frame else { panic!("{frame:?}") };
        assert_eq!((result.status, result.order_status), (ResultStatus::Success, OrderStatus::Paid));
        for bad in [
            r#"{"type":"seckill_result","orderNo":"SK1","status":"won","orderStatus":"UNPAID","message":"ok"}"#,
            r#"{"type":"seckill_result","orderNo":"SK1","status":"success","orderStatus":"UNPAID","message":"ok","qty":1}"#,
            r#"{"type":"pong"}"#,
            r#"{"type":"surprise"}"#,
            r#"{"type":"rotate","soon":true}"#,
        ] {
            assert!(read(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn what_a_message_holds_is_what_its_kind_says() {
        let message = |seq: u64, from: &str, kind: &str, content: &str| {
            read(&format!(
                r#"{{"type":"message","id":"s1-1","sessionId":"s1","seq":{seq},"from":{from},"kind":"{kind}","content":{content},"at":"2026-06-01T02:00:00Z"}}"#
            ))
        };
        let user = r#"{"role":"user","id":"u1"}"#;
        let system = r#"{"role":"system"}"#;
        let card = r#"{"orderNo":"SK1","title":"Kettle","qty":1,"amount":1990,"currency":"CNY","status":"PAID"}"#;
        let image = r#"{"key":"s1/a.png","url":"https://x","contentType":"image/png"}"#;
        for (from, kind, content) in [
            (user, "text", r#""你好""#),
            (user, "card", card),
            (user, "image", image),
            (system, "system", r#"{"event":"joined","agentId":"g1","text":"An agent has joined."}"#),
        ] {
            let frame = message(1, from, kind, content).unwrap_or_else(|error| panic!("{kind}: {error}"));
            assert!(matches!(frame, ServerFrame::Message(_)), "{frame:?}");
        }
        for (seq, from, kind, content) in [
            (2, user, "text", r#""an id of another number""#),
            (1, user, "text", r#"{"text":"hi"}"#),
            (1, user, "card", image),
            (1, user, "system", r#"{"event":"joined","text":"a customer cannot say so"}"#),
            (1, system, "text", r#""hi""#),
            (1, r#"{"role":"user"}"#, "text", r#""nobody""#),
            (1, user, "video", r#""hi""#),
            (1, system, "system", r#"{"event":"exploded","text":"bang"}"#),
        ] {
            assert!(message(seq, from, kind, content).is_err(), "{kind} {content}");
        }
    }
}
