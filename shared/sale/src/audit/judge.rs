//! Judges what a look saw. Pure: the same look gives the same findings.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use kernel::ids::{OrderNo, UserId};
use kernel::time::UnixMillis;

use super::{Invariant, Look, Seen, Violation};
use crate::admission::HoldState;
use crate::gate::{Hold, Snapshot};
use crate::offer::{Allowance, SaleState};
use crate::order::OrderStatus;
use crate::store::orders::OrderRow;
use crate::store::payments::PaymentState;

/// Orders that a violation names; more would not help anybody.
pub(super) const MAX_NAMED: usize = 20;

/// What is wrong, by the promise that is broken, and how: words in which no number moves with the sale.
pub(crate) type Findings = BTreeMap<(Invariant, String), Finding>;

/// One thing that is wrong.
#[derive(Debug, Clone)]
pub(crate) struct Finding {
    pub(crate) detail: String,
    /// The orders concerned.
    orders: BTreeSet<OrderNo>,
    /// Whether it is the orders that are wrong: each of them is a matter of its own, then.
    of_orders: bool,
    pub(crate) is_oversell: bool,
    /// How many looks in a row have found it.
    pub(crate) looks: usize,
}

/// What a later look found, with how often it was found before. Of orders those count that were found before, unless none
/// was.
pub(crate) fn again(before: &Findings, mut found: Findings) -> Findings {
    for (key, finding) in &mut found {
        let Some(known) = before.get(key) else { continue };
        if finding.of_orders {
            let both: BTreeSet<OrderNo> = finding.orders.intersection(&known.orders).cloned().collect();
            if both.is_empty() {
                continue;
            }
            finding.orders = both;
        }
        finding.looks = known.looks + 1;
    }
    found
}

/// As it is reported.
pub(crate) fn violation(((invariant, _), finding): ((Invariant, String), Finding)) -> Violation {
    let Finding { mut detail, orders, of_orders, .. } = finding;
    if of_orders && orders.len() > MAX_NAMED {
        detail.push_str(&format!("; {} orders", orders.len()));
    }
    Violation { invariant, detail, order_nos: orders.into_iter().take(MAX_NAMED).collect() }
}

/// What is wrong with what was seen.
pub(crate) fn judge(look: &Look, bound_secs: u32) -> Findings {
    let mut judge = Judge { at: look.at, bound_secs: i64::from(bound_secs), found: Findings::new() };
    for seen in &look.offers {
        judge.offer(seen);
    }
    judge.money(look);
    judge.queues(look);
    judge.found
}

/// Whether the sums of this offer stood still while they were looked at.
pub(crate) fn is_still(seen: &Seen) -> bool {
    seen.still && seen.gate.as_ref().is_none_or(|gate| gate.settled)
}

struct Judge {
    at: UnixMillis,
    bound_secs: i64,
    found: Findings,
}

impl Judge {
    /// Notes what is wrong, about which thing; `detail` may have numbers, and `orders` are those that may explain it.
    fn report(&mut self, invariant: Invariant, what: String, detail: String, orders: Vec<OrderNo>) -> &mut Finding {
        let finding =
            Finding { detail, orders: orders.into_iter().collect(), of_orders: false, is_oversell: false, looks: 1 };
        self.found.entry((invariant, what)).insert_entry(finding).into_mut()
    }

    /// Notes what is wrong with these orders.
    fn report_orders(&mut self, invariant: Invariant, detail: String, orders: impl IntoIterator<Item = OrderNo>) {
        let mut orders = orders.into_iter().peekable();
        if orders.peek().is_some() {
            let none = || Finding {
                detail: detail.clone(),
                orders: BTreeSet::new(),
                of_orders: true,
                is_oversell: false,
                looks: 1,
            };
            self.found.entry((invariant, detail.clone())).or_insert_with(none).orders.extend(orders);
        }
    }

    /// Whether something that last moved at `moved_at` has had its time to come right.
    fn is_old(&self, moved_at: UnixMillis) -> bool {
        self.at.secs() - moved_at.secs() >= self.bound_secs
    }

