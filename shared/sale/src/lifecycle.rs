//! What the shop decides: which units are for sale, on which terms, when, and when no more.
//!
//! Every change is one transaction over the rows concerned, with an entry in the change log; then the gate is told. If the
//! gate cannot be told, the row stands all the same and the sweep makes the gate equal to it. The one exception is taking
//! units **out** of an offer: there the gate gives way first, since it might be selling them at this very moment.

use std::time::Duration;

use kernel::backoff::full_jitter;
use kernel::ids::{ActivityId, SkuId, UserId};
use kernel::money::{Currency, Price};
use kernel::text::is_invisible;
use kernel::time::UnixMillis;
use redis::aio::ConnectionLike;
use serde::Serialize;

use crate::gate::{Lowered, Synced};
use crate::offer::{LimitPeriod, MAX_PRODUCTS, MAX_TOTAL, OfferId, Rules, SaleState};
use crate::order::OrderStatus;
use crate::rebuild::{self, Readiness};
use crate::store::StoreError;
use crate::store::offers::{ActivityRow, Change, OfferRow, SkuRow, Written, initial_total};
use crate::{SaleError, Stores};

/// The longest name or title, in characters.
pub const MAX_TITLE_CHARS: usize = 200;
/// The longest time a sale may last: a year and a day.
const MAX_SALE_MILLIS: i64 = 366 * 24 * 3_600 * 1_000;
/// The longest time to pay: a week.
pub const MAX_PAY_WINDOW_SECS: u32 = 7 * 24 * 3_600;
/// The longest interval between two admissions of one user or device: a day.
pub const MAX_INTERVAL_MS: u32 = 24 * 3_600 * 1_000;
/// The most units of an offer that one user may have.
pub const MAX_LIMIT_PER_USER: u32 = 1_000;
/// How often an edit that met another one is tried again.
const EDIT_TRIES: u32 = 8;
/// Who closes and settles sales that have run out, in the change log.
const SWEEP: &str = "sweep";

/// What came of a change.
#[derive(Debug, Clone, PartialEq)]
pub enum Edit<T> {
    Done(T),
    /// Nothing changed.
    Refused(EditRefusal),
}

/// Why a change was refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EditRefusal {
    NotFound,
    /// The sale is over.
    Ended,
    /// Too few units of the SKU are in no offer.
    TooFewFree {
        available: i64,
    },
    /// Too few units of the offer are unsold.
    TooFewUnsold {
        available: i64,
    },
    TooManyProducts,
    /// An unlimited offer stays unlimited, a limited one limited.
    UnlimitedIsFixed,
    /// What the limit is a limit of stays so: orders are counted by it.
    LimitPeriodIsFixed,
    /// Where days begin stays so once somebody may have bought under a limit for each day: a day that began twice would bring
    /// its allowance twice.
    DaysAreFixed,
    /// The gate is missing or being made; units can be taken out once it is there.
    GateNotReady,
    /// Others kept changing the same thing.
    Contended,
}

/// A document that cannot be right.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SpecError {
    #[error("a name or title is 1 to {MAX_TITLE_CHARS} visible characters")]
    Title,
    #[error("a sale ends after it starts, and within 366 days")]
    Window,
    #[error("payWindowSecs is 1 to {MAX_PAY_WINDOW_SECS}")]
    PayWindow,
    #[error("an interval is 0 (no limit) to {MAX_INTERVAL_MS} ms")]
    Interval,
    #[error("limitPerUser is 1 to {MAX_LIMIT_PER_USER}")]
    Limit,
    #[error("a number of units is 0 to {MAX_TOTAL}")]
    Units,
}

fn check_title(title: &str) -> Result<(), SpecError> {
    let fits = (1..=MAX_TITLE_CHARS).contains(&title.chars().count())
        && title.chars().any(char::is_alphanumeric)
        && !title.chars().any(|char| char.is_control() || is_invisible(char));
    if fits { Ok(()) } else { Err(SpecError::Title) }
}

fn check_units(units: i64) -> Result<(), SpecError> {
    if (0..=MAX_TOTAL).contains(&units) { Ok(()) } else { Err(SpecError::Units) }
}

/// A SKU as an admin states it.
#[derive(Debug, Clone)]
pub struct SkuSpec {
    pub title: String,
    pub stock: i64,
}

impl SkuSpec {
    pub fn check(&self) -> Result<(), SpecError> {
        check_title(&self.title)?;
        check_units(self.stock)
    }
}

