//! What can be typed.

use clap::{Parser, Subcommand};

use crate::target::Target;
use crate::{blacklist, health, letters, refunds, sale, token, watch};

/// The longest id of the API.
const MAX_ID_LEN: usize = 64;

/// Runs flash sales: the admin API on the command line, of a deployment on AWS or of the local stack.
#[derive(Parser)]
#[command(name = "hotcake", version, after_help = "Exit code: 0 done, 1 audit FAIL, 2 refused, 3 no usable answer.")]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) target: Target,
    /// Print answers as they came, one JSON document a line
    #[arg(long, global = true, display_order = 100)]
    pub(crate) json: bool,
    #[command(subcommand)]
    pub(crate) verb: Verb,
}

#[derive(Subcommand)]
pub(crate) enum Verb {
    #[command(flatten)]
    Sale(sale::Verb),
    /// Show the counts of a sale each second, until it is over, --for is, or ctrl-c
    Watch(watch::Watch),
    /// Show the counts of a sale once
    Stats(watch::Once),
    #[command(flatten)]
    Health(health::Verb),
    /// Messages that failed too often
    #[command(subcommand)]
    Dlq(letters::Verb),
    /// Payments that have to be paid back, were, or fit no order
    Refunds(refunds::Refunds),
    /// Users who may not buy
    #[command(subcommand)]
    Blacklist(blacklist::Verb),
    /// Print a token, signed with HOTCAKE_JWT_SECRET (HS256), or with the local stack's key
    Token(token::Wanted),
}

/// An id of an activity, a SKU, a user or a transaction. Checked here, since it becomes part of a path.
pub(crate) fn id(text: &str) -> Result<String, String> {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
    if !(1..=MAX_ID_LEN).contains(&text.len()) || !text.bytes().all(fits) {
        return Err(format!("an id is 1 to {MAX_ID_LEN} of A-Z a-z 0-9 _ -"));
    }
    Ok(text.to_owned())
}

/// An instant: `now`, a time from now as in `+90s`, `+10m`, `+2h` or `+3d`, or else what the API takes, as it stands.
pub(crate) fn instant(text: &str) -> Result<String, String> {
    let unclear =
        || "an instant is RFC 3339, as 2026-06-01T10:00:00Z, or now, or from now: +90s, +10m, +2h, +3d".to_owned();
    let from_now = match text.strip_prefix('+') {
        None if text == "now" => jiff::SignedDuration::ZERO,
        None if text.starts_with(|first: char| first.is_ascii_digit()) => return Ok(text.to_owned()),
        None => return Err(unclear()),
        // A day from now is 24 hours, whatever the clocks do meanwhile.
        Some(distance) => match distance.strip_suffix('d').and_then(|days| days.parse::<u16>().ok()) {
            Some(days) => jiff::SignedDuration::from_hours(24 * i64::from(days)),
            None => distance.parse().map_err(|_: jiff::Error| unclear())?,
        },
    };
    let then = jiff::Timestamp::now().checked_add(from_now).map_err(|error| error.to_string())?;
    jiff::Timestamp::from_second(then.as_second()).map(|then| then.to_string()).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    fn refused(line: &str) -> String {
        Cli::try_parse_from(line.split(' ')).err().unwrap_or_else(|| panic!("`{line}` was understood")).to_string()
    }

    #[test]
    fn the_description_of_the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn each_verb_is_understood() {
        let lines = [
            "hotcake create --file sale.json",
            "hotcake create a1 --name Sale --starts-at now --ends-at +1h --sku s1 --title Cake --price 990 --currency CNY --total 5 --limit-per-user 1",
            "hotcake preheat a1",
            "hotcake --local pause a1",
            "hotcake resume a1 --json",
            "hotcake end a1 --url https://shop.example --token t",
            "hotcake watch a1 --for 2",
            "hotcake audit a1 --bound-secs 0",
            "hotcake reconcile a1 --dry-run",
            "hotcake rebuild a1",
            "hotcake changes a1",
            "hotcake changes a1 --cursor c2",
            "hotcake stats a1",
            "hotcake dlq list",
            "hotcake dlq redrive",
            "hotcake dlq settle",
            "hotcake refunds",
            "hotcake refunds --state UNMATCHED",
            "hotcake refunds pay-back t-1",
            "hotcake blacklist list",
            "hotcake blacklist add u1 --reason bot --until +2h",
            "hotcake blacklist remove u1",
            "hotcake token u1 --role user --seconds 60",
        ];
        for line in lines {
            if let Err(error) = Cli::try_parse_from(line.split(' ')) {
                panic!("{line}: {error}");
            }
        }
    }

    #[test]
    fn what_is_missing_or_contradictory_is_named() {
        assert!(refused("hotcake audit").contains("<ACTIVITY>"));
        assert!(refused("hotcake audit ../skus").contains("an id is"));
        assert!(refused("hotcake refunds --state PAID").contains("REFUND_DUE"));
        assert!(refused("hotcake watch a1 --for 0").contains("--for"));
        assert!(refused("hotcake create a1 --name Sale").contains("--starts-at"));
        assert!(refused("hotcake create a1 --file sale.json").contains("cannot be used with"));
        assert!(refused("hotcake create --file sale.json --total 1").contains("cannot be used with"));
        assert!(refused("hotcake token u1 --role root").contains("admin"));
    }

    #[test]
    fn times_from_now_become_instants_and_others_stay() {
        let seconds = |text: &str| instant(text).unwrap().parse::<jiff::Timestamp>().unwrap().as_second();
        let apart = seconds("+2h") - seconds("now");
        assert!((7_200..7_205).contains(&apart), "{apart}");
        assert_eq!(instant("2026-06-01T10:00:00").unwrap(), "2026-06-01T10:00:00");
        let apart = seconds("+3d") - seconds("+2h");
        assert!((70 * 3_600 - 5..70 * 3_600 + 5).contains(&apart), "{apart}");
        for unclear in ["+soon", "tomorrow", "+d", ""] {
            assert!(instant(unclear).unwrap_err().contains("+3d"), "{unclear}");
        }
    }
}
