//! How a report is printed.

use std::path::Path;

use serde::Serialize;

use crate::error::DemoError;
use crate::latency::Percentiles;
use crate::ledger::Check;

/// Breaches shown on the terminal for one check, and names shown for one violation; the file has them all.
pub const SHOWN: usize = 10;

pub fn percentiles(times: &Percentiles) -> String {
    let Percentiles { p50_ms, p95_ms, p99_ms, max_ms, .. } = times;
    format!("p50 {p50_ms:.0}  p95 {p95_ms:.0}  p99 {p99_ms:.0}  max {max_ms:.0} ms")
}

/// Two columns.
pub fn aligned(rows: &[(String, String)]) -> String {
    let width = rows.iter().map(|(name, _)| name.chars().count()).max().unwrap_or(0);
    let lines: Vec<String> =
        rows.iter().map(|(name, value)| format!("{name:<width$}  {value}").trim_end().to_owned()).collect();
    lines.join("\n")
}

/// Each promise on a line of its own, with what broke it below.
pub fn promises(checks: &[Check]) -> Vec<String> {
    let mut lines = Vec::new();
    for check in checks {
        lines.push(match (check.cases, check.passed) {
            (0, _) => format!("  -    {} (not tested)", check.promise),
            (1, true) => format!("  ok   {} (1 case)", check.promise),
            (cases, true) => format!("  ok   {} ({cases} cases)", check.promise),
            (cases, false) => format!("  FAIL {} ({} of {cases} broken)", check.promise, check.breaches.len()),
        });
        let shown = check.breaches.iter().take(SHOWN);
        lines.extend(
            shown.map(|breach| format!("         {} {}", breach.about.as_deref().unwrap_or(""), breach.detail)),
        );
    }
    lines
}

/// The whole report, for whoever wants more than the terminal shows.
pub fn save(report: &impl Serialize, path: &Path) -> Result<(), DemoError> {
    let failed = |source| DemoError::Report { path: path.to_owned(), source };
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder).map_err(failed)?;
    }
    let text = serde_json::to_string_pretty(report).map_err(|error| failed(error.into()))?;
    std::fs::write(path, text + "\n").map_err(failed)
}