    fn offer(&mut self, seen: &Seen) {
        let rows: HashMap<&OrderNo, &OrderRow> = seen.rows.iter().map(|row| (&row.order_no, row)).collect();
        self.count(seen, &rows);
        self.claims(seen);
        self.paths(seen);
        self.undecided(seen);
        self.requests(seen);
        match &seen.gate {
            Some(gate) if gate.counters.loading.is_some() => {} // Being made: nothing of it is valid yet.
            Some(gate) => self.gate(seen, gate, &rows),
            // Within the bound the sweep makes it anew, and nobody can buy meanwhile.
            None if seen.offer.epoch > 0 && seen.offer.state != SaleState::Settled && self.bound_secs == 0 => {
                let what = format!("{}: the gate is missing", name(seen));
                self.report(Invariant::I2, what.clone(), what, Vec::new());
            }
            None => {}
        }
    }

    /// I1.
    fn count(&mut self, seen: &Seen, rows: &HashMap<&OrderNo, &OrderRow>) {
        let sum: i64 = seen.rows.iter().filter(|row| row.status.is_committed()).map(|row| row.qty.units()).sum();
        let committed = seen.offer.committed();
        // An oversell is one even while the sale moves on.
        if seen.still && committed != sum {
            // Whose order might be missing: holds that have none.
            let suspects =
                seen.gate.iter().flat_map(|gate| gate.holds.keys()).filter(|order_no| !rows.contains_key(order_no));
            let suspects = suspects.cloned().collect();
            let detail = format!("{}: {committed} units are committed, its orders have {sum}", name(seen));
            // The index may lag behind by a commit, by another one in each look: a gap that stays is none of its making.
            let what = format!("{}: count, {} units", name(seen), committed - sum);
            self.report(Invariant::I1, what, detail, suspects);
        }
        if sum > seen.offer.total || committed > seen.offer.total {
            let orders =
                seen.rows.iter().filter(|row| row.status.is_committed()).map(|row| row.order_no.clone()).collect();
            let detail = format!("{}: oversold, {sum} of {} units (count {committed})", name(seen), seen.offer.total);
            self.report(Invariant::I1, format!("{}: oversold", name(seen)), detail, orders).is_oversell = true;
        }
    }

    /// I3.
    fn claims(&mut self, seen: &Seen) {
        if !seen.still {
            return;
        }
        let mut by_user: BTreeMap<Allowance, Vec<&OrderRow>> =
            seen.claims.keys().map(|user| (user.clone(), Vec::new())).collect();
        for row in seen.rows.iter().filter(|row| row.status.is_committed()) {
            by_user.entry(row.allowance()).or_default().push(row);
        }
        for (user, orders) in by_user {
            let units: i64 = orders.iter().map(|row| row.qty.units()).sum();
            let claim = seen.claims.get(&user).copied().unwrap_or(0);
            // A limit that was lowered since does not make earlier orders wrong.
            let limit = orders.iter().map(|row| row.terms.limit_per_user).max().unwrap_or(0);
            let names = || orders.iter().map(|row| row.order_no.clone()).collect();
            if claim != units {
                self.report(
                    Invariant::I3,
                    format!("{}: claim of {user}, {} units", name(seen), claim - units),
                    format!("{}: {user} claims {claim} units, the orders have {units}", name(seen)),
                    names(),
                );
            }
            if units > i64::from(limit) {
                self.report(
                    Invariant::I3,
                    format!("{}: limit of {user}", name(seen)),
                    format!("{}: {user} has {units} units, the limit is {limit}", name(seen)),
                    names(),
                );
            }
        }
    }

    /// I4.
    fn paths(&mut self, seen: &Seen) {
        for row in &seen.rows {
            let legal = row.trail.first().is_some_and(|first| first.may_begin())
                && row.trail.windows(2).all(|step| matches!(step, [from, to] if from.successors().contains(to)))
                && row.trail.last() == Some(&row.status);
            if !legal {
                let path: Vec<&str> = row.trail.iter().map(|status| status.as_str()).collect();
                let detail = format!("{}: {} came by {}", name(seen), row.status.as_str(), path.join(" > "));
                self.report_orders(Invariant::I4, detail, [row.order_no.clone()]);
            }
            if row.amount != row.terms.price.times(row.qty) {
                let detail =
                    format!("{}: the amount {} is not the price times {}", name(seen), row.amount.get(), row.qty);
                self.report_orders(Invariant::I4, detail, [row.order_no.clone()]);
            }
        }
    }

