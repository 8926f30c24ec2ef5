//! Putting up, opening, changing and ending a sale.

use client::documents::{ActivityAction, ActivityState, ProblemCode, SkuPut};
use client::{Method, RawRequest};
use e2e::shop::done;
use e2e::{Local, Offer, SOON, Shop, eventually, refusal};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

async fn wait_until(instant: Timestamp) {
    let left = instant.duration_since(Timestamp::now());
    tokio::time::sleep(left.try_into().unwrap_or_default()).await;
}

/// [P11] By the gate's clock alone: nobody opens or closes anything.
#[tokio::test]
async fn a_sale_opens_and_closes_by_the_clock() {
    let shop = Shop::open(Offer {
        starts_in: SignedDuration::from_secs(8),
        lasts: SignedDuration::from_secs(8),
        ..Offer::default()
    })
    .await;
    let buyer = shop.buyer("u1");
    assert_eq!(shop.act(ActivityAction::Preheat).await.state, ActivityState::Preheated);
    let problem = buyer.refused(1, "k1", ProblemCode::NotStarted).await;
    assert_eq!(problem.starts_at, Some(shop.starts_at));

    // The server's clock and the gate's are this machine's.
    wait_until(shop.starts_at).await;
    let order_no = buyer.accepted(1, "k1").await;
    buyer.wins(&order_no).await;

    wait_until(shop.ends_at).await;
    let problem = buyer.refused(1, "k2", ProblemCode::Ended).await;
    assert_eq!(problem.ends_at, Some(shop.ends_at));
    assert_eq!(buyer.accepted(1, "k1").await, order_no, "a retry is answered after the end, too");
    shop.audit().await;
}

/// [P12]
#[tokio::test]
async fn local_times_mean_the_intended_instant_on_a_day_of_change() {
    let local = Local::up().await;
    let put = async |activity_id: &str, document: &Value| {
        let path = format!("/api/admin/activities/{activity_id}");
        let headers = [("accept-language", "en")];
        let request =
            RawRequest { method: Method::PUT, path: &path, headers: &headers, body: Some(document.to_string().into()) };
        local.admin.raw(request).await.unwrap()
    };
    let tag = format!("dst-{:x}", rand::random::<u64>());
    // In Berlin, 02:30 does not exist on 28 March 2027: the clock goes from 02:00 to 03:00. On 31 October it exists twice.
    let cases = [
        ("spring", "2027-03-28T02:30:00", "2027-03-28T06:00:00", "2027-03-28T01:30:00Z", "2027-03-28T04:00:00Z"),
        ("autumn", "2027-10-31T02:30:00", "2027-10-31T06:00:00", "2027-10-31T00:30:00Z", "2027-10-31T05:00:00Z"),
    ];
    for (season, starts_at, ends_at, starts, ends) in cases {
        let activity_id = format!("{tag}-{season}");
        let document = json!({"name": season, "startsAt": starts_at, "endsAt": ends_at, "timeZone": "Europe/Berlin"});
        let stored = done(put(&activity_id, &document).await.read::<client::documents::AdminActivity>("put-activity"));
        let instants: [Timestamp; 2] = [starts, ends].map(|text| text.parse().unwrap());
        assert_eq!([stored.starts_at, stored.ends_at], instants, "{season}");
        // Nothing is put up yet, which is nobody's business but the shop's.
        refusal(local.api.activity(&activity_id).await.unwrap(), ProblemCode::NotFound);
    }
    let bad = [
        json!({"name": "x", "startsAt": "2027-03-28T02:30:00", "endsAt": "2027-03-28T06:00:00", "timeZone": "Mars/Base"}),
        json!({"name": "x", "startsAt": "2027-03-28T02:30:00", "endsAt": "2027-03-28T06:00:00"}),
        json!({"name": "x", "startsAt": "2027-03-28T06:00:00Z", "endsAt": "2027-03-28T06:00:00Z"}),
        json!({"name": "", "startsAt": "2027-03-28T05:00:00Z", "endsAt": "2027-03-28T06:00:00Z"}),
        json!({"name": "x", "startsAt": "2027-03-28T05:00:00Z", "endsAt": "2027-03-28T06:00:00Z", "colour": "red"}),
        json!({"name": "x", "startsAt": "2027-03-28T05:00:00Z", "endsAt": "2027-03-28T06:00:00Z", "payWindowSecs": 0}),
    ];
    for document in bad {
        let activity_id = format!("{tag}-bad");
        let answer = put(&activity_id, &document).await;
        assert_eq!(
            (answer.status, answer.headers.get("content-type")),
            (400, Some("application/problem+json")),
            "{document}"
        );
        refusal(local.admin.stats(&activity_id).await.unwrap(), ProblemCode::NotFound);
    }
}

