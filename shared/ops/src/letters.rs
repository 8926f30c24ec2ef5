//! Messages that failed too often. No order hangs on them; see `dead_letters` of the sale.

use clap::Subcommand;
use serde::Deserialize;

use crate::api::{Api, Twice};
use crate::failure::{Ending, Failure};
use crate::show::{Out, or_dash, table_or};

/// Characters of a body that no order is known of.
const EXCERPT_CHARS: usize = 60;

#[derive(Subcommand)]
pub(crate) enum Verb {
    /// Show up to a hundred
    List,
    /// Send up to a hundred again, as they are: once what was wrong is put right
    Redrive,
    /// End the orders of up to a hundred that are not made yet, and do away with the letters
    Settle,
}

#[derive(Deserialize)]
struct Letters {
    items: Vec<Letter>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Letter {
    message_id: String,
    body: String,
    order_no: Option<String>,
    sent_at: Option<String>,
    settled: Option<String>,
}

impl Letters {
    fn lines(&self) -> Vec<String> {
        let rows = self.items.iter().map(|letter| {
            let about = letter.order_no.clone().unwrap_or_else(|| letter.body.chars().take(EXCERPT_CHARS).collect());
            [or_dash(letter.sent_at.as_ref()), letter.message_id.clone(), or_dash(letter.settled.as_ref()), about]
        });
        table_or("No dead letters.", ["SENT", "MESSAGE", "SETTLED", "ORDER OR BODY"], rows.collect())
    }
}

#[derive(Deserialize)]
struct Redriven {
    redriven: u64,
}

pub(crate) async fn run(verb: Verb, api: &Api, out: &Out) -> Result<Ending, Failure> {
    match verb {
        Verb::List => out.answer(&api.get(&["dlq"], &[]).await?, Letters::lines)?,
        // A second one would send, or end, other letters than the first.
        Verb::Redrive => {
            let answer = api.post(&["dlq", "redrive"], &[], Twice::IsTwice).await?;
            out.answer(&answer, |Redriven { redriven }| vec![format!("{redriven} sent again")])?;
        }
        Verb::Settle => {
            let answer = api.post(&["dlq", "settle"], &[], Twice::IsTwice).await?;
            out.answer(&answer, Letters::lines)?;
        }
    }
    Ok(Ending::Right)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_letter_is_known_by_its_order_or_by_its_body() {
        let letters: Letters = serde_json::from_str(
            r#"{"items": [
                {"messageId": "m1", "body": "{…}", "orderNo": "SK1", "sentAt": "2026-06-01T02:00:00Z", "settled": "FAILED"},
                {"messageId": "m2", "body": "not\u001bJSON"}
            ]}"#,
        )
        .unwrap();
        assert_eq!(
            letters.lines(),
            [
                "SENT                  MESSAGE  SETTLED  ORDER OR BODY",
                "2026-06-01T02:00:00Z  m1       FAILED   SK1",
                "-                     m2       -        not\u{fffd}JSON",
            ]
        );
        assert_eq!(Letters { items: vec![] }.lines(), ["No dead letters."]);
    }
}
