//! Whether a sale keeps its promises, and what puts it right.

use std::collections::BTreeMap;

use clap::{Args, Subcommand};
use serde::Deserialize;

use crate::api::{Api, Twice};
use crate::cli::id;
use crate::failure::{Ending, Failure};
use crate::show::{Out, clean, table_or};

#[derive(Subcommand)]
pub(crate) enum Verb {
    /// Check every promise, also while it is selling; changes nothing, and fails on FAIL
    Audit(Audit),
    /// Compare each order with its place at the gate, and put right what does not fit
    Reconcile(Reconcile),
    /// Make the gates anew from the rows; nobody can buy until they are
    Rebuild(Rebuild),
}

#[derive(Args)]
pub(crate) struct Audit {
    #[arg(value_parser = id)]
    activity: String,
    /// For how long a mismatch may be in motion (120 unless said otherwise); 0 only when the sale is known to be still
    #[arg(long, value_name = "SECS")]
    bound_secs: Option<u32>,
}

#[derive(Args)]
pub(crate) struct Reconcile {
    #[arg(value_parser = id)]
    activity: String,
    /// Only say what would be done
    #[arg(long)]
    dry_run: bool,
}

#[derive(Args)]
pub(crate) struct Rebuild {
    #[arg(value_parser = id)]
    activity: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Report {
    activity_id: String,
    verdict: String,
    violations: Vec<Violation>,
    counts: Counts,
    checked_at: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Violation {
    invariant: String,
    detail: String,
    order_nos: Vec<String>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Counts {
    orders: BTreeMap<String, u64>,
    total: i64,
    committed: i64,
    available: i64,
    held: i64,
    sold: i64,
    pending: u64,
    queued: u64,
    dead_letters: u64,
    moving: u64,
    money: BTreeMap<String, Money>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Money {
    received: u64,
    paid: u64,
    refund_due: u64,
    refunded: u64,
    unmatched: u64,
}

impl Report {
    fn lines(&self) -> Vec<String> {
        let mut lines =
            vec![format!("{} {} at {}", clean(&self.verdict), clean(&self.activity_id), clean(&self.checked_at))];
        for Violation { invariant, detail, order_nos } in &self.violations {
            lines.push(format!("  {}: {}", clean(invariant), clean(detail)));
            lines.extend(order_nos.iter().map(|order_no| format!("    {}", clean(order_no))));
        }
        let counts = &self.counts;
        let orders = counts.orders.iter().map(|(status, orders)| format!("{} {orders}", clean(status)));
        lines.push(format!("orders   {}", orders.collect::<Vec<_>>().join(" · ")));
        let Counts { total, committed, available, held, sold, .. } = counts;
        lines.push(format!(
            "units    total {total} · committed {committed} · available {available} · held {held} · sold {sold}"
        ));
        let Counts { pending, queued, dead_letters, moving, .. } = counts;
        lines.push(format!(
            "waiting  pending {pending} · queued {queued} · dead letters {dead_letters} · moving {moving}"
        ));
        lines.extend(counts.money.iter().map(|(currency, money)| {
            let Money { received, paid, refund_due, refunded, unmatched } = money;
            let currency = clean(currency);
            format!(
                "money    {currency} received {received} = paid {paid} + refund due {refund_due} + refunded {refunded} + unmatched {unmatched} (minor units)"
            )
        }));
        lines
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Reconciled {
    dry_run: bool,
    products: Vec<ReconciledProduct>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ReconciledProduct {
    sku_id: String,
    /// Not all of them are named.
    drift_count: usize,
    drifts: Vec<Drift>,
    sums_differ: bool,
    rebuild: bool,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Drift {
    order_no: String,
    drift: String,
}

impl Reconciled {
    fn lines(&self) -> Vec<String> {
        let mut lines = Vec::new();
        if self.products.is_empty() {
            lines.push("Nothing is put up.".to_owned());
        }
        for product in &self.products {
            let sku = clean(&product.sku_id);
            let done = if self.dry_run { "left as it is" } else { "put right" };
            lines.push(match product.drift_count {
                0 => format!("{sku}: every order fits its place"),
                count => format!("{sku}: {count} do not fit, {done}"),
            });
            let drifts = product.drifts.iter();
            lines.extend(drifts.map(|drift| format!("  {} {}", clean(&drift.order_no), clean(&drift.drift))));
            if product.drift_count > product.drifts.len() {
                lines.push(format!("  and {} more", product.drift_count - product.drifts.len()));
            }
            if product.sums_differ {
                lines.push(format!("{sku}: the gate's sums are not those of its places"));
            }
            if product.rebuild {
                let what = if self.dry_run { "has to be" } else { "is being" };
                lines.push(format!("{sku}: the gate {what} made anew"));
            }
        }
        lines
    }
}

#[derive(Deserialize)]
struct Rebuilt {
    products: Vec<RebuiltProduct>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RebuiltProduct {
    sku_id: String,
    state: String,
    not_before: Option<String>,
}

impl Rebuilt {
    fn lines(&self) -> Vec<String> {
        let rows = self.products.iter().map(|product| {
            let since = product.not_before.as_ref().map(|instant| format!("not before {instant}")).unwrap_or_default();
            [product.sku_id.clone(), product.state.clone(), since]
        });
        table_or("Nothing is put up.", ["SKU", "GATE", ""], rows.collect())
    }
}

pub(crate) async fn run(verb: Verb, api: &Api, out: &Out) -> Result<Ending, Failure> {
    match verb {
        Verb::Audit(Audit { activity, bound_secs }) => {
            let bound = bound_secs.map(|secs| secs.to_string());
            let query = bound.as_deref().map(|secs| ("boundSecs", secs));
            let answer = api.get(&["activities", &activity, "audit"], query.as_slice()).await?;
            out.answer(&answer, Report::lines)?;
            // Only PASS is a pass, whatever else may come to be said.
            Ok(if answer.read::<Report>()?.verdict == "PASS" { Ending::Right } else { Ending::Wrong })
        }
        Verb::Reconcile(Reconcile { activity, dry_run }) => {
            let query: &[(&str, &str)] = if dry_run { &[("dryRun", "true")] } else { &[] };
            let answer = api.post(&["activities", &activity, "reconcile"], query, Twice::IsOnce).await?;
            out.answer(&answer, Reconciled::lines)?;
            Ok(Ending::Right)
        }
        Verb::Rebuild(Rebuild { activity }) => {
            // A second one would close the gates that the first has opened.
            let answer = api.post(&["activities", &activity, "rebuild"], &[], Twice::IsTwice).await?;
            out.answer(&answer, Rebuilt::lines)?;
            Ok(Ending::Right)
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, from_value, json};

    use super::*;

    fn lines<T: serde::de::DeserializeOwned>(document: Value, lines: fn(&T) -> Vec<String>) -> Vec<String> {
        lines(&from_value(document).unwrap())
    }

    #[test]
    fn a_report_begins_with_its_verdict_and_names_what_is_wrong() {
        let report = json!({
            "activityId": "a1", "verdict": "FAIL", "checkedAt": "2026-06-01T02:00:00Z",
            "violations": [{"invariant": "I2", "detail": "s10: held differs", "orderNos": ["SK1"]}],
            "counts": {
                "orders": {"PAID": 2, "UNPAID": 1}, "total": 5, "committed": 3, "available": 2, "held": 1, "sold": 2,
                "pending": 0, "queued": 1, "deadLetters": 0, "moving": 0, "offers": 1, "later": {"more": 1},
                "money": {"CNY": {"received": 1980, "paid": 1980, "refundDue": 0, "refunded": 0, "unmatched": 0}},
            },
        });
        assert_eq!(
            lines(report, Report::lines),
            [
                "FAIL a1 at 2026-06-01T02:00:00Z",
                "  I2: s10: held differs",
                "    SK1",
                "orders   PAID 2 · UNPAID 1",
                "units    total 5 · committed 3 · available 2 · held 1 · sold 2",
                "waiting  pending 0 · queued 1 · dead letters 0 · moving 0",
                "money    CNY received 1980 = paid 1980 + refund due 0 + refunded 0 + unmatched 0 (minor units)",
            ]
        );
    }

    #[test]
    fn a_comparison_says_what_was_or_would_be_done() {
        let product = |count: usize| {
            json!({"skuId": "s10", "driftCount": count, "drifts": [{"orderNo": "SK1", "drift": "HOLD_MISSING"}],
                "sumsDiffer": true, "rebuild": true})
        };
        assert_eq!(
            lines(json!({"dryRun": true, "products": [product(3)]}), Reconciled::lines),
            [
                "s10: 3 do not fit, left as it is",
                "  SK1 HOLD_MISSING",
                "  and 2 more",
                "s10: the gate's sums are not those of its places",
                "s10: the gate has to be made anew",
            ]
        );
        assert!(lines(json!({"dryRun": false, "products": [product(1)]}), Reconciled::lines)[0].ends_with("put right"));
        let good = json!({"skuId": "s10", "driftCount": 0, "drifts": [], "sumsDiffer": false, "rebuild": false});
        assert_eq!(
            lines(json!({"dryRun": true, "products": [good]}), Reconciled::lines),
            ["s10: every order fits its place"]
        );
    }

    #[test]
    fn a_gate_that_is_being_made_says_until_when() {
        let rebuilt = json!({"products": [{"skuId": "s10", "state": "MAKING", "notBefore": "2026-06-01T02:00:00Z"}, {"skuId": "s2", "state": "NONE"}]});
        assert_eq!(
            lines(rebuilt, Rebuilt::lines),
            ["SKU  GATE", "s10  MAKING  not before 2026-06-01T02:00:00Z", "s2   NONE"]
        );
    }
}
