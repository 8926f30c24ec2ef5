//! `POST /api/seckill/buy`: the hot path. A refused buyer costs one round trip to the gate; only winners touch a table and
//! the queue (and every five seconds somebody has the blacklist's version read).

mod refusal;

use aws_lc_rs::hmac;
use kernel::ids::{ActivityId, DeviceId, Quantity, RequestId, SkuId};
use kernel::time::Clock;
use platform::auth::{AuthConfig, Role, Verifier};
use platform::boot::{self, Boot};
use platform::config::{Env, FromEnv, Noted};
use platform::http::{Problem, Request, Response};
use platform::redis::{RedisConfig, RedisConnection};
use sale::blacklist::Blacklist;
use sale::buy::{Bought, BuyError, Purchase, Shop};
use sale::gate::Gate;
use sale::offer::OfferId;
use sale::order::BuyResult;
use sale::queue::Queue;
use sale::store::{Offers, Orders, StoreError};
use sale::wording;
use serde::{Deserialize, Serialize};

/// What the environment must say.
pub struct Config {
    orders_table: String,
    offers_table: String,
    order_queue_url: String,
    order_no_secret_arn: String,
    redis: RedisConfig,
    auth: AuthConfig,
}

impl FromEnv for Config {
    fn from_env(env: &mut Env) -> Result<Self, Noted> {
        let orders_table = env.required("ORDERS_TABLE");
        let offers_table = env.required("OFFERS_TABLE");
        let order_queue_url = env.required("ORDER_QUEUE_URL");
        let order_no_secret_arn = env.required("ORDER_NO_SECRET_ARN");
        let redis = RedisConfig::from_env(env);
        let auth = AuthConfig::from_env(env);
        Ok(Self {
            orders_table: orders_table?,
            offers_table: offers_table?,
            order_queue_url: order_queue_url?,
            order_no_secret_arn: order_no_secret_arn?,
            redis: redis?,
            auth: auth?,
        })
    }
}

/// What lives as long as the environment does.
pub struct State {
    shop: Shop<RedisConnection>,
    blacklist: Blacklist,
    verifier: Verifier,
}

impl State {
    pub async fn start(boot: &Boot<Config>) -> Result<Self, boot::Error> {
        let config = &boot.config;
        let (redis, verifier, secret) = tokio::try_join!(
            boot.redis(&config.redis),
            boot.verifier(&config.auth),
            boot.secret(&config.order_no_secret_arn)
        )?;
        let db = aws_sdk_dynamodb::Client::new(&boot.aws);
        Ok(Self {
            blacklist: Blacklist::new(Offers::new(db.clone(), config.offers_table.clone()), Clock::System),
            shop: Shop {
                gate: Gate::new(redis),
                orders: Orders::new(db, config.orders_table.clone()),
                queue: Queue::new(aws_sdk_sqs::Client::new(&boot.aws), config.order_queue_url.clone()),
                order_no_key: hmac::Key::new(hmac::HMAC_SHA256, secret.expose().as_bytes()),
                clock: Clock::System,
            },
            verifier,
        })
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Body {
    activity_id: ActivityId,
    sku_id: SkuId,
    #[serde(default = "one")]
    qty: Quantity,
}

const fn one() -> Quantity {
    Quantity::ONE
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Accepted<'a> {
    order_no: &'a str,
    status: BuyResult,
    message: &'a str,
}

pub async fn handle(state: &State, request: Request) -> Result<Response, Problem> {
    match request.route() {
        "POST /api/seckill/buy" => buy(state, &request).await,
        _ => Err(Problem::not_found()),
    }
}

async fn buy(state: &State, request: &Request) -> Result<Response, Problem> {
    let principal = request.authenticate(&state.verifier, state.shop.clock.now(), Role::User)?;
    let request_id = match request.parsed_header("X-Request-ID")? {
        Some(id) => id,
        None => RequestId::random().map_err(|error| Problem::internal(&error))?,
    };
    let device: Option<DeviceId> = request.parsed_header("X-Device-Id")?;
    let body: Body = request.json()?;
    let blocked = state.blacklist.judge(&principal.id).await.map_err(|error| Problem::unavailable(&error))?;
    let purchase = Purchase {
        user_id: principal.id,
        offer: OfferId { activity_id: body.activity_id, sku_id: body.sku_id },
        quantity: body.qty,
        request_id: request_id.clone(),
        device_address: format!("{}|{}", device.as_ref().map_or("", DeviceId::as_str), request.source_ip()),
        blocked,
    };

    // The caller needs it most when they have to try again.
    let name = "X-Request-ID";
    match answer(state, request, purchase).await {
        Ok(response) => Ok(response.header(name, request_id.as_str())),
        Err(problem) => Err(problem.header(name, request_id.as_str())),
    }
}

async fn answer(state: &State, request: &Request, purchase: Purchase) -> Result<Response, Problem> {
    match sale::buy::buy(&state.shop, purchase).await.map_err(failed)? {
        Bought::Accepted { order_no, status, reason, replayed } => {
            let message = wording::about(status, reason);
            let accepted = Accepted {
                order_no: order_no.as_str(),
                status: status.result(),
                message: message.in_language(request.language()),
            };
            let response = Response::json(202, &accepted)?;
            Ok(if replayed { response.header("Idempotency-Replayed", "true") } else { response })
        }
        Bought::Refused(refusal) => Err(refusal::problem(refusal)),
        Bought::RequestExpired => Err(refusal::request_expired()),
    }
}

/// A dependency is down, or something is wrong with us. Either way the same request id may be tried again.
fn failed(error: BuyError) -> Problem {
    match &error {
        BuyError::Gate(gate) if gate.is_unavailable() => Problem::unavailable(&error),
        BuyError::Store(StoreError::Unavailable { .. }) => Problem::unavailable(&error),
        BuyError::Gate(_) | BuyError::Store(StoreError::Corrupt(_)) | BuyError::OrderNo(_) => Problem::internal(&error),
    }
}
