//! What is said over a socket: JSON objects, told apart by `type`.
//!
//! A new frame of the client is a file here and a variant of [`ClientFrame`]; the compiler then asks for its place in
//! [`ClientFrame::wanted`] (what has to be read for it) and in [`Service::receive`](crate::Service::receive). Each file has the
//! frame's fields and what is done about it. What the server says is in [`server`].

mod ack;
mod auth;
mod close;
mod open;
mod ping;
mod pull;
mod result_ack;
mod say;
pub mod server;
mod status;
pub(crate) mod sync;
mod transfer;
mod typing;

use kernel::text::Text;
use serde::{Deserialize, Deserializer, Serialize};

pub use ack::Ack;
pub use auth::{Auth, Credentials, Token};
pub use close::Close;
pub use open::Open;
pub use ping::Ping;
pub use pull::Pull;
pub use result_ack::ResultAck;
pub use say::Say;
pub use server::ServerFrame;
pub use status::Status;
pub use sync::Sync;
pub use transfer::Transfer;
pub use typing::Typing;

use crate::ids::{ClientMsgId, Seq, SessionId};
use crate::message::{ImageKey, MessageText};
use kernel::ids::OrderNo;

/// What a client may send.
#[derive(Debug, PartialEq, Eq, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
pub enum ClientFrame {
    Sync(Sync),
    Ping(Ping),
    Auth(Auth),
    ResultAck(ResultAck),
    Open(Open),
    Text(Say<MessageText>),
    Image(Say<ImageKey>),
    Card(Say<OrderNo>),
    Ack(Ack),
    Pull(Pull),
    Typing(Typing),
    Status(Status),
    Transfer(Transfer),
    Close(Close),
}

/// Of a member that may be left out: what it is, and not null.
fn given<'de, D: Deserializer<'de>, T: Deserialize<'de>>(deserializer: D) -> Result<Option<T>, D::Error> {
    T::deserialize(deserializer).map(Some)
}

/// What has to be read to answer a frame, in one call with the sender's connection.
#[derive(Debug, Default)]
pub(crate) struct Wanted<'a> {
    pub(crate) sessions: Vec<&'a SessionId>,
    /// Whether the sessions' cursors are needed too.
    pub(crate) cursors: bool,
    pub(crate) message: Option<(&'a SessionId, Seq)>,
}

impl ClientFrame {
    /// Reads a frame. Why one cannot be read is not said: what is in it is the client's, and may be a token.
    pub fn parse(text: &str) -> Result<Self, ErrorCode> {
        // serde takes `["ping"]` for a `ping` too; a frame is an object.
        if !text.trim_ascii_start().starts_with('{') {
            return Err(ErrorCode::BadFrame);
        }
        let frame: Self = serde_json::from_str(text).map_err(|_| ErrorCode::BadFrame)?;
        match &frame {
            Self::Pull(pull) if !pull.is_a_range() => Err(ErrorCode::BadFrame),
            _ => Ok(frame),
        }
    }

