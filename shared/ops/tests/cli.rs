//! The binary, as it is typed, against a server that plays the admin API: what it asks for, what it prints, how it exits.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test file: its helpers fail the test too"
)]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;

use serde_json::{Value, json};

const TOKEN: &str = "canary-token";

/// Serves the given answers, one for each request, and notes what was asked.
struct Server {
    url: String,
    asked: Arc<Mutex<Vec<Asked>>>,
}

#[derive(Debug, Clone, PartialEq)]
struct Asked {
    /// Method and path.
    what: String,
    authorization: String,
    body: Option<Value>,
}

struct Reply {
    status: u16,
    content_type: &'static str,
    body: String,
}

fn ok(body: &Value) -> Reply {
    Reply { status: 200, content_type: "application/json", body: body.to_string() }
}

fn problem(status: u16, code: &str, retry_after_ms: Option<u64>) -> Reply {
    let mut body = json!({"type": format!("urn:hotcake:problem:{code}"), "title": "T", "status": status, "code": code,
        "detail": "Not now.", "requestId": "r-1"});
    if let Some(ms) = retry_after_ms {
        body["retryAfterMs"] = ms.into();
    }
    Reply { status, content_type: "application/problem+json", body: body.to_string() }
}

impl Server {
    fn start(replies: impl IntoIterator<Item = Reply>) -> Self {
        let replies: Vec<Reply> = replies.into_iter().collect();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/stage", listener.local_addr().unwrap());
        let asked = Arc::new(Mutex::new(Vec::new()));
        let notes = Arc::clone(&asked);
        // Ends with its last reply, or with the test program.
        thread::spawn(move || {
            for reply in replies {
                let (stream, _) = listener.accept().unwrap();
                notes.lock().unwrap().push(serve(stream, &reply));
            }
        });
        Self { url, asked }
    }

    /// Runs the program against this server.
    fn run(&self, line: &str) -> Ran {
        run(line.split(' '), &[("HOTCAKE_URL", &self.url), ("HOTCAKE_TOKEN", TOKEN)])
    }

    /// What was asked, each by the token.
    fn asked(&self) -> Vec<Asked> {
        let asked = self.asked.lock().unwrap().clone();
        assert!(asked.iter().all(|asked| asked.authorization == format!("Bearer {TOKEN}")), "{asked:?}");
        asked
    }

    /// Methods and paths.
    fn paths(&self) -> Vec<String> {
        self.asked().into_iter().map(|asked| asked.what).collect()
    }
}

fn serve(stream: TcpStream, reply: &Reply) -> Asked {
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    reader.read_line(&mut line).unwrap();
    let what = line.trim_end().trim_end_matches(" HTTP/1.1").to_owned();
    let (mut authorization, mut length) = (String::new(), 0);
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        let Some((name, value)) = line.trim_end().split_once(": ") else { break };
        match name.to_ascii_lowercase().as_str() {
            "authorization" => authorization = value.to_owned(),
            "content-length" => length = value.parse().unwrap(),
            _ => {}
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).unwrap();
    let Reply { status, content_type, body: answer } = reply;
    let answer = format!(
        "HTTP/1.1 {status} X\r\ncontent-type: {content_type}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{answer}",
        answer.len()
    );
    reader.get_mut().write_all(answer.as_bytes()).unwrap();
    Asked { what, authorization, body: (!body.is_empty()).then(|| serde_json::from_slice(&body).unwrap()) }
}

#[derive(Debug)]
struct Ran {
    exit: i32,
    out: String,
    err: String,
}

/// Runs the program in an environment of only these variables, in a folder without a local stack.
fn run<'a>(arguments: impl IntoIterator<Item = &'a str>, environment: &[(&str, &str)]) -> Ran {
    let output = Command::new(env!("CARGO_BIN_EXE_hotcake"))
        .args(arguments)
        .env_clear()
        .envs(environment.iter().copied())
        .current_dir(env!("CARGO_TARGET_TMPDIR"))
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let [out, err] = [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap());
    for text in [&out, &err] {
        assert!(!text.contains(TOKEN), "a token was printed: {text}");
    }
    Ran { exit: output.status.code().unwrap(), out, err }
}

