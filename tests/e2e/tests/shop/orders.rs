//! A shopper's own orders, and nobody else's.

use client::documents::ProblemCode;
use client::{Method, RawRequest};
use e2e::shop::done;
use e2e::{Buyer, Offer, SOON, Shop, eventually, refusal};
use serde_json::Value;

/// [P26]
#[tokio::test]
async fn somebody_elses_order_looks_like_none() {
    let shop = Shop::open(Offer::default()).await;
    let (owner, stranger) = (shop.buyer("u1"), shop.buyer("u2"));
    let order_no = owner.accepted(1, "k1").await;
    owner.wins(&order_no).await;
    let unknown = "SKAAAAAAAAAAAAAAAAAAAAAAAAAA";
    for (prefix, suffix) in [("/api/seckill/result/", ""), ("/api/order/", ""), ("/api/order/", "/status")] {
        let ask = async |number: &str| {
            let path = format!("{prefix}{number}{suffix}");
            let headers = [("accept-language", "en")];
            let request = RawRequest { method: Method::GET, path: &path, headers: &headers, body: None };
            let answer = stranger.api.raw(request).await.unwrap();
            let mut problem: Value = serde_json::from_slice(&answer.body).unwrap();
            // The one thing that differs between any two answers.
            assert!(problem.as_object_mut().unwrap().remove("requestId").is_some());
            (answer.status, problem)
        };
        let (status, foreign) = ask(&order_no).await;
        assert_eq!(status, 404, "{foreign}");
        assert_eq!((status, foreign), ask(unknown).await);
        assert_eq!(ask("not%20a%20number").await, ask(unknown).await);
    }
    assert!(done(stranger.api.orders(None, None).await).items.is_empty());
}

#[tokio::test]
async fn orders_are_listed_newest_first_page_by_page() {
    let shop = Shop::open(Offer { limit_per_user: 5, ..Offer::default() }).await;
    let (buyer, other) = (shop.buyer("u1"), shop.buyer("u2"));
    let mut newest_first = Vec::new();
    for n in 1..=5 {
        newest_first.insert(0, buyer.accepted(1, &format!("k{n}")).await);
    }
    other.accepted(1, "k1").await;
    // The list reads an index, which may be a moment behind.
    let all = eventually("all orders are listed", SOON, async || {
        let page = done(buyer.api.orders(None, None).await);
        assert_eq!(page.next_cursor, None);
        Some(page.items).filter(|items| items.len() == newest_first.len())
    })
    .await;
    let numbers: Vec<String> = all.iter().map(|order| order.order_no.clone()).collect();
    assert_eq!(numbers, newest_first);

    assert_eq!(
        walk(&buyer, 2).await,
        [newest_first[..2].to_vec(), newest_first[2..4].to_vec(), newest_first[4..].to_vec()]
    );
    assert_eq!(walk(&buyer, 100).await, [newest_first]);
}

/// The numbers on each page, following the cursors.
async fn walk(buyer: &Buyer, limit: u32) -> Vec<Vec<String>> {
    let mut pages = Vec::new();
    let mut cursor = None;
    loop {
        let page = done(buyer.api.orders(Some(limit), cursor.as_deref()).await);
        pages.push(page.items.into_iter().map(|order| order.order_no).collect());
        cursor = page.next_cursor;
        // A full last page may lead to an empty one.
        if cursor.is_none() {
            return pages.into_iter().filter(|page: &Vec<_>| !page.is_empty()).collect();
        }
        assert!(pages.len() < 10, "the cursors do not end");
    }
}

#[tokio::test]
async fn a_page_that_cannot_be_is_refused() {
    let shop = Shop::open(Offer::default()).await;
    let buyer = shop.buyer("u1");
    refusal(buyer.api.orders(Some(0), None).await.unwrap(), ProblemCode::Validation);
    refusal(buyer.api.orders(Some(101), None).await.unwrap(), ProblemCode::Validation);
    refusal(buyer.api.orders(Some(70_000), None).await.unwrap(), ProblemCode::Validation);
    for cursor in ["x", "AAAA", "%00", "MTIzNDU2Nzg5MDEyMw"] {
        refusal(buyer.api.orders(None, Some(cursor)).await.unwrap(), ProblemCode::Validation);
    }
}