    pub(crate) fn wanted(&self) -> Wanted<'_> {
        let session = |session_id| Wanted { sessions: vec![session_id], ..Wanted::default() };
        match self {
            Self::Sync(sync) => Wanted { sessions: sync.sessions().collect(), cursors: true, message: None },
            Self::Ack(ack) => Wanted {
                sessions: vec![&ack.session_id],
                cursors: true,
                message: Some((&ack.session_id, ack.last_seq)),
            },
            Self::Text(say) => session(&say.session_id),
            Self::Image(say) => session(&say.session_id),
            Self::Card(say) => session(&say.session_id),
            Self::Pull(pull) => session(&pull.session_id),
            Self::Typing(typing) => session(&typing.session_id),
            Self::Transfer(transfer) => session(&transfer.session_id),
            Self::Close(close) => session(&close.session_id),
            Self::Ping(_) | Self::Auth(_) | Self::ResultAck(_) | Self::Open(_) | Self::Status(_) => Wanted::default(),
        }
    }

    /// By which a client finds what an error is about.
    pub(crate) fn about(&self) -> (Option<SessionId>, Option<ClientMsgId>) {
        match self {
            Self::Text(say) => (Some(say.session_id.clone()), say.client_msg_id.clone()),
            Self::Image(say) => (Some(say.session_id.clone()), say.client_msg_id.clone()),
            Self::Card(say) => (Some(say.session_id.clone()), say.client_msg_id.clone()),
            Self::Ack(ack) => (Some(ack.session_id.clone()), None),
            Self::Pull(pull) => (Some(pull.session_id.clone()), None),
            Self::Typing(typing) => (Some(typing.session_id.clone()), None),
            Self::Transfer(transfer) => (Some(transfer.session_id.clone()), None),
            Self::Close(close) => (Some(close.session_id.clone()), None),
            Self::Open(open) => (open.session_id.clone(), None),
            Self::Sync(_) | Self::Ping(_) | Self::Auth(_) | Self::ResultAck(_) | Self::Status(_) => (None, None),
        }
    }
}

/// Why a frame could not be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum ErrorCode {
    /// No JSON object, of no known type, or with members that its type does not have.
    BadFrame,
    TooLarge,
    /// Does not exist, or is somebody else's.
    NotFound,
    SessionClosed,
    /// Acknowledges more than there is.
    AckOutOfRange,
    /// Another message of this sender has that name.
    ClientMsgIdReused,
    /// The agent that a session was to go to is not there, takes nothing, or is no agent.
    AgentUnavailable,
    /// The token has expired, or the new one is no good.
    AuthExpired,
    /// Too many frames on this connection.
    RateLimited,
    /// Something behind us does not answer.
    RetryLater,
}

impl ErrorCode {
    pub const ALL: [Self; 10] = [
        Self::BadFrame,
        Self::TooLarge,
        Self::NotFound,
        Self::SessionClosed,
        Self::AckOutOfRange,
        Self::ClientMsgIdReused,
        Self::AgentUnavailable,
        Self::AuthExpired,
        Self::RateLimited,
        Self::RetryLater,
    ];

    pub const fn text(self) -> Text {
        match self {
            Self::BadFrame => Text::new("This frame could not be read.", "无法识别该消息。"),
            Self::TooLarge => Text::new("A frame may have 16 KiB at most.", "单条消息不能超过 16 KiB。"),
            Self::NotFound => Text::new("There is no such thing here.", "未找到相关内容。"),
            Self::SessionClosed => Text::new("This conversation is closed.", "会话已结束。"),
            Self::AckOutOfRange => Text::new("There is no such message yet.", "确认的消息尚不存在。"),
            Self::ClientMsgIdReused => {
                Text::new("This clientMsgId belongs to another message.", "该 clientMsgId 已用于另一条消息。")
            }
            Self::AgentUnavailable => Text::new("This agent cannot take the conversation.", "该客服当前无法接入。"),
            Self::RateLimited => Text::new("That was too fast. Please slow down.", "操作过于频繁，请稍后再试。"),
            Self::AuthExpired => Text::new("Please sign in again.", "登录已过期，请重新登录。"),
            Self::RetryLater => Text::new("Please try again in a moment.", "系统繁忙，请稍后重试。"),
        }
    }