fn scratch(name: &str) -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

fn activity(state: &str) -> Value {
    json!({"activityId": "a1", "name": "Sale", "state": state, "startsAt": "2200-01-01T00:00:00Z",
        "endsAt": "2200-01-02T00:00:00Z", "payWindowSecs": 900, "userIntervalMs": 0, "deviceIpIntervalMs": 0,
        "challenge": false, "products": []})
}

fn stats(state: &str, sold: i64) -> Value {
    json!({"activityId": "a1", "state": state, "products": [
        {"skuId": "s1", "total": 5, "committed": sold, "available": 5 - sold, "held": 0, "sold": sold}]})
}

fn report(verdict: &str) -> Value {
    json!({"activityId": "a1", "verdict": verdict, "violations": [], "checkedAt": "2200-01-01T00:00:00Z", "counts": {
        "offers": 1, "orders": {"PAID": 5}, "total": 5, "committed": 5, "available": 0, "held": 0, "sold": 5, "pending": 0,
        "queued": 0, "deadLetters": 0, "moving": 0, "money": {}}})
}

fn product() -> Value {
    json!({"skuId": "s1", "title": "Cake", "price": 990, "currency": "CNY", "total": 5, "limitPerUser": 1,
        "unlimited": false, "gateReady": false})
}

fn sku() -> Value {
    json!({"skuId": "s1", "title": "Cake", "stock": 5, "free": 5})
}

#[test]
fn a_sale_is_put_up_from_flags_stock_first() {
    let server = Server::start([ok(&sku()), ok(&activity("DRAFT")), ok(&product())]);
    let ran = server.run("create a1 --name Sale --starts-at 2200-01-01T00:00:00Z --ends-at 2200-01-02T00:00:00Z --sku s1 --title Cake --stock 5 --price 990 --currency CNY --total 5 --limit-per-user 1");
    assert_eq!((ran.exit, ran.err.as_str()), (0, ""), "{ran:?}");
    assert_eq!(
        ran.out.lines().collect::<Vec<_>>(),
        [
            "SKU s1: 5 units, 5 of them in no sale",
            "activity a1: DRAFT, 2200-01-01T00:00:00Z to 2200-01-02T00:00:00Z",
            "product s1: 5 units, CNY 990 (minor units), 1 a user"
        ]
    );
    let asked = server.asked();
    assert_eq!(
        server.paths(),
        [
            "PUT /stage/api/admin/skus/s1",
            "PUT /stage/api/admin/activities/a1",
            "PUT /stage/api/admin/activities/a1/products/s1"
        ]
    );
    assert_eq!(asked[0].body, Some(json!({"title": "Cake", "stock": 5})));
    assert_eq!(
        asked[1].body,
        Some(json!({"name": "Sale", "startsAt": "2200-01-01T00:00:00Z", "endsAt": "2200-01-02T00:00:00Z"}))
    );
    assert_eq!(
        asked[2].body,
        Some(json!({"title": "Cake", "price": 990, "currency": "CNY", "total": 5, "limitPerUser": 1}))
    );
}

#[test]
fn a_sale_is_put_up_from_a_file_as_the_file_says() {
    let file = scratch("file").join("sale.json");
    let text = json!({"activityId": "a1", "activity": {"name": "Sale", "someday": 1}, "products": [{"skuId": "s1", "total": 5}]});
    std::fs::write(&file, text.to_string()).unwrap();
    let server = Server::start([ok(&activity("DRAFT")), ok(&product())]);
    let ran = server.run(&format!("create --file {} --json", file.display()));
    assert_eq!(ran.exit, 0, "{ran:?}");
    let printed: Vec<Value> = ran.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(printed, [activity("DRAFT"), product()]);
    let bodies: Vec<_> = server.asked().into_iter().filter_map(|asked| asked.body).collect();
    assert_eq!(bodies, [json!({"name": "Sale", "someday": 1}), json!({"total": 5})]);
}