/// An activity as an admin states it.
#[derive(Debug, Clone)]
pub struct ActivitySpec {
    pub name: String,
    pub rules: Rules,
}

impl ActivitySpec {
    pub fn check(&self) -> Result<(), SpecError> {
        check_title(&self.name)?;
        let rules = &self.rules;
        if !(1..=MAX_SALE_MILLIS).contains(&rules.ends_at.millis_since(rules.starts_at)) {
            return Err(SpecError::Window);
        }
        if !(1..=MAX_PAY_WINDOW_SECS).contains(&rules.pay_window_secs) {
            return Err(SpecError::PayWindow);
        }
        if rules.user_interval_ms.max(rules.device_ip_interval_ms) > MAX_INTERVAL_MS {
            return Err(SpecError::Interval);
        }
        Ok(())
    }
}

/// An offer as an admin states it.
#[derive(Debug, Clone)]
pub struct OfferSpec {
    pub title: String,
    pub price: Price,
    pub currency: Currency,
    /// Ignored when unlimited.
    pub total: i64,
    pub limit_per_user: u32,
    pub limit_period: LimitPeriod,
    pub unlimited: bool,
    /// None: as it is; of a new one, true.
    pub on_sale: Option<bool>,
    pub image: Option<String>,
}

impl OfferSpec {
    pub fn check(&self) -> Result<(), SpecError> {
        check_title(&self.title)?;
        if !(1..=MAX_LIMIT_PER_USER).contains(&self.limit_per_user) {
            return Err(SpecError::Limit);
        }
        check_units(self.total)
    }
}

/// Lets others finish who are changing the same thing.
async fn pause(attempt: u32) {
    tokio::time::sleep(full_jitter(attempt, Duration::from_millis(20), Duration::from_millis(400))).await;
}

/// Puts a SKU's stock. Units that offers have stay with them: stock can be lowered down to those.
pub async fn put_sku<C>(
    stores: &Stores<C>,
    by: &UserId,
    sku_id: &SkuId,
    spec: &SkuSpec,
) -> Result<Edit<SkuRow>, SaleError> {
    for attempt in 0..EDIT_TRIES {
        let before = stores.offers.sku(sku_id).await?;
        let allotted = before.as_ref().map_or(0, |sku| sku.stock - sku.free);
        let free = spec.stock - allotted;
        if free < 0 {
            return Ok(Edit::Refused(EditRefusal::TooFewFree { available: before.map_or(0, |sku| sku.free) }));
        }
        let after = SkuRow { sku_id: sku_id.clone(), title: spec.title.clone(), stock: spec.stock, free };
        let mut batch = stores.offers.batch();
        batch.sku(&after, before.as_ref())?;
        batch.change(sku_id.as_str(), &change(by, stores.clock.now(), "put-sku", before.as_ref(), &after)?)?;
        match batch.write("put SKU").await? {
            Written::Done => return Ok(Edit::Done(after)),
            Written::Refused(_) => pause(attempt).await,
        }
    }
    Ok(Edit::Refused(EditRefusal::Contended))
}

/// Creates an activity, or changes its name and rules, with those of its offers.
pub async fn put_activity<C>(
    stores: &Stores<C>,
    by: &UserId,
    activity_id: &ActivityId,
    spec: &ActivitySpec,
) -> Result<Edit<ActivityRow>, SaleError>
where
    C: ConnectionLike + Clone + Send + Sync,
{
    for attempt in 0..EDIT_TRIES {
        let before = stores.offers.activity(activity_id).await?;
        let after = match &before {
            None => ActivityRow {
                activity_id: activity_id.clone(),
                name: spec.name.clone(),
                rules: spec.rules.clone(),
                state: SaleState::Live,
                version: 1,
                archived: false,
            },
            Some(row) if is_over(row.state) => return Ok(Edit::Refused(EditRefusal::Ended)),
            Some(row)
                if row.rules.utc_offset_secs != spec.rules.utc_offset_secs && counts_days(stores, row).await? =>
            {
                return Ok(Edit::Refused(EditRefusal::DaysAreFixed));
            }
            Some(row) => ActivityRow {
                name: spec.name.clone(),
                rules: spec.rules.clone(),
                version: row.version + 1,
                ..row.clone()
            },
        };
        if let Edit::Done(row) = write_activity(stores, by, "put-activity", before.as_ref(), after).await? {
            tell_gates(stores, activity_id).await;
            return Ok(Edit::Done(row));
        }
        pause(attempt).await;
    }
    Ok(Edit::Refused(EditRefusal::Contended))
}

