//! What the shop's people do: put goods up for sale, pause and end sales, and check that every promise was kept.

mod documents;
mod money;
mod operations;

use backoffice::{ChangeLog, StoresConfig};
use kernel::ids::{ActivityId, SkuId, UserId};
use platform::auth::{AuthConfig, Role, Verifier};
use platform::boot::{self, Boot};
use platform::config::{Env, FromEnv, Noted};
use platform::http::{Problem, Request, Response, Text};
use platform::redis::RedisConnection;
use sale::audit::{BOUND_SECS, MAX_BOUND_SECS};
use sale::dead_letters::DeadLetters;
use sale::lifecycle::{self, Command, Edit, EditRefusal};
use sale::offer::{MAX_PRODUCTS, OfferId};
use sale::store::StoreError;
use sale::store::offers::{ActivityRow, Cursor};
use sale::store::orders::CursorError;
use sale::{SaleError, Stores};
use serde_json::json;

use crate::documents::{
    ActivityBody, ActivityDocument, ChangesDocument, ProductBody, ProductDocument, SkuBody, SkuDocument, StatsDocument,
};

/// Entries of a list in one answer.
const PAGE: u16 = 100;
/// How long an admin waits before trying an edit again that met others, or a gate that was being made.
const CONTENDED_RETRY_MS: u64 = 1_000;

pub struct Config {
    stores: StoresConfig,
    order_queue_url: String,
    order_dlq_url: String,
    auth: AuthConfig,
}

impl FromEnv for Config {
    fn from_env(env: &mut Env) -> Result<Self, Noted> {
        let stores = StoresConfig::from_env(env);
        let order_queue_url = env.required("ORDER_QUEUE_URL");
        let order_dlq_url = env.required("ORDER_DLQ_URL");
        let auth = AuthConfig::from_env(env);
        Ok(Self { stores: stores?, order_queue_url: order_queue_url?, order_dlq_url: order_dlq_url?, auth: auth? })
    }
}

pub struct State {
    stores: Stores<RedisConnection>,
    changes: ChangeLog,
    dead_letters: DeadLetters,
    verifier: Verifier,
}

impl State {
    pub async fn start(boot: &Boot<Config>) -> Result<Self, boot::Error> {
        let config = &boot.config;
        let sqs = aws_sdk_sqs::Client::new(&boot.aws);
        let (stores, verifier) = tokio::try_join!(config.stores.open(boot), boot.verifier(&config.auth))?;
        Ok(Self {
            changes: ChangeLog::new(stores.offers.clone()),
            stores,
            dead_letters: DeadLetters::new(sqs, config.order_dlq_url.clone(), config.order_queue_url.clone()),
            verifier,
        })
    }
}

pub async fn handle(state: &State, request: Request) -> Result<Response, Problem> {
    let admin = request.authenticate(&state.verifier, state.stores.clock.now(), Role::Admin)?.id;
    nothing_overlooked(&request)?;
    match request.route() {
        "PUT /api/admin/skus/{skuId}" => put_sku(state, &request, &admin).await,
        "PUT /api/admin/activities/{activityId}" => put_activity(state, &request, &admin).await,
        "PUT /api/admin/activities/{activityId}/products/{skuId}" => put_product(state, &request, &admin).await,
        "POST /api/admin/activities/{activityId}/{action}" => act(state, &request, &admin).await,
        "GET /api/admin/activities/{activityId}/stats" => stats(state, &request).await,
        "GET /api/admin/activities/{activityId}/audit" => audit(state, &request).await,
        "GET /api/admin/activities/{activityId}/changes" => activity_changes(state, &request).await,
        "POST /api/admin/activities/{activityId}/reconcile" => operations::reconcile(state, &request, &admin).await,
        "POST /api/admin/activities/{activityId}/rebuild" => operations::rebuild(state, &request, &admin).await,
        "GET /api/admin/changes" => operations::system_changes(state, &request).await,
        "GET /api/admin/payments" => money::list(state, &request).await,
        "POST /api/admin/payments/{transactionId}/refund" => money::refund(state, &request, &admin).await,
        "GET /api/admin/blacklist" => operations::blacklist(state, &request).await,
        "PUT /api/admin/blacklist/{userId}" => operations::block(state, &request, &admin).await,
        "DELETE /api/admin/blacklist/{userId}" => operations::unblock(state, &request, &admin).await,
        "GET /api/admin/dlq" => operations::dead_letters(state).await,
        "POST /api/admin/dlq/redrive" => operations::redrive(state, &admin).await,
        "POST /api/admin/dlq/settle" => operations::settle(state, &admin).await,
        _ => Err(Problem::not_found()),
    }
}