/// [P14]
#[tokio::test]
async fn a_sale_put_up_while_functions_are_warm_is_sold_without_a_restart() {
    let first = Shop::open(Offer::default()).await;
    first.buyer("u1").accepted(1, "k1").await;
    done(first.local.api.activities().await);

    let second = Shop::open(Offer::default()).await;
    let buyer = second.buyer("u1");
    let order_no = buyer.accepted(1, "k1").await;
    buyer.wins(&order_no).await;
    // Pages may be a moment old; see the catalog's `Cache-Control`.
    let listed = eventually("the new sale is listed", SOON, async || {
        let list = done(second.local.api.activities().await);
        list.items.into_iter().find(|item| item.activity_id == second.activity_id)
    })
    .await;
    assert_eq!((listed.state, listed.starts_at), (ActivityState::Open, second.starts_at));
    second.audit().await;
}

/// [P31]
#[tokio::test]
async fn stock_can_be_raised_mid_sale_and_lowered_down_to_what_is_held() {
    let shop = Shop::open(Offer { total: 3, ..Offer::default() }).await;
    let (one, two, admin) = (shop.buyer("u1"), shop.buyer("u2"), &shop.local.admin);
    one.accepted(3, "k1").await;
    two.refused(1, "k1", ProblemCode::StockEmpty).await;

    // Units come out of the SKU's stock, and there are no more.
    let raised = shop.product(8, 3);
    let answer = admin.put_product(&shop.activity_id, &shop.sku_id, &raised).await.unwrap();
    assert_eq!(refusal(answer, ProblemCode::InsufficientStock).remaining, Some(0));
    let sku = done(admin.put_sku(&shop.sku_id, &SkuPut { title: "Kettle".into(), stock: 8 }).await);
    assert_eq!((sku.stock, sku.free), (8, 5));
    assert_eq!(done(admin.put_product(&shop.activity_id, &shop.sku_id, &raised).await).total, Some(8));
    assert_eq!(shop.units().await, (5, 3));
    two.accepted(1, "k2").await;

    // Four are held: below that nothing goes, and nothing changes.
    let answer = admin.put_product(&shop.activity_id, &shop.sku_id, &shop.product(3, 3)).await.unwrap();
    assert_eq!(refusal(answer, ProblemCode::InsufficientStock).remaining, Some(4));
    assert_eq!(shop.units().await, (4, 4));
    done(admin.put_product(&shop.activity_id, &shop.sku_id, &shop.product(4, 3)).await);
    assert_eq!(shop.units().await, (0, 4));
    two.refused(1, "k3", ProblemCode::StockEmpty).await;
    // The SKU has the rest back, and cannot be lowered below what the offer has.
    let answer = admin.put_sku(&shop.sku_id, &SkuPut { title: "Kettle".into(), stock: 3 }).await.unwrap();
    refusal(answer, ProblemCode::InsufficientStock);
    let sku = done(admin.put_sku(&shop.sku_id, &SkuPut { title: "Kettle".into(), stock: 4 }).await);
    assert_eq!((sku.stock, sku.free), (4, 0));
    let counts = shop.audit().await.counts;
    assert_eq!((counts.total, counts.committed), (4, 4));
}