/// Whether somebody may have bought in it under a limit for each day.
async fn counts_days<C>(stores: &Stores<C>, activity: &ActivityRow) -> Result<bool, SaleError> {
    let offers = stores.offers.offers_of(&activity.activity_id).await?;
    Ok(offers.iter().any(|offer| offer.limit_period == LimitPeriod::Day && offer.epoch > 0))
}

/// What an admin may do to a sale besides editing it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Command {
    Pause,
    Resume,
    End,
}

/// Pauses, resumes or ends a sale. Doing so again changes nothing but tells the gate again.
pub async fn command<C>(
    stores: &Stores<C>,
    by: &UserId,
    activity_id: &ActivityId,
    command: Command,
) -> Result<Edit<ActivityRow>, SaleError>
where
    C: ConnectionLike + Clone + Send + Sync,
{
    for attempt in 0..EDIT_TRIES {
        let Some(before) = stores.offers.activity(activity_id).await? else {
            return Ok(Edit::Refused(EditRefusal::NotFound));
        };
        let (state, action) = match (command, before.state) {
            (Command::Pause, SaleState::Live | SaleState::Paused) => (SaleState::Paused, "pause"),
            (Command::Resume, SaleState::Live | SaleState::Paused) => (SaleState::Live, "resume"),
            (Command::End, SaleState::Live | SaleState::Paused | SaleState::Closed) => (SaleState::Closed, "end"),
            (Command::Pause | Command::Resume, SaleState::Closed | SaleState::Settled)
            | (Command::End, SaleState::Settled) => {
                return Ok(Edit::Refused(EditRefusal::Ended));
            }
        };
        if state == before.state {
            tell_gates(stores, activity_id).await;
            return Ok(Edit::Done(before));
        }
        let mut after = ActivityRow { state, version: before.version + 1, ..before.clone() };
        if state == SaleState::Closed {
            after.rules.ends_at = after.rules.ends_at.min(stores.clock.now());
        }
        if let Edit::Done(row) = write_activity(stores, by, action, Some(&before), after).await? {
            // A gate that cannot be told cannot be reached by buyers either, and learns it from the sweep.
            tell_gates(stores, activity_id).await;
            return Ok(Edit::Done(row));
        }
        pause(attempt).await;
    }
    Ok(Edit::Refused(EditRefusal::Contended))
}

/// Closes a sale whose time has come, if it is still as `before` says.
pub(crate) async fn close<C>(stores: &Stores<C>, before: &ActivityRow) -> Result<Edit<ActivityRow>, SaleError>
where
    C: ConnectionLike + Clone + Send + Sync,
{
    let by = sweeper()?;
    let after = ActivityRow { state: SaleState::Closed, version: before.version + 1, ..before.clone() };
    // The gate closes by its own clock; its settings follow with this same sweep.
    write_activity(stores, &by, "close", Some(before), after).await
}

/// Makes the gates of a sale before its time, or after a loss. A gate that is there and valid stays as it is.
pub async fn preheat<C>(stores: &Stores<C>, activity_id: &ActivityId) -> Result<Edit<ActivityRow>, SaleError>
where
    C: ConnectionLike + Clone + Send + Sync,
{
    let Some(activity) = stores.offers.activity(activity_id).await? else {
        return Ok(Edit::Refused(EditRefusal::NotFound));
    };
    if is_over(activity.state) {
        return Ok(Edit::Refused(EditRefusal::Ended));
    }
    for offer in stores.offers.offers_of(activity_id).await? {
        if rebuild::ensure(stores, &offer).await? == Readiness::Ready {
            // Whatever was changed while the gate was made could not be told to it.
            sync_gate(stores, &offer.id()).await?;
        }
    }
    Ok(Edit::Done(activity))
}

/// How far a closed sale is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Settlement {
    /// Orders or holds are still undecided.
    Draining,
    Settled,
    /// Something moved at this very moment.
    Contended,
}

/// How long the gate of a settled offer is kept for late retries, in seconds: a week.
const GATE_KEPT_SECS: i64 = 7 * 24 * 3_600;

