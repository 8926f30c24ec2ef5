//! Public pages, fit for a CDN.

use client::documents::ActivityState;
use client::{Method, RawAnswer, RawRequest};
use e2e::shop::{CURRENCY, PRICE, done};
use e2e::{Local, Offer, Shop};
use jiff::Timestamp;

async fn get(local: &Local, path: &str, headers: &[(&str, &str)]) -> RawAnswer {
    local.api.raw(RawRequest { method: Method::GET, path, headers, body: None }).await.unwrap()
}

#[tokio::test]
async fn a_page_says_what_is_sold_and_may_be_kept_for_a_moment() {
    let shop = Shop::open(Offer::default()).await;
    let activity = done(shop.local.api.activity(&shop.activity_id).await);
    assert_eq!(
        (activity.state, activity.starts_at, activity.ends_at),
        (ActivityState::Open, shop.starts_at, shop.ends_at)
    );
    let [product] = &activity.products[..] else { panic!("{activity:?}") };
    assert_eq!(
        (product.sku_id.as_str(), product.price, product.currency.as_str()),
        (shop.sku_id.as_str(), PRICE, CURRENCY)
    );

    for path in [format!("/api/seckill/activities/{}", shop.activity_id), "/api/seckill/activities".to_owned()] {
        let page = get(&shop.local, &path, &[]).await;
        assert_eq!(page.status, 200);
        let cache_control = page.headers.get("cache-control").unwrap().to_owned();
        assert!(cache_control.starts_with("public, max-age="), "{cache_control}");
        let etag = page.headers.etag().unwrap().to_owned();
        assert!(etag.starts_with('"') && etag.ends_with('"'), "{etag}");
        // Tests beside this one put up sales of their own, so the list changes; one sale does not.
        if path.ends_with(&shop.activity_id) {
            let known = get(&shop.local, &path, &[("if-none-match", &etag)]).await;
            assert_eq!((known.status, known.body.len()), (304, 0));
            assert_eq!(
                (known.headers.etag(), known.headers.get("cache-control")),
                (Some(&*etag), Some(&*cache_control))
            );
        }
        assert_eq!(get(&shop.local, &path, &[("if-none-match", "\"another\"")]).await.status, 200);
    }
}

#[tokio::test]
async fn what_is_refused_is_not_kept_by_anybody() {
    let local = Local::up().await;
    let answer = get(&local, "/api/seckill/activities/a-nowhere", &[]).await;
    assert_eq!((answer.status, answer.headers.get("cache-control")), (404, Some("no-store")));
}

#[tokio::test]
async fn the_time_is_the_servers_and_never_stored() {
    let local = Local::up().await;
    let before = Timestamp::now().as_millisecond();
    let answer = local.api.time().await.unwrap();
    let after = Timestamp::now().as_millisecond();
    assert_eq!(answer.headers.get("cache-control"), Some("no-store"));
    let now = answer.outcome.unwrap().now;
    assert!((before..=after).contains(&now), "{before} {now} {after}");
}