#[test]
fn each_verb_asks_for_its_route() {
    let gone_through = json!({"dryRun": true, "products": []});
    let payment = json!({"transactionId": "t-1", "merchantId": "m1", "orderNo": "SK1", "amount": 990, "currency": "CNY",
        "state": "REFUND_DUE", "paidAt": "2200-01-01T00:00:00Z", "receivedAt": "2200-01-01T00:00:00Z", "attempts": 0});
    let entry = json!({"userId": "u1", "reason": "bot", "by": "admin", "at": "2200-01-01T00:00:00Z"});
    let nothing = json!({"items": []});
    let cases = [
        ("preheat a1", "POST activities/a1/preheat", activity("PREHEATED")),
        ("pause a1", "POST activities/a1/pause", activity("PAUSED")),
        ("resume a1", "POST activities/a1/resume", activity("OPEN")),
        ("end a1", "POST activities/a1/end", activity("CLOSED")),
        ("watch a1", "GET activities/a1/stats", stats("SETTLED", 5)),
        ("audit a1", "GET activities/a1/audit", report("PASS")),
        ("audit a1 --bound-secs 0", "GET activities/a1/audit?boundSecs=0", report("PASS")),
        ("reconcile a1", "POST activities/a1/reconcile", gone_through.clone()),
        ("reconcile a1 --dry-run", "POST activities/a1/reconcile?dryRun=true", gone_through.clone()),
        ("rebuild a1", "POST activities/a1/rebuild", json!({"products": []})),
        ("changes a1", "GET activities/a1/changes", nothing.clone()),
        ("changes a1 --cursor c2", "GET activities/a1/changes?cursor=c2", nothing.clone()),
        ("stats a1", "GET activities/a1/stats", stats("OPEN", 1)),
        ("dlq list", "GET dlq", nothing.clone()),
        ("dlq redrive", "POST dlq/redrive", json!({"redriven": 3})),
        ("dlq settle", "POST dlq/settle", nothing.clone()),
        ("refunds", "GET payments?state=REFUND_DUE", nothing.clone()),
        ("refunds --state UNMATCHED", "GET payments?state=UNMATCHED", nothing.clone()),
        ("refunds --cursor c2", "GET payments?state=REFUND_DUE&cursor=c2", nothing.clone()),
        ("refunds pay-back t-1", "POST payments/t-1/refund", payment),
        ("blacklist list --cursor u1", "GET blacklist?cursor=u1", nothing.clone()),
        ("blacklist list", "GET blacklist", nothing),
        ("blacklist add u1 --reason bot", "PUT blacklist/u1", entry),
        ("blacklist remove u1", "DELETE blacklist/u1", json!({"userId": "u1"})),
    ];
    for (line, route, answer) in cases {
        let server = Server::start([ok(&answer)]);
        let ran = server.run(line);
        assert_eq!((ran.exit, ran.err.as_str()), (0, ""), "{line}: {ran:?}");
        assert!(!ran.out.is_empty(), "{line} says nothing");
        assert_eq!(server.paths(), [route.replacen(' ', " /stage/api/admin/", 1)], "{line}");
        let body = server.asked().remove(0).body;
        assert_eq!(body, line.contains("--reason").then(|| json!({"reason": "bot"})), "{line}");
        // The raw answer is what the server sent.
        let server = Server::start([ok(&answer)]);
        let ran = server.run(&format!("{line} --json"));
        assert_eq!((ran.exit, ran.out.trim_end()), (0, answer.to_string().as_str()), "{line}: {ran:?}");
    }
}

