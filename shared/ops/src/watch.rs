//! The counts of a sale, each second: a table that is drawn over on a terminal, lines anywhere else.

use std::collections::BTreeMap;
use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

use clap::Args;
use serde::Deserialize;

use crate::api::Api;
use crate::cli::id;
use crate::failure::{Ending, Failure};
use crate::show::{Out, clean, or_dash, table};

const EVERY: Duration = Duration::from_secs(1);
/// Looks in a row that may fail for a passing reason: somebody who watches wants to see the end of it.
const MAX_MISSES: u32 = 5;
/// Half a day: a watch that was forgotten ends.
const LONGEST_SECS: u64 = 43_200;

#[derive(Args)]
pub(crate) struct Watch {
    #[arg(value_parser = id)]
    activity: String,
    /// End after so many seconds
    #[arg(long = "for", value_name = "SECS", default_value_t = LONGEST_SECS, value_parser = clap::value_parser!(u64).range(1..=LONGEST_SECS))]
    secs: u64,
}

#[derive(Args)]
pub(crate) struct Once {
    #[arg(value_parser = id)]
    activity: String,
}

#[derive(Debug, Clone, Deserialize)]
struct Stats {
    state: String,
    products: Vec<Product>,
}

/// What the gate counts is absent while there is no valid gate.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Product {
    sku_id: String,
    total: Option<i64>,
    committed: i64,
    available: Option<i64>,
    held: Option<i64>,
    sold: Option<i64>,
}

impl Product {
    /// Units that buyers have been given, by the gate.
    fn taken(&self) -> Option<i64> {
        Some(self.held? + self.sold?)
    }

    fn counts(&self) -> [String; 5] {
        [
            self.total.map_or_else(|| "unlimited".to_owned(), |total| total.to_string()),
            or_dash(self.available),
            or_dash(self.held),
            or_dash(self.sold),
            self.committed.to_string(),
        ]
    }
}

/// One look, and how fast units went since the one before.
struct Look {
    at: Instant,
    stats: Stats,
    /// Units a second, by SKU. Below zero while more is given back than sold.
    rates: BTreeMap<String, f64>,
}

impl Look {
    fn new(stats: Stats, at: Instant, before: Option<&Self>) -> Self {
        let mut rates = BTreeMap::new();
        if let Some(before) = before {
            let secs = at.duration_since(before.at).as_secs_f64().max(f64::EPSILON);
            for product in &stats.products {
                let earlier = before.stats.products.iter().find(|earlier| earlier.sku_id == product.sku_id);
                if let Some(earlier) = earlier {
                    // Never one of the gate's counts less one of the rows': they differ by what is on its way.
                    let units = match (earlier.taken(), product.taken()) {
                        (Some(then), Some(now)) => now - then,
                        (_, _) => product.committed - earlier.committed,
                    };
                    #[allow(clippy::cast_precision_loss, reason = "units of one second")]
                    rates.insert(product.sku_id.clone(), units as f64 / secs);
                }
            }
        }
        Self { at, stats, rates }
    }

    fn is_over(&self) -> bool {
        matches!(self.stats.state.as_str(), "CLOSED" | "SETTLED")
    }

    fn rate(&self, product: &Product) -> String {
        self.rates.get(&product.sku_id).map_or_else(|| "-".to_owned(), |rate| format!("{rate:+.1}/s"))
    }

    fn table(&self, activity: &str) -> Vec<String> {
        let rows = self.stats.products.iter().map(|product| {
            let [total, available, held, sold, committed] = product.counts();
            [product.sku_id.clone(), total, available, held, sold, committed, self.rate(product)]
        });
        let names = ["SKU", "TOTAL", "AVAILABLE", "HELD", "SOLD", "COMMITTED", "RATE"];
        let mut lines = vec![format!("{activity} {}", clean(&self.stats.state))];
        lines.extend(table(names, rows.collect()));
        lines
    }

    fn plain(&self) -> Vec<String> {
        let now = jiff::Timestamp::from_second(jiff::Timestamp::now().as_second()).unwrap_or_default();
        let head = format!("{now} {}", clean(&self.stats.state));
        if self.stats.products.is_empty() {
            return vec![head];
        }
        let lines = self.stats.products.iter().map(|product| {
            let [total, available, held, sold, committed] = product.counts();
            let (sku, rate) = (clean(&product.sku_id), self.rate(product));
            format!(
                "{head} {sku} total {total} available {available} held {held} sold {sold} committed {committed} rate {rate}"
            )
        });
        lines.collect()
    }
}

/// The lines on the terminal that the next look is drawn over.
struct Screen {
    drawn: usize,
}

