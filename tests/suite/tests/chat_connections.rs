//! Who is connected: rows that come, change and go, in whatever order the gateway's events arrive.
#![allow(clippy::unwrap_used, reason = "a test file: its helpers fail the test too")]

use chat::connections::{ConnectionState, Connections, LIFETIME_SECS, MAX_PER_USER, Registration};
use futures_util::future::join_all;
use suite::chat_house::{ChatHouse, connection_id};
use suite::dynamo::CONNECTIONS;

#[tokio::test]
async fn a_connection_is_two_rows_and_is_reached_only_after_its_first_frame() {
    let house = ChatHouse::open().await;
    let connection = house.connection_from("c1=", "u1", "phone");
    house.register(&connection).await;

    assert_eq!(house.keys().await, ["CONN#c1= META", "USER#u1 CONN#c1="]);
    for row in house.dynamo.rows(CONNECTIONS).await {
        let ttl = connection.connected_at.plus_secs(LIFETIME_SECS).secs();
        assert_eq!(row["ttl"].as_n().unwrap(), &ttl.to_string(), "epoch seconds, 2 h 10 min on");
    }
    assert_eq!(house.connections.find(&connection_id("c1="), house.now()).await.unwrap(), Some(connection.clone()));
    assert_eq!(house.connections.live(&connection.party(), house.now()).await.unwrap(), []);

    assert!(house.connections.go_live(&connection).await.unwrap().is_some());
    let live = house.connections.live(&connection.party(), house.now()).await.unwrap();
    assert_eq!(live.len(), 1);
    assert_eq!((live[0].state, &live[0].device), (ConnectionState::Live, &connection.device));
    assert_eq!(
        house.connections.find(&connection_id("c1="), house.now()).await.unwrap().map(|found| found.state),
        Some(ConnectionState::Live)
    );
}

