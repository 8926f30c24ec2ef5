//! What happened, on the terminal and as `target/demo/report.json`.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;

use client::Stack;
use client::documents::{AuditReport, OrderStatus, Stats, Verdict};
use load::hardware::Hardware;
use load::latency::Percentiles;
use load::ledger::Check;
use load::text::{SHOWN, aligned, percentiles, promises};
use serde::Serialize;

use crate::aftermath::Aftermath;
use crate::buyer::{Heard, Order};
use crate::plan::{Offer, Plan};
use crate::settings::Settings;
use crate::stage::{CURRENCY, Sale};
use crate::storm::Crowd;
use crate::till::{Books, Fate, Till};

/// Everything there is to say about a run. `verdict` is PASS only when the audit passes and every check does.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Report {
    verdict: Verdict,
    /// Units in orders at the end of the storm, over both offers, as the system counts them.
    committed: i64,
    /// Units that were for sale.
    total: i64,
    activity_id: String,
    parameters: Parameters,
    offers: Vec<OfferCount>,
    counts: Counts,
    /// Buy calls by answer.
    answers: BTreeMap<String, usize>,
    buy: Percentiles,
    storm_secs: f64,
    time_to_result: TimeToResult,
    pay_window_secs: u64,
    /// Orders by what their winners did.
    fates: BTreeMap<Fate, usize>,
    /// From the provider's receipt to hearing that the order is PAID.
    time_to_paid: Percentiles,
    /// From the end of the sale to its settlement.
    settled_after_secs: Option<f64>,
    /// In minor units.
    money: Books,
    audit: AuditReport,
    /// How often the audit looked until it passed, or gave up.
    audit_looks: u32,
    checks: Vec<Check>,
    hardware: Hardware,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Parameters {
    buyers: usize,
    stock_per_offer: u32,
    concurrency: usize,
    seed: u64,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct OfferCount {
    sku_id: String,
    limit_per_user: u32,
    total: i64,
    committed: i64,
    /// What the gate says; `None` when it says nothing.
    available: Option<i64>,
    held: Option<i64>,
    sold: Option<i64>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Counts {
    buyers: usize,
    connected: usize,
    /// Buyers with at least one 202.
    winners: usize,
    /// Winners who dropped the socket before their result.
    left: usize,
    orders: usize,
    by_status: BTreeMap<OrderStatus, usize>,
    pushed: usize,
    replayed: usize,
    polled: usize,
    undecided: usize,
}

/// From the 202 to hearing the result.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct TimeToResult {
    push: Percentiles,
    /// These buyers were away by their own choice for some seconds.
    replay: Percentiles,
    poll: Percentiles,
}

impl Report {
    pub(crate) fn new(
        settings: &Settings,
        plan: &Plan,
        sale: &Sale,
        crowd: &Crowd<'_>,
        stats: Stats,
        mut till: Till,
        aftermath: Aftermath,
    ) -> Self {
        let Aftermath { ledger, audit, looks } = aftermath;
        let money = till.compare(audit.counts.money.get(CURRENCY).copied().unwrap_or_default());
        let mut all = crate::promises::Ledger::default();
        all.merge(&sale.ledger);
        all.merge(&crowd.ledger);
        all.merge(&till.ledger);
        all.merge(&ledger);
        let checks = all.checks();
        let right =
            audit.verdict == Verdict::Pass && audit.counts.moving == 0 && checks.iter().all(|check| check.passed);

        let mut answers = BTreeMap::new();
        for call in crowd.stories.iter().flat_map(|story| &story.calls) {
            *answers.entry(call.code.clone()).or_default() += 1;
        }
        let offers: Vec<OfferCount> = stats
            .products
            .iter()
            .map(|product| OfferCount {
                sku_id: product.sku_id.clone(),
                limit_per_user: Offer::ALL
                    .into_iter()
                    .find(|offer| plan.sku_id(*offer) == product.sku_id)
                    .map_or(0, Offer::limit),
                // Both offers are limited.
                total: product.total.unwrap_or(0),
                available: product.available,
                held: product.held,
                sold: product.sold,
                committed: product.committed,
            })
            .collect();
        let orders: Vec<&Order> = crowd.stories.iter().flat_map(|story| &story.orders).collect();
        let by = |heard| {
            let ends = orders.iter().filter_map(|order| order.end).filter(move |end| end.heard == heard);
            Percentiles::of(ends.map(|end| end.after))
        };
        let time_to_result =
            TimeToResult { push: by(Heard::Pushed), replay: by(Heard::Replayed), poll: by(Heard::Polled) };
        let mut by_status = BTreeMap::new();
        for end in orders.iter().filter_map(|order| order.end) {
            *by_status.entry(end.order_status).or_default() += 1;
        }
        let mut fates = BTreeMap::new();
        for bill in &till.bills {
            *fates.entry(bill.fate).or_default() += 1;
        }
        Self {
            verdict: if right { Verdict::Pass } else { Verdict::Fail },
            committed: offers.iter().map(|offer| offer.committed).sum(),
            total: offers.iter().map(|offer| offer.total).sum(),
            activity_id: sale.activity_id.clone(),
            parameters: Parameters {
                buyers: settings.buyers,
                stock_per_offer: settings.stock,
                concurrency: settings.concurrency,
                seed: plan.seed,
            },
            counts: Counts {
                buyers: crowd.stories.len(),
                connected: plan.connecting().count(),
                winners: crowd.stories.iter().filter(|story| !story.orders.is_empty()).count(),
                left: crowd.stories.iter().filter(|story| story.left).count(),
                orders: orders.len(),
                by_status,
                pushed: time_to_result.push.count,
                replayed: time_to_result.replay.count,
                polled: time_to_result.poll.count,
                undecided: orders.iter().filter(|order| order.end.is_none()).count(),
            },
            offers,
            answers,
            buy: Percentiles::of(crowd.stories.iter().flat_map(|story| &story.calls).filter_map(|call| call.took)),
            storm_secs: crowd.took.as_secs_f64(),
            time_to_result,
            pay_window_secs: sale.pay_window.as_secs(),
            fates,
            time_to_paid: Percentiles::of(till.bills.iter().filter_map(|bill| bill.told_after)),
            settled_after_secs: till.settled_after.map(|after| after.as_secs_f64()),
            money,
            audit,
            audit_looks: looks,
            checks,
            hardware: Hardware::look(),
        }
    }

    pub(crate) fn is_right(&self) -> bool {
        self.verdict == Verdict::Pass
    }

    pub(crate) fn print(&self, path: &Path, stack: &Stack) {
        let text =
            format!("{}\n{}\nReport: {}\n\n{}", self.tables(), self.judgement(), path.display(), self.what_next(stack));
        // Whoever reads only the first lines (`| head`) has not made the sale wrong, and the file has it all.
        drop(std::io::stdout().write_all(text.as_bytes()));
    }

    fn tables(&self) -> String {
        let mut rows = vec![("\nAnswers to the buy call".to_owned(), String::new())];
        rows.extend(self.answers.iter().map(|(code, count)| (format!("  {code}"), count.to_string())));
        let calls = &self.buy;
        rows.push(("Time of the buy call".to_owned(), percentiles(calls)));
        let rate = calls.count as f64 / self.storm_secs.max(f64::MIN_POSITIVE);
        rows.push(("  calls, storm".to_owned(), format!("{} in {:.1} s, {rate:.0}/s", calls.count, self.storm_secs)));
        rows.push(("Time from 202 to result".to_owned(), String::new()));
        for (name, times) in [
            ("  by push", &self.time_to_result.push),
            ("  by replay (after coming back)", &self.time_to_result.replay),
            ("  by poll", &self.time_to_result.poll),
        ] {
            rows.push((name.to_owned(), format!("{:>5}   {}", times.count, percentiles(times))));
        }
        let counts = &self.counts;
        rows.push(("Buyers".to_owned(), format!("{}, {} connected before the start", counts.buyers, counts.connected)));
        rows.push((
            "Winners".to_owned(),
            format!("{}, {} dropped the socket before the result", counts.winners, counts.left),
        ));
        let statuses: Vec<String> =
            counts.by_status.iter().map(|(status, count)| format!("{count} {}", status_name(*status))).collect();
        rows.push(("Orders, before the till".to_owned(), format!("{}: {}", counts.orders, statuses.join(", "))));
        rows.extend(self.offers.iter().map(|offer| {
            let left = offer.available.map_or("?".to_owned(), |units| units.to_string());
            let units = format!("committed {} of {}, {left} left at the gate", offer.committed, offer.total);
            (format!("Offer {} (limit {})", offer.sku_id, offer.limit_per_user), units)
        }));
        rows.push((format!("Orders at the till ({} s to pay each)", self.pay_window_secs), String::new()));
        rows.extend(self.fates.iter().map(|(fate, count)| (format!("  {}", fate_name(*fate)), format!("{count:>5}"))));
        let paid = &self.time_to_paid;
        rows.push(("  from paying to hearing PAID".to_owned(), format!("{:>5}   {}", paid.count, percentiles(paid))));
        let settled = self.settled_after_secs.map_or("not settled".to_owned(), |secs| format!("after {secs:.0} s"));
        rows.push(("  settled".to_owned(), settled));
        rows.extend(self.money_rows());
        let Hardware { cores, cpu, memory_gib, os } = &self.hardware;
        rows.push(("Hardware".to_owned(), format!("{cores} cores, {cpu}, {memory_gib} GiB, {os}")));
        aligned(&rows)
    }

    /// What the provider says beside what the shop says.
    fn money_rows(&self) -> Vec<(String, String)> {
        let Books { shop, provider_took, provider_paid_back } = self.money;
        let row = |name: &str, shop: u64, provider: Option<u64>| {
            let provider = provider.map(major).unwrap_or_default();
            (format!("  {name}"), format!("{:>12} {provider:>12}", major(shop)))
        };
        vec![
            (format!("Money ({CURRENCY})"), format!("{:>12} {:>12}", "the shop", "the provider")),
            row("received", shop.received, Some(provider_took)),
            row("  for paid orders", shop.paid, None),
            row("  to be paid back", shop.refund_due, None),
            row("  paid back", shop.refunded, Some(provider_paid_back)),
            row("  for nobody knows what", shop.unmatched, None),
        ]
    }

    fn judgement(&self) -> String {
        let mut lines = vec!["\nWhat buyers were promised".to_owned()];
        lines.extend(promises(&self.checks));
        let audit = &self.audit;
        lines.push(format!(
            "\nAudit: {} ({} violations, look {})",
            word(audit.verdict),
            audit.violations.len(),
            self.audit_looks
        ));
        for violation in &audit.violations {
            lines.push(format!("  {} {}", violation.invariant, violation.detail));
            lines.extend(violation.order_nos.iter().take(SHOWN).map(|order_no| format!("       {order_no}")));
        }
        if audit.counts.moving > 0 {
            lines.push(format!("  {} offers still moved and were not judged", audit.counts.moving));
        }
        lines.push(format!(
            "Verdict: {} ({} of {} units in orders at the end of the storm, {} units paid)\n",
            word(self.verdict),
            self.committed,
            self.total,
            self.audit.counts.sold
        ));
        lines.join("\n")
    }

    /// Lines to paste. The stack is still up; the demo's own sale is over, so `make sale` opens another one.
    fn what_next(&self, stack: &Stack) -> String {
        let (url, activity, redis) = (&stack.http_url, &self.activity_id, &stack.redis_url);
        let audit = format!(
            r#"curl -sw '\n' '{url}/api/admin/activities/a1/audit?boundSecs=0' \
    -H "Authorization: Bearer $(make -s token USER=root ROLE=admin)""#
        );
        let gate = format!("redis-cli -u {redis} HINCRBY 'seckill:book:{{a1:s10}}' avail");
        format!(
            r#"The stack is still up. Try:

  # what the demo's sale came to, step by step
  curl -sw '\n' {url}/api/admin/activities/{activity}/changes \
    -H "Authorization: Bearer $(make -s token USER=root ROLE=admin)"

  # open another sale, and buy; what became of it; and where to pay it (payUrl is a page)
  make sale
  curl -sw '\n' -X POST {url}/api/seckill/buy \
    -H "Authorization: Bearer $(make -s token USER=demo)" -H 'Content-Type: application/json' \
    -H 'X-Request-ID: my-first-wish' -d '{{"activityId":"a1","skuId":"s10"}}' | tee target/demo/bought.json
  curl -sw '\n' {url}/api/orders -H "Authorization: Bearer $(make -s token USER=demo)"
  curl -sw '\n' -X POST {url}/api/order/$(grep -o 'SK[A-Z2-7]*' target/demo/bought.json)/pay \
    -H "Authorization: Bearer $(make -s token USER=demo)"

  # ask the audit; put a unit too many into Redis and ask again: FAIL, naming I2; and take it out again
  {audit}
  {gate} 1
  {audit}
  {gate} -1
"#
        )
    }
}

/// Minor units as people write them.
fn major(minor: u64) -> String {
    format!("{}.{:02}", minor / 100, minor % 100)
}

const fn fate_name(fate: Fate) -> &'static str {
    match fate {
        Fate::Pays => "paid",
        Fate::PaysAndIsToldThrice => "paid, the notice came three times",
        Fate::FailsThenPays => "paid after a try that failed",
        Fate::Cancels => "cancelled by the buyer",
        Fate::RunsOut => "ran out of time",
        Fate::PaysLate => "paid too late",
    }
}

const fn word(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Pass => "PASS",
        Verdict::Fail => "FAIL",
    }
}

const fn status_name(status: OrderStatus) -> &'static str {
    match status {
        OrderStatus::PreCreated => "PRE_CREATED",
        OrderStatus::Unpaid => "UNPAID",
        OrderStatus::Paid => "PAID",
        OrderStatus::Cancelled => "CANCELLED",
        OrderStatus::Failed => "FAILED",
    }
}