#[test]
fn an_audit_that_does_not_pass_is_exit_1() {
    let mut failed = report("FAIL");
    failed["violations"] = json!([{"invariant": "I1", "detail": "s1: 6 of 5", "orderNos": ["SK1"]}]);
    for line in ["audit a1", "audit a1 --json"] {
        let ran = Server::start([ok(&failed)]).run(line);
        assert_eq!(ran.exit, 1, "{ran:?}");
        assert!(ran.out.contains("FAIL") && ran.out.contains("SK1"), "{ran:?}");
    }
}

#[test]
fn a_refusal_is_exit_2_with_its_code_and_request_id() {
    let ran = Server::start([problem(409, "ENDED", None)]).run("resume a1");
    assert_eq!((ran.exit, ran.out.as_str(), ran.err.as_str()), (2, "", "ENDED: Not now. (requestId r-1)\n"));
}

#[test]
fn whoever_is_told_to_come_back_does_three_times_where_that_is_safe() {
    let busy = || problem(503, "NOT_READY", Some(1));
    let server = Server::start([busy(), problem(429, "RATE_LIMITED", Some(1)), busy(), ok(&activity("PAUSED"))]);
    assert_eq!(server.run("pause a1").exit, 0);
    assert_eq!(server.paths().len(), 4);

    let server = Server::start([busy(), busy(), busy(), busy(), ok(&report("PASS"))]);
    let ran = server.run("audit a1");
    assert_eq!((ran.exit, server.paths().len()), (2, 4), "{ran:?}");

    for line in ["rebuild a1", "dlq redrive", "dlq settle"] {
        let server = Server::start([busy(), ok(&json!({"products": [], "redriven": 1, "items": []}))]);
        assert_eq!((server.run(line).exit, server.paths().len()), (2, 1), "{line}");
    }
    // Longer than anybody sits there for.
    let server = Server::start([problem(503, "UNAVAILABLE", Some(600_000)), ok(&report("PASS"))]);
    assert_eq!((server.run("audit a1").exit, server.paths().len()), (2, 1));
}

