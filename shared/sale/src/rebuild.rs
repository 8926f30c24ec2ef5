//! A gate made from rows: before a sale opens, and after Redis lost it.
//!
//! The offer row says which making of the gate is valid (`epoch`), and whether one is under way (`rebuilding`). While it is,
//! the gate answers NOT_READY to everybody and no script changes it, so a few seconds are lost and never a unit. The first
//! making of an offer has no orders to load and is done at once. A later one waits until every function that was running
//! when it began is gone, so that what they did is in the rows; the sweep comes back for it.
//!
//! Every live order is loaded as pending: a row may move between being read here and the opening, and the sweep judges each
//! pending hold by its row. So is every FAILED one: its buyer may not have been told, which nothing else remembers.

use futures_util::future::try_join_all;
use kernel::time::UnixMillis;
use redis::aio::ConnectionLike;

use crate::gate::{Counters, LoadHold, Loading};
use crate::offer::{OfferId, SaleState};
use crate::store::offers::{OfferRow, Written};
use crate::store::orders::OFFER_SHARDS;
use crate::{SaleError, Stores};

/// The longest time-out of a function that touches gate and rows (the sweep's), in seconds: what was running when a
/// rebuild began is gone after it.
pub const WAIT_SECS: i64 = 50;

/// How long one load may take, in seconds; what is loaded by then stays, and the next run goes over it quickly.
const LOAD_SECS: i64 = 20;

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
        // Made, by somebody who died before the row knew.
        Some(epoch) if epoch == offer.epoch && is_valid(offer, counters.as_ref()) => end(stores, &id, epoch).await,
        Some(epoch) if loading == Some(epoch) => go_on(stores, offer, epoch).await,
        // Never made, lost, of another epoch, or begun by somebody who died before the gate knew.
        None | Some(_) => begin(stores, offer).await,
    }
}

/// Whether the gate is made, and the one that the row says.
pub(crate) fn is_valid(offer: &OfferRow, counters: Option<&Counters>) -> bool {
    offer.epoch > 0 && counters.is_some_and(|counters| counters.epoch == offer.epoch && counters.loading.is_none())
}

/// The gate of `offer` is to be made anew. If it is being made already, that goes on: to begin again would only have everybody
/// wait longer.
pub async fn ask<C>(stores: &Stores<C>, offer: &OfferRow) -> Result<Readiness, SaleError>
where
    C: ConnectionLike + Clone + Send + Sync,
{
    if offer.rebuilding.is_some() { ensure(stores, offer).await } else { begin(stores, offer).await }
}

/// Begins to make the gate of `offer` anew, whatever it says: what it says is wrong.
pub async fn begin<C>(stores: &Stores<C>, offer: &OfferRow) -> Result<Readiness, SaleError>
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
    let until = offer.rebuilding_since.unwrap_or(stores.clock.now()).plus_secs(WAIT_SECS);
    if offer.made && stores.clock.now() < until {
        return Ok(Readiness::Making { until });
    }
    load(stores, &offer.id(), epoch).await
}

async fn load<C>(stores: &Stores<C>, id: &OfferId, epoch: i64) -> Result<Readiness, SaleError>
where
    C: ConnectionLike + Clone + Send + Sync,
{
    let stop = stores.clock.now().plus_secs(LOAD_SECS);
    // Page by page, so that the size of a sale is no matter of memory. A page that is loaded again changes nothing.
    let parts = (0..OFFER_SHARDS).map(|shard| async move {
        let mut pages = stores.orders.pages_of_offer(id, shard);
        while let Some(rows) = pages.next().await? {
            let holds: Vec<LoadHold> = rows.iter().map(LoadHold::of).collect();
            if stores.gate.load_chunk(id, epoch, &holds).await? == Loading::Stale {
                return Ok(Loaded::Stale);
            }
            if stores.clock.now() >= stop {
                return Ok(Loaded::OutOfTime);
            }
        }
        Ok::<_, SaleError>(Loaded::Whole)
    });
    let parts = try_join_all(parts).await?;
    if parts.contains(&Loaded::Stale) {
        return Ok(Readiness::Contended);
    }
    if parts.contains(&Loaded::OutOfTime) {
        tracing::warn!(activity_id = %id.activity_id, sku_id = %id.sku_id, "the load of a gate goes on with the next sweep");
        return Ok(Readiness::Making { until: stores.clock.now() });
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
    end(stores, id, epoch).await
}

/// How far one part of the orders got.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Loaded {
    Whole,
    OutOfTime,
    Stale,
}

async fn end<C>(stores: &Stores<C>, id: &OfferId, epoch: i64) -> Result<Readiness, SaleError> {
    match stores.offers.end_rebuild(id, epoch).await? {
        Written::Done => Ok(Readiness::Ready),
        Written::Refused(_) => Ok(Readiness::Contended),
    }
}
