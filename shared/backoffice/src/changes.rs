//! The change log, for what admins do besides changing rows of a sale: those carry their entry along.

use kernel::ids::UserId;
use kernel::time::UnixMillis;
use sale::store::Offers;
pub use sale::store::offers::SYSTEM;
use serde::Serialize;

/// Where it is noted who did what.
pub struct ChangeLog {
    offers: Offers,
}

impl ChangeLog {
    pub fn new(offers: Offers) -> Self {
        Self { offers }
    }

    /// Notes what was done to `subject`, an activity or [`SYSTEM`]. A note that fails is only logged: most are about what is
    /// done already.
    pub async fn note<T: Serialize>(
        &self,
        subject: &str,
        by: &UserId,
        at: UnixMillis,
        action: String,
        before: Option<&T>,
        after: &T,
    ) {
        if let Err(error) = self.offers.log(subject, by, at, action, before, after).await {
            tracing::error!(%by, error = &error as &dyn std::error::Error, "an action is not in the change log");
        }
    }
}
