//! The operator's command line on the deployed stack, as an operator types it: a sale from its first to its last verb.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "a test that fails says so by panicking, and lives by the system's clock"
)]

use std::process::{Command, Stdio};

use client::Token;
use client::documents::{BuyRequest, ResultStatus};
use e2e::shop::accepted;
use e2e::{Local, SOON};
use serde_json::Value;

struct Ran {
    exit: i32,
    out: String,
    err: String,
}

/// Types a line, as an operator of a deployment would that is not on this machine.
async fn hotcake(local: &Local, line: &str) -> Ran {
    let binary = contract::root().join("target/quick/hotcake");
    assert!(binary.is_file(), "{} is not built: run `make build`", binary.display());
    let mut command = Command::new(binary);
    command
        .args(line.split(' '))
        .env("HOTCAKE_URL", &local.outputs.http_url)
        .env("HOTCAKE_TOKEN", local.outputs.admin_token().text())
        .env("HOTCAKE_JWT_SECRET", local.outputs.jwt.secret.reveal())
        .env("HOTCAKE_JWT_KID", &local.outputs.jwt.kid)
        .env("HOTCAKE_JWT_ISS", &local.outputs.jwt.iss)
        .env("HOTCAKE_JWT_AUD", &local.outputs.jwt.aud)
        .env("HOTCAKE_JWT_ADMIN_AUD", &local.outputs.jwt.admin_aud)
        .stdin(Stdio::null());
    // It ends by itself: each of its calls and waits has a limit.
    let output = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
    let [out, err] = [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap());
    Ran { exit: output.status.code().unwrap(), out, err }
}

/// The line does what it says; what it prints.
async fn done(local: &Local, line: &str) -> String {
    let Ran { exit, out, err } = hotcake(local, line).await;
    assert_eq!(exit, 0, "hotcake {line}: {out}{err}");
    out
}

#[tokio::test]
async fn an_operator_leads_a_sale_from_its_first_verb_to_its_last() {
    let local = Local::up().await;
    let tag = format!("{:012x}", rand::random_range(0..1_u64 << 48));
    let (activity, sku, user) = (format!("a-{tag}"), format!("s-{tag}"), format!("u-{tag}"));

    let created = done(&local, &format!("create {activity} --name Sale --starts-at now --ends-at +1h --sku {sku} --title Cake --stock 10 --price 990 --currency CNY --total 8 --limit-per-user 2 --user-interval-ms 0 --device-ip-interval-ms 0")).await;
    assert!(created.contains(&format!("product {sku}: 8 units")), "{created}");
    let preheated = done(&local, &format!("preheat {activity}")).await;
    assert!(preheated.contains("OPEN"), "{preheated}");

    // Its tokens are good.
    let token = done(&local, &format!("token {user}")).await;
    let buyer = local.api.signed_in(Token::from_text(token.trim_end()));
    let order_no = accepted(buyer.buy(&BuyRequest::new(&activity, &sku, 2), Some("k1")).await.unwrap());
    assert_eq!(buyer.follow(&order_no, SOON).await.unwrap().result.status, ResultStatus::Success);

    let watched = done(&local, &format!("watch {activity} --for 2")).await;
    assert!(watched.lines().count() >= 2, "{watched}");
    let last = watched.lines().last().unwrap();
    assert!(last.contains(&format!("OPEN {sku} total 8 available 6 held 2 sold 0 committed 2")), "{watched}");

    let audited = done(&local, &format!("audit {activity}")).await;
    assert!(audited.starts_with(&format!("PASS {activity}")), "{audited}");
    let report: Value = serde_json::from_str(&done(&local, &format!("audit {activity} --json")).await).unwrap();
    assert_eq!((&report["verdict"], &report["counts"]["committed"]), (&"PASS".into(), &2.into()));
    let compared = done(&local, &format!("reconcile {activity} --dry-run")).await;
    assert_eq!(compared.trim_end(), format!("{sku}: every order fits its place"));

    done(&local, &format!("pause {activity}")).await;
    done(&local, &format!("resume {activity}")).await;
    let ended = done(&local, &format!("end {activity}")).await;
    assert!(ended.contains("CLOSED"), "{ended}");
    // It is over: a watch ends with its first look, and nothing opens it again.
    assert_eq!(done(&local, &format!("watch {activity}")).await.lines().count(), 1);
    let Ran { exit, out, err } = hotcake(&local, &format!("resume {activity}")).await;
    assert_eq!((exit, out.as_str()), (2, ""), "{err}");
    assert!(err.starts_with("ENDED: ") && err.contains("(requestId "), "{err}");

    let changes = done(&local, &format!("changes {activity}")).await;
    for action in ["put-activity", "put-product", "pause", "resume", "end"] {
        assert!(changes.contains(action), "{changes}");
    }
}

#[tokio::test]
async fn an_operator_keeps_somebody_out_and_looks_after_money_and_letters() {
    let local = Local::up().await;
    let user = format!("u-{:012x}", rand::random_range(0..1_u64 << 48));
    let added = done(&local, &format!("blacklist add {user} --reason bot --until +2h")).await;
    assert!(added.contains(&user) && added.contains("bot"), "{added}");
    assert!(done(&local, "blacklist list").await.contains(&user));
    done(&local, &format!("blacklist remove {user}")).await;
    assert!(!done(&local, "blacklist list").await.contains(&user));
    let Ran { exit, err, .. } = hotcake(&local, &format!("blacklist remove {user}")).await;
    assert_eq!(exit, 2, "{err}");

    for state in ["REFUND_DUE", "UNMATCHED", "REFUNDED"] {
        done(&local, &format!("refunds --state {state}")).await;
    }
    let Ran { exit, err, .. } = hotcake(&local, &format!("refunds pay-back {user}")).await;
    assert!(exit == 2 && err.starts_with("NOT_FOUND: "), "{err}");
    done(&local, "dlq list").await;
}
