//! The gate: one hash in Redis per offer, the **book**, that answers every press of the button.
//!
//! Most buyers of a flash sale are refused, so a refusal must cost next to nothing: everything that can refuse a buyer lies
//! in one hash and is read by one command, in one script, in one round trip ([`Gate::admit`]). What must not be told apart by
//! a crash (stock, the user's units, the hold) is changed by one script.
//!
//! | key | holds |
//! | --- | --- |
//! | `seckill:book:{a:s}` | hash: `gate terms total avail sold epoch version`, while being made `loading held`, while units are taken out `lowering`; then by whom and what: `u:<user>` (or `u:<user>@<day>` where each day has its limit) → live units, the millisecond of the last admission and the end of a cool-down, `<orderNo>` → the hold, `d:<device>\|<address>` → the millisecond of the last admission |
//! | `seckill:pending:{a:s}` | sorted set: order numbers by second; holds whose order is not known to stand yet |
//!
//! The `gate` field is what an open sale judges by (window, limit, intervals), or the very answer of a closed one, so that
//! `admit` needs no state of its own. A hold is its state's letter, ten digits of seconds and
//! `fingerprint|quantity|user|seats`. Order numbers begin with `SK`, the book's own fields with small letters. Nothing
//! expires while the sale lives: what matters is never left to a timer. A settled offer goes a week later ([`Gate::expire`]).
//!
//! The hold is also the memory of a request: a retry has the same order number and meets it. A released hold stays, so that
//! a late retry is told apart from a new wish.
//!
//! **The gate follows the rows.** [`Gate::confirm`], [`Gate::sell`], [`Gate::release`] and [`Gate::take`] say what became
//! of orders; each may be said twice, late, or by two at once. While a gate is missing or being made they do nothing,
//! since it is made from the same rows. [`Gate::sync`] makes its settings equal to the offer's row; `load_*` make it anew.
//!
//! Every operation may be repeated after an error, but for [`Gate::lower`]; see there.
//!
//! [`model`] is the same gate in memory: what each operation means, said once more without Redis.

mod error;
mod layout;
pub mod model;
mod script;

use std::collections::BTreeMap;

use kernel::ids::{OrderNo, Quantity, UserId};
use kernel::time::UnixMillis;
use redis::aio::ConnectionLike;

pub use self::error::{Corruption, GateError};
use self::layout::Keys;
use self::script::Script;
use crate::admission::{Admission, AdmitRequest, Fingerprint, HoldState};
use crate::offer::{Allowance, LimitPeriod, OfferId, Rules, SaleState, Terms};
use crate::order::OrderStatus;
use crate::store::orders::OrderRow;

/// Orders that one script settles, or one command reads. A script holds everybody else up: a hundred take about a
/// millisecond.
pub const MAX_ORDERS_PER_CALL: usize = 100;
/// Holds that one script loads. Nobody buys here meanwhile, but the same server has other offers to sell.
pub const MAX_LOADED_PER_CALL: usize = 500;
/// How long units stay taken out for a row that may still be written, in milliseconds: longer than the function lives that
/// writes it.
pub const LOWERING_MS: i64 = 40_000;
/// Fields or members that one page of a snapshot asks for.
const SNAPSHOT_PAGE: usize = 1_000;

/// The gate of every offer, over one connection. Clones share it.
#[derive(Debug, Clone)]
pub struct Gate<C> {
    connection: C,
}

/// All that an offer's row tells its gate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GateSettings {
    /// Which making of the gate this is.
    pub epoch: i64,
    pub version: i64,
    pub total: i64,
    pub state: SaleState,
    pub rules: Rules,
    pub limit_period: LimitPeriod,
    /// False: nobody is let in, as if the sale were paused.
    pub on_sale: bool,
    /// The limit in it is at least 1.
    pub terms: Terms,
}

/// A hold to be put back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewHold {
    pub order_no: OrderNo,
    pub user_id: UserId,
    /// See [`Allowance::limit_day`].
    pub limit_day: Option<i64>,
    pub quantity: Quantity,
    pub fingerprint: Fingerprint,
    /// Kept in whole seconds.
    pub held_at: UnixMillis,
}

