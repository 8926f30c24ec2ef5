//! What happened, on the terminal and as `target/demo/report.json`.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;

use client::Stack;
use client::documents::{AuditReport, OrderStatus, Verdict};
use serde::Serialize;

use crate::aftermath::Aftermath;
use crate::buyer::{Heard, Order};
use crate::error::DemoError;
use crate::hardware::Hardware;
use crate::latency::Percentiles;
use crate::plan::{Offer, Plan};
use crate::promises::Check;
use crate::settings::Settings;
use crate::stage::{PRICE, SPARE, Sale, title};
use crate::storm::Crowd;

/// Breaches and order numbers shown on the terminal for one check; the file has them all.
const SHOWN: usize = 10;

/// Everything there is to say about a run. `verdict` is PASS only when the audit passes and every check does.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Report {
    verdict: Verdict,
    /// Units in orders, over both offers, as the system counts them.
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
    pub(crate) fn new(settings: &Settings, plan: &Plan, sale: &Sale, crowd: &Crowd<'_>, aftermath: Aftermath) -> Self {
        let Aftermath { ledger, audit, looks, stats } = aftermath;
        let mut all = crate::promises::Ledger::default();
        all.merge(&sale.ledger);
        all.merge(&crowd.ledger);
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
            audit,
            audit_looks: looks,
            checks,
            hardware: Hardware::look(),
        }
    }

    pub(crate) fn is_right(&self) -> bool {
        self.verdict == Verdict::Pass
    }

    pub(crate) fn save(&self, path: &Path) -> Result<(), DemoError> {
        let failed = |source| DemoError::Report { path: path.to_owned(), source };
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder).map_err(failed)?;
        }
        let text = serde_json::to_string_pretty(self).map_err(|error| failed(error.into()))?;
        std::fs::write(path, text + "\n").map_err(failed)
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
        rows.push(("Orders".to_owned(), format!("{}: {}", counts.orders, statuses.join(", "))));
        rows.extend(self.offers.iter().map(|offer| {
            let left = offer.available.map_or("?".to_owned(), |units| units.to_string());
            let units = format!("committed {} of {}, {left} left at the gate", offer.committed, offer.total);
            (format!("Offer {} (limit {})", offer.sku_id, offer.limit_per_user), units)
        }));
        let Hardware { cores, cpu, memory_gib, os } = &self.hardware;
        rows.push(("Hardware".to_owned(), format!("{cores} cores, {cpu}, {memory_gib} GiB, {os}")));
        aligned(&rows)
    }

    fn judgement(&self) -> String {
        let mut lines = vec!["What buyers were promised".to_owned()];
        for check in &self.checks {
            let mark = if check.passed { "ok  " } else { "FAIL" };
            lines.push(format!("  {mark} {} ({} cases, {} broken)", check.promise, check.cases, check.breaches.len()));
            lines.extend(
                check
                    .breaches
                    .iter()
                    .take(SHOWN)
                    .map(|breach| format!("         {} {}", breach.order_no.as_deref().unwrap_or(""), breach.detail)),
            );
        }
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
        lines.push(format!("Verdict: {} (committed {} of {})\n", word(self.verdict), self.committed, self.total));
        lines.join("\n")
    }

    /// Lines to paste. The stack is still up.
    fn what_next(&self, stack: &Stack) -> String {
        let (url, activity, redis) = (&stack.http_url, &self.activity_id, &stack.redis_url);
        let sku = format!("{activity}-{}", Offer::Single.name());
        let (title, limit) = (title(Offer::Single), Offer::Single.limit());
        let more = u64::from(self.parameters.stock_per_offer) + SPARE;
        format!(
            r#"The stack is still up. Try:

  # what is on sale
  curl -sw '\n' {url}/api/seckill/activities/{activity}

  # put {SPARE} more units on sale, and buy one; then ask what became of it
  curl -sw '\n' -X PUT {url}/api/admin/activities/{activity}/products/{sku} \
    -H "Authorization: Bearer $(make -s token USER=root ROLE=admin)" -H 'Content-Type: application/json' \
    -d '{{"title":"{title}","price":{PRICE},"currency":"CNY","total":{more},"limitPerUser":{limit}}}'
  curl -sw '\n' -X POST {url}/api/seckill/buy \
    -H "Authorization: Bearer $(make -s token USER=demo)" -H 'Content-Type: application/json' \
    -H 'X-Request-ID: my-first-wish' -d '{{"activityId":"{activity}","skuId":"{sku}"}}'
  curl -sw '\n' {url}/api/orders -H "Authorization: Bearer $(make -s token USER=demo)"

  # ask the audit; then put a unit too many into Redis and ask again: FAIL, naming I2
  curl -sw '\n' '{url}/api/admin/activities/{activity}/audit?boundSecs=0' \
    -H "Authorization: Bearer $(make -s token USER=root ROLE=admin)"
  redis-cli -u {redis} HINCRBY 'seckill:book:{{{activity}:{sku}}}' avail 1
"#
        )
    }
}

fn percentiles(times: &Percentiles) -> String {
    let Percentiles { p50_ms, p95_ms, p99_ms, max_ms, .. } = times;
    format!("p50 {p50_ms:.0}  p95 {p95_ms:.0}  p99 {p99_ms:.0}  max {max_ms:.0} ms")
}

fn aligned(rows: &[(String, String)]) -> String {
    let width = rows.iter().map(|(name, _)| name.chars().count()).max().unwrap_or(0);
    let lines: Vec<String> =
        rows.iter().map(|(name, value)| format!("{name:<width$}  {value}").trim_end().to_owned()).collect();
    lines.join("\n")
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