#[test]
fn no_usable_answer_is_exit_3() {
    let nobody = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let ran = run(["audit", "a1"], &[("HOTCAKE_URL", &format!("http://{nobody}")), ("HOTCAKE_TOKEN", TOKEN)]);
    assert_eq!(ran.exit, 3, "{ran:?}");
    assert!(ran.err.starts_with(&format!("no answer from {nobody}: ")), "{ran:?}");

    let gateway =
        Reply { status: 404, content_type: "application/json", body: r#"{"message":"Not Found"}"#.to_owned() };
    let ran = Server::start([gateway]).run("audit a1");
    assert_eq!(ran.exit, 3, "{ran:?}");
    assert!(ran.err.contains("is not the application's"), "{ran:?}");

    let ran = Server::start([ok(&json!({"verdict": 7}))]).run("audit a1");
    assert_eq!(ran.exit, 3, "{ran:?}");
}

#[test]
fn a_token_goes_nowhere_but_where_it_was_sent() {
    // A redirect is not followed, and neither address nor token is taken from anywhere else.
    let elsewhere = Server::start([ok(&report("PASS"))]);
    let moved = Reply { status: 307, content_type: "text/plain", body: String::new() };
    let ran = Server::start([moved]).run("audit a1");
    assert_eq!((ran.exit, elsewhere.paths().len()), (3, 0));
    let ran = run(["audit", "a1"], &[("HOTCAKE_URL", "http://shop.example"), ("HOTCAKE_TOKEN", TOKEN)]);
    assert_eq!((ran.exit, ran.err.contains("https://")), (2, true), "{ran:?}");
    let ran = run(["audit", "a1"], &[("HOTCAKE_URL", &elsewhere.url)]);
    assert_eq!((ran.exit, ran.err.contains("HOTCAKE_TOKEN")), (2, true), "{ran:?}");
    let ran = run(["audit", "a1"], &[]);
    assert_eq!((ran.exit, ran.err.contains("make up")), (2, true), "{ran:?}");
}

#[test]
fn the_local_stack_is_found_by_its_outputs() {
    let state = scratch("state");
    let server = Server::start([ok(&report("PASS")), ok(&report("PASS"))]);
    let outputs = json!({"httpUrl": server.url, "adminToken": TOKEN, "wsUrl": "ws://x", "jwt": {"kid": "local",
        "secret": "a-key-of-more-than-thirty-two-bytes", "iss": "https://hotcake.local", "aud": "hotcake", "adminAud": "hotcake-admin"}});
    std::fs::write(state.join("outputs.json"), outputs.to_string()).unwrap();
    let state = state.to_str().unwrap();
    let ran = run(["audit", "a1"], &[("HOTCAKE_STATE", state)]);
    assert_eq!(ran.exit, 0, "{ran:?}");
    let elsewhere = [("HOTCAKE_STATE", state), ("HOTCAKE_URL", "https://shop.example"), ("HOTCAKE_TOKEN", "another")];
    let ran = run(["--local", "audit", "a1"], &elsewhere);
    assert_eq!(ran.exit, 0, "{ran:?}");
    assert_eq!(server.paths().len(), 2);

    let ran = run(["token", "u1", "--role", "admin"], &[("HOTCAKE_STATE", state)]);
    assert_eq!((ran.exit, ran.out.trim_end().split('.').count()), (0, 3), "{ran:?}");
    let key = [
        ("HOTCAKE_STATE", state),
        ("HOTCAKE_JWT_SECRET", "another-key-of-more-than-thirty-two-bytes"),
        ("HOTCAKE_JWT_KID", "k"),
        ("HOTCAKE_JWT_ISS", "i"),
        ("HOTCAKE_JWT_AUD", "a"),
        ("HOTCAKE_JWT_ADMIN_AUD", "b"),
    ];
    let stranger = run(["token", "u1"], &elsewhere);
    assert_eq!(
        (stranger.exit, stranger.out.as_str()),
        (2, ""),
        "the local key is none of that deployment: {stranger:?}"
    );
    let other = run(["token", "u1", "--role", "admin"], &key);
    assert_eq!(other.exit, 0, "{other:?}");
    assert_ne!(other.out.split('.').next(), ran.out.split('.').next(), "the header names the environment's key");
}

#[test]
fn a_watch_ends_with_the_sale_and_outlives_a_bad_moment() {
    let bad = || Reply { status: 502, content_type: "text/plain", body: "bad gateway".to_owned() };
    let server = Server::start([ok(&stats("OPEN", 1)), bad(), ok(&stats("OPEN", 3)), ok(&stats("CLOSED", 3))]);
    let ran = server.run("watch a1");
    assert_eq!(ran.exit, 0, "{ran:?}");
    let lines: Vec<&str> = ran.out.lines().collect();
    assert_eq!(lines.len(), 3, "{ran:?}");
    assert!(lines[0].ends_with("OPEN s1 total 5 available 4 held 0 sold 1 committed 1 rate -"), "{ran:?}");
    assert!(lines[1].contains("sold 3") && lines[1].contains("rate +"), "{ran:?}");
    assert!(lines[2].contains("CLOSED"), "{ran:?}");
    assert!(ran.err.contains("bad gateway"), "{ran:?}");

    // And with its time.
    let server = Server::start([ok(&stats("OPEN", 1)), ok(&stats("OPEN", 2)), ok(&stats("OPEN", 2))]);
    let ran = server.run("watch a1 --for 2");
    assert_eq!(ran.exit, 0, "{ran:?}");
    assert!((2..=3).contains(&ran.out.lines().count()), "{ran:?}");

    // Not with a refusal that stays one.
    let ran = Server::start([problem(404, "NOT_FOUND", None)]).run("watch a1");
    assert_eq!(ran.exit, 2, "{ran:?}");
}
