//! Users who may not buy.

use clap::Subcommand;
use serde::Deserialize;
use serde_json::json;

use crate::api::Api;
use crate::cli::{id, instant};
use crate::failure::{Ending, Failure};
use crate::show::{Out, clean, or_dash, table_or};

#[derive(Subcommand)]
pub(crate) enum Verb {
    /// Show everybody who is on it
    List {
        /// Where the page before ended, as it says in its last line
        #[arg(long)]
        cursor: Option<String>,
    },
    /// Put a user on it, or change the entry; it works within five seconds
    Add {
        #[arg(value_parser = id)]
        user: String,
        #[arg(long)]
        reason: String,
        /// For how long: RFC 3339, or from now: +90s, +10m, +2h, +3d; for good without it
        #[arg(long, value_name = "INSTANT", value_parser = instant)]
        until: Option<String>,
    },
    /// Take a user off it
    Remove {
        #[arg(value_parser = id)]
        user: String,
    },
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Blacklist {
    items: Vec<Entry>,
    next_cursor: Option<String>,
}

impl Blacklist {
    fn lines(&self) -> Vec<String> {
        let more = self.next_cursor.as_ref().map(|cursor| format!("more: --cursor {}", clean(cursor)));
        lines(&self.items).into_iter().chain(more).collect()
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Entry {
    user_id: String,
    reason: String,
    until: Option<String>,
    by: String,
    at: String,
}

fn lines(entries: &[Entry]) -> Vec<String> {
    let rows = entries.iter().map(|Entry { user_id, reason, until, by, at }| {
        [user_id.clone(), or_dash(until.as_ref()), at.clone(), by.clone(), reason.clone()]
    });
    table_or("Nobody is on the blacklist.", ["USER", "UNTIL", "SINCE", "BY", "REASON"], rows.collect())
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Removed {
    user_id: String,
}

pub(crate) async fn run(verb: Verb, api: &Api, out: &Out) -> Result<Ending, Failure> {
    match verb {
        Verb::List { cursor } => {
            let query = cursor.as_deref().map(|cursor| ("cursor", cursor));
            let answer = api.get(&["blacklist"], query.as_slice()).await?;
            out.answer(&answer, Blacklist::lines)?;
        }
        Verb::Add { user, reason, until } => {
            let mut body = json!({"reason": reason});
            if let Some(until) = until {
                body["until"] = until.into();
            }
            let answer = api.put(&["blacklist", &user], &body).await?;
            out.answer(&answer, |entry: &Entry| lines(std::slice::from_ref(entry)))?;
        }
        Verb::Remove { user } => {
            let answer = api.delete(&["blacklist", &user]).await?;
            out.answer(&answer, |Removed { user_id }| vec![format!("{} may buy again", clean(user_id))])?;
        }
    }
    Ok(Ending::Right)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_is_a_row_and_the_reason_may_be_long() {
        let entry = Entry {
            user_id: "u1".into(),
            reason: "buys by machine\n".into(),
            until: None,
            by: "admin".into(),
            at: "2026-06-01T02:00:00Z".into(),
        };
        assert_eq!(
            lines(&[entry]),
            [
                "USER  UNTIL  SINCE                 BY     REASON",
                "u1    -      2026-06-01T02:00:00Z  admin  buys by machine\u{fffd}",
            ]
        );
    }
}