/// A hold of a gate that is being made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoadHold {
    pub order_no: OrderNo,
    pub user_id: UserId,
    /// See [`Allowance::limit_day`].
    pub limit_day: Option<i64>,
    pub quantity: Quantity,
    pub fingerprint: Fingerprint,
    pub state: HoldState,
    /// Kept in whole seconds.
    pub held_at: UnixMillis,
    /// Whether it is still to be judged by its row.
    pub pending: bool,
}

/// A hold as the gate has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hold {
    pub state: HoldState,
    /// When it was admitted, in whole seconds.
    pub held_at: UnixMillis,
    pub fingerprint: Fingerprint,
    pub quantity: Quantity,
    pub user_id: UserId,
    /// See [`Allowance::limit_day`].
    pub limit_day: Option<i64>,
}

macro_rules! counts_against {
    ($($hold:ident)*) => {$(
        impl $hold {
            /// Against which limit its units count.
            pub fn allowance(&self) -> Allowance {
                Allowance { user_id: self.user_id.clone(), limit_day: self.limit_day }
            }
        }
    )*};
}
counts_against! { NewHold LoadHold Hold }

/// What became of an order at the gate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Followed {
    Changed,
    /// There was nothing to change: done before, or not possible from the hold's state.
    Unchanged,
    /// The gate is missing or being made. Whoever makes it reads the row.
    NotReady,
}

/// What became of settings at the gate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Synced {
    Applied,
    /// They were equal; nothing was written.
    Unchanged,
    /// The gate knows a later version.
    Stale,
    /// The gate is of another making than the row knows.
    EpochDiffers,
    NotReady,
}

/// Whether units were taken out of an offer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lowered {
    Done,
    /// Nothing was taken out.
    Insufficient {
        available: i64,
    },
    /// Another one is under way.
    Contended,
    NotReady,
}

/// Whether a load is the valid one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Loading {
    Going,
    /// Another one came after it, or it is over.
    Stale,
}

/// The counts of an offer. While it is being made all are 0 but `sold`, and `loading` says for which epoch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Counters {
    pub epoch: i64,
    pub version: i64,
    pub total: i64,
    pub available: i64,
    pub sold: i64,
    pub loading: Option<i64>,
    /// Units that are out for a row which is not written yet; the total is smaller by them.
    pub lowering: i64,
    /// The `gate` field.
    pub gate: String,
}

impl Counters {
    /// Units of holds that are neither sold nor released.
    pub fn held(&self) -> i64 {
        self.total - self.available - self.sold
    }
}

/// Everything the gate has of an offer, for the audit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snapshot {
    pub counters: Counters,
    pub holds: BTreeMap<OrderNo, Hold>,
    /// Live units by what they count against; where there are none is left out.
    pub units: BTreeMap<Allowance, i64>,
    pub pending: BTreeMap<OrderNo, UnixMillis>,
    /// The counts and the numbers of entries were the same before and after, so the parts belong together.
    pub settled: bool,
}

impl NewHold {
    /// The hold that belongs to an order.
    pub fn of(row: &OrderRow) -> Self {
        Self {
            order_no: row.order_no.clone(),
            user_id: row.user_id.clone(),
            limit_day: row.terms.limit_day,
            quantity: row.qty,
            fingerprint: row.fingerprint.clone(),
            held_at: row.created_at,
        }
    }
}

impl LoadHold {
    /// The hold that belongs to an order. A live one is pending, since its row may move between being read and the opening; so is
    /// that of a FAILED order, which alone reminds the sweep of a buyer who was not told yet.
    pub fn of(row: &OrderRow) -> Self {
        let state = match row.status {
            OrderStatus::PreCreated | OrderStatus::Unpaid => HoldState::Held,
            OrderStatus::Paid => HoldState::Sold,
            OrderStatus::Cancelled | OrderStatus::Failed => HoldState::Released,
        };
        let NewHold { order_no, user_id, limit_day, quantity, fingerprint, held_at } = NewHold::of(row);
        let pending = row.status.is_live() || row.status == OrderStatus::Failed;
        Self { order_no, user_id, limit_day, quantity, fingerprint, state, held_at, pending }
    }
}

impl<C> Gate<C> {
    pub fn new(connection: C) -> Self {
        Self { connection }
    }
}