    const fn retry_after_ms(self) -> Option<u32> {
        match self {
            Self::RateLimited | Self::RetryLater => Some(1_000),
            Self::BadFrame
            | Self::TooLarge
            | Self::NotFound
            | Self::SessionClosed
            | Self::AckOutOfRange
            | Self::ClientMsgIdReused
            | Self::AgentUnavailable
            | Self::AuthExpired => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use kernel::text::Language;

    use super::*;

    #[test]
    fn the_frames_of_the_contract_are_read() {
        for frame in [
            r#"{"type":"sync"}"#,
            r#"{"type":"sync","sessions":{}}"#,
            r#"{"sessions":{"s1":0,"s2":18446744073709551615},"type":"sync"}"#,
            r#" {"type":"ping"} "#,
            r#"{"type":"auth","token":"a.b.c"}"#,
            r#"{"type":"result_ack","orderNo":"SK1"}"#,
            r#"{"type":"result_ack","orderNo":"SK1","orderStatus":"UNPAID"}"#,
        ] {
            assert!(ClientFrame::parse(frame).is_ok(), "{frame}");
        }
    }

    #[test]
    fn anything_else_is_a_bad_frame() {
        let deep = format!(r#"{{"type":"sync","sessions":{}1{}}}"#, r#"{"a":"#.repeat(200), "}".repeat(200));
        let deep_list = format!(r#"{{"type":"sync","sessions":{}{}}}"#, "[".repeat(200), "]".repeat(200));
        let many = (0..=sync::MAX_SESSIONS).map(|n| format!(r#""s{n}":1"#)).collect::<Vec<_>>().join(",");
        for frame in [
            "",
            "hello",
            "[]",
            "null",
            "{}",
            "7",
            "\u{feff}{\"type\":\"ping\"}",
            "{\"type\":\"ping\"",
            r#"{"type":"ping"}{"type":"ping"}"#,
            r#"["ping"]"#,
            r#"["sync",{"s1":1}]"#,
            r#"{"type":"dance"}"#,
            r#"{"type":"Ping"}"#,
            r#"{"type":null}"#,
            r#"{"type":["ping"]}"#,
            r#"{"type":"ping","type":"ping"}"#,
            r#"{"type":"ping","at":1}"#,
            r#"{"type":"sync","session":{}}"#,
            r#"{"type":"sync","sessions":[]}"#,
            r#"{"type":"sync","sessions":{"s 1":1}}"#,
            r#"{"type":"sync","sessions":{"s1":-1}}"#,
            r#"{"type":"sync","sessions":{"s1":1.5}}"#,
            r#"{"type":"sync","sessions":{"s1":"1"}}"#,
            r#"{"type":"auth"}"#,
            r#"{"type":"auth","token":7}"#,
            r#"{"type":"result_ack"}"#,
            r#"{"type":"result_ack","orderNo":"SK 1"}"#,
            r#"{"type":"result_ack","orderNo":"SK1\u0000"}"#,
            r#"{"type":"result_ack","orderNo":"SK1","orderStatus":"a#b"}"#,
            r#"{"type":"result_ack","orderNo":"SK1","seen":true}"#,
            r#"{"type":"open","sessionId":null}"#,
            r#"{"type":"text","sessionId":"s1","content":"a","clientMsgId":null}"#,
            r#"{"type":"transfer","sessionId":"s1","to":null}"#,
            &deep,
            &deep_list,
            &format!(r#"{{"type":"sync","sessions":{{{many}}}}}"#),
        ] {
            assert_eq!(ClientFrame::parse(frame), Err(ErrorCode::BadFrame), "{frame}");
        }
    }

    #[test]
    fn what_is_sent_has_the_contracts_names() {
        let pong = ServerFrame::Pong { heads: BTreeMap::new() };
        assert_eq!(pong.to_json().unwrap(), r#"{"type":"pong","heads":{}}"#);
        let busy = ServerFrame::refused(ErrorCode::RetryLater, None, None, Language::Zh);
        assert_eq!(
            busy.to_json().unwrap(),
            r#"{"type":"error","code":"RETRY_LATER","message":"系统繁忙，请稍后重试。","retryAfterMs":1000}"#
        );
        let bad = ServerFrame::refused(ErrorCode::BadFrame, None, None, Language::En);
        assert_eq!(
            bad.to_json().unwrap(),
            r#"{"type":"error","code":"BAD_FRAME","message":"This frame could not be read."}"#
        );
    }

    #[test]
    fn a_token_is_not_shown() {
        let frame = ClientFrame::parse(r#"{"type":"auth","token":"canary"}"#).unwrap();
        assert!(!format!("{frame:?}").contains("canary"));
    }
}
