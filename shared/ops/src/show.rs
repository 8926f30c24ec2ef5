//! What people read: lines, tables, and texts that cannot play with the terminal.

use std::fmt::Display;
use std::io::{self, Write};

use crate::api::Answer;
use crate::failure::Failure;

/// Where answers go.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Out {
    /// As they came.
    pub(crate) json: bool,
}

impl Out {
    /// Prints a line. A reader that has gone (`| head`) ends the run.
    pub(crate) fn line(self, text: impl Display) -> Result<(), Failure> {
        let mut out = io::stdout().lock();
        writeln!(out, "{text}")?;
        Ok(out.flush()?)
    }

    /// Prints an answer: as it came, or what `lines` makes of it.
    pub(crate) fn answer<T: serde::de::DeserializeOwned>(
        self,
        answer: &Answer,
        lines: impl FnOnce(&T) -> Vec<String>,
    ) -> Result<(), Failure> {
        if self.json {
            return self.line(answer.raw());
        }
        lines(&answer.read()?).into_iter().try_for_each(|line| self.line(line))
    }
}

/// The text with everything visible that would move the cursor or worse: titles, reasons and message bodies come from others.
pub(crate) fn clean(text: &str) -> String {
    text.chars().map(|char| if char.is_control() { '\u{fffd}' } else { char }).collect()
}

/// Columns under their names, as wide as they need to be; the last one is left as long as it is.
pub(crate) fn table<const N: usize>(names: [&str; N], rows: Vec<[String; N]>) -> Vec<String> {
    let rows: Vec<[String; N]> =
        std::iter::once(names.map(str::to_owned)).chain(rows).map(|row| row.map(|cell| clean(&cell))).collect();
    let mut widths = [0; N];
    for row in &rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let line = |row: [String; N]| {
        let cells: Vec<String> = row.iter().zip(widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
        cells.join("  ").trim_end().to_owned()
    };
    rows.into_iter().map(line).collect()
}

/// The table, or a line that says that there is nothing in it.
pub(crate) fn table_or<const N: usize>(nothing: &str, names: [&str; N], rows: Vec<[String; N]>) -> Vec<String> {
    if rows.is_empty() { vec![nothing.to_owned()] } else { table(names, rows) }
}

/// What is there, or a dash.
pub(crate) fn or_dash(value: Option<impl Display>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| value.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let rows = vec![["s10".to_owned(), "100".to_owned()], ["a-long-one".to_owned(), "7".to_owned()]];
        assert_eq!(table(["SKU", "TOTAL"], rows), ["SKU         TOTAL", "s10         100", "a-long-one  7"]);
        assert_eq!(table_or("none", ["SKU"], vec![]), ["none"]);
    }

    #[test]
    fn texts_of_others_cannot_play_with_the_terminal() {
        assert_eq!(clean("\u{1b}]0;x\u{7}秒杀\u{9b}2J"), "\u{fffd}]0;x\u{fffd}秒杀\u{fffd}2J");
        assert_eq!(table(["A"], vec![["x\ny".to_owned()]])[1], "x\u{fffd}y");
    }
}
