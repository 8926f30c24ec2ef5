//! How a run ends.

use std::error::Error;
use std::fmt;
use std::io;
use std::process::ExitCode;
use std::time::Duration;

use serde::Deserialize;

use crate::show::clean;

const EXIT_WRONG: u8 = 1;
const EXIT_REFUSED: u8 = 2;
const EXIT_NO_ANSWER: u8 = 3;

/// What was asked for was done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ending {
    Right,
    /// And it showed that a promise was broken.
    Wrong,
}

impl Ending {
    pub(crate) fn exit_code(self) -> ExitCode {
        match self {
            Self::Right => ExitCode::SUCCESS,
            Self::Wrong => ExitCode::from(EXIT_WRONG),
        }
    }
}

/// A refusal of the API (RFC 9457), of which people need this much.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Problem {
    pub(crate) status: u16,
    pub(crate) code: String,
    detail: String,
    request_id: String,
    pub(crate) retry_after_ms: Option<u64>,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} (requestId {})", clean(&self.code), clean(&self.detail), clean(&self.request_id))
    }
}

/// It was not done, or nobody knows.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    #[error("{0}")]
    Refused(Problem),
    /// There is something wrong with what was typed or set.
    #[error("{0}")]
    Misused(String),
    #[error("no answer from {host}")]
    NoAnswer { host: String, source: reqwest::Error },
    /// The gateway's own answer, or of something in between.
    #[error("{status} from {host} is not the application's: {}", clean(.body))]
    NotOurs { status: u16, host: String, body: String, retry_after: Option<Duration> },
    #[error("an answer cannot be understood")]
    Unreadable(#[source] serde_json::Error),
    #[error("an answer is longer than {0} bytes")]
    TooLong(usize),
    #[error("cannot write")]
    Output(#[from] io::Error),
}

impl Failure {
    /// Says what went wrong, on the standard error.
    pub(crate) fn tell(&self) -> ExitCode {
        let nobody_reads = matches!(self, Self::Output(error) if error.kind() == io::ErrorKind::BrokenPipe);
        if !nobody_reads {
            eprintln!("{}", self.chain());
        }
        match self {
            Self::Refused(_) | Self::Misused(_) => ExitCode::from(EXIT_REFUSED),
            Self::NoAnswer { .. } | Self::NotOurs { .. } | Self::Unreadable(_) | Self::TooLong(_) | Self::Output(_) => {
                ExitCode::from(EXIT_NO_ANSWER)
            }
        }
    }

    /// The error with its causes.
    pub(crate) fn chain(&self) -> String {
        let mut text = self.to_string();
        let mut cause = self.source();
        while let Some(error) = cause {
            text.push_str(": ");
            text.push_str(&error.to_string());
            cause = error.source();
        }
        text
    }

    /// The same call may succeed a moment later.
    pub(crate) fn may_pass(&self) -> bool {
        match self {
            Self::Refused(Problem { status, .. }) | Self::NotOurs { status, .. } => matches!(status, 429 | 502..=504),
            Self::NoAnswer { .. } => true,
            Self::Misused(_) | Self::Unreadable(_) | Self::TooLong(_) | Self::Output(_) => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problem(status: u16) -> Problem {
        Problem {
            status,
            code: "ENDED".into(),
            detail: "The sale is over.".into(),
            request_id: "r-1".into(),
            retry_after_ms: None,
        }
    }

    #[test]
    fn a_refusal_is_one_line_with_its_request_id() {
        assert_eq!(Failure::Refused(problem(409)).chain(), "ENDED: The sale is over. (requestId r-1)");
        let mut tricky = problem(409);
        tricky.detail = "a\u{1b}[2Jb\nc".into();
        assert!(!tricky.to_string().contains(['\u{1b}', '\n']));
    }

    #[test]
    fn only_what_may_be_over_in_a_moment_may_pass() {
        assert!(Failure::Refused(problem(503)).may_pass());
        assert!(!Failure::Refused(problem(401)).may_pass());
        assert!(!Failure::Misused(String::new()).may_pass());
    }
}
