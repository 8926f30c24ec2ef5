//! Results over the WebSocket: pushed, repeated until seen, on every device; and frames that cannot be used.

use std::time::Duration;

use chat::connections::{Connection, ConnectionState, Registration};
use chat::ids::{Party, Side};
use client::documents::{OrderStatus, ResultStatus};
use client::frames::{FrameErrorCode, ServerFrame};
use client::{ConnectOptions, Role, Socket};
use e2e::shop::pong;
use e2e::{Offer, SOON, Shop, eventually};
use kernel::text::Language;
use kernel::time::Clock;

/// The largest frame that is read.
const MAX_FRAME_BYTES: usize = 16 * 1024;

async fn error_code(socket: &mut Socket) -> FrameErrorCode {
    match socket.next(SOON).await.unwrap().frame {
        ServerFrame::Error(error) => {
            assert!(!error.message.is_empty());
            error.code
        }
        other => panic!("{other:?} instead of an error"),
    }
}

/// Results of an order that came before the answer to a `ping`, in order of arrival.
async fn results_before_pong(socket: &mut Socket) -> Vec<OrderStatus> {
    socket.ping().await.unwrap();
    let mut results = Vec::new();
    loop {
        match socket.next(SOON).await.unwrap().frame {
            ServerFrame::SeckillResult(result) | ServerFrame::OrderStatus(result) => results.push(result.order_status),
            ServerFrame::Pong { .. } => return results,
            other => panic!("{other:?} instead of a result or the pong"),
        }
    }
}

/// [P29]
#[tokio::test]
async fn a_result_that_was_decided_before_the_socket_opens_comes_with_sync() {
    let shop = Shop::open(Offer::default()).await;
    let buyer = shop.buyer("u1");
    let order_no = buyer.accepted(1, "k1").await;
    buyer.wins(&order_no).await;
    let mut socket = buyer.online().await;
    let result = socket.result_of(&order_no, SOON).await.unwrap().result;
    assert_eq!((result.status, result.order_status), (ResultStatus::Success, OrderStatus::Unpaid));
    shop.audit().await;
}

#[tokio::test]
async fn a_result_is_repeated_until_it_was_seen() {
    let shop = Shop::open(Offer::default()).await;
    let buyer = shop.buyer("u1");
    let mut socket = buyer.online().await;
    let order_no = buyer.accepted(1, "k1").await;
    let result = socket.result_of(&order_no, SOON).await.unwrap().result;

    // Gone without a word, and back: it comes again, though it was delivered.
    drop(socket);
    for _ in 0..2 {
        let mut socket = buyer.online().await;
        assert_eq!(socket.result_of(&order_no, SOON).await.unwrap().result, result);
        socket.close().await.unwrap();
    }
    // Each `pong` repeats it, too.
    let mut socket = buyer.online().await;
    eventually("the result comes after pong", SOON, async || {
        // What follows the pong belongs to it: it is before the next one.
        results_before_pong(&mut socket).await.first().copied()
    })
    .await;

    socket.result_ack(&result).await.unwrap();
    // Frames of one socket are handled one after the other here, so what follows the next pong is the state after the ack.
    results_before_pong(&mut socket).await;
    assert_eq!(results_before_pong(&mut socket).await, []);
    let mut again = buyer.online().await;
    assert_eq!(results_before_pong(&mut again).await, []);
    assert_eq!(again.result_so_far(&order_no).unwrap().map(|known| known.result), None);
    // Seeing it twice does no harm.
    again.result_ack(&result).await.unwrap();
    assert_eq!(results_before_pong(&mut again).await, []);
}

#[tokio::test]
async fn every_device_of_a_buyer_is_told_and_nobody_else() {
    let shop = Shop::open(Offer::default()).await;
    let (buyer, other) = (shop.buyer("u1"), shop.buyer("u2"));
    let (mut phone, mut laptop, mut stranger) =
        (buyer.online_on("phone").await, buyer.online_on("laptop").await, other.online().await);
    let order_no = buyer.accepted(1, "k1").await;
    for socket in [&mut phone, &mut laptop] {
        let result = socket.result_of(&order_no, SOON).await.unwrap().result;
        assert_eq!(result.order_status, OrderStatus::Unpaid);
    }
    // A device that comes anew takes the place of its old socket.
    let mut phone_again = buyer.online_on("phone").await;
    let live =
        shop.local.connections().live(&Party::user(buyer.id.parse().unwrap()), Clock::System.now()).await.unwrap();
    assert_eq!(live.len(), 2, "{live:?}");
    let second = buyer.accepted(1, "k2").await;
    for socket in [&mut phone_again, &mut laptop] {
        socket.result_of(&second, SOON).await.unwrap();
    }
    assert_eq!(results_before_pong(&mut stranger).await, []);
    shop.audit().await;
}