    /// I5, the rows' half.
    fn undecided(&mut self, seen: &Seen) {
        let waiting =
            seen.rows.iter().filter(|row| row.status == OrderStatus::PreCreated && self.is_old(row.created_at));
        let waiting: Vec<OrderNo> = waiting.map(|row| row.order_no.clone()).collect();
        let detail = format!("{}: still PRE_CREATED after {} s", name(seen), self.bound_secs);
        self.report_orders(Invariant::I5, detail, waiting);
        let overdue = seen.rows.iter().filter(|row| {
            row.status == OrderStatus::Unpaid && row.pay_deadline.is_some_and(|deadline| self.is_old(deadline))
        });
        let overdue: Vec<OrderNo> = overdue.map(|row| row.order_no.clone()).collect();
        let detail = format!("{}: still UNPAID {} s after the deadline", name(seen), self.bound_secs);
        self.report_orders(Invariant::I5, detail, overdue);
        let owed: Vec<OrderNo> = seen
            .rows
            .iter()
            .filter(|row| row.is_owed() && self.is_old(row.updated_at))
            .map(|row| row.order_no.clone())
            .collect();
        self.report_orders(Invariant::I5, format!("{}: ended, and not everybody knows yet", name(seen)), owed);
    }

    /// I6.
    fn money(&mut self, look: &Look) {
        let rows = look.offers.iter().flat_map(|seen| seen.rows.iter().map(move |row| (seen, row)));
        let rows: HashMap<&OrderNo, (&Seen, &OrderRow)> =
            rows.map(|(seen, row)| (&row.order_no, (seen, row))).collect();
        for (seen, row) in rows.values().filter(|(_, row)| row.status == OrderStatus::Paid) {
            let payment = row.transaction_id.as_ref().and_then(|transaction| seen.paid_by.get(transaction));
            let fits = payment.is_some_and(|payment| {
                payment.state == PaymentState::Matched
                    && payment.order_no == row.order_no
                    && payment.amount == row.amount
                    && payment.currency == row.terms.currency
            });
            if !fits {
                let detail = format!("{}: a PAID order has no payment of its amount", name(seen));
                self.report_orders(Invariant::I6, detail, [row.order_no.clone()]);
            }
        }
        for payment in look.payments.iter().filter(|payment| payment.state == PaymentState::Matched) {
            // An order that is younger than what the index shows is not there yet.
            let Some((seen, row)) = rows.get(&payment.order_no) else {
                if self.is_old(payment.received_at) {
                    let detail = format!("the payment {} is of no order", payment.transaction_id);
                    self.report_orders(Invariant::I6, detail, [payment.order_no.clone()]);
                }
                continue;
            };
            let its = row.status == OrderStatus::Paid && row.transaction_id.as_ref() == Some(&payment.transaction_id);
            if !its && self.is_old(payment.received_at) {
                let detail = format!(
                    "{}: the payment {} is matched, but the order is {}",
                    name(seen),
                    payment.transaction_id,
                    row.status.as_str()
                );
                self.report_orders(Invariant::I6, detail, [payment.order_no.clone()]);
            }
        }
    }

    /// I8.
    fn requests(&mut self, seen: &Seen) {
        let mut by_request: BTreeMap<(&UserId, &str), Vec<OrderNo>> = BTreeMap::new();
        for row in &seen.rows {
            if let Some(request_id) = &row.request_id {
                by_request.entry((&row.user_id, request_id.as_str())).or_default().push(row.order_no.clone());
            }
        }
        for ((user, request), orders) in by_request.into_iter().filter(|(_, orders)| orders.len() > 1) {
            self.report(
                Invariant::I8,
                format!("{}: request {request} of {user}", name(seen)),
                format!("{}: one request of {user} made {} orders", name(seen), orders.len()),
                orders,
            );
        }
    }

    /// I2, and the holds' half of I5.
    fn gate(&mut self, seen: &Seen, gate: &Snapshot, rows: &HashMap<&OrderNo, &OrderRow>) {
        if gate.settled {
            self.sums(seen, gate);
        }
        for (order_no, hold) in &gate.holds {
            match rows.get(order_no) {
                Some(row) => self.hold(seen, hold, row),
                None if self.is_old(hold.held_at) => {
                    let detail = format!("{}: a hold has no order", name(seen));
                    self.report_orders(Invariant::I5, detail, [order_no.clone()]);
                }
                None => {}
            }
        }
        for row in seen.rows.iter().filter(|row| row.status.is_live() && !gate.holds.contains_key(&row.order_no)) {
            if self.is_old(row.updated_at) {
                let detail = format!("{}: the {} order has no hold", name(seen), row.status.as_str());
                self.report_orders(Invariant::I2, detail, [row.order_no.clone()]);
            }
        }
        let pending: Vec<OrderNo> = gate
            .pending
            .iter()
            .filter(|(_, since)| self.is_old(**since))
            .map(|(order_no, _)| order_no.clone())
            .collect();
        let detail = format!("{}: a hold is still pending after {} s", name(seen), self.bound_secs);
        self.report_orders(Invariant::I5, detail, pending);
    }

