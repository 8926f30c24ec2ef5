//! The table at the end.

use std::time::Duration;

use crate::row::{Colour, Line};

/// The first words of a verdict; the whole of it was printed with its row.
const VERDICT_CHARS: usize = 60;

pub(crate) fn print(lines: &[Line], took: Duration) {
    let width = lines.iter().map(|line| line.name.len()).max().unwrap_or(0);
    println!("\n{:width$}  {:7}  {:>5}  {:>4}  audit", "row", "", "fired", "s");
    for Line { name, colour, fired, audit, took } in lines {
        let colour = match colour {
            Colour::Green => "green",
            Colour::Red => "RED",
            Colour::Skipped => "skipped",
        };
        let audit: String = audit.chars().take(VERDICT_CHARS).collect();
        println!("{name:width$}  {colour:7}  {fired:>5}  {:>4}  {audit}", took.as_secs());
    }
    let count = |colour| lines.iter().filter(|line| line.colour == colour).count();
    println!(
        "{} rows: {} green, {} red, {} skipped, in {} min {} s",
        lines.len(),
        count(Colour::Green),
        count(Colour::Red),
        count(Colour::Skipped),
        took.as_secs() / 60,
        took.as_secs() % 60
    );
}