#[tokio::test]
async fn a_paused_sale_says_so_and_goes_on_where_it_stopped() {
    let shop = Shop::open(Offer::default()).await;
    let buyer = shop.buyer("u1");
    let order_no = buyer.accepted(1, "k1").await;
    assert_eq!(shop.act(ActivityAction::Pause).await.state, ActivityState::Paused);
    buyer.refused(1, "k2", ProblemCode::Paused).await;
    assert_eq!(buyer.accepted(1, "k1").await, order_no, "a retry is answered during a pause, too");
    // What was let in before the pause becomes an order all the same.
    buyer.wins(&order_no).await;
    assert_eq!(shop.act(ActivityAction::Pause).await.state, ActivityState::Paused);
    assert_eq!(shop.act(ActivityAction::Resume).await.state, ActivityState::Open);
    buyer.accepted(1, "k2").await;
    assert_eq!(shop.units().await, (8, 2));
    shop.audit().await;
}

#[tokio::test]
async fn an_ended_sale_stays_ended() {
    let shop = Shop::open(Offer::default()).await;
    let buyer = shop.buyer("u1");
    let order_no = buyer.accepted(1, "k1").await;
    let ended = shop.act(ActivityAction::End).await;
    assert_eq!(ended.state, ActivityState::Closed);
    assert!(ended.ends_at < shop.ends_at);
    let problem = buyer.refused(1, "k2", ProblemCode::Ended).await;
    assert_eq!(problem.ends_at, Some(ended.ends_at));
    buyer.wins(&order_no).await;

    assert_eq!(shop.act(ActivityAction::End).await.ends_at, ended.ends_at);
    let admin = &shop.local.admin;
    for action in [ActivityAction::Pause, ActivityAction::Resume, ActivityAction::Preheat] {
        refusal(admin.activity_action(&shop.activity_id, action).await.unwrap(), ProblemCode::Ended);
    }
    refusal(
        admin.put_product(&shop.activity_id, &shop.sku_id, &shop.product(10, 9)).await.unwrap(),
        ProblemCode::Ended,
    );
    shop.audit().await;
}

#[tokio::test]
async fn preheating_again_overwrites_nothing() {
    let shop = Shop::open(Offer::default()).await;
    let buyer = shop.buyer("u1");
    buyer.accepted(3, "k1").await;
    shop.act(ActivityAction::Preheat).await;
    assert_eq!(shop.units().await, (7, 3));
    assert_eq!(buyer.refused(1, "k2", ProblemCode::LimitExceeded).await.remaining, Some(0));
    shop.audit().await;
}

#[tokio::test]
async fn every_change_is_in_the_log_with_its_author() {
    let shop = Shop::open(Offer::default()).await;
    shop.act(ActivityAction::Pause).await;
    shop.act(ActivityAction::Pause).await;
    shop.act(ActivityAction::Resume).await;
    let changes = shop.local.offers().changes_of(&shop.activity_id, 100, None).await.unwrap().items;
    let actions: Vec<&str> = changes.iter().map(|change| change.action.as_str()).collect();
    let product = format!("put-product {}", shop.sku_id);
    assert_eq!(actions, ["put-activity", &product, "preheat", "pause", "resume"], "a second pause is not in the log");
    assert!(changes.iter().all(|change| change.by.as_str() == "admin"));
    let state = |text: &str| serde_json::from_str::<Value>(text).unwrap()["state"].clone();
    assert_eq!(changes[0].before, None);
    assert_eq!(
        (state(changes[3].before.as_deref().unwrap()), state(&changes[3].after)),
        (json!("LIVE"), json!("PAUSED"))
    );
    assert_eq!(shop.local.offers().changes_of(&shop.sku_id, 100, None).await.unwrap().items.len(), 1);
}