    fn sums(&mut self, seen: &Seen, gate: &Snapshot) {
        let counters = &gate.counters;
        let sum_of = |state: HoldState| -> i64 {
            gate.holds.values().filter(|hold| hold.state == state).map(|hold| hold.quantity.units()).sum()
        };
        let (held, sold) = (sum_of(HoldState::Held), sum_of(HoldState::Sold));
        if counters.held() != held || counters.sold != sold {
            let detail = format!(
                "{}: of {} units the sums have {} held and {} sold, and the holds have {held} held and {sold} sold",
                name(seen),
                counters.total,
                counters.held(),
                counters.sold
            );
            self.report(Invariant::I2, format!("{}: sums of the gate", name(seen)), detail, Vec::new());
        }
        // Below zero nothing is sold, and it rises again as the excess that was let in is refused.
        if counters.available < 0 && self.bound_secs == 0 {
            self.report(
                Invariant::I2,
                format!("{}: less than nothing is available", name(seen)),
                format!("{}: {} units are available", name(seen), counters.available),
                Vec::new(),
            );
        }
        // Units that are out for a row which somebody may be about to write are missing within the bound.
        let out = if self.bound_secs > 0 { counters.lowering } else { 0 };
        let differs = counters.total != seen.offer.total && counters.total + out != seen.offer.total;
        if seen.still && counters.version >= seen.offer.version && differs {
            let detail =
                format!("{}: the gate sells {} units, the offer has {}", name(seen), counters.total, seen.offer.total);
            self.report(Invariant::I2, format!("{}: total of the gate", name(seen)), detail, Vec::new());
        }
        let mut units: BTreeMap<Allowance, i64> = gate.units.keys().map(|user| (user.clone(), 0)).collect();
        for hold in gate.holds.values().filter(|hold| hold.state != HoldState::Released) {
            *units.entry(hold.allowance()).or_default() += hold.quantity.units();
        }
        for (user, units) in units {
            let counted = gate.units.get(&user).copied().unwrap_or(0);
            if counted != units {
                let holds = gate
                    .holds
                    .iter()
                    .filter(|(_, hold)| hold.allowance() == user)
                    .map(|(order_no, _)| order_no.clone());
                let holds = holds.collect();
                let detail =
                    format!("{}: the gate counts {counted} units of {user}, the holds have {units}", name(seen));
                self.report(Invariant::I2, format!("{}: units of {user}", name(seen)), detail, holds);
            }
        }
    }

    fn hold(&mut self, seen: &Seen, hold: &Hold, row: &OrderRow) {
        let state_fits = match hold.state {
            HoldState::Held => row.status.is_live() && row.status != OrderStatus::Paid,
            HoldState::Sold => row.status == OrderStatus::Paid,
            HoldState::Released => !row.status.is_live(),
        };
        // A gate that lags behind the row is in motion; one that gave back a live order's units is wrong at once.
        let lags = hold.state == HoldState::Held;
        if !state_fits && (!lags || self.is_old(row.updated_at)) {
            let detail = format!("{}: the hold is {:?}, the order {}", name(seen), hold.state, row.status.as_str());
            self.report_orders(Invariant::I2, detail, [row.order_no.clone()]);
        }
        if hold.quantity != row.qty || hold.allowance() != row.allowance() || hold.fingerprint != row.fingerprint {
            let detail = format!("{}: hold and order are not alike", name(seen));
            self.report_orders(Invariant::I2, detail, [row.order_no.clone()]);
        }
    }

    /// I9. On a live sale messages are on their way; a dead letter is never in order.
    fn queues(&mut self, look: &Look) {
        let dead = look.dead_letters.all();
        if dead > 0 {
            self.report(Invariant::I9, "dead letters".to_owned(), format!("{dead} dead letters"), Vec::new());
        }
        let queued = look.queue.all();
        if self.bound_secs == 0 && queued > 0 {
            self.report(Invariant::I9, "queued".to_owned(), format!("{queued} messages are queued"), Vec::new());
        }
    }
}

fn name(seen: &Seen) -> String {
    format!("{}/{}", seen.offer.activity_id, seen.offer.sku_id)
}