impl<C> Gate<C>
where
    C: ConnectionLike + Clone + Send + Sync,
{
    /// Lets a buyer in, or says why not. One round trip; a refusal changes nothing.
    pub async fn admit(&self, offer: &OfferId, request: &AdmitRequest) -> Result<Admission, GateError> {
        let keys = Keys::of(offer);
        // The gate adds the day, if there is one.
        let whoever = Allowance { user_id: request.user_id.clone(), limit_day: None };
        let mut args = vec![
            request.order_no.to_string(),
            layout::user_field(&request.user_id),
            layout::asked_for(&request.fingerprint, request.quantity, &whoever),
            layout::device_field(request),
        ];
        args.extend(request.blocked.map(layout::verdict));
        let reply = match script::ADMIT.run(&self.connection, &keys.both(), &args).await {
            Err(error) if error.code() == Some("OOM") => {
                script::ADMIT_WHEN_FULL.run(&self.connection, &keys.both(), &args).await
            }
            reply => reply,
        };
        layout::read_admission(&reply?)
    }

    /// The orders stand: nothing is left to be settled about their holds.
    ///
    /// Does nothing while the gate is missing or being made: it is made from the same rows.
    pub async fn confirm(&self, offer: &OfferId, order_nos: &[OrderNo]) -> Result<(), GateError> {
        let keys = Keys::of(offer);
        for some in order_nos.chunks(MAX_ORDERS_PER_CALL) {
            let args: Vec<&str> = some.iter().map(OrderNo::as_str).collect();
            let reply = script::CONFIRM.run(&self.connection, &keys.both(), &args).await?;
            match reply.as_str() {
                "OK" | layout::NOT_READY => {}
                _ => return Err(GateError::unknown("answer of confirm", &reply)),
            }
        }
        Ok(())
    }

    /// The orders are dead: their units are for sale again. Answers in the order of `order_nos`.
    pub async fn release(&self, offer: &OfferId, order_nos: &[OrderNo]) -> Result<Vec<Followed>, GateError> {
        self.follow(&script::RELEASE, offer, order_nos).await
    }

    /// The orders are paid: their units are sold for good. Answers in the order of `order_nos`.
    pub async fn sell(&self, offer: &OfferId, order_nos: &[OrderNo]) -> Result<Vec<Followed>, GateError> {
        self.follow(&script::SELL, offer, order_nos).await
    }

    async fn follow(
        &self,
        script: &Script,
        offer: &OfferId,
        order_nos: &[OrderNo],
    ) -> Result<Vec<Followed>, GateError> {
        let keys = Keys::of(offer);
        let mut followed = Vec::with_capacity(order_nos.len());
        for some in order_nos.chunks(MAX_ORDERS_PER_CALL) {
            let args: Vec<&str> = some.iter().map(OrderNo::as_str).collect();
            let reply = script.run(&self.connection, &keys.both(), &args).await?;
            read_followed(&reply, some.len(), &mut followed)?;
        }
        Ok(followed)
    }

    /// Puts lost holds of live orders back, whatever stock and limit say: the rows have a right to their units, and what is
    /// available may be negative until the excess has failed. A hold that is there stays, unless it is a released one of
    /// another wish. Answers in the order of `holds`.
    pub async fn take(&self, offer: &OfferId, holds: &[NewHold]) -> Result<Vec<Followed>, GateError> {
        let keys = Keys::of(offer);
        let mut followed = Vec::with_capacity(holds.len());
        for some in holds.chunks(MAX_ORDERS_PER_CALL) {
            let args: Vec<String> = some
                .iter()
                .flat_map(|hold| {
                    let asked_for = layout::asked_for(&hold.fingerprint, hold.quantity, &hold.allowance());
                    [
                        hold.order_no.to_string(),
                        layout::count_field(&hold.allowance()),
                        format!("{}{asked_for}", layout::second(hold.held_at)),
                    ]
                })
                .collect();
            let reply = script::TAKE.run(&self.connection, &keys.both(), &args).await?;
            read_followed(&reply, some.len(), &mut followed)?;
        }
        Ok(followed)
    }

    /// Makes the gate's settings equal to the row's, unless it knows a later version.
    pub async fn sync(&self, offer: &OfferId, settings: &GateSettings) -> Result<Synced, GateError> {
        let keys = Keys::of(offer);
        let reply = script::SYNC.run(&self.connection, &[&keys.book], &settings_args(settings)?).await?;
        match reply.as_str() {
            "APPLIED" => Ok(Synced::Applied),
            "UNCHANGED" => Ok(Synced::Unchanged),
            "STALE" => Ok(Synced::Stale),
            "EPOCH_DIFFERS" => Ok(Synced::EpochDiffers),
            layout::NOT_READY => Ok(Synced::NotReady),
            _ => Err(GateError::unknown("answer of sync", &reply)),
        }
    }

    /// Takes units (at least 1) out of an offer, if they are for sale, for a row that is to have `version`. [`Gate::sync`] with
    /// that row, or a later one, ends it; so does [`Gate::unlower`], and [`LOWERING_MS`] after it any sync does.
    ///
    /// Not to be repeated after an error: it may have been done, and is undone in time.
    pub async fn lower(&self, offer: &OfferId, units: i64, version: i64) -> Result<Lowered, GateError> {
        let keys = Keys::of(offer);
        let reply = script::LOWER.run(&self.connection, &[&keys.book], &[units, version, LOWERING_MS]).await?;
        match reply.split_once(' ').unwrap_or((&reply, "")) {
            ("DONE", _) => Ok(Lowered::Done),
            ("INSUFFICIENT", available) => {
                Ok(Lowered::Insufficient { available: layout::read_number("answer of lower", available)? })
            }
            ("CONTENDED", _) => Ok(Lowered::Contended),
            (layout::NOT_READY, _) => Ok(Lowered::NotReady),
            _ => Err(GateError::unknown("answer of lower", &reply)),
        }
    }

    /// Puts units back that were taken out for a row of `version`, which was not written. Repeatable.
    pub async fn unlower(&self, offer: &OfferId, version: i64) -> Result<(), GateError> {
        let keys = Keys::of(offer);
        let reply = script::UNLOWER.run(&self.connection, &[&keys.book], &[version]).await?;
        match reply.as_str() {
            "DONE" | "UNCHANGED" => Ok(()),
            _ => Err(GateError::unknown("answer of unlower", &reply)),
        }
    }

    /// Keeps a user from being admitted to this offer until an instant, by the gate's clock. Repeatable; it ends with this
    /// making of the gate.
    pub async fn cool_down(&self, offer: &OfferId, user_id: &UserId, until: UnixMillis) -> Result<(), GateError> {
        let keys = Keys::of(offer);
        let args = [layout::user_field(user_id), until.get().to_string()];
        let reply = script::COOL_DOWN.run(&self.connection, &[&keys.book], &args).await?;
        match reply.as_str() {
            "OK" | layout::NOT_READY => Ok(()),
            _ => Err(GateError::unknown("answer of cool_down", &reply)),
        }
    }

    /// Lets the server forget a settled offer, some time from now. Until then a late retry still meets its hold.
    pub async fn expire(&self, offer: &OfferId, after_secs: i64) -> Result<(), GateError> {
        let keys = Keys::of(offer);
        let mut pipeline = redis::pipe();
        for key in keys.both() {
            pipeline.cmd("EXPIRE").arg(key).arg(after_secs).ignore();
        }
        Ok(pipeline.query_async(&mut self.connection.clone()).await?)
    }

    /// Begins to make the gate anew. What it knew is forgotten; until [`Gate::load_finish`] it answers NOT_READY.
    pub async fn load_begin(&self, offer: &OfferId, epoch: i64) -> Result<Loading, GateError> {
        let keys = Keys::of(offer);
        let args = [epoch.to_string(), layout::pending_filler()];
        read_loading(&script::LOAD_BEGIN.run(&self.connection, &keys.both(), &args).await?)
    }

    /// Loads some holds. One that is loaded already stays as it is.
    pub async fn load_chunk(&self, offer: &OfferId, epoch: i64, holds: &[LoadHold]) -> Result<Loading, GateError> {
        let keys = Keys::of(offer);
        let mut loading = Loading::Going;
        // An empty load, too, learns whether it is the valid one.
        let chunks = holds.chunks(MAX_LOADED_PER_CALL).chain(holds.is_empty().then_some(holds));
        for some in chunks {
            let mut args = vec![epoch.to_string()];
            args.extend(some.iter().flat_map(|hold| {
                let (letter, second) = (layout::state_letter(hold.state), layout::second(hold.held_at));
                let asked_for = layout::asked_for(&hold.fingerprint, hold.quantity, &hold.allowance());
                [
                    hold.order_no.to_string(),
                    layout::count_field(&hold.allowance()),
                    format!("{letter}{second}{asked_for}"),
                    u8::from(hold.pending).to_string(),
                ]
            }));
            loading = read_loading(&script::LOAD_CHUNK.run(&self.connection, &keys.both(), &args).await?)?;
            if loading == Loading::Stale {
                break;
            }
        }
        Ok(loading)
    }

    /// Ends the load of `settings.epoch`: the gate is open, or closed, as the row says. Repeatable.
    pub async fn load_finish(&self, offer: &OfferId, settings: &GateSettings) -> Result<Loading, GateError> {
        let keys = Keys::of(offer);
        let args = settings_args(settings)?;
        read_loading(&script::LOAD_FINISH.run(&self.connection, &[&keys.book], &args).await?)
    }

    /// The time by the clock that buyers are judged by; on a cluster, by that of any of its nodes.
    pub async fn now(&self) -> Result<UnixMillis, GateError> {
        let (secs, micros): (i64, i64) = redis::cmd("TIME").query_async(&mut self.connection.clone()).await?;
        Ok(UnixMillis::new(secs * 1_000 + micros / 1_000))
    }

    /// The counts; None when the gate has no such offer.
    pub async fn counters(&self, offer: &OfferId) -> Result<Option<Counters>, GateError> {
        let mut command = redis::cmd("HMGET");
        command.arg(Keys::of(offer).book).arg(&COUNTER_FIELDS);
        read_counters(command.query_async(&mut self.connection.clone()).await?)
    }

    /// Holds admitted up to `not_after` (in whole seconds) that are still to be settled with their rows, oldest first.
    pub async fn pending(
        &self,
        offer: &OfferId,
        not_after: UnixMillis,
        limit: usize,
    ) -> Result<Vec<(OrderNo, UnixMillis)>, GateError> {
        let mut command = redis::cmd("ZRANGEBYSCORE");
        command.arg(Keys::of(offer).pending).arg("-inf").arg(not_after.secs()).arg("WITHSCORES");
        command.arg("LIMIT").arg(0).arg(limit);
        let members: Vec<(String, f64)> = command.query_async(&mut self.connection.clone()).await?;
        members
            .into_iter()
            .map(|(order_no, second)| Ok((layout::read_order_no(&order_no)?, at_second(second))))
            .collect()
    }

    /// The holds of some orders, in the order of `order_nos`.
    pub async fn holds(&self, offer: &OfferId, order_nos: &[OrderNo]) -> Result<Vec<Option<Hold>>, GateError> {
        let book = Keys::of(offer).book;
        let mut holds = Vec::with_capacity(order_nos.len());
        for some in order_nos.chunks(MAX_ORDERS_PER_CALL) {
            let fields: Vec<&str> = some.iter().map(OrderNo::as_str).collect();
            let mut command = redis::cmd("HMGET");
            command.arg(&book).arg(&fields);
            let values: Vec<Option<String>> = command.query_async(&mut self.connection.clone()).await?;
            for value in values {
                holds.push(value.as_deref().map(layout::read_hold).transpose()?);
            }
        }
        Ok(holds)
    }

    /// Everything the gate has of an offer, read in bounded pages; None when there is no such offer. A sale that goes on
    /// meanwhile is seen in parts that may not belong together; `settled` says so.
    pub async fn snapshot(&self, offer: &OfferId) -> Result<Option<Snapshot>, GateError> {
        let keys = Keys::of(offer);
        let Some((counters, before)) = self.outline(&keys).await? else {
            return Ok(None);
        };
        let (mut holds, mut units, mut pending) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        // A page may repeat what an earlier one had.
        for (field, value) in self.scan::<String>("HSCAN", &keys.book).await? {
            match field.split_once(':') {
                Some(("u", user)) => {
                    let allowance: Allowance = user.parse().map_err(|_| GateError::unknown("user", user))?;
                    units.insert(allowance, layout::read_units(&value)?);
                }
                // A device's rate mark.
                Some(("d", _)) => {}
                Some(_) => return Err(GateError::unknown("field", &field)),
                None if OWN_FIELDS.contains(&field.as_str()) => {}
                None => {
                    holds.insert(layout::read_order_no(&field)?, layout::read_hold(&value)?);
                }
            }
        }
        units.retain(|_, units| *units != 0);
        for (member, second) in self.scan::<f64>("ZSCAN", &keys.pending).await? {
            if second.is_finite() {
                pending.insert(layout::read_order_no(&member)?, at_second(second));
            }
        }
        let after = self.outline(&keys).await?;
        let settled = after.is_some_and(|after| after == (counters.clone(), before));
        Ok(Some(Snapshot { counters, holds, units, pending, settled }))
    }

    /// The counts, and how many fields and pending members there are.
    async fn outline(&self, keys: &Keys) -> Result<Option<(Counters, (usize, usize))>, GateError> {
        let mut pipeline = redis::pipe();
        pipeline.cmd("HMGET").arg(&keys.book).arg(&COUNTER_FIELDS);
        pipeline.cmd("HLEN").arg(&keys.book).cmd("ZCARD").arg(&keys.pending);
        let (counters, fields, members) = pipeline.query_async(&mut self.connection.clone()).await?;
        Ok(read_counters(counters)?.map(|counters| (counters, (fields, members))))
    }

    async fn scan<V: redis::FromRedisValue>(&self, verb: &str, key: &str) -> Result<Vec<(String, V)>, GateError> {
        let mut entries = Vec::new();
        let mut cursor = 0_u64;
        loop {
            let mut command = redis::cmd(verb);
            command.arg(key).arg(cursor).arg("COUNT").arg(SNAPSHOT_PAGE);
            let page: (u64, Vec<(String, V)>) = command.query_async(&mut self.connection.clone()).await?;
            entries.extend(page.1);
            cursor = page.0;
            if cursor == 0 {
                return Ok(entries);
            }
        }
    }
}