/// Refuses what nobody would look at: a `dryrun=true`, or a body that says so, would otherwise put right what was only to be
/// looked at. A body belongs to a PUT, and to nothing else here.
fn nothing_overlooked(request: &Request) -> Result<(), Problem> {
    let route = request.route();
    request.only_query(match route {
        "GET /api/admin/activities/{activityId}/audit" => &["boundSecs"],
        "POST /api/admin/activities/{activityId}/reconcile" => &["dryRun"],
        "GET /api/admin/payments" => &["state", "cursor"],
        "GET /api/admin/activities/{activityId}/changes" | "GET /api/admin/changes" | "GET /api/admin/blacklist" => {
            &["cursor"]
        }
        _ => &[],
    })?;
    if route.starts_with("PUT ") { Ok(()) } else { request.no_body() }
}

/// Where the page before ended, if the caller names one.
fn cursor<T>(request: &Request, decode: fn(&str) -> Result<T, CursorError>) -> Result<Option<T>, Problem> {
    let Some(opaque) = request.query::<String>("cursor")? else { return Ok(None) };
    decode(&opaque).map(Some).map_err(|_| {
        Problem::validation(Text::new("cursor is not one that this list gave out.", "cursor 不是本列表返回的游标。"))
    })
}

async fn put_sku(state: &State, request: &Request, admin: &UserId) -> Result<Response, Problem> {
    let sku_id: SkuId = request.path("skuId")?;
    let spec = request.json::<SkuBody>()?.spec();
    spec.check().map_err(documents::invalid)?;
    let row = done(lifecycle::put_sku(&state.stores, admin, &sku_id, &spec).await)?;
    Response::json(200, &SkuDocument::from(row))
}

async fn put_activity(state: &State, request: &Request, admin: &UserId) -> Result<Response, Problem> {
    let activity_id: ActivityId = request.path("activityId")?;
    let spec = request.json::<ActivityBody>()?.spec()?;
    spec.check().map_err(documents::invalid)?;
    let row = done(lifecycle::put_activity(&state.stores, admin, &activity_id, &spec).await)?;
    activity(state, row).await
}

async fn put_product(state: &State, request: &Request, admin: &UserId) -> Result<Response, Problem> {
    let id = OfferId { activity_id: request.path("activityId")?, sku_id: request.path("skuId")? };
    let spec = request.json::<ProductBody>()?.spec()?;
    spec.check().map_err(documents::invalid)?;
    let row = done(lifecycle::put_offer(&state.stores, admin, &id, &spec).await)?;
    Response::json(200, &ProductDocument::from(row))
}

async fn act(state: &State, request: &Request, admin: &UserId) -> Result<Response, Problem> {
    let activity_id: ActivityId = request.path("activityId")?;
    let action: String = request.path("action")?;
    let row = match action.as_str() {
        "preheat" => {
            let row = done(lifecycle::preheat(&state.stores, &activity_id).await)?;
            note(state, activity_id.as_str(), admin, "preheat".to_owned(), &json!({})).await;
            row
        }
        "pause" => done(lifecycle::command(&state.stores, admin, &activity_id, Command::Pause).await)?,
        "resume" => done(lifecycle::command(&state.stores, admin, &activity_id, Command::Resume).await)?,
        "end" => done(lifecycle::command(&state.stores, admin, &activity_id, Command::End).await)?,
        _ => return Err(Problem::not_found()),
    };
    activity(state, row).await
}

/// The activity with its state, read after what was just done to it.
async fn activity(state: &State, row: ActivityRow) -> Result<Response, Problem> {
    let offers = state.stores.offers.offers_of(&row.activity_id).await.map_err(|error| failed(&error.into()))?;
    Response::json(200, &ActivityDocument::of(row, offers, state.stores.clock.now()))
}

async fn stats(state: &State, request: &Request) -> Result<Response, Problem> {
    let activity_id: ActivityId = request.path("activityId")?;
    let offers = &state.stores.offers;
    let Some(row) = offers.activity(&activity_id).await.map_err(|error| failed(&error.into()))? else {
        return Err(Problem::not_found());
    };
    let mut products = Vec::new();
    for offer in offers.offers_of(&activity_id).await.map_err(|error| failed(&error.into()))? {
        let counters = state.stores.gate.counters(&offer.id()).await.map_err(|error| failed(&error.into()))?;
        products.push((offer, counters));
    }
    Response::json(200, &StatsDocument::of(&row, products, state.stores.clock.now()))
}

