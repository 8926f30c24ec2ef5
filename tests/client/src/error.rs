//! What can go wrong between the client and the system. Refusals of the system are answers, not errors: they arrive as
//! [`Problem`](crate::documents::Problem) or as an `error` frame.

use std::path::PathBuf;
use std::time::Duration;

use crate::frames::ErrorFrame;

/// Why there is no usable answer.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    #[error("cannot read {path}; is the stack up?", path = path.display())]
    OutputsMissing { path: PathBuf, source: std::io::Error },
    #[error("{path} does not describe a stack", path = path.display())]
    OutputsUnreadable { path: PathBuf, source: serde_json::Error },
    #[error("the token cannot be signed")]
    Token(#[source] jsonwebtoken::errors::Error),
    /// No answer: the connection broke, or the time was up.
    #[error("no answer from {method} {path}")]
    NoAnswer { method: String, path: String, source: reqwest::Error },
    #[error("the answer to {path} is longer than {limit} bytes")]
    AnswerTooLong { path: String, limit: usize },
    /// Neither the expected document nor problem+json: the gateway's own answer, or something in between.
    #[error("{status} from {path} is not the application's: {body}")]
    NotOurs { status: u16, path: String, body: String },
    /// The document has another shape than the contract says.
    #[error("{status} from {path} does not match the contract ({source}): {body}")]
    Drift { status: u16, path: String, body: String, source: serde_json::Error },
    /// The handshake was answered with something other than 101.
    #[error("the WebSocket handshake was refused with {status}")]
    HandshakeRefused { status: u16 },
    #[error("the WebSocket connection failed")]
    Socket(#[source] Box<tokio_tungstenite::tungstenite::Error>),
    #[error("the WebSocket connection is closed")]
    SocketClosed,
    /// A frame of another shape than the contract says.
    #[error("a frame does not match the contract ({reason}): {frame}")]
    FrameDrift { frame: String, reason: String },
    /// The server answered with an `error` frame where a result was awaited.
    #[error("the server answered {code}: {message}", code = .0.code, message = .0.message)]
    FrameRefused(ErrorFrame),
    /// A thousand messages of one session wait to be sent.
    #[error("too much is waiting to be sent already")]
    TooManyWishes,
    #[error("{what} did not happen within {within:?}")]
    TimedOut { what: String, within: Duration },
}