/// As [`read_counters`] reads them.
const COUNTER_FIELDS: [&str; 8] = ["gate", "epoch", "version", "total", "avail", "sold", "loading", "lowering"];
/// Fields of the book that are no buyer's.
const OWN_FIELDS: [&str; 10] =
    ["gate", "epoch", "version", "total", "avail", "sold", "loading", "held", "terms", "lowering"];

fn read_counters(fields: [Option<String>; 8]) -> Result<Option<Counters>, GateError> {
    let [gate, epoch, version, total, available, sold, loading, lowering] = fields;
    let Some(gate) = gate else {
        return Ok(None);
    };
    let loading = loading.map(|epoch| layout::read_number("loading", &epoch)).transpose()?;
    let count = |what: &'static str, field: Option<String>| match field {
        Some(text) => layout::read_number(what, &text),
        // Written by the last script of a load.
        None if loading.is_some() => Ok(0),
        None => Err(GateError::unknown(what, "")),
    };
    Ok(Some(Counters {
        epoch: count("epoch", epoch)?,
        version: count("version", version)?,
        total: count("total", total)?,
        available: count("available", available)?,
        sold: count("sold", sold)?,
        loading,
        lowering: match lowering.as_deref().and_then(|mark| mark.split(' ').next()) {
            Some(units) => layout::read_number("lowering", units)?,
            None => 0,
        },
        gate,
    }))
}

