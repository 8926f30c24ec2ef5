//! [P38] Who may not come in. Each bad token differs from a good one in one thing.

use std::time::Duration;

use client::documents::ProblemCode;
use client::{ClientError, ConnectOptions, Role, Socket, Token};
use e2e::{Buyer, Offer, Shop, refusal};

/// Longer than the leeway for clocks that differ.
const LONG: Duration = Duration::from_secs(300);

fn bad_tokens(buyer: &Buyer) -> Vec<(&'static str, Token)> {
    let good = buyer.local.outputs.token(Role::User, &buyer.id);
    let sign = |builder: client::TokenBuilder| builder.sign().unwrap();
    let text = buyer.token.text();
    let (head, signature) = text.rsplit_once('.').unwrap();
    let other_signature: String = signature.chars().rev().collect();
    vec![
        ("alg none", good.clone().unsigned()),
        ("signed, but says alg none", sign(good.clone().header("alg", "none"))),
        ("HMAC under RS256", sign(good.clone().header("alg", "RS256"))),
        ("HMAC under ES256", sign(good.clone().header("alg", "ES256"))),
        ("HS384 by name", sign(good.clone().header("alg", "HS384"))),
        ("no exp", sign(good.clone().without("exp"))),
        ("exp as text", sign(good.clone().claim("exp", "9999999999"))),
        ("expired", sign(good.clone().expired_since(LONG))),
        ("nbf in the future", sign(good.clone().valid_in(LONG))),
        ("no aud", sign(good.clone().without("aud"))),
        ("another aud", sign(good.clone().claim("aud", "elsewhere"))),
        ("no iss", sign(good.clone().without("iss"))),
        ("another iss", sign(good.clone().claim("iss", "https://elsewhere.example"))),
        ("no sub", sign(good.clone().without("sub"))),
        ("sub with a separator", sign(good.clone().claim("sub", "u1#x"))),
        ("no role", sign(good.clone().without("role"))),
        ("unknown role", sign(good.clone().claim("role", "owner"))),
        ("admin with a shopper's audience", sign(good.clone().claim("role", "admin"))),
        ("unknown kid", sign(good.clone().header("kid", "another"))),
        ("another key", sign(good.clone().secret("another-key-of-more-than-thirty-two-bytes"))),
        ("another signature", Token::from_text(format!("{head}.{other_signature}"))),
        ("no signature", Token::from_text(head)),
        ("no token", Token::from_text("not.a.token")),
        ("an endless one", Token::from_text("x".repeat(5_000))),
    ]
}

#[tokio::test]
async fn a_bad_token_opens_no_route() {
    let shop = Shop::open(Offer::default()).await;
    let buyer = shop.buyer("u1");
    for (name, token) in bad_tokens(&buyer) {
        let stranger = shop.local.api.signed_in(token);
        let answer = stranger.buy(&buyer.wish(1), Some("k1")).await.unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(answer.headers.get("www-authenticate"), Some("Bearer"), "{name}");
        refusal(answer, ProblemCode::Unauthenticated);
        refusal(stranger.orders(None, None).await.unwrap(), ProblemCode::Unauthenticated);
    }
    refusal(shop.local.api.buy(&buyer.wish(1), Some("k1")).await.unwrap(), ProblemCode::Unauthenticated);
    refusal(shop.local.api.stats(&shop.activity_id).await.unwrap(), ProblemCode::Unauthenticated);
    assert_eq!(shop.units().await, (10, 0));

    // The same with the one thing put right: within the leeway, or of several audiences, it is good.
    let good = shop.local.outputs.token(Role::User, &buyer.id);
    let (soon, late) = (Duration::from_secs(5), Duration::from_secs(5));
    for (n, token) in [
        good.clone().valid_in(soon),
        good.clone().expired_since(late),
        good.clone().claim("aud", serde_json::json!(["elsewhere", shop.local.outputs.jwt.aud])),
    ]
    .into_iter()
    .enumerate()
    {
        let answer =
            shop.local.api.signed_in(token.sign().unwrap()).buy(&buyer.wish(1), Some(&format!("k{n}"))).await.unwrap();
        e2e::shop::accepted(answer);
    }
    shop.audit().await;
}

#[tokio::test]
async fn a_bad_token_opens_no_socket() {
    let shop = Shop::open(Offer::default()).await;
    let buyer = shop.buyer("u1");
    let mut bad = bad_tokens(&buyer);
    // No conversation and no orders: nothing to be told.
    bad.push(("an admin", buyer.token_as(Role::Admin)));
    bad.push(("an empty one", Token::from_text("")));
    for (name, token) in bad {
        assert_refused(name, Socket::connect(&shop.local.outputs, ConnectOptions::new(token)).await);
    }
    let nobody = ConnectOptions { token: None, ..ConnectOptions::new(buyer.token.clone()) };
    assert_refused("without one", Socket::connect(&shop.local.outputs, nobody).await);
    assert_refused("a device that is none", {
        let options = ConnectOptions::new(buyer.token.clone()).on_device("a|b");
        Socket::connect(&shop.local.outputs, options).await
    });
    buyer.online().await;
}

/// On AWS the function's 401 or 400 reaches the client; the local gateway refuses every handshake with 403.
fn assert_refused(name: &str, outcome: Result<Socket, ClientError>) {
    match outcome {
        Err(ClientError::HandshakeRefused { status: 400..=403 }) => {}
        other => panic!("{name}: {other:?}"),
    }
}
