//! Every way to be turned away, in both languages. Nothing changes on a refusal.

use client::documents::{ActivityAction, ProblemCode};
use client::{Method, RawAnswer, RawRequest, Role};
use e2e::{Buyer, Offer, Shop, refusal};
use jiff::SignedDuration;
use serde_json::Value;

/// The largest body that is read.
const MAX_BODY_BYTES: usize = 16 * 1024;

async fn post(buyer: &Buyer, headers: &[(&str, &str)], body: impl Into<Vec<u8>>) -> RawAnswer {
    let request = RawRequest { method: Method::POST, path: "/api/seckill/buy", headers, body: Some(body.into()) };
    buyer.api.raw(request).await.unwrap()
}

/// What every problem has, whatever it is about: RFC 9457, the language asked for, and CORS headers as on any other answer.
fn assert_is_problem(answer: &RawAnswer, status: u16, code: &str, language: &str) -> Value {
    let text = answer.text();
    assert_eq!(answer.status, status, "{text}");
    assert_eq!(answer.headers.get("content-type"), Some("application/problem+json"), "{text}");
    assert_eq!(answer.headers.get("content-language"), Some(language), "{text}");
    assert_eq!(answer.headers.get("cache-control"), Some("no-store"), "{text}");
    let problem: Value = serde_json::from_slice(&answer.body).unwrap();
    assert_eq!((&problem["status"], &problem["code"]), (&status.into(), &code.into()), "{text}");
    for member in ["type", "title", "detail", "requestId"] {
        assert!(problem[member].as_str().is_some_and(|value| !value.is_empty()), "{member}: {text}");
    }
    let is_chinese =
        problem["detail"].as_str().unwrap().chars().any(|letter| ('\u{4e00}'..='\u{9fff}').contains(&letter));
    assert_eq!(is_chinese, language == "zh", "{text}");
    problem
}