/// [P30] A phone lost its network, and the gateway has not noticed or not told.
#[tokio::test]
async fn a_dead_connection_is_removed_and_costs_the_order_nothing() {
    let shop = Shop::open(Offer::default()).await;
    let buyer = shop.buyer("u1");
    let connections = shop.local.connections();
    let now = Clock::System.now();
    let dead = Connection {
        side: Side::User,
        connection_id: format!("dead{:x}", rand::random::<u32>()).try_into().unwrap(),
        user_id: buyer.id.parse().unwrap(),
        device: None,
        language: Language::En,
        connected_at: now.plus_secs(-300),
        expires_at: now.plus_secs(3_000),
        last_ack_seq: None,
        state: ConnectionState::Live,
    };
    assert_eq!(connections.register(&dead, now).await.unwrap(), Registration::Registered);
    let mut alive = buyer.online().await;

    let order_no = buyer.accepted(1, "k1").await;
    buyer.wins(&order_no).await;
    alive.result_of(&order_no, SOON).await.unwrap();
    eventually("the dead connection is removed", SOON, async || {
        let live = connections.live(&dead.party(), Clock::System.now()).await.unwrap();
        live.iter().all(|connection| connection.connection_id != dead.connection_id).then_some(())
    })
    .await;
    assert_eq!(connections.find(&dead.connection_id, Clock::System.now()).await.unwrap(), None);
    // The audit also looks for dead letters.
    shop.audit().await;
}

#[tokio::test]
async fn a_frame_that_cannot_be_used_is_answered_and_the_socket_stays_open() {
    let shop = Shop::open(Offer::default()).await;
    let mut socket = shop.buyer("u1").online().await;
    let large = format!(r#"{{"type":"ping","padding":"{}"}}"#, "x".repeat(MAX_FRAME_BYTES));
    let frames = [
        ("hello", FrameErrorCode::BadFrame),
        ("[]", FrameErrorCode::BadFrame),
        ("{}", FrameErrorCode::BadFrame),
        (r#"{"type":"dance"}"#, FrameErrorCode::BadFrame),
        (r#"{"type":"ping","at":1}"#, FrameErrorCode::BadFrame),
        (r#"{"type":"sync","sessions":[]}"#, FrameErrorCode::BadFrame),
        (r#"{"type":"result_ack"}"#, FrameErrorCode::BadFrame),
        (r#"{"type":"result_ack","orderNo":"SKAAAAAAAAAAAAAAAAAAAAAAAAAA"}"#, FrameErrorCode::NotFound),
        (r#"{"type":"sync","sessions":{"s1":0}}"#, FrameErrorCode::NotFound),
        (r#"{"type":"auth","token":"not.a.token"}"#, FrameErrorCode::AuthExpired),
        (large.as_str(), FrameErrorCode::TooLarge),
    ];
    for (frame, expected) in frames {
        socket.send_raw(frame).await.unwrap();
        assert_eq!(error_code(&mut socket).await, expected, "{}", &frame[..frame.len().min(60)]);
        pong(&mut socket).await;
    }
}

#[tokio::test]
async fn an_acknowledgement_of_somebody_elses_result_is_not_found() {
    let shop = Shop::open(Offer::default()).await;
    let (buyer, stranger) = (shop.buyer("u1"), shop.buyer("u2"));
    let mut socket = buyer.online().await;
    let order_no = buyer.accepted(1, "k1").await;
    let result = socket.result_of(&order_no, SOON).await.unwrap().result;
    let mut foreign = stranger.online().await;
    foreign.result_ack(&result).await.unwrap();
    assert_eq!(error_code(&mut foreign).await, FrameErrorCode::NotFound);
    // It is still to be seen by whom it is about.
    drop(socket);
    buyer.online().await.result_of(&order_no, SOON).await.unwrap();
}

#[tokio::test]
async fn an_expired_connection_is_renewed_in_place() {
    let shop = Shop::open(Offer::default()).await;
    let (buyer, other) = (shop.buyer("u1"), shop.buyer("u2"));
    let life = Duration::from_secs(6);
    // A token is taken for 30 s after its end, since clocks differ.
    let ends = Clock::System.now().plus_millis(life.as_millis() as i64).plus_secs(-30).secs();
    let short = shop.local.outputs.token(Role::User, &buyer.id).claim("exp", ends).sign().unwrap();
    let mut socket = buyer.connect(ConnectOptions::new(short)).await;
    tokio::time::sleep(life).await;
    socket.ping().await.unwrap();
    assert_eq!(error_code(&mut socket).await, FrameErrorCode::AuthExpired);
    // Nothing is told to an expired connection; somebody else's token does not renew it.
    let order_no = buyer.accepted(1, "k1").await;
    buyer.wins(&order_no).await;
    socket.auth(&other.token).await.unwrap();
    assert_eq!(error_code(&mut socket).await, FrameErrorCode::AuthExpired);
    assert!(socket.result_so_far(&order_no).unwrap().is_none());

    socket.auth(&buyer.token).await.unwrap();
    assert!(matches!(socket.next(SOON).await.unwrap().frame, ServerFrame::Pong { .. }));
    socket.result_of(&order_no, SOON).await.unwrap();
    shop.audit().await;
}