async fn audit(state: &State, request: &Request) -> Result<Response, Problem> {
    let activity_id: ActivityId = request.path("activityId")?;
    let bound_secs = request.query::<i64>("boundSecs")?.unwrap_or(BOUND_SECS.into());
    let bound_secs = u32::try_from(bound_secs).ok().filter(|secs| *secs <= MAX_BOUND_SECS).ok_or_else(|| {
        Problem::validation(Text::of(
            format!("boundSecs is 0 to {MAX_BOUND_SECS}."),
            format!("boundSecs 的取值范围为 0 到 {MAX_BOUND_SECS}。"),
        ))
    })?;
    match sale::audit::audit(&state.stores, &state.dead_letters, &activity_id, bound_secs)
        .await
        .map_err(|error| failed(&error))?
    {
        Some(report) => Response::json(200, &report),
        None => Err(Problem::not_found()),
    }
}

/// What was done to a sale and by whom, oldest first.
async fn activity_changes(state: &State, request: &Request) -> Result<Response, Problem> {
    let activity_id: ActivityId = request.path("activityId")?;
    if state.stores.offers.activity(&activity_id).await.map_err(|error| failed(&error.into()))?.is_none() {
        return Err(Problem::not_found());
    }
    changes(state, request, activity_id.as_str()).await
}

/// A page of the change log of `subject`.
async fn changes(state: &State, request: &Request, subject: &str) -> Result<Response, Problem> {
    let cursor = cursor(request, Cursor::decode)?;
    let page = state.stores.offers.changes_of(subject, PAGE, cursor.as_ref()).await;
    Response::json(200, &ChangesDocument::from(page.map_err(|error| failed(&error.into()))?))
}

/// Notes what an admin does, besides what rows say.
async fn note(state: &State, subject: &str, admin: &UserId, action: String, what: &impl serde::Serialize) {
    state.changes.note(subject, admin, state.stores.clock.now(), action, None, what).await;
}

/// What was changed, or why nothing was.
fn done<T>(result: Result<Edit<T>, SaleError>) -> Result<T, Problem> {
    let refusal = match result.map_err(|error| failed(&error))? {
        Edit::Done(row) => return Ok(row),
        Edit::Refused(refusal) => refusal,
    };
    Err(match refusal {
        EditRefusal::NotFound => Problem::not_found(),
        EditRefusal::Ended => Problem::new(
            409,
            "ENDED",
            Text::new("The sale is over; nothing was changed.", "活动已结束，未作任何更改。"),
        ),
        EditRefusal::TooFewFree { available } => Problem::new(
            409,
            "INSUFFICIENT_STOCK",
            Text::of(
                format!("Only {available} units of the SKU are in no sale; nothing was changed."),
                format!("该 SKU 未分配的库存仅 {available} 件，未作任何更改。"),
            ),
        )
        .with("remaining", available),
        EditRefusal::TooFewUnsold { available } => Problem::new(
            409,
            "INSUFFICIENT_STOCK",
            Text::of(
                format!("Only {available} units of the product are unsold; nothing was changed."),
                format!("该商品未售出的数量仅 {available} 件，未作任何更改。"),
            ),
        )
        .with("remaining", available),
        EditRefusal::TooManyProducts => Problem::validation(Text::of(
            format!("An activity has at most {MAX_PRODUCTS} products."),
            format!("一个活动最多包含 {MAX_PRODUCTS} 个商品。"),
        )),
        EditRefusal::UnlimitedIsFixed => Problem::validation(Text::new(
            "Whether a product is unlimited is fixed when it is put up.",
            "商品是否不限量在上架时确定，不能更改。",
        )),
        EditRefusal::LimitPeriodIsFixed => Problem::validation(Text::new(
            "limitPeriod is fixed when a product is put up.",
            "limitPeriod 在上架时确定，不能更改。",
        )),
        EditRefusal::DaysAreFixed => Problem::validation(Text::new(
            "timeZone says where days begin, which is fixed once a product with a limit for each day has its gate: send the one that it had.",
            "timeZone 决定每日限购的起始时刻，按日限购的商品预热后不能更改，请提交原有的时区。",
        )),
        EditRefusal::GateNotReady => Problem::new(
            503,
            "NOT_READY",
            Text::new("The gate is being made; try again.", "库存闸门正在准备，请稍后再试。"),
        )
        .retry_after_ms(CONTENDED_RETRY_MS),
        EditRefusal::Contended => Problem::new(
            503,
            "UNAVAILABLE",
            Text::new("Others are changing the same thing; try again.", "其他人正在修改同一内容，请稍后再试。"),
        )
        .retry_after_ms(CONTENDED_RETRY_MS),
    })
}

fn failed(error: &SaleError) -> Problem {
    match error {
        SaleError::Gate(gate) if gate.is_unavailable() => Problem::unavailable(error),
        SaleError::Store(StoreError::Unavailable { .. }) | SaleError::Queue(_) => Problem::unavailable(error),
        SaleError::Gate(_) | SaleError::Store(StoreError::Corrupt(_)) => Problem::internal(error),
    }
}
