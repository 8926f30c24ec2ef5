//! Money that has to go back, has gone back, or fits no order.

use clap::{Args, Subcommand, ValueEnum};
use serde::Deserialize;

use crate::api::{Api, Twice};
use crate::cli::id;
use crate::failure::{Ending, Failure};
use crate::show::{Out, clean, or_dash, table_or};

#[derive(Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Refunds {
    #[command(subcommand)]
    verb: Option<Verb>,
    /// Which payments to show
    #[arg(long, value_enum, default_value_t = State::RefundDue)]
    state: State,
    /// Where the page before ended, as it says in its last line
    #[arg(long)]
    cursor: Option<String>,
}

#[derive(Subcommand)]
enum Verb {
    /// Have an unmatched payment paid back; of one that is to be, or is, nothing changes
    PayBack {
        /// The payment's number, as the provider gave it
        #[arg(value_parser = id)]
        transaction: String,
    },
}

#[derive(Debug, Clone, Copy, ValueEnum)]
#[value(rename_all = "SCREAMING_SNAKE_CASE")]
enum State {
    RefundDue,
    Unmatched,
    Refunded,
}

impl State {
    const fn as_str(self) -> &'static str {
        match self {
            Self::RefundDue => "REFUND_DUE",
            Self::Unmatched => "UNMATCHED",
            Self::Refunded => "REFUNDED",
        }
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Payments {
    items: Vec<Payment>,
    next_cursor: Option<String>,
}

impl Payments {
    fn lines(&self) -> Vec<String> {
        let more = self.next_cursor.as_ref().map(|cursor| format!("more: --cursor {}", clean(cursor)));
        lines(&self.items).into_iter().chain(more).collect()
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Payment {
    transaction_id: String,
    order_no: String,
    amount: u64,
    currency: String,
    state: String,
    mismatch: Option<String>,
    received_at: String,
    attempts: u32,
    refunded_at: Option<String>,
}

impl Payment {
    fn row(&self) -> [String; 8] {
        [
            self.received_at.clone(),
            self.transaction_id.clone(),
            self.order_no.clone(),
            format!("{} {}", self.currency, self.amount),
            self.state.clone(),
            or_dash(self.mismatch.as_ref()),
            self.attempts.to_string(),
            or_dash(self.refunded_at.as_ref()),
        ]
    }
}

fn lines(payments: &[Payment]) -> Vec<String> {
    let names = ["RECEIVED", "TRANSACTION", "ORDER", "MINOR UNITS", "STATE", "MISMATCH", "TRIES", "REFUNDED"];
    table_or("No such payments.", names, payments.iter().map(Payment::row).collect())
}

pub(crate) async fn run(wanted: Refunds, api: &Api, out: &Out) -> Result<Ending, Failure> {
    match wanted.verb {
        None => {
            let cursor = wanted.cursor.as_deref().map(|cursor| ("cursor", cursor));
            let query: Vec<_> = std::iter::once(("state", wanted.state.as_str())).chain(cursor).collect();
            let answer = api.get(&["payments"], &query).await?;
            out.answer(&answer, Payments::lines)?;
        }
        Some(Verb::PayBack { transaction }) => {
            let answer = api.post(&["payments", &transaction, "refund"], &[], Twice::IsOnce).await?;
            out.answer(&answer, |payment: &Payment| lines(std::slice::from_ref(payment)))?;
        }
    }
    Ok(Ending::Right)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_payment_is_a_row() {
        let payments: Payments = serde_json::from_str(
            r#"{"items": [{"transactionId": "t1", "merchantId": "m1", "orderNo": "SK1", "amount": 990, "currency": "CNY",
                "state": "UNMATCHED", "mismatch": "AMOUNT", "paidAt": "2026-06-01T02:00:00Z",
                "receivedAt": "2026-06-01T02:00:01Z", "attempts": 0}]}"#,
        )
        .unwrap();
        assert_eq!(
            lines(&payments.items),
            [
                "RECEIVED              TRANSACTION  ORDER  MINOR UNITS  STATE      MISMATCH  TRIES  REFUNDED",
                "2026-06-01T02:00:01Z  t1           SK1    CNY 990      UNMATCHED  AMOUNT    0      -",
            ]
        );
        assert_eq!(lines(&[]), ["No such payments."]);
        let more: Payments = serde_json::from_str(r#"{"items": [], "nextCursor": "c2"}"#).unwrap();
        assert_eq!(more.lines(), ["No such payments.", "more: --cursor c2"]);
    }
}