impl Screen {
    fn draw(&mut self, lines: &[String]) -> Result<(), Failure> {
        let mut out = io::stdout().lock();
        if self.drawn > 0 {
            // Up to the first of them, and away with all below.
            write!(out, "\u{1b}[{}A\u{1b}[J", self.drawn)?;
        }
        for line in lines {
            writeln!(out, "{line}")?;
        }
        out.flush()?;
        self.drawn = lines.len();
        Ok(())
    }
}

pub(crate) async fn once(Once { activity }: &Once, api: &Api, out: &Out) -> Result<Ending, Failure> {
    let answer = api.get(&["activities", activity, "stats"], &[]).await?;
    out.answer(&answer, |stats: &Stats| Look::new(stats.clone(), Instant::now(), None).table(activity))?;
    Ok(Ending::Right)
}

pub(crate) async fn run(wanted: &Watch, api: &Api, out: &Out) -> Result<Ending, Failure> {
    let Watch { activity, secs } = wanted;
    let mut look_at = Instant::now();
    let until = look_at + Duration::from_secs(*secs);
    let mut screen = (!out.json && io::stdout().is_terminal()).then_some(Screen { drawn: 0 });
    let mut last: Option<Look> = None;
    let mut misses = 0;
    loop {
        match api.get(&["activities", activity, "stats"], &[]).await {
            Ok(answer) => {
                misses = 0;
                let look = Look::new(answer.read()?, Instant::now(), last.as_ref());
                match &mut screen {
                    _ if out.json => out.line(answer.raw())?,
                    Some(screen) => screen.draw(&look.table(activity))?,
                    None => look.plain().into_iter().try_for_each(|line| out.line(line))?,
                }
                let is_over = look.is_over();
                last = Some(look);
                if is_over {
                    return Ok(Ending::Right);
                }
            }
            Err(failure) if failure.may_pass() && misses < MAX_MISSES => {
                misses += 1;
                match &mut screen {
                    Some(screen) => {
                        let mut lines = last.as_ref().map(|look| look.table(activity)).unwrap_or_default();
                        lines.push(failure.chain());
                        screen.draw(&lines)?;
                    }
                    None => eprintln!("{}", failure.chain()),
                }
            }
            Err(failure) => return Err(failure),
        }
        // A look that was slow is not made up for by a burst of them.
        look_at = (look_at + EVERY).max(Instant::now());
        if look_at > until {
            return Ok(Ending::Right);
        }
        tokio::time::sleep_until(look_at.into()).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stats(held: Option<i64>, sold: Option<i64>, committed: i64) -> Stats {
        let product = Product {
            sku_id: "s10".into(),
            total: Some(100),
            committed,
            available: held.zip(sold).map(|(held, sold)| 100 - held - sold),
            held,
            sold,
        };
        Stats { state: "OPEN".into(), products: vec![product] }
    }

    fn looks(first: Stats, second: Stats) -> Look {
        let at = Instant::now();
        Look::new(second, at + Duration::from_secs(2), Some(&Look::new(first, at, None)))
    }

    #[test]
    fn the_rate_is_what_buyers_were_given_in_a_second() {
        let look = looks(stats(Some(10), Some(0), 5), stats(Some(25), Some(5), 6));
        assert_eq!(
            look.table("a1"),
            [
                "a1 OPEN",
                "SKU  TOTAL  AVAILABLE  HELD  SOLD  COMMITTED  RATE",
                "s10  100    70         25    5     6          +10.0/s"
            ]
        );
        let line = &look.plain()[0];
        assert!(line.ends_with(" OPEN s10 total 100 available 70 held 25 sold 5 committed 6 rate +10.0/s"), "{line}");
        let back = looks(stats(Some(10), Some(0), 5), stats(Some(4), Some(0), 5));
        assert_eq!(back.rate(&back.stats.products[0]), "-3.0/s");
    }

    #[test]
    fn without_a_gate_the_rows_tell_the_rate() {
        let look = looks(stats(None, None, 4), stats(Some(50), Some(0), 6));
        assert_eq!(look.rate(&look.stats.products[0]), "+1.0/s");
        let look = Look::new(stats(None, None, 4), Instant::now(), None);
        assert_eq!(look.table("a1")[2], "s10  100    -          -     -     4          -");
        assert!(!look.is_over());
    }

    #[test]
    fn a_sale_that_is_closed_or_settled_is_over() {
        for state in ["CLOSED", "SETTLED"] {
            let stats = Stats { state: state.into(), products: vec![] };
            let look = Look::new(stats, Instant::now(), None);
            assert!(look.is_over());
            assert!(look.plain()[0].ends_with(state));
        }
    }
}
