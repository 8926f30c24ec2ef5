//! The blacklist: who may not buy, by name.

use sale::admission::Blocked;
use sale::blacklist::{Blacklist, Entry, FRESH_MILLIS};
use sale::store::offers::Cursor;

use crate::house::{TestSale, admin, user_id};
use crate::weather::Fault;

fn entry(sale: &TestSale, user: &str, for_secs: Option<i64>) -> Entry {
    let at = sale.now();
    let until = for_secs.map(|secs| at.plus_secs(secs));
    Entry { user_id: user_id(user), reason: "buys with a robot".to_owned(), until, by: admin(), at }
}

#[tokio::test]
async fn a_change_of_the_list_is_known_within_five_seconds() {
    let sale = TestSale::open(10, 1).await;
    let list = Blacklist::new(sale.stores.offers.clone(), sale.stores.clock.clone());
    let judge = async |user: &str| list.judge(&user_id(user)).await.unwrap();
    assert_eq!(judge("bot").await, None);

    sale.stores.offers.put_blacklisted(&entry(&sale, "bot", None)).await.unwrap();
    sale.stores.offers.put_blacklisted(&entry(&sale, "late", Some(60))).await.unwrap();
    assert_eq!(judge("bot").await, None, "still fresh");
    sale.stores.clock.advance_millis(FRESH_MILLIS);
    assert_eq!(judge("bot").await, Some(Blocked { retry_after_ms: None }));
    assert!(judge("late").await.unwrap().retry_after_ms.is_some_and(|wait| (50_000..=55_000).contains(&wait)));
    assert_eq!(judge("human").await, None);
    sale.stores.clock.advance_millis(60_000);
    assert_eq!(judge("late").await, None, "its time is over");

    assert!(sale.stores.offers.delete_blacklisted(&user_id("bot")).await.unwrap());
    assert!(!sale.stores.offers.delete_blacklisted(&user_id("bot")).await.unwrap());
    sale.stores.clock.advance_millis(FRESH_MILLIS);
    assert_eq!(judge("bot").await, None);
}

#[tokio::test]
async fn the_list_is_shown_page_by_page() {
    let sale = TestSale::open(10, 1).await;
    for user in ["a", "b", "c"] {
        sale.stores.offers.put_blacklisted(&entry(&sale, user, None)).await.unwrap();
    }
    let first = sale.stores.offers.blacklisted(2, None).await.unwrap();
    let next = Cursor::decode(&first.next.unwrap().encode()).unwrap();
    let second = sale.stores.offers.blacklisted(2, Some(&next)).await.unwrap();
    let users: Vec<_> = first.items.iter().chain(&second.items).map(|entry| entry.user_id.as_str()).collect();
    assert_eq!((users, second.next), (vec!["a", "b", "c"], None));
    for bad in ["", "?", "A"] {
        assert!(Cursor::decode(bad).is_err(), "{bad}");
    }
}

/// An unchanged list is not read again; and without the table the one in memory is used on.
#[tokio::test]
async fn the_list_is_read_when_it_changed() {
    let sale = TestSale::open(10, 1).await;
    sale.stores.offers.put_blacklisted(&entry(&sale, "bot", None)).await.unwrap();
    let list = Blacklist::new(sale.stores.offers.clone(), sale.stores.clock.clone());
    list.judge(&user_id("bot")).await.unwrap();
    sale.weather.calls("Query");
    sale.weather.calls("GetItem");
    for _ in 0..3 {
        sale.stores.clock.advance_millis(FRESH_MILLIS);
        for _ in 0..3 {
            assert!(list.judge(&user_id("bot")).await.unwrap().is_some());
        }
    }
    assert_eq!((sale.weather.calls("GetItem"), sale.weather.calls("Query")), (3, 0));

    sale.weather.always("GetItem", Fault::Throttled);
    sale.stores.clock.advance_millis(FRESH_MILLIS);
    assert!(list.judge(&user_id("bot")).await.unwrap().is_some());
    let unread = Blacklist::new(sale.stores.offers.clone(), sale.stores.clock.clone());
    unread.judge(&user_id("bot")).await.unwrap_err();
    sale.weather.clear();
}
