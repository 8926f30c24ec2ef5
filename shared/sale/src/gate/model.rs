//! The gate of one offer in memory: what each operation means, without Redis and without a clock of its own.
//!
//! The contract test runs the same operations on this and on real servers and compares every answer and all of the state.
//! It is written to be obviously right, not to be fast.

use std::collections::BTreeMap;

use kernel::ids::{OrderNo, UserId};
use kernel::time::UnixMillis;

use super::{Counters, Followed, GateSettings, Hold, LoadHold, Loading, Lowered, NewHold, Snapshot, Synced, layout};
use crate::admission::{Admission, AdmitRequest, Blocked, HoldState, Refusal};
use crate::offer::{Allowance, LimitPeriod, SaleState, Terms};

/// One offer's gate.
#[derive(Debug, Clone, Default)]
pub struct Model {
    book: Book,
    making: Making,
}

/// Whether there is a gate to speak of.
#[derive(Debug, Clone, Default)]
enum Making {
    #[default]
    Missing,
    /// Being made for this epoch.
    Loading(i64),
    /// Made, and set so.
    Made(GateSettings),
}

#[derive(Debug, Clone, Default)]
struct Book {
    available: i64,
    /// Units taken out for a row, and the version that it is to have.
    lowering: Option<(i64, i64)>,
    holds: BTreeMap<OrderNo, Hold>,
    pending: BTreeMap<OrderNo, UnixMillis>,
    user_marks: BTreeMap<Allowance, UnixMillis>,
    cool_downs: BTreeMap<UserId, UnixMillis>,
    device_marks: BTreeMap<String, UnixMillis>,
}

impl Book {
    fn sum(&self, counts: impl Fn(&Hold) -> bool) -> i64 {
        self.holds.values().filter(|hold| counts(hold)).map(|hold| hold.quantity.units()).sum()
    }

    fn units_of(&self, allowance: &Allowance) -> i64 {
        self.sum(|hold| hold.allowance() == *allowance && hold.state != HoldState::Released)
    }

    fn sold(&self) -> i64 {
        self.sum(|hold| hold.state == HoldState::Sold)
    }
}

impl Model {
    /// As [`super::Gate::admit`], at the instant `now` of the gate's clock.
    pub fn admit(&mut self, request: &AdmitRequest, now: UnixMillis) -> Admission {
        let Making::Made(settings) = &self.making else {
            return Admission::Refused(Refusal::NotReady);
        };
        let book = &mut self.book;
        if let Some(hold) = book.holds.get(&request.order_no) {
            let same = hold.fingerprint == request.fingerprint
                && hold.quantity == request.quantity
                && hold.user_id == request.user_id;
            return if same {
                Admission::Replayed(hold.state, Terms { limit_day: hold.limit_day, ..settings.terms.clone() })
            } else {
                Admission::Refused(Refusal::RequestIdReused)
            };
        }
        let allowance = Allowance { user_id: request.user_id.clone(), limit_day: limit_day(settings, now) };
        if let Err(refusal) = judge(settings, book, request, &allowance, now) {
            return Admission::Refused(refusal);
        }

        book.available -= request.quantity.units();
        // A sale without an interval keeps no marks, and forgets the one it meets.
        book.user_marks.remove(&allowance);
        if allowance.limit_day.is_none() {
            book.cool_downs.remove(&request.user_id);
        }
        if settings.rules.user_interval_ms > 0 {
            book.user_marks.insert(allowance.clone(), now);
        }
        if settings.rules.device_ip_interval_ms > 0 {
            book.device_marks.insert(request.device_address.clone(), now);
        }
        let held_at = whole_second(now);
        book.pending.insert(request.order_no.clone(), held_at);
        let hold = Hold {
            state: HoldState::Held,
            held_at,
            fingerprint: request.fingerprint.clone(),
            quantity: request.quantity,
            user_id: allowance.user_id,
            limit_day: allowance.limit_day,
        };
        book.holds.insert(request.order_no.clone(), hold);
        Admission::Admitted(Terms { limit_day: allowance.limit_day, ..settings.terms.clone() })
    }

