//! What happened, on the terminal and as `target/demo/desk.json`.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};

use client::documents::Verdict;
use client::frames::NoteEvent;
use load::hardware::Hardware;
use load::latency::Percentiles;
use load::ledger::Check;
use load::text::{SHOWN, aligned, percentiles, promises};
use serde::Serialize;

use crate::hall::{Hall, Heard, Log, Notice, Said, Words};
use crate::judge::{Conversation, Ledger, Record, judge};
use crate::settings::Settings;
use crate::transcript::transcript;

/// Everything there is to say about a run. `verdict` is PASS only when every promise was put to the test and kept, and the
/// oracle over the rows has nothing to say.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Report {
    verdict: Verdict,
    parameters: Parameters,
    counts: Counts,
    times: Times,
    day_secs: f64,
    /// What the oracle over the rows says.
    violations: Vec<String>,
    audit_looks: u32,
    checks: Vec<Check>,
    transcript: String,
    hardware: Hardware,
}

#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
struct Parameters {
    customers: usize,
    agents: usize,
    capacity: usize,
}

#[derive(Debug, Clone, Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct Counts {
    texts: usize,
    images: usize,
    cards: usize,
    /// Changes of the sessions, which are messages too.
    notes: usize,
    /// Words that were sent again and known already.
    duplicates: usize,
    cuts: usize,
    /// Right after a word was sent.
    cut_at_sent: usize,
    places_told: usize,
    transferred: usize,
    requeued: usize,
}

#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
struct Times {
    /// From coming to the first agent.
    waited: Percentiles,
    /// From saying to `sent`, on connections that stayed.
    sent: Percentiles,
    /// From saying to the other side's screen, if it was connected.
    delivered: Percentiles,
    /// The same, if it was not, and came back.
    replayed: Percentiles,
}

impl Report {
    pub(crate) fn new(settings: &Settings, hall: &Hall, record: &Record, audit: (Vec<String>, u32)) -> Self {
        let mut ledger: Ledger = judge(record);
        let star = record.conversations.last();
        let transcript = star.map(|star| transcript(star, hall)).unwrap_or_default();
        let log = hall.log();
        ledger.merge(&log.ledger);
        let checks = ledger.checks();
        let (violations, audit_looks) = audit;
        Self {
            verdict: verdict(&checks, &violations),
            parameters: Parameters {
                customers: settings.customers,
                agents: settings.agents,
                capacity: settings.capacity(),
            },
            counts: count(record, &log),
            times: times(record, &log),
            day_secs: hall.elapsed().as_secs_f64(),
            violations,
            audit_looks,
            checks,
            transcript: star.map(|star| format!("{}\n{transcript}", star.session_no)).unwrap_or_default(),
            hardware: Hardware::look(),
        }
    }

    pub(crate) fn is_right(&self) -> bool {
        self.verdict == Verdict::Pass
    }

    pub(crate) fn print(&self, path: &Path) {
        let text = format!(
            "\nOne of the conversations: {}\n\n{}\n{}\nReport: {}\n",
            self.transcript,
            self.tables(),
            self.judgement(),
            path.display()
        );
        // Whoever reads only the first lines (`| head`) has not made the day wrong, and the file has it all.
        drop(std::io::stdout().write_all(text.as_bytes()));
    }

    fn tables(&self) -> String {
        let row = |name: &str, value: String| (name.to_owned(), value);
        let timed = |name: &str, times: &Percentiles| row(name, format!("{:>5}   {}", times.count, percentiles(times)));
        let Counts { texts, images, cards, notes, cuts, cut_at_sent, places_told, transferred, requeued, .. } =
            self.counts;
        let Parameters { customers, agents, capacity } = self.parameters;
        let Times { waited, sent, delivered, replayed } = &self.times;
        let Hardware { cores, cpu, memory_gib, os } = &self.hardware;
        aligned(&[
            row("Customers", format!("{customers}, each with a conversation")),
            row("Agents", format!("{agents}, with room for {capacity} each")),
            row("Messages", format!("texts {texts}, images {images}, cards {cards}, notes of the service {notes}")),
            row("Places in the queue told", places_told.to_string()),
            row("Given to another agent", format!("{transferred}, back to the queue {requeued}")),
            row("Connections cut", format!("{cuts}, of these right after a word was sent {cut_at_sent}")),
            timed("From coming to an agent", waited),
            timed("From saying to `sent`", sent),
            timed("  to the other side", delivered),
            timed("  to one who had to come back", replayed),
            row("The day", format!("{:.0} s", self.day_secs)),
            row("Hardware", format!("{cores} cores, {cpu}, {memory_gib} GiB, {os}")),
        ])
    }

