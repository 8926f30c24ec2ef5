//! The frames of the WebSocket: one JSON object each, told apart by `type`.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::documents::{OrderStatus, ResultStatus};

/// What a client sends.
#[derive(Debug, Clone, Serialize)]
#[serde(tag = "type", rename_all = "snake_case", rename_all_fields = "camelCase")]
pub enum ClientFrame<'a> {
    /// Replays what was missed: results always, chat messages from the given positions on.
    Sync { sessions: BTreeMap<String, u64> },
    /// The result was shown in this state; it need not come again. A later state of the same order still does.
    ResultAck { order_no: &'a str, order_status: OrderStatus },
    /// Heartbeat.
    Ping,
    /// Renews the connection's expiry.
    Auth { token: &'a str },
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

/// A frame could not be used. The socket stays open.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ErrorFrame {
    pub code: FrameErrorCode,
    pub message: String,
    #[serde(default)]
    pub retry_after_ms: Option<u64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum FrameErrorCode {
    BadFrame,
    NotFound,
    AuthExpired,
    RateLimited,
    TooLarge,
    RetryLater,
}

impl fmt::Display for FrameErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::BadFrame => "BAD_FRAME",
            Self::NotFound => "NOT_FOUND",
            Self::AuthExpired => "AUTH_EXPIRED",
            Self::RateLimited => "RATE_LIMITED",
            Self::TooLarge => "TOO_LARGE",
            Self::RetryLater => "RETRY_LATER",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_written_as_the_contract_says() {
        let cases = [
            (ClientFrame::Sync { sessions: BTreeMap::new() }, r#"{"type":"sync","sessions":{}}"#),
            (
                ClientFrame::ResultAck { order_no: "SK1", order_status: OrderStatus::Unpaid },
                r#"{"type":"result_ack","orderNo":"SK1","orderStatus":"UNPAID"}"#,
            ),
            (ClientFrame::Ping, r#"{"type":"ping"}"#),
            (ClientFrame::Auth { token: "t" }, r#"{"type":"auth","token":"t"}"#),
        ];
        for (frame, text) in cases {
            assert_eq!(serde_json::to_string(&frame).unwrap(), text);
        }
    }

    #[test]
    fn a_result_is_read_and_a_drifted_one_is_not() {
        let good =
            r#"{"type":"seckill_result","orderNo":"SK1","status":"success","orderStatus":"UNPAID","message":"ok"}"#;
        let frame: ServerFrame = serde_json::from_str(good).unwrap();
        let ServerFrame::SeckillResult(result) = frame else { panic!("{frame:?}") };
        assert_eq!((result.status, result.order_status), (ResultStatus::Success, OrderStatus::Unpaid));
        let later = good.replace("seckill_result", "order_status").replace("UNPAID", "PAID");
        let frame: ServerFrame = serde_json::from_str(&later).unwrap();
        let ServerFrame::OrderStatus(result) = frame else { panic!("{frame:?}") };
        assert_eq!((result.status, result.order_status), (ResultStatus::Success, OrderStatus::Paid));
        for bad in [
            r#"{"type":"seckill_result","orderNo":"SK1","status":"won","orderStatus":"UNPAID","message":"ok"}"#,
            r#"{"type":"seckill_result","orderNo":"SK1","status":"success","orderStatus":"UNPAID","message":"ok","qty":1}"#,
            r#"{"type":"pong"}"#,
            r#"{"type":"surprise"}"#,
        ] {
            assert!(serde_json::from_str::<ServerFrame>(bad).is_err(), "{bad}");
        }
    }
}