    /// As [`super::Gate::confirm`].
    pub fn confirm(&mut self, order_nos: &[OrderNo]) {
        self.follow(order_nos, |_, _| Followed::Unchanged);
    }

    /// As [`super::Gate::release`].
    pub fn release(&mut self, order_nos: &[OrderNo]) -> Vec<Followed> {
        self.follow(order_nos, |book, order_no| {
            let released = settle(book, order_no, HoldState::Released);
            book.available += released.unwrap_or(0);
            followed(released.is_some())
        })
    }

    /// As [`super::Gate::sell`].
    pub fn sell(&mut self, order_nos: &[OrderNo]) -> Vec<Followed> {
        self.follow(order_nos, |book, order_no| followed(settle(book, order_no, HoldState::Sold).is_some()))
    }

    /// As [`super::Gate::take`].
    pub fn take(&mut self, holds: &[NewHold]) -> Vec<Followed> {
        let order_nos: Vec<OrderNo> = holds.iter().map(|hold| hold.order_no.clone()).collect();
        let mut holds = holds.iter();
        self.follow(&order_nos, |book, order_no| {
            let in_the_way = |present: &Hold, hold: &NewHold| {
                let same = present.fingerprint == hold.fingerprint
                    && present.quantity == hold.quantity
                    && present.allowance() == hold.allowance();
                present.state == HoldState::Released && !same
            };
            let lost =
                holds.next().filter(|hold| book.holds.get(order_no).is_none_or(|present| in_the_way(present, hold)));
            if let Some(hold) = lost {
                book.available -= hold.quantity.units();
                book.holds.insert(
                    order_no.clone(),
                    Hold {
                        state: HoldState::Held,
                        held_at: whole_second(hold.held_at),
                        fingerprint: hold.fingerprint.clone(),
                        quantity: hold.quantity,
                        user_id: hold.user_id.clone(),
                        limit_day: hold.limit_day,
                    },
                );
            }
            followed(lost.is_some())
        })
    }

    /// What the four have in common: nothing while there is no valid gate, and an end to pending.
    fn follow(
        &mut self,
        order_nos: &[OrderNo],
        mut each: impl FnMut(&mut Book, &OrderNo) -> Followed,
    ) -> Vec<Followed> {
        let made = matches!(self.making, Making::Made(_));
        let book = &mut self.book;
        let mut one = |order_no: &OrderNo| {
            if !made {
                return Followed::NotReady;
            }
            book.pending.remove(order_no);
            each(book, order_no)
        };
        order_nos.iter().map(&mut one).collect()
    }

    /// As [`super::Gate::sync`].
    pub fn sync(&mut self, settings: &GateSettings) -> Synced {
        let Making::Made(known) = &mut self.making else {
            return Synced::NotReady;
        };
        if settings.epoch != known.epoch {
            return Synced::EpochDiffers;
        }
        if settings.version < known.version {
            return Synced::Stale;
        }
        // Units taken out for a row that this is not yet stay out. No time passes here, so their writer is alive.
        let out = match self.book.lowering {
            Some((units, version)) if settings.version < version => units,
            Some(_) | None => {
                self.book.lowering = None;
                0
            }
        };
        let shown = GateSettings { total: settings.total - out, ..settings.clone() };
        if says_the_same(&shown, known) {
            return Synced::Unchanged;
        }
        self.book.available += shown.total - known.total;
        *known = shown;
        Synced::Applied
    }

    /// As [`super::Gate::lower`].
    pub fn lower(&mut self, units: i64, version: i64) -> Lowered {
        let Making::Made(settings) = &mut self.making else {
            return Lowered::NotReady;
        };
        if self.book.lowering.is_some() {
            return Lowered::Contended;
        }
        if self.book.available < units {
            return Lowered::Insufficient { available: self.book.available };
        }
        self.book.available -= units;
        settings.total -= units;
        self.book.lowering = Some((units, version));
        Lowered::Done
    }

    /// As [`super::Gate::unlower`].
    pub fn unlower(&mut self, version: i64) {
        if let Making::Made(settings) = &mut self.making
            && let Some((units, _)) = self.book.lowering.take_if(|(_, of)| *of == version)
        {
            self.book.available += units;
            settings.total += units;
        }
    }