/// [P10]
#[tokio::test]
async fn a_quantity_is_a_whole_number_or_the_call_is_refused_and_changes_nothing() {
    let shop = Shop::open(Offer::default()).await;
    let buyer = shop.buyer("u1");
    let (activity_id, sku_id) = (&shop.activity_id, &shop.sku_id);
    for qty in [
        "0",
        "-5",
        "1.5",
        "1.0",
        "\"0x3\"",
        "\"1 \"",
        "\"1\"",
        "1e9",
        "1001",
        "99999999999999999999",
        "null",
        "true",
        "[1]",
        "{}",
    ] {
        let body = format!(r#"{{"activityId":"{activity_id}","skuId":"{sku_id}","qty":{qty}}}"#);
        for (accept, language) in [("en", "en"), ("zh-CN,zh;q=0.9", "zh")] {
            let headers = [("accept-language", accept), ("x-request-id", "k1"), ("origin", "https://shop.example")];
            let answer = post(&buyer, &headers, body.clone()).await;
            assert_is_problem(&answer, 400, "VALIDATION", language);
            assert!(answer.headers.get("access-control-allow-origin").is_some(), "qty {qty}: no CORS header");
        }
    }
    assert_eq!(shop.units().await, (10, 0));
    assert_eq!(shop.snapshot().await.holds.len(), 0);
    assert_eq!(shop.rows().await.len(), 0);

    // Missing means one.
    let answer =
        post(&buyer, &[("x-request-id", "k1")], format!(r#"{{"activityId":"{activity_id}","skuId":"{sku_id}"}}"#))
            .await;
    assert_eq!(answer.status, 202, "{}", answer.text());
    assert_eq!(shop.units().await, (9, 1));
}

#[tokio::test]
async fn what_is_malformed_is_named_and_changes_nothing() {
    let shop = Shop::open(Offer::default()).await;
    let buyer = shop.buyer("u1");
    let (a, s) = (shop.activity_id.as_str(), shop.sku_id.as_str());
    let good = format!(r#"{{"activityId":"{a}","skuId":"{s}","qty":1}}"#);
    let long = "x".repeat(65);
    let bodies = [
        String::new(),
        "qty=1".to_owned(),
        "{".to_owned(),
        "null".to_owned(),
        format!("[{good}]"),
        format!("{good}{good}"),
        format!(r#"{{"activityId":"{a}","qty":1}}"#),
        format!(r#"{{"activityId":"{a}","skuId":"{s}","qty":1,"price":1}}"#),
        format!(r#"{{"activityId":"{a}","skuId":"{s}","qty":1,"seats":["A1"]}}"#),
        format!(r#"{{"activityId":"{a}","skuId":"{s}","skuId":"{s}","qty":1}}"#),
        format!(r#"{{"activityId":"{a}","skuId":"","qty":1}}"#),
        format!(r#"{{"activityId":"{a}","skuId":"{long}","qty":1}}"#),
        format!(r#"{{"activityId":"{a}:{s}","skuId":"{s}","qty":1}}"#),
        format!(r#"{{"activityId":"{{{a}}}","skuId":"{s}","qty":1}}"#),
        format!(r#"{{"activityId":"{a}","skuId":"{s}|","qty":1}}"#),
        format!(r#"{{"activityId":"活动","skuId":"{s}","qty":1}}"#),
        format!(r#"{{"activityId":7,"skuId":"{s}","qty":1}}"#),
    ];
    for body in bodies {
        let answer = post(&buyer, &[("accept-language", "en")], body.clone()).await;
        assert_is_problem(&answer, 400, "VALIDATION", "en");
    }
    let long_id = "k".repeat(129);
    let headers = [
        ("x-request-id", ""),
        ("x-request-id", "k 1"),
        ("x-request-id", "k|1"),
        ("x-request-id", long_id.as_str()),
        ("x-device-id", "d 1"),
        ("x-device-id", long.as_str()),
    ];
    for header in headers {
        let answer = post(&buyer, &[header, ("accept-language", "en")], good.clone()).await;
        let problem = assert_is_problem(&answer, 400, "VALIDATION", "en");
        let detail = problem["detail"].as_str().unwrap().to_lowercase();
        assert!(detail.contains(header.0), "{header:?}: {detail}");
    }
    assert_eq!(shop.units().await, (10, 0));
    assert_eq!(shop.rows().await.len(), 0);
}

#[tokio::test]
async fn a_body_over_16_kib_is_too_large() {
    let shop = Shop::open(Offer::default()).await;
    let buyer = shop.buyer("u1");
    let body = serde_json::to_string(&buyer.wish(1)).unwrap();
    let padded = |bytes: usize| format!("{body:<bytes$}");
    let answer = post(&buyer, &[("accept-language", "zh"), ("x-request-id", "k1")], padded(MAX_BODY_BYTES + 1)).await;
    assert_is_problem(&answer, 413, "PAYLOAD_TOO_LARGE", "zh");
    assert_eq!(shop.units().await, (10, 0));
    let answer = post(&buyer, &[("x-request-id", "k1")], padded(MAX_BODY_BYTES)).await;
    assert_eq!(answer.status, 202, "{}", answer.text());
}

#[tokio::test]
async fn each_role_has_its_own_doors() {
    let shop = Shop::open(Offer::default()).await;
    let buyer = shop.buyer("u1");
    let as_agent = shop.local.api.signed_in(buyer.token_as(Role::Agent));
    let as_admin = shop.local.api.signed_in(buyer.token_as(Role::Admin));
    for stranger in [&as_agent, &as_admin] {
        refusal(stranger.buy(&buyer.wish(1), Some("k1")).await.unwrap(), ProblemCode::Forbidden);
        refusal(stranger.orders(None, None).await.unwrap(), ProblemCode::Forbidden);
    }
    for stranger in [&as_agent, &buyer.api] {
        refusal(
            stranger.activity_action(&shop.activity_id, ActivityAction::End).await.unwrap(),
            ProblemCode::Forbidden,
        );
        refusal(
            stranger.put_product(&shop.activity_id, &shop.sku_id, &shop.product(99, 9)).await.unwrap(),
            ProblemCode::Forbidden,
        );
        refusal(stranger.stats(&shop.activity_id).await.unwrap(), ProblemCode::Forbidden);
        refusal(stranger.audit(&shop.activity_id, None).await.unwrap(), ProblemCode::Forbidden);
    }
    assert_eq!(shop.units().await, (10, 0));
    buyer.accepted(1, "k1").await;
}

#[tokio::test]
async fn what_is_not_there_is_not_found() {
    let shop = Shop::open(Offer::default()).await;
    let (buyer, admin) = (shop.buyer("u1"), &shop.local.admin);
    refusal(buyer.api.order("SKAAAAAAAAAAAAAAAAAAAAAAAAAA").await.unwrap(), ProblemCode::NotFound);
    refusal(buyer.api.activity("a-nowhere").await.unwrap(), ProblemCode::NotFound);
    refusal(admin.stats("a-nowhere").await.unwrap(), ProblemCode::NotFound);
    refusal(admin.audit("a-nowhere", None).await.unwrap(), ProblemCode::NotFound);
    refusal(admin.activity_action("a-nowhere", ActivityAction::Preheat).await.unwrap(), ProblemCode::NotFound);
    refusal(
        admin.put_product(&shop.activity_id, "s-nowhere", &shop.product(1, 1)).await.unwrap(),
        ProblemCode::NotFound,
    );
    let path = format!("/api/admin/activities/{}/dance", shop.activity_id);
    let answer = admin.raw(RawRequest { method: Method::POST, path: &path, headers: &[], body: None }).await.unwrap();
    assert_is_problem(&answer, 404, "NOT_FOUND", "en");
    // An offer that is not there is not ready: whether it ever will be is not the gate's to know.
    let answer = buyer
        .api
        .buy(&client::documents::BuyRequest::new(&shop.activity_id, "s-nowhere", 1), Some("k1"))
        .await
        .unwrap();
    refusal(answer, ProblemCode::NotReady);
}

/// [S4] Put up, and no gate yet: the sweep makes it five minutes before the start.
#[tokio::test]
async fn before_the_preheat_a_sale_is_not_ready_and_never_sold_out() {
    let shop = Shop::publish(Offer { starts_in: SignedDuration::from_mins(30), ..Offer::default() }).await;
    let buyer = shop.buyer("u1");
    buyer.refused(1, "k1", ProblemCode::NotReady).await;
    shop.act(ActivityAction::Preheat).await;
    let problem = buyer.refused(1, "k1", ProblemCode::NotStarted).await;
    assert_eq!(problem.starts_at, Some(shop.starts_at));
}

#[tokio::test]
async fn stock_is_told_apart_from_the_limit() {
    let shop = Shop::open(Offer { total: 4, limit_per_user: 3, ..Offer::default() }).await;
    let [one, two, three] = ["u1", "u2", "u3"].map(|name| shop.buyer(name));
    one.accepted(3, "k1").await;
    // [P9]
    assert_eq!(one.refused(3, "k2", ProblemCode::LimitExceeded).await.remaining, Some(0));
    assert_eq!(two.refused(4, "k1", ProblemCode::LimitExceeded).await.remaining, Some(3));
    // [S15]
    assert_eq!(two.refused(2, "k2", ProblemCode::InsufficientStock).await.remaining, Some(1));
    two.accepted(1, "k3").await;
    three.refused(1, "k1", ProblemCode::StockEmpty).await;
    three.refused(2, "k2", ProblemCode::StockEmpty).await;
    // Who has their share already is told that, also about a lot that is gone.
    assert_eq!(one.refused(1, "k3", ProblemCode::LimitExceeded).await.remaining, Some(0));
    assert_eq!(two.refused(3, "k4", ProblemCode::LimitExceeded).await.remaining, Some(2));
    assert_eq!(shop.units().await, (0, 4));
    assert_eq!(shop.audit().await.counts.committed, 4);
}

#[tokio::test]
async fn with_a_limit_of_one_the_second_wish_is_already_bought() {
    let shop = Shop::open(Offer { total: 1, limit_per_user: 1, ..Offer::default() }).await;
    let (winner, other) = (shop.buyer("u1"), shop.buyer("u2"));
    winner.accepted(1, "k1").await;
    // The lot is gone by now, and still the winner is not told "sold out".
    winner.refused(1, "k2", ProblemCode::AlreadyBought).await;
    other.refused(1, "k1", ProblemCode::StockEmpty).await;
    shop.audit().await;
}

#[tokio::test]
async fn a_buyer_in_a_hurry_is_told_when_to_come_back() {
    let interval = SignedDuration::from_secs(30);
    let shop = Shop::open(Offer { user_interval_ms: 30_000, ..Offer::default() }).await;
    let (hasty, other) = (shop.buyer("u1"), shop.buyer("u2"));
    let order_no = hasty.accepted(1, "k1").await;
    let problem = hasty.refused(1, "k2", ProblemCode::RateLimited).await;
    let wait = SignedDuration::from_millis(problem.retry_after_ms.unwrap().try_into().unwrap());
    assert!(wait > SignedDuration::ZERO && wait <= interval, "{wait:?}");
    // A retry is not a new wish, and others are not held up.
    assert_eq!(hasty.accepted(1, "k1").await, order_no);
    other.accepted(1, "k1").await;
    shop.audit().await;
}

/// [P28] The address is the gateway's word; what a client claims in a header changes nothing.
#[tokio::test]
async fn a_device_is_held_back_at_its_address() {
    let shop = Shop::open(Offer { device_ip_interval_ms: 30_000, ..Offer::default() }).await;
    let on_one_device: Vec<_> = ["u1", "u2"].map(|name| shop.buyer(name).api.on_device("d1")).into();
    let wish = shop.buyer("u1").wish(1);
    e2e::shop::accepted(on_one_device[0].buy(&wish, Some("k1")).await.unwrap());
    refusal(on_one_device[1].buy(&wish, Some("k1")).await.unwrap(), ProblemCode::RateLimited);
    let body = serde_json::to_vec(&wish).unwrap();
    let headers = [("x-request-id", "k1"), ("x-forwarded-for", "203.0.113.99"), ("accept-language", "zh")];
    let request = RawRequest { method: Method::POST, path: "/api/seckill/buy", headers: &headers, body: Some(body) };
    assert_is_problem(&on_one_device[1].raw(request).await.unwrap(), 429, "RATE_LIMITED", "zh");
    e2e::shop::accepted(shop.buyer("u2").api.on_device("d2").buy(&wish, Some("k2")).await.unwrap());
    shop.audit().await;
}

#[tokio::test]
async fn a_page_of_another_origin_may_ask_and_may_read() {
    let shop = Shop::open(Offer::default()).await;
    let preflight = [
        ("origin", "https://shop.example"),
        ("access-control-request-method", "POST"),
        ("access-control-request-headers", "authorization,content-type,x-request-id"),
    ];
    let request = RawRequest { method: Method::OPTIONS, path: "/api/seckill/buy", headers: &preflight, body: None };
    let answer = shop.local.api.raw(request).await.unwrap();
    assert!((200..300).contains(&answer.status), "{}", answer.status);
    let allowed = answer.headers.get("access-control-allow-headers").unwrap().to_lowercase();
    for header in ["authorization", "content-type", "x-request-id", "x-device-id"] {
        assert!(allowed.contains(header), "{header} is not in {allowed}");
    }
    assert!(answer.headers.get("access-control-allow-methods").unwrap().contains("POST"));

    let origin = [("origin", "https://shop.example"), ("accept-language", "en")];
    for (path, status) in [("/api/seckill/time", 200), ("/api/orders", 401), ("/api/seckill/activities/a-nowhere", 404)]
    {
        let request = RawRequest { method: Method::GET, path, headers: &origin, body: None };
        let answer = shop.local.api.raw(request).await.unwrap();
        assert_eq!(answer.status, status);
        assert!(answer.headers.get("access-control-allow-origin").is_some(), "{path}");
        let exposed = answer.headers.get("access-control-expose-headers").unwrap_or_default().to_lowercase();
        assert!(exposed.contains("x-request-id") && exposed.contains("retry-after"), "{path}: {exposed}");
    }
}
