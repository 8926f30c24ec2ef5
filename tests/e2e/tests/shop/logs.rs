//! [P39] What is secret or private is in no log line, whatever a client does with it.

use client::documents::{BuyRequest, ProblemCode};
use client::frames::{ClientFrame, FrameErrorCode, ServerFrame};
use client::{ConnectOptions, Method, RawRequest, Role, Socket, Token};
use e2e::shop::pong;
use e2e::{Offer, SOON, Shop, eventually, refusal};
use kernel::time::Clock;

#[tokio::test]
async fn no_function_writes_down_what_clients_send() {
    let shop = Shop::open(Offer::default()).await;
    let buyer = shop.buyer("u1");
    let canary = format!("canary{:016x}", rand::random::<u64>());

    // A good token that carries it, and its signature, which is as good as the key for an hour.
    let token = shop.local.outputs.token(Role::User, &buyer.id).claim("note", canary.as_str()).sign().unwrap();
    let api = shop.local.api.signed_in(token.clone()).on_device(&format!("{canary}-device"));
    let request_id = format!("{canary}:request");
    let order_no = e2e::shop::accepted(api.buy(&buyer.wish(1), Some(&request_id)).await.unwrap());
    buyer.wins(&order_no).await;
    e2e::shop::done(api.order(&order_no).await);
    refusal(api.orders(None, Some(&canary)).await.unwrap(), ProblemCode::Validation);
    refusal(api.order(&canary).await.unwrap(), ProblemCode::NotFound);
    refusal(api.activity(&canary).await.unwrap(), ProblemCode::NotFound);
    refusal(api.stats(&shop.activity_id).await.unwrap(), ProblemCode::Forbidden);
    refusal(api.buy(&BuyRequest::new(&canary, &canary, 1), Some(&request_id)).await.unwrap(), ProblemCode::NotReady);
    // Bodies, ids and tokens that cannot be read.
    let malformed_id = format!("{canary} request");
    let body = format!(r#"{{"activityId":"{canary} x","skuId":"{canary}","{canary}":"{canary}","qty":"{canary}"}}"#);
    for headers in [&[("x-request-id", malformed_id.as_str())][..], &[("x-request-id", request_id.as_str())][..]] {
        let request =
            RawRequest { method: Method::POST, path: "/api/seckill/buy", headers, body: Some(body.clone().into()) };
        assert_eq!(api.raw(request).await.unwrap().status, 400);
    }
    let bad = Token::from_text(format!("{canary}.{canary}.{canary}"));
    refusal(shop.local.api.signed_in(bad.clone()).orders(None, None).await.unwrap(), ProblemCode::Unauthenticated);
    let document = format!(r#"{{"title":"{canary}","{canary}":1}}"#);
    let path = format!("/api/admin/skus/{}", shop.sku_id);
    let request = RawRequest { method: Method::PUT, path: &path, headers: &[], body: Some(document.into()) };
    assert_eq!(shop.local.admin.raw(request).await.unwrap().status, 400);

    // The same over a socket.
    Socket::connect(&shop.local.outputs, ConnectOptions::new(bad)).await.unwrap_err();
    let options = ConnectOptions::new(token.clone()).on_device(&format!("{canary}-device"));
    let mut socket = buyer.connect(options).await;
    for text in
        [canary.clone(), format!(r#"{{"type":"{canary}"}}"#), format!(r#"{{"type":"text","content":"{canary}"}}"#)]
    {
        socket.send_raw(text).await.unwrap();
        expect_error(&mut socket, FrameErrorCode::BadFrame).await;
    }
    socket.send(&ClientFrame::Auth { token: canary.clone() }).await.unwrap();
    expect_error(&mut socket, FrameErrorCode::AuthExpired).await;
    socket.auth(&token).await.unwrap();
    pong(&mut socket).await;
    socket.close().await.unwrap();
    shop.local.sweep().await;
    shop.audit().await;
    eventually("the socket is forgotten", SOON, async || {
        let live = shop
            .local
            .connections()
            .live(&chat::ids::Party::user(buyer.id.parse().unwrap()), Clock::System.now())
            .await
            .unwrap();
        live.is_empty().then_some(())
    })
    .await;

    let (head, signature) = token.text().rsplit_once('.').unwrap();
    let claims = head.rsplit_once('.').unwrap().1;
    let jwt_key = shop.local.outputs.jwt.secret.reveal();
    for function in shop.local.outputs.functions.keys() {
        // A log that is empty proves nothing: every function was called.
        let lines = eventually(&format!("{function} has logged"), SOON, async || {
            Some(shop.local.log_lines(function).await)
                .filter(|lines| lines.iter().any(|line| line.contains("\"level\"")))
        })
        .await;
        for secret in [canary.as_str(), signature, claims, jwt_key] {
            let found = lines.iter().find(|line| line.contains(secret));
            assert_eq!(found, None, "{function} wrote down what it was sent");
        }
    }
    // What was looked for would have been found: the calls themselves are there.
    let answered = shop.local.log_lines("buy").await;
    assert!(
        answered.iter().any(|line| line.contains("REQUEST_ID_REUSED") || line.contains("NOT_READY")),
        "the calls are not in the log"
    );
}

async fn expect_error(socket: &mut Socket, code: FrameErrorCode) {
    loop {
        match socket.next(SOON).await.unwrap().frame {
            ServerFrame::Error(error) => return assert_eq!(error.code, code),
            // What was not acknowledged comes again at any time.
            ServerFrame::SeckillResult(_) | ServerFrame::OrderStatus(_) => {}
            other => panic!("{other:?} instead of {code}"),
        }
    }
}