/// C31, first and last order.
#[tokio::test]
async fn disconnect_leaves_no_row_and_a_late_frame_brings_none_back() {
    let house = ChatHouse::open().await;
    let silent = house.connection("silent", "u1");
    house.register(&silent).await;
    house.connections.end(&silent.connection_id, house.now()).await.unwrap();
    assert_eq!(house.keys().await, [""; 0]);

    let spoke = house.live("spoke", "u1").await;
    house.connections.end(&spoke.connection_id, house.now()).await.unwrap();
    assert_eq!(house.keys().await, [""; 0]);

    // A frame that was looked up before the end, and acts after it.
    assert_eq!(house.connections.go_live(&spoke).await.unwrap(), None);
    house.connections.renew(&spoke, spoke.expires_at.plus_secs(60)).await.unwrap();
    assert_eq!(house.keys().await, [""; 0]);

    // One that comes after it.
    assert_eq!(house.say("spoke", r#"{"type":"ping"}"#).await, Vec::<serde_json::Value>::new());
    assert_eq!(house.gateway.closed(), ["spoke"]);
    assert_eq!(house.keys().await, [""; 0]);
}

/// C31, the order that makes zombies.
#[tokio::test]
async fn disconnect_before_connect_has_finished_keeps_it_from_being_stored() {
    let house = ChatHouse::open().await;
    let connection = house.connection("c1", "u1");
    // The gateway may tell twice.
    house.connections.end(&connection.connection_id, house.now()).await.unwrap();
    house.connections.end(&connection.connection_id, house.now()).await.unwrap();

    let registration = house.connections.register(&connection, house.now()).await.unwrap();
    assert_eq!(registration, Registration::AlreadyEnded);
    assert_eq!(house.connections.find(&connection.connection_id, house.now()).await.unwrap(), None);
    assert_eq!(house.connections.go_live(&connection).await.unwrap(), None);
    assert_eq!(house.connections.live(&connection.party(), house.now()).await.unwrap(), []);

    // What is left is a mark, without a user, that ends by itself.
    let rows = house.dynamo.rows(CONNECTIONS).await;
    assert_eq!(house.keys().await, ["CONN#c1 META"]);
    assert!(!rows[0].contains_key("userId"));
    let ttl: i64 = rows[0]["ttl"].as_n().unwrap().parse().unwrap();
    assert!((60..3_600).contains(&(ttl - house.now().secs())), "{ttl}");
}

/// C31 again: the calls of both are under way at once, begun by one or by the other.
#[tokio::test]
async fn connect_and_disconnect_at_once_leave_no_row_whichever_begins() {
    let house = ChatHouse::open().await;
    for round in 0..40 {
        let connection = house.connection(&format!("c{round}"), "u1");
        let register = house.connections.register(&connection, house.now());
        let end = house.connections.end(&connection.connection_id, house.now());
        let (registered, ended) = if round % 2 == 0 {
            tokio::join!(register, end)
        } else {
            let (ended, registered) = tokio::join!(end, register);
            (registered, ended)
        };
        registered.unwrap();
        ended.unwrap();
        assert_eq!(house.connections.find(&connection.connection_id, house.now()).await.unwrap(), None);
        let rows = house.dynamo.rows(CONNECTIONS).await;
        assert!(rows.iter().all(|row| !row.contains_key("userId")), "round {round}: {rows:?}");
    }
}

/// C32.
#[tokio::test]
async fn a_new_socket_takes_the_place_of_the_older_one_of_its_device_and_never_the_other_way_round() {
    let house = ChatHouse::open().await;
    let other_device = house.connection_from("tablet", "u1", "tablet");
    let other_user = house.connection_from("foreign", "u2", "phone");
    let no_device = house.connection("page", "u1");
    let old = house.connection_from("old", "u1", "phone");
    for connection in [&other_device, &other_user, &no_device, &old] {
        house.register(connection).await;
        assert!(house.connections.go_live(connection).await.unwrap().is_some());
    }
    house.pass_secs(5);
    let silent = house.connection_from("silent", "u1", "phone");
    house.register(&silent).await;
    house.pass_secs(5);
    let new = house.connection_from("new", "u1", "phone");
    house.register(&new).await;

    // The late first frame of an older socket: it goes live, and the newer one stays.
    assert!(house.connections.go_live(&silent).await.unwrap().is_some());
    assert_eq!(live_ids(&house.connections, &house, "u1").await, ["page", "silent", "tablet"]);
    assert!(house.connections.find(&new.connection_id, house.now()).await.unwrap().is_some());

    assert!(house.connections.go_live(&new).await.unwrap().is_some());
    assert_eq!(live_ids(&house.connections, &house, "u1").await, ["new", "page", "tablet"]);
    assert_eq!(live_ids(&house.connections, &house, "u2").await, ["foreign"]);

    // The late `sync` of a socket that was replaced ends that socket and nothing else.
    for late in ["old", "silent"] {
        assert_eq!(house.say(late, r#"{"type":"sync","sessions":{}}"#).await.len(), 0);
    }
    assert_eq!(house.gateway.closed(), ["old", "silent"]);
    assert_eq!(live_ids(&house.connections, &house, "u1").await, ["new", "page", "tablet"]);
    // A page without a device never replaces another.
    assert!(house.connections.go_live(&no_device).await.unwrap().is_some());
    assert_eq!(live_ids(&house.connections, &house, "u1").await, ["new", "page", "tablet"]);
}

#[tokio::test]
async fn of_more_than_ten_connections_the_oldest_go() {
    let house = ChatHouse::open().await;
    house.live("of-another", "u2").await;
    for n in 0..13 {
        house.pass_secs(1);
        house.live(&format!("c{n:02}"), "u1").await;
    }
    let newest: Vec<_> = (3..13).map(|n| format!("c{n:02}")).collect();
    assert_eq!(newest.len(), MAX_PER_USER);
    assert_eq!(live_ids(&house.connections, &house, "u1").await, newest);
    assert_eq!(house.keys().await.len(), 2 * (MAX_PER_USER + 1), "both rows of each, and no others");
    assert_eq!(live_ids(&house.connections, &house, "u2").await, ["of-another"]);
}

#[tokio::test]
async fn of_many_connections_made_at_once_at_most_ten_stay() {
    let house = ChatHouse::open().await;
    let connections: Vec<_> = (0..25)
        .map(|n| {
            house.clock.advance_millis(1);
            house.connection(&format!("c{n:02}"), "u1")
        })
        .collect();
    join_all(connections.iter().map(|connection| house.register(connection))).await;
    let keys = house.keys().await;
    assert!(keys.len() <= 2 * MAX_PER_USER, "{keys:?}");
    assert!(keys.len() >= 2 * (MAX_PER_USER - 1), "{keys:?}");
}

#[tokio::test]
async fn rows_whose_time_is_up_do_not_count_though_the_table_still_has_them() {
    let house = ChatHouse::open().await;
    let long_lived = house.live("c1", "u1").await;
    house.connections.renew(&long_lived, house.now().plus_secs(100 * 3_600)).await.unwrap();

    house.pass_secs(LIFETIME_SECS - 1);
    assert_eq!(live_ids(&house.connections, &house, "u1").await, ["c1"]);
    house.pass_secs(1);
    assert_eq!(live_ids(&house.connections, &house, "u1").await, [""; 0]);
    assert_eq!(house.connections.find(&connection_id("c1"), house.now()).await.unwrap(), None);
    assert_eq!(house.keys().await.len(), 2);

    // The next connection of the user clears them away.
    house.live("c2", "u1").await;
    assert_eq!(house.keys().await, ["CONN#c2 META", "USER#u1 CONN#c2"]);
}

async fn live_ids(connections: &Connections, house: &ChatHouse, user: &str) -> Vec<String> {
    let live = connections.live(&chat::ids::Party::user(user.parse().unwrap()), house.now()).await.unwrap();
    let mut ids: Vec<_> = live.into_iter().map(|connection| connection.connection_id.to_string()).collect();
    ids.sort();
    ids
}