    /// As [`super::Gate::cool_down`].
    pub fn cool_down(&mut self, user_id: &UserId, until: UnixMillis) {
        if let Making::Made(_) = &self.making {
            self.book.cool_downs.insert(user_id.clone(), until);
        }
    }

    /// As [`super::Gate::load_begin`].
    pub fn load_begin(&mut self, epoch: i64) -> Loading {
        match &self.making {
            Making::Loading(going) if *going == epoch => return Loading::Going,
            Making::Loading(going) if *going > epoch => return Loading::Stale,
            Making::Made(settings) if settings.epoch >= epoch => return Loading::Stale,
            Making::Missing | Making::Loading(_) | Making::Made(_) => {}
        }
        *self = Self { book: Book::default(), making: Making::Loading(epoch) };
        Loading::Going
    }

    /// As [`super::Gate::load_chunk`].
    pub fn load_chunk(&mut self, epoch: i64, holds: &[LoadHold]) -> Loading {
        if !matches!(self.making, Making::Loading(going) if going == epoch) {
            return Loading::Stale;
        }
        for hold in holds {
            if self.book.holds.contains_key(&hold.order_no) {
                continue;
            }
            let held_at = whole_second(hold.held_at);
            if hold.pending {
                self.book.pending.insert(hold.order_no.clone(), held_at);
            }
            self.book.holds.insert(
                hold.order_no.clone(),
                Hold {
                    state: hold.state,
                    held_at,
                    fingerprint: hold.fingerprint.clone(),
                    quantity: hold.quantity,
                    user_id: hold.user_id.clone(),
                    limit_day: hold.limit_day,
                },
            );
        }
        Loading::Going
    }

    /// As [`super::Gate::load_finish`].
    pub fn load_finish(&mut self, settings: &GateSettings) -> Loading {
        match &self.making {
            Making::Loading(going) if *going == settings.epoch => {}
            Making::Made(made) if made.epoch == settings.epoch => return Loading::Going,
            Making::Missing | Making::Loading(_) | Making::Made(_) => return Loading::Stale,
        }
        self.book.available = settings.total - self.book.sum(|hold| hold.state != HoldState::Released);
        self.making = Making::Made(settings.clone());
        Loading::Going
    }

    /// As [`super::Gate::counters`].
    pub fn counters(&self) -> Option<Counters> {
        match &self.making {
            Making::Missing => None,
            Making::Loading(epoch) => Some(Counters {
                epoch: 0,
                version: 0,
                total: 0,
                available: 0,
                sold: self.book.sold(),
                loading: Some(*epoch),
                lowering: 0,
                gate: layout::NOT_READY.to_owned(),
            }),
            Making::Made(settings) => Some(Counters {
                epoch: settings.epoch,
                version: settings.version,
                total: settings.total,
                available: self.book.available,
                sold: self.book.sold(),
                loading: None,
                lowering: self.book.lowering.map_or(0, |(units, _)| units),
                gate: layout::gate_field(settings),
            }),
        }
    }

    /// As [`super::Gate::pending`].
    pub fn pending(&self, not_after: UnixMillis, limit: usize) -> Vec<(OrderNo, UnixMillis)> {
        let mut pending: Vec<_> =
            self.book.pending.clone().into_iter().filter(|(_, at)| at.secs() <= not_after.secs()).collect();
        pending.sort_by(|(one, at), (other, then)| (at, one).cmp(&(then, other)));
        pending.truncate(limit);
        pending
    }

    /// As [`super::Gate::holds`].
    pub fn holds(&self, order_nos: &[OrderNo]) -> Vec<Option<Hold>> {
        order_nos.iter().map(|order_no| self.book.holds.get(order_no).cloned()).collect()
    }

    /// As [`super::Gate::snapshot`]; always settled.
    pub fn snapshot(&self) -> Option<Snapshot> {
        let counters = self.counters()?;
        let allowances = self.book.holds.values().map(Hold::allowance);
        let units = allowances
            .map(|allowance| {
                let units = self.book.units_of(&allowance);
                (allowance, units)
            })
            .filter(|(_, units)| *units != 0);
        Some(Snapshot {
            counters,
            holds: self.book.holds.clone(),
            units: units.collect(),
            pending: self.book.pending.clone(),
            settled: true,
        })
    }
}

