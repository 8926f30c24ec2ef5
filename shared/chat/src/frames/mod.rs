//! What is said over a socket: JSON objects, told apart by `type`.
//!
//! A new frame of the client is a file here and a variant of [`ClientFrame`]; the compiler then asks for its place in
//! [`Postman::receive`](crate::Postman::receive). Each file has the frame's fields and what is answered to it.

mod auth;
mod ping;
mod result_ack;
mod sync;

use std::borrow::Cow;
use std::collections::BTreeMap;

use kernel::ids::OrderNo;
use kernel::text::{Language, Text};
use serde::{Deserialize, Serialize};

pub use auth::{Auth, Credentials, Token};
pub use ping::Ping;
pub use result_ack::ResultAck;
pub use sync::Sync;

use crate::ids::SessionId;
use crate::results::StoredResult;

/// What a client may send.
#[derive(Debug, PartialEq, Eq, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
pub enum ClientFrame {
    Sync(Sync),
    Ping(Ping),
    Auth(Auth),
    ResultAck(ResultAck),
}

impl ClientFrame {
    /// Reads a frame. Why one cannot be read is not said: what is in it is the client's, and may be a token.
    pub fn parse(text: &str) -> Result<Self, ErrorCode> {
        // serde takes `["ping"]` for a `ping` too; a frame is an object.
        if !text.trim_ascii_start().starts_with('{') {
            return Err(ErrorCode::BadFrame);
        }
        serde_json::from_str(text).map_err(|_| ErrorCode::BadFrame)
    }
}

/// Statuses that an order gets when its purchase was a success long ago: told in a frame of their own.
const AFTER_PURCHASE: [&str; 2] = ["PAID", "CANCELLED"];

/// What a client is told.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "type", rename_all = "snake_case", rename_all_fields = "camelCase")]
pub enum ServerFrame {
    /// What became of a purchase.
    SeckillResult { order_no: OrderNo, status: Cow<'static, str>, order_status: Cow<'static, str>, message: String },
    /// What became of an order later on: it was paid, or cancelled.
    OrderStatus { order_no: OrderNo, status: Cow<'static, str>, order_status: Cow<'static, str>, message: String },
    /// Answers `ping` and `auth`: every session the client is a member of, with its highest sequence number.
    Pong { heads: BTreeMap<SessionId, u64> },
    /// A frame that could not be used. The socket stays open.
    Error {
        code: ErrorCode,
        message: String,
        #[serde(skip_serializing_if = "Option::is_none")]
        retry_after_ms: Option<u32>,
    },
}

impl ServerFrame {
    pub(crate) fn result(result: &StoredResult, language: Language) -> Self {
        let (order_no, status, order_status) =
            (result.order_no.clone(), result.status.clone(), result.order_status.clone());
        let message = result.message.in_language(language).to_owned();
        if AFTER_PURCHASE.contains(&&*order_status) {
            Self::OrderStatus { order_no, status, order_status, message }
        } else {
            Self::SeckillResult { order_no, status, order_status, message }
        }
    }

    pub(crate) fn error(code: ErrorCode, language: Language) -> Self {
        Self::Error {
            code,
            message: code.text().in_language(language).to_owned(),
            retry_after_ms: code.retry_after_ms(),
        }
    }

    /// As it goes over the socket.
    pub(crate) fn to_json(&self) -> Result<String, serde_json::Error> {
        serde_json::to_string(self)
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
    /// The token has expired, or the new one is no good.
    AuthExpired,
    /// Something behind us does not answer.
    RetryLater,
}

impl ErrorCode {
    pub const ALL: [Self; 5] = [Self::BadFrame, Self::TooLarge, Self::NotFound, Self::AuthExpired, Self::RetryLater];

    pub const fn text(self) -> Text {
        match self {
            Self::BadFrame => Text::new("This frame could not be read.", "无法识别该消息。"),
            Self::TooLarge => Text::new("A frame may have 16 KiB at most.", "单条消息不能超过 16 KiB。"),
            Self::NotFound => Text::new("There is no such thing here.", "未找到相关内容。"),
            Self::AuthExpired => Text::new("Please sign in again.", "登录已过期，请重新登录。"),
            Self::RetryLater => Text::new("Please try again in a moment.", "系统繁忙，请稍后重试。"),
        }
    }

    const fn retry_after_ms(self) -> Option<u32> {
        match self {
            Self::RetryLater => Some(1_000),
            Self::BadFrame | Self::TooLarge | Self::NotFound | Self::AuthExpired => None,
        }
    }
}

#[cfg(test)]
mod tests {
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
        let busy = ServerFrame::error(ErrorCode::RetryLater, Language::Zh);
        assert_eq!(
            busy.to_json().unwrap(),
            r#"{"type":"error","code":"RETRY_LATER","message":"系统繁忙，请稍后重试。","retryAfterMs":1000}"#
        );
        let bad = ServerFrame::error(ErrorCode::BadFrame, Language::En);
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
