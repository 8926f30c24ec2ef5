//! Calls that have to succeed, and waits that have to end.

use std::time::Duration;

use client::{Answer, Backoff, ClientError};

use crate::error::DemoError;
use crate::progress::Phase;

/// Tries of one call, the first wait between them and the longest.
const MAX_TRIES: u32 = 5;
const FIRST_WAIT: Duration = Duration::from_millis(500);
const LONGEST_WAIT: Duration = Duration::from_secs(4);

/// The document of a call that has to succeed. All of these may be repeated.
pub async fn accepted<T>(what: &str, call: impl AsyncFn() -> Result<Answer<T>, ClientError>) -> Result<T, DemoError> {
    insist(what, call).await?.outcome.map_err(|problem| DemoError::refused(what, problem))
}

/// Calls until there is an answer that stands: a cold function on a busy machine may need a second try.
pub async fn insist<T>(
    what: &str,
    call: impl AsyncFn() -> Result<Answer<T>, ClientError>,
) -> Result<Answer<T>, DemoError> {
    let mut backoff = Backoff::new(FIRST_WAIT, LONGEST_WAIT);
    let mut tries = 0;
    loop {
        tries += 1;
        let result = call().await;
        let may_pass = match &result {
            Ok(answer) => answer.problem().is_some_and(|problem| problem.code.may_pass_later()),
            Err(error) => matches!(error, ClientError::NoAnswer { .. } | ClientError::NotOurs { status: 500.., .. }),
        };
        if !may_pass || tries == MAX_TRIES {
            return result.map_err(DemoError::step(what));
        }
        tokio::time::sleep(backoff.next_wait(result.ok().and_then(|answer| answer.asked_wait()))).await;
    }
}

/// A phase that has to end.
pub async fn within<T>(
    bound: Duration,
    what: &'static str,
    phase: &Phase,
    work: impl Future<Output = T>,
) -> Result<T, DemoError> {
    tokio::time::timeout(bound, work).await.map_err(|_| {
        let (done, total) = phase.so_far();
        DemoError::Stuck { what, done, total, after: bound }
    })
}
