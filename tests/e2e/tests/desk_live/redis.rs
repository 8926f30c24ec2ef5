//! There is no Redis in the chat, so what becomes of Redis is nothing to it. [C28] [C36]

use std::time::Duration;

use client::frames::SessionStatus;
use e2e::{SOON, eventually};

use crate::floor::Floor;

/// Longer than what is done meanwhile takes on a machine that is not busy.
const PAUSE: Duration = Duration::from_secs(6);
/// A Redis that has not answered for so long on this machine does not.
const NO_ANSWER: Duration = Duration::from_secs(1);

/// The stack's Redis, as its owner: the functions' user may neither stop it nor empty it.
pub(crate) async fn owner(floor: &Floor) -> redis::aio::MultiplexedConnection {
    let (scheme, place) = floor.local.outputs.redis_url.split_once("://").unwrap();
    let place = place.rsplit_once('@').map_or(place, |(_, place)| place);
    redis::Client::open(format!("{scheme}://{place}")).unwrap().get_multiplexed_async_connection().await.unwrap()
}

/// It answers nobody for a while.
pub(crate) async fn pause(redis: &mut redis::aio::MultiplexedConnection, pause: Duration) {
    let millis = u64::try_from(pause.as_millis()).unwrap();
    let paused: redis::RedisResult<()> =
        redis::cmd("CLIENT").arg("PAUSE").arg(millis).arg("ALL").query_async(redis).await;
    paused.unwrap();
}

async fn answers(mut redis: redis::aio::MultiplexedConnection) -> bool {
    let pong = tokio::time::timeout(NO_ANSWER, redis::cmd("PING").query_async::<String>(&mut redis)).await;
    pong.is_ok_and(|pong| pong.is_ok())
}

#[tokio::test]
async fn no_function_of_the_chat_knows_of_a_redis() {
    let floor = Floor::beside().await;
    let mut looked_at = 0;
    for function in floor.local.outputs.functions.keys().filter(|name| name.starts_with("chat-")) {
        let environment = floor.local.deployed(function).await.environment;
        let redis = environment.iter().find(|(name, value)| name.contains("REDIS") || value.contains("redis"));
        assert_eq!(redis, None, "{function}");
        looked_at += 1;
    }
    assert!(looked_at >= 6, "{looked_at} functions of the chat");
    floor.close().await;
}

#[tokio::test]
async fn while_redis_answers_nobody_people_are_served_and_talk() {
    let floor = Floor::alone().await;
    let agent = floor.agent("g1").await;
    let (one, two) = (floor.customer("u1").await, floor.customer("u2").await);
    let first = one.is_served().await;
    let mut redis = owner(&floor).await;
    pause(&mut redis, PAUSE).await;
    assert!(!answers(redis.clone()).await, "Redis still answers");

    assert_eq!(one.text(&first, "hello").await.unwrap().seq, 2);
    let second = two.is_served().await;
    assert_eq!(agent.text(&second, "hello to you").await.unwrap().seq, 2);
    two.has(&second, 2).await;
    agent.has(&first, 2).await;
    agent.close(&second).await.unwrap();
    two.sees(&second, "the end", |it| it.status == SessionStatus::Closed).await;
    assert_eq!(floor.with(&first).await, "open g1", "nobody was moved");

    eventually("Redis is back", SOON, async || answers(redis.clone()).await.then_some(())).await;
    floor.close().await;
}