/// Settles a closed sale once nothing of it is undecided: what is left goes back to the SKUs, once, and each total becomes
/// what is committed.
pub(crate) async fn settle<C>(stores: &Stores<C>, activity: &ActivityRow) -> Result<Settlement, SaleError>
where
    C: ConnectionLike + Clone + Send + Sync,
{
    let offers = stores.offers.offers_of(&activity.activity_id).await?;
    for offer in &offers {
        if !is_drained(stores, offer).await? {
            return Ok(Settlement::Draining);
        }
    }
    let after = ActivityRow { state: SaleState::Settled, version: activity.version + 1, ..activity.clone() };
    let mut batch = stores.offers.batch();
    batch.activity(&after, Some(activity.version))?;
    for offer in &offers {
        batch.settle_offer(offer)?;
        if !offer.unlimited && offer.remaining > 0 {
            batch.allot(&offer.sku_id, -offer.remaining)?;
        }
    }
    batch.change(
        activity.activity_id.as_str(),
        &change(&sweeper()?, stores.clock.now(), "settle", Some(activity), &after)?,
    )?;
    match batch.write("settle activity").await? {
        Written::Refused(_) => return Ok(Settlement::Contended),
        Written::Done => {}
    }
    kernel::crash::point("settle.after_row");
    archive(stores, &after).await?;
    Ok(Settlement::Settled)
}

/// Whether no order and no hold of a closed offer is undecided. A hold is counted by the gate, which has to be there; what is
/// committed by the row, and if the paid orders are all of it, none is unpaid.
async fn is_drained<C>(stores: &Stores<C>, offer: &OfferRow) -> Result<bool, SaleError>
where
    C: ConnectionLike + Clone + Send + Sync,
{
    if offer.epoch == 0 {
        // Never opened, so nothing was ever sold.
        return Ok(offer.committed() == 0);
    }
    let id = offer.id();
    let counters = stores.gate.counters(&id).await?;
    let made = counters.filter(|counters| counters.loading.is_none() && counters.epoch == offer.epoch);
    if offer.rebuilding.is_some() || made.is_none_or(|counters| counters.held() != 0) {
        return Ok(false);
    }
    if !stores.gate.pending(&id, stores.clock.now().plus_secs(24 * 3_600), 1).await?.is_empty() {
        return Ok(false);
    }
    let rows = stores.orders.all_of_offer(&id).await?;
    let undecided = rows.iter().any(|row| match row.status {
        OrderStatus::PreCreated | OrderStatus::Unpaid => true,
        OrderStatus::Paid | OrderStatus::Cancelled => row.is_owed(),
        OrderStatus::Failed => false,
    });
    let paid: i64 = rows.iter().filter(|row| row.status == OrderStatus::Paid).map(|row| row.qty.units()).sum();
    Ok(!undecided && paid == offer.committed())
}

/// Tells the gates of a settled sale, and lets them go after a while. A settled offer is never made again.
pub(crate) async fn archive<C>(stores: &Stores<C>, activity: &ActivityRow) -> Result<(), SaleError>
where
    C: ConnectionLike + Clone + Send + Sync,
{
    for offer in stores.offers.offers_of(&activity.activity_id).await? {
        sync_gate(stores, &offer.id()).await?;
        stores.gate.expire(&offer.id(), GATE_KEPT_SECS).await?;
    }
    kernel::crash::point("settle.after_gate");
    stores.offers.archive(&activity.activity_id).await?;
    Ok(())
}

fn sweeper() -> Result<UserId, StoreError> {
    SWEEP.parse().map_err(|error: kernel::ids::IdError| StoreError::Corrupt(error.to_string()))
}

fn is_over(state: SaleState) -> bool {
    match state {
        SaleState::Live | SaleState::Paused => false,
        SaleState::Closed | SaleState::Settled => true,
    }
}

/// Writes an activity with its offers. Refused when one of the rows has moved.
async fn write_activity<C>(
    stores: &Stores<C>,
    by: &UserId,
    action: &str,
    before: Option<&ActivityRow>,
    after: ActivityRow,
) -> Result<Edit<ActivityRow>, SaleError> {
    let offers = match before {
        Some(_) => stores.offers.offers_of(&after.activity_id).await?,
        None => Vec::new(),
    };
    let mut batch = stores.offers.batch();
    batch.activity(&after, before.map(|row| row.version))?;
    for offer in &offers {
        let changed =
            OfferRow { rules: after.rules.clone(), state: after.state, version: offer.version + 1, ..offer.clone() };
        batch.change_offer(&changed, 0)?;
    }
    batch.change(after.activity_id.as_str(), &change(by, stores.clock.now(), action, before, &after)?)?;
    match batch.write("write activity").await? {
        Written::Done => {}
        Written::Refused(_) => return Ok(Edit::Refused(EditRefusal::Contended)),
    }
    kernel::crash::point("lifecycle.after_row");
    Ok(Edit::Done(after))
}