    fn judgement(&self) -> String {
        let mut lines = vec!["\nWhat customers and agents were promised".to_owned()];
        lines.extend(promises(&self.checks));
        let word = |right: bool| if right { "PASS" } else { "FAIL" };
        let Self { violations, audit_looks, .. } = self;
        let audit = word(violations.is_empty());
        lines.push(format!("\nAudit of the rows: {audit} ({} violations, look {audit_looks})", violations.len()));
        lines.extend(violations.iter().take(SHOWN).map(|violation| format!("  {violation}")));
        let untested = self.checks.iter().filter(|check| check.cases == 0).count();
        let why =
            if untested > 0 { format!(" (promises that nothing put to the test: {untested})") } else { String::new() };
        lines.push(format!("Verdict: {}{why}\n", word(self.is_right())));
        lines.join("\n")
    }
}

/// A promise that nothing has tested is not kept: then the day was not what it is meant to be.
fn verdict(checks: &[Check], violations: &[String]) -> Verdict {
    let right = violations.is_empty() && checks.iter().all(|check| check.passed && check.cases > 0);
    if right { Verdict::Pass } else { Verdict::Fail }
}

fn count(record: &Record, log: &Log) -> Counts {
    let mut counts = Counts { cuts: log.cuts, cut_at_sent: log.cut_at_sent, ..Counts::default() };
    for said in &record.said {
        match said.words {
            Words::Text(_) => counts.texts += 1,
            Words::Image(_) => counts.images += 1,
            Words::Card(_) => counts.cards += 1,
        }
        counts.duplicates += usize::from(said.duplicate);
    }
    for (_, event, _) in record.conversations.iter().flat_map(Conversation::notes) {
        counts.notes += 1;
        counts.transferred += usize::from(event == NoteEvent::Transferred);
        counts.requeued += usize::from(event == NoteEvent::Requeued);
    }
    counts.places_told = log.heard.iter().filter(|heard| matches!(heard.what, Notice::Position { .. })).count();
    counts
}

fn times(record: &Record, log: &Log) -> Times {
    let mut came: BTreeMap<&str, Vec<Instant>> = BTreeMap::new();
    let mut went: BTreeMap<&str, Vec<Instant>> = BTreeMap::new();
    let mut arrivals: BTreeMap<(&str, &str, u64), Instant> = BTreeMap::new();
    for Heard { by, at, what } in &log.heard {
        match what {
            Notice::Online => came.entry(&by.id).or_default().push(*at),
            Notice::Offline => went.entry(&by.id).or_default().push(*at),
            Notice::Message { session_id, seq } => {
                arrivals.entry((&by.id, session_id, *seq)).or_insert(*at);
            }
            Notice::Position { .. } => {}
        }
    }
    let any_between = |times: &BTreeMap<&str, Vec<Instant>>, id: &str, from: Instant, to: Instant| {
        times.get(id).is_some_and(|times| times.iter().any(|at| (from..=to).contains(at)))
    };
    let (mut sent, mut delivered, mut replayed) = (Vec::new(), Vec::new(), Vec::new());
    for Said { by, session_id, seq, sent_at, took, .. } in &record.said {
        let until = *sent_at + *took;
        if any_between(&went, &by.id, *sent_at, until) || any_between(&came, &by.id, *sent_at, until) {
            // How long they were away by the demo's choice says nothing.
            continue;
        }
        sent.push(*took);
        let Some(conversation) = record.conversations.iter().find(|known| known.session_id == *session_id) else {
            continue;
        };
        let other = if by.is_agent { Some(conversation.customer.id.as_str()) } else { conversation.agent_at(*seq) };
        let arrived = other.and_then(|other| Some((other, *arrivals.get(&(other, session_id.as_str(), *seq))?)));
        let Some((other, at)) = arrived else { continue };
        let after: Duration = at.saturating_duration_since(*sent_at);
        if any_between(&came, other, *sent_at, at) { replayed.push(after) } else { delivered.push(after) }
    }
    Times {
        waited: Percentiles::of(record.conversations.iter().filter_map(Conversation::waited)),
        sent: Percentiles::of(sent),
        delivered: Percentiles::of(delivered),
        replayed: Percentiles::of(replayed),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use load::ledger::Promised;

    use crate::judge::Promise;

    fn all_kept() -> Ledger {
        let mut ledger = Ledger::default();
        for promise in Promise::ALL {
            ledger.judge(*promise, true, None, String::new);
        }
        ledger
    }

    #[test]
    fn one_broken_or_untested_promise_or_one_word_of_the_oracle_fails_the_day() {
        assert_eq!(verdict(&all_kept().checks(), &[]), Verdict::Pass);
        assert_eq!(verdict(&all_kept().checks(), &["a row is wrong".to_owned()]), Verdict::Fail);
        for promise in Promise::ALL {
            let mut ledger = all_kept();
            ledger.judge(*promise, false, None, || "broken".to_owned());
            assert_eq!(verdict(&ledger.checks(), &[]), Verdict::Fail, "{promise:?}");
        }
        assert_eq!(verdict(&Ledger::default().checks(), &[]), Verdict::Fail, "nothing was tested");
    }
}