/// The day that an admission counts for, if each day has its limit.
fn limit_day(settings: &GateSettings, now: UnixMillis) -> Option<i64> {
    match settings.limit_period {
        LimitPeriod::Activity => None,
        LimitPeriod::Day => Some(now.plus_secs(i64::from(settings.rules.utc_offset_secs)).secs().div_euclid(86_400)),
    }
}

fn judge(
    settings: &GateSettings,
    book: &Book,
    request: &AdmitRequest,
    allowance: &Allowance,
    now: UnixMillis,
) -> Result<(), Refusal> {
    let GateSettings { rules, terms, .. } = settings;
    match settings.state {
        SaleState::Live if !settings.on_sale => return Err(Refusal::Paused),
        SaleState::Live => {}
        SaleState::Paused => return Err(Refusal::Paused),
        SaleState::Closed | SaleState::Settled => return Err(Refusal::Ended { ends_at: rules.ends_at }),
    }

    if let Some(blocked) = request.blocked {
        return Err(Refusal::Blocked(blocked));
    }
    if let Some(until) = book.cool_downs.get(&request.user_id).filter(|until| now < **until) {
        let retry_after_ms = u64::try_from(until.millis_since(now)).ok();
        return Err(Refusal::Blocked(Blocked { retry_after_ms }));
    }

    let wanted = request.quantity.units();
    let remaining = (i64::from(terms.limit_per_user) - book.units_of(allowance)).max(0);
    if wanted > remaining {
        return Err(match (terms.limit_per_user, remaining) {
            (1, 0) => Refusal::AlreadyBought,
            _ => Refusal::LimitExceeded { remaining: as_count(remaining) },
        });
    }
    if wanted > book.available {
        return Err(match book.available {
            some @ 1.. => Refusal::InsufficientStock { remaining: as_count(some) },
            _ => Refusal::StockEmpty,
        });
    }

    if now < rules.starts_at {
        return Err(Refusal::NotStarted { starts_at: rules.starts_at });
    }
    if now >= rules.ends_at {
        return Err(Refusal::Ended { ends_at: rules.ends_at });
    }
    let marks = [
        (book.user_marks.get(allowance), rules.user_interval_ms),
        (book.device_marks.get(&request.device_address), rules.device_ip_interval_ms),
    ];
    for (mark, interval) in marks {
        if let Some(retry_after_ms) = mark.and_then(|mark| wait(*mark, interval, now)) {
            return Err(Refusal::RateLimited { retry_after_ms });
        }
    }
    Ok(())
}

/// How long a mark still holds a buyer back. One that lies ahead was left before the clock stepped back: it counts as just
/// left, unless the step was longer than the interval, or it would hold the buyer back for all of the step.
fn wait(mark: UnixMillis, interval_ms: u32, now: UnixMillis) -> Option<u32> {
    let interval = i64::from(interval_ms);
    let rest = mark.plus_millis(interval).millis_since(now);
    (1..=2 * interval).contains(&rest).then(|| as_count(rest.min(interval)))
}

/// Moves a hold out of HELD and says how many units that concerns.
fn settle(book: &mut Book, order_no: &OrderNo, state: HoldState) -> Option<i64> {
    let hold = book.holds.get_mut(order_no).filter(|hold| hold.state == HoldState::Held)?;
    hold.state = state;
    Some(hold.quantity.units())
}

const fn followed(changed: bool) -> Followed {
    if changed { Followed::Changed } else { Followed::Unchanged }
}

/// Alike in everything that the book keeps.
fn says_the_same(one: &GateSettings, other: &GateSettings) -> bool {
    one.version == other.version
        && one.total == other.total
        && one.terms == other.terms
        && layout::gate_field(one) == layout::gate_field(other)
}

fn whole_second(at: UnixMillis) -> UnixMillis {
    UnixMillis::new(at.secs() * 1_000)
}

fn as_count(units: i64) -> u32 {
    u32::try_from(units).unwrap_or(u32::MAX)
}
