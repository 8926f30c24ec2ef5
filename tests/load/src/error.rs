//! Why the demo stopped before it could judge.

use std::error::Error;
use std::path::PathBuf;
use std::time::Duration;

use client::ClientError;
use client::documents::Problem;

#[derive(Debug, thiserror::Error)]
pub enum DemoError {
    #[error("the stack is not usable")]
    Client(#[from] ClientError),
    #[error("{what} failed")]
    Step { what: String, source: ClientError },
    #[error("{what} was refused with {code}: {detail}")]
    Refused { what: String, code: &'static str, detail: String },
    /// Something did not end in the time it is given.
    #[error("stuck while {what}: {done} of {total} done after {after:?}")]
    Stuck { what: &'static str, done: usize, total: usize, after: Duration },
    #[error("the desk is not free: {why}")]
    Occupied { why: String },
    #[error("the table {table} cannot be read")]
    Rows { table: String, source: Box<dyn Error + Send + Sync> },
    #[error("the server's clock shows {now} ms, which is no instant")]
    NoClock { now: i64 },
    #[error("the report cannot be written to {}", .path.display())]
    Report { path: PathBuf, source: std::io::Error },
}

impl DemoError {
    pub fn step(what: impl Into<String>) -> impl FnOnce(ClientError) -> Self {
        let what = what.into();
        |source| Self::Step { what, source }
    }

    pub fn refused(what: impl Into<String>, problem: Problem) -> Self {
        Self::Refused { what: what.into(), code: problem.code.as_str(), detail: problem.detail }
    }
}

/// An error with all its causes, on one line.
pub fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(next) = cause {
        text.push_str(": ");
        text.push_str(&next.to_string());
        cause = next.source();
    }
    text
}
