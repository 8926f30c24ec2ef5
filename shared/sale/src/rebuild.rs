//! A gate made from rows: before a sale opens, and after Redis lost it.
//!
//! The offer row says which making of the gate is valid (`epoch`), and whether one is under way (`rebuilding`). While it is,
//! the gate answers NOT_READY to everybody and no script changes it, so a few seconds are lost and never a unit. The first
//! making of an offer has no orders to load and is done at once. A later one waits until every function that was running
//! when it began is gone, so that what they did is in the rows; the sweep comes back for it.
//!
//! Every live order is loaded as pending: a row may move between being read here and the opening, and the sweep judges each
//! pending hold by its row.

use kernel::time::UnixMillis;
use redis::aio::ConnectionLike;

use crate::gate::{Counters, LoadHold, Loading};
use crate::offer::{OfferId, SaleState};
use crate::store::offers::{OfferRow, Written};
use crate::{SaleError, Stores};

/// The longest time-out of a function that touches gate and rows (the sweep's), in seconds: what was running when a
/// rebuild began is gone after it.
pub const WAIT_SECS: i64 = 50;

/// Where the gate of an offer stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Readiness {
    /// As the row says.
    Ready,
    /// Being made; come back after this instant.
    Making { until: UnixMillis },
    /// Somebody else is making it.
    Contended,
    /// Settled: never made again.
    Over,
}

/// Makes sure that the gate of `offer` is there and valid, or is being made.
pub async fn ensure<C>(stores: &Stores<C>, offer: &OfferRow) -> Result<Readiness, SaleError>
where
    C: ConnectionLike + Clone + Send + Sync,
{
    if offer.state == SaleState::Settled {
        return Ok(Readiness::Over);
    }
    let id = offer.id();
    let counters = stores.gate.counters(&id).await?;
    let loading = counters.as_ref().and_then(|counters| counters.loading);
    match offer.rebuilding {
        None if is_valid(offer, counters.as_ref()) => Ok(Readiness::Ready),
        Some(epoch) if loading == Some(epoch) => go_on(stores, offer, epoch).await,
        // Never made, lost, of another epoch, or begun by somebody who died before the gate knew.
        None | Some(_) => begin(stores, offer).await,
    }
}

fn is_valid(offer: &OfferRow, counters: Option<&Counters>) -> bool {
    offer.epoch > 0 && counters.is_some_and(|counters| counters.epoch == offer.epoch && counters.loading.is_none())
}

async fn begin<C>(stores: &Stores<C>, offer: &OfferRow) -> Result<Readiness, SaleError>
where
    C: ConnectionLike + Clone + Send + Sync,
{
    let now = stores.clock.now();
    match stores.offers.begin_rebuild(&offer.id(), offer.epoch, now).await? {
        Written::Refused(_) => return Ok(Readiness::Contended),
        Written::Done => {}
    }
    kernel::crash::point("rebuild.after_row");
    let epoch = offer.epoch + 1;
    match stores.gate.load_begin(&offer.id(), epoch).await? {
        Loading::Stale => return Ok(Readiness::Contended),
        Loading::Going => {}
    }
    kernel::crash::point("rebuild.after_begin");
    let begun = OfferRow { epoch, rebuilding: Some(epoch), rebuilding_since: Some(now), ..offer.clone() };
    go_on(stores, &begun, epoch).await
}

async fn go_on<C>(stores: &Stores<C>, offer: &OfferRow, epoch: i64) -> Result<Readiness, SaleError>
where
    C: ConnectionLike + Clone + Send + Sync,
{
    let first = epoch == 1;
    let until = offer.rebuilding_since.unwrap_or(stores.clock.now()).plus_secs(WAIT_SECS);
    if !first && stores.clock.now() < until {
        return Ok(Readiness::Making { until });
    }
    load(stores, &offer.id(), epoch).await
}

async fn load<C>(stores: &Stores<C>, id: &OfferId, epoch: i64) -> Result<Readiness, SaleError>
where
    C: ConnectionLike + Clone + Send + Sync,
{
    let holds: Vec<LoadHold> = stores.orders.all_of_offer(id).await?.iter().map(LoadHold::of).collect();
    if stores.gate.load_chunk(id, epoch, &holds).await? == Loading::Stale {
        return Ok(Readiness::Contended);
    }
    kernel::crash::point("rebuild.after_chunk");
    // Read last: an edit or a pause made meanwhile counts.
    let Some(offer) = stores.offers.offer(id).await? else {
        return Ok(Readiness::Over);
    };
    if offer.epoch != epoch || stores.gate.load_finish(id, &offer.gate_settings()).await? == Loading::Stale {
        return Ok(Readiness::Contended);
    }
    kernel::crash::point("rebuild.after_load");
    match stores.offers.end_rebuild(id, epoch).await? {
        Written::Done => Ok(Readiness::Ready),
        Written::Refused(_) => Ok(Readiness::Contended),
    }
}
