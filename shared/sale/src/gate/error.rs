//! How the gate fails. What it decides is never an error.

use redis::{ErrorKind, RedisError, ServerErrorKind};

/// The longest part of an unknown reply that is kept for the log, in characters.
const EXCERPT_CHARS: usize = 96;

/// The gate gave no answer that can be used. Whether it acted is unknown; every operation may be asked again.
#[derive(Debug, thiserror::Error)]
pub enum GateError {
    /// Redis cannot be reached, or does not do what it is asked: time-out, full memory, read-only replica, loading, a
    /// cluster that is down. It may do so later.
    #[error("the gate is unavailable")]
    Unavailable(#[source] RedisError),
    /// The gate holds or says what this code does not know. Asking again does not help.
    #[error("the gate holds something unknown")]
    Corrupt(#[source] Corruption),
}

/// What was not understood.
#[derive(Debug, thiserror::Error)]
pub enum Corruption {
    #[error("a script or command stumbled over what it found")]
    Stumbled(#[source] RedisError),
    #[error("unknown {what}: {excerpt:?}")]
    Unknown { what: &'static str, excerpt: String },
}

impl GateError {
    /// Whether the same call may succeed later.
    pub fn is_unavailable(&self) -> bool {
        match self {
            Self::Unavailable(_) => true,
            Self::Corrupt(_) => false,
        }
    }

    pub(super) fn unknown(what: &'static str, text: &str) -> Self {
        Self::Corrupt(Corruption::Unknown { what, excerpt: text.chars().take(EXCERPT_CHARS).collect() })
    }
}

impl From<RedisError> for GateError {
    fn from(error: RedisError) -> Self {
        if is_corruption(&error) { Self::Corrupt(Corruption::Stumbled(error)) } else { Self::Unavailable(error) }
    }
}

fn is_corruption(error: &RedisError) -> bool {
    match error.kind() {
        ErrorKind::Parse | ErrorKind::UnexpectedReturnType => true,
        ErrorKind::Server(ServerErrorKind::CrossSlot) => true,
        // ERR says all sorts of things, "max number of clients reached" among them; a script that stumbled names itself.
        ErrorKind::Server(ServerErrorKind::ResponseError) => {
            error.detail().is_some_and(|detail| detail.contains("user_script"))
        }
        // Asked of the server's own words: a pipeline's error has no code of its own.
        ErrorKind::Extension => {
            let words = error.clone().into_server_errors();
            words.is_some_and(|errors| errors.iter().any(|(_, error)| error.code() == "WRONGTYPE"))
        }
        // The client library may add kinds; one that is not known to mean nonsense is taken for a failure that passes.
        _ => false,
    }
}