fn settings_args(settings: &GateSettings) -> Result<[String; 5], GateError> {
    Ok([
        settings.epoch.to_string(),
        settings.version.to_string(),
        settings.total.to_string(),
        layout::gate_field(settings),
        layout::terms_field(&settings.terms)?,
    ])
}

fn read_followed(reply: &str, orders: usize, followed: &mut Vec<Followed>) -> Result<(), GateError> {
    if reply == layout::NOT_READY {
        followed.extend(std::iter::repeat_n(Followed::NotReady, orders));
        return Ok(());
    }
    let before = followed.len();
    for word in reply.split(' ') {
        followed.push(match word {
            "CHANGED" => Followed::Changed,
            "UNCHANGED" => Followed::Unchanged,
            _ => return Err(GateError::unknown("answer about an order", reply)),
        });
    }
    if followed.len() - before == orders { Ok(()) } else { Err(GateError::unknown("number of answers", reply)) }
}

fn read_loading(reply: &str) -> Result<Loading, GateError> {
    match reply {
        "GOING" => Ok(Loading::Going),
        "STALE" => Ok(Loading::Stale),
        _ => Err(GateError::unknown("answer of a load", reply)),
    }
}

/// Scores are whole seconds of ten digits, so nothing is lost on the way.
#[allow(clippy::cast_possible_truncation, reason = "a float saturates")]
fn at_second(score: f64) -> UnixMillis {
    UnixMillis::new((score as i64).saturating_mul(1_000))
}