/// Puts a product up for sale, or changes it. Units come out of the SKU's free stock and go back to it.
pub async fn put_offer<C>(
    stores: &Stores<C>,
    by: &UserId,
    id: &OfferId,
    spec: &OfferSpec,
) -> Result<Edit<OfferRow>, SaleError>
where
    C: ConnectionLike + Clone + Send + Sync,
{
    for attempt in 0..EDIT_TRIES {
        let Some(activity) = stores.offers.activity(&id.activity_id).await? else {
            return Ok(Edit::Refused(EditRefusal::NotFound));
        };
        if is_over(activity.state) {
            return Ok(Edit::Refused(EditRefusal::Ended));
        }
        let Some(sku) = stores.offers.sku(&id.sku_id).await? else {
            return Ok(Edit::Refused(EditRefusal::NotFound));
        };
        let written = match stores.offers.offer(id).await? {
            None => create_offer(stores, by, &activity, &sku, id, spec).await?,
            Some(before) => change_offer(stores, by, &activity, &sku, before, spec).await?,
        };
        match written {
            // Somebody else changed one of the rows meanwhile: judge again on what they are now.
            Edit::Refused(EditRefusal::Contended) => pause(attempt).await,
            Edit::Done(_) | Edit::Refused(_) => return Ok(written),
        }
    }
    Ok(Edit::Refused(EditRefusal::Contended))
}

async fn create_offer<C>(
    stores: &Stores<C>,
    by: &UserId,
    activity: &ActivityRow,
    sku: &SkuRow,
    id: &OfferId,
    spec: &OfferSpec,
) -> Result<Edit<OfferRow>, SaleError> {
    if stores.offers.offers_of(&id.activity_id).await?.len() >= MAX_PRODUCTS {
        return Ok(Edit::Refused(EditRefusal::TooManyProducts));
    }
    let total = initial_total(spec.unlimited, spec.total);
    let after = OfferRow {
        activity_id: id.activity_id.clone(),
        sku_id: id.sku_id.clone(),
        title: spec.title.clone(),
        price: spec.price,
        currency: spec.currency,
        limit_per_user: spec.limit_per_user,
        limit_period: spec.limit_period,
        image: spec.image.clone(),
        unlimited: spec.unlimited,
        on_sale: spec.on_sale.unwrap_or(true),
        rules: activity.rules.clone(),
        state: activity.state,
        total,
        remaining: total,
        version: 1,
        epoch: 0,
        made: false,
        rebuilding: None,
        rebuilding_since: None,
    };
    if after.allotted() > sku.free {
        return Ok(Edit::Refused(EditRefusal::TooFewFree { available: sku.free }));
    }
    let mut batch = stores.offers.batch();
    // The activity moves too: an edit that has listed its offers without this one is refused, and lists them again.
    batch.activity(&ActivityRow { version: activity.version + 1, ..activity.clone() }, Some(activity.version))?;
    batch.new_offer(&after)?;
    if after.allotted() > 0 {
        batch.allot(&id.sku_id, after.allotted())?;
    }
    batch.change(
        id.activity_id.as_str(),
        &change(by, stores.clock.now(), &product_action(id), None::<&OfferRow>, &after)?,
    )?;
    match batch.write("put product").await? {
        Written::Done => Ok(Edit::Done(after)),
        Written::Refused(_) => Ok(Edit::Refused(EditRefusal::Contended)),
    }
}

async fn change_offer<C>(
    stores: &Stores<C>,
    by: &UserId,
    activity: &ActivityRow,
    sku: &SkuRow,
    before: OfferRow,
    spec: &OfferSpec,
) -> Result<Edit<OfferRow>, SaleError>
where
    C: ConnectionLike + Clone + Send + Sync,
{
    if before.unlimited != spec.unlimited {
        return Ok(Edit::Refused(EditRefusal::UnlimitedIsFixed));
    }
    if before.limit_period != spec.limit_period {
        return Ok(Edit::Refused(EditRefusal::LimitPeriodIsFixed));
    }
    let id = before.id();
    let raise = if before.unlimited { 0 } else { spec.total - before.total };
    if raise > sku.free {
        return Ok(Edit::Refused(EditRefusal::TooFewFree { available: sku.free }));
    }
    if -raise > before.remaining {
        return Ok(Edit::Refused(EditRefusal::TooFewUnsold { available: before.remaining }));
    }
    let lowers_gate = raise < 0 && before.epoch > 0;
    if lowers_gate {
        match stores.gate.lower(&id, -raise, before.version + 1).await? {
            Lowered::Done => {}
            Lowered::Contended => return Ok(Edit::Refused(EditRefusal::Contended)),
            Lowered::Insufficient { available } => return Ok(Edit::Refused(EditRefusal::TooFewUnsold { available })),
            Lowered::NotReady => return Ok(Edit::Refused(EditRefusal::GateNotReady)),
        }
        kernel::crash::point("lifecycle.after_lower");
    }
    let after = OfferRow {
        title: spec.title.clone(),
        price: spec.price,
        currency: spec.currency,
        limit_per_user: spec.limit_per_user,
        on_sale: spec.on_sale.unwrap_or(before.on_sale),
        image: spec.image.clone(),
        total: before.total + raise,
        remaining: before.remaining + raise,
        version: before.version + 1,
        ..before.clone()
    };
    let mut batch = stores.offers.batch();
    batch.require_activity(activity)?;
    batch.change_offer(&after, raise)?;
    if raise != 0 {
        batch.allot(&id.sku_id, raise)?;
    }
    batch.change(
        id.activity_id.as_str(),
        &change(by, stores.clock.now(), &product_action(&id), Some(&before), &after)?,
    )?;
    let written = batch.write("put product").await;
    kernel::crash::point("lifecycle.after_row");
    // After an error it is not known whether the row was written: then the gate waits, and takes what the row says later.
    if lowers_gate
        && matches!(written, Ok(Written::Refused(_)))
        && let Err(error) = stores.gate.unlower(&id, after.version).await
    {
        tracing::warn!(error = &error as &dyn std::error::Error, "units are put back by a later sweep");
    }
    tell_gate(stores, &id).await;
    match written? {
        Written::Done => Ok(Edit::Done(after)),
        Written::Refused(_) => Ok(Edit::Refused(EditRefusal::Contended)),
    }
}

/// Whether a gate was as its row says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GateSync {
    Equal,
    Corrected,
    /// There is no valid gate; the sweep makes one when it is due.
    NoGate,
}

/// Makes the gate of an offer equal to its row as it is now.
pub async fn sync_gate<C>(stores: &Stores<C>, id: &OfferId) -> Result<GateSync, SaleError>
where
    C: ConnectionLike + Clone + Send + Sync,
{
    let Some(offer) = stores.offers.offer(id).await? else {
        return Ok(GateSync::NoGate);
    };
    if offer.epoch == 0 {
        return Ok(GateSync::NoGate);
    }
    Ok(match stores.gate.sync(id, &offer.gate_settings()).await? {
        Synced::Applied => GateSync::Corrected,
        // Stale: the gate knows a later row than the one just read.
        Synced::Unchanged | Synced::Stale => GateSync::Equal,
        Synced::EpochDiffers | Synced::NotReady => GateSync::NoGate,
    })
}

/// Tells the gates of a change that stands whether or not they can be told now.
async fn tell_gates<C>(stores: &Stores<C>, activity_id: &ActivityId)
where
    C: ConnectionLike + Clone + Send + Sync,
{
    match stores.offers.offers_of(activity_id).await {
        Ok(offers) => {
            for offer in offers {
                tell_gate(stores, &offer.id()).await;
            }
        }
        Err(error) => {
            tracing::warn!(error = &error as &dyn std::error::Error, "the gates are left to the sweep to tell");
        }
    }
}

/// Tells the gate of a change that stands whether or not it can be told now.
async fn tell_gate<C>(stores: &Stores<C>, id: &OfferId)
where
    C: ConnectionLike + Clone + Send + Sync,
{
    if let Err(error) = sync_gate(stores, id).await {
        tracing::warn!(error = &error as &dyn std::error::Error, "the gate is left to the sweep to tell");
    }
}

fn product_action(id: &OfferId) -> String {
    format!("put-product {}", id.sku_id)
}

fn change(
    by: &UserId,
    at: UnixMillis,
    action: &str,
    before: Option<&impl Serialize>,
    after: &impl Serialize,
) -> Result<Change, StoreError> {
    let corrupt = |error: serde_json::Error| StoreError::Corrupt(error.to_string());
    Ok(Change {
        by: by.clone(),
        at,
        action: action.to_owned(),
        before: before.map(serde_json::to_string).transpose().map_err(corrupt)?,
        after: serde_json::to_string(after).map_err(corrupt)?,
    })
}
