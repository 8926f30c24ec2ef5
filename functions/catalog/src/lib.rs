//! What anybody may read: the activities, one of them, and what time it is.
//!
//! Sale pages are read by everybody at once, so the answers are fit for a CDN, and each environment keeps what it read for
//! a moment. None of it says what is left: only the gate knows, and only when asked to sell.

mod cache;

use futures_util::{StreamExt, TryStreamExt, stream};
use kernel::ids::ActivityId;
use kernel::time::{Clock, Rfc3339, UnixMillis};
use platform::boot::{self, Boot};
use platform::config::{Env, FromEnv, Noted};
use platform::http::{Problem, Request, Response};
use sale::offer::{LimitPeriod, Shown};
use sale::store::offers::{ActivityRow, OfferRow};
use sale::store::{Offers, StoreError};
use serde::Serialize;

use crate::cache::Cache;

/// Browsers and CDNs may keep a page for five seconds, and for half a minute after that show it once more while they ask for
/// the new one. So what an admin changes shows after seven seconds (two of them in this function's memory) to whoever asks
/// again and again, and to somebody who comes by after a while with their second look.
const CACHE_CONTROL: &str = "public, max-age=5, stale-while-revalidate=30";

/// Activities whose products are looked at at once.
const READS_AT_ONCE: usize = 16;

pub struct Config {
    offers_table: String,
}

impl FromEnv for Config {
    fn from_env(env: &mut Env) -> Result<Self, Noted> {
        Ok(Self { offers_table: env.required("OFFERS_TABLE")? })
    }
}

pub struct State {
    offers: Offers,
    clock: Clock,
    list: Cache<(), ListDocument>,
    activities: Cache<ActivityId, Option<ActivityDocument>>,
}

impl State {
    pub async fn start(boot: &Boot<Config>) -> Result<Self, boot::Error> {
        Ok(Self {
            offers: Offers::to_show(aws_sdk_dynamodb::Client::new(&boot.aws), boot.config.offers_table.clone()),
            clock: Clock::System,
            list: Cache::default(),
            activities: Cache::default(),
        })
    }
}

/// Where a sale stands, for shoppers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
enum PublicState {
    Scheduled,
    Open,
    Paused,
    Closed,
}

impl PublicState {
    /// None: nothing is put up yet, which is nobody's business but the shop's.
    fn of(shown: Shown) -> Option<Self> {
        match shown {
            Shown::Draft => None,
            Shown::Scheduled | Shown::Preheated => Some(Self::Scheduled),
            Shown::Open => Some(Self::Open),
            Shown::Paused => Some(Self::Paused),
            Shown::Closed | Shown::Settled => Some(Self::Closed),
        }
    }
}

#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
struct ListDocument {
    items: Vec<Summary>,
}

#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
struct Summary {
    activity_id: ActivityId,
    name: String,
    state: PublicState,
    starts_at: Rfc3339,
    ends_at: Rfc3339,
}

impl Summary {
    /// None while nothing is put up.
    fn of(row: ActivityRow, offers: &[OfferRow], now: UnixMillis) -> Option<Self> {
        Some(Self {
            state: PublicState::of(row.shown(offers, now))?,
            activity_id: row.activity_id,
            name: row.name,
            starts_at: Rfc3339(row.rules.starts_at),
            ends_at: Rfc3339(row.rules.ends_at),
        })
    }
}

#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
struct ActivityDocument {
    #[serde(flatten)]
    summary: Summary,
    pay_window_secs: u32,
    products: Vec<Product>,
}

#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
struct Product {
    sku_id: String,
    title: String,
    price: u64,
    currency: String,
    limit_per_user: u32,
    limit_period: LimitPeriod,
    #[serde(skip_serializing_if = "Option::is_none")]
    image: Option<String>,
}

impl From<OfferRow> for Product {
    fn from(row: OfferRow) -> Self {
        Self {
            sku_id: row.sku_id.into(),
            title: row.title,
            price: row.price.get(),
            currency: row.currency.into(),
            limit_per_user: row.limit_per_user,
            limit_period: row.limit_period,
            image: row.image,
        }
    }
}

#[derive(Serialize)]
struct TimeDocument {
    now: UnixMillis,
}

pub async fn handle(state: &State, request: Request) -> Result<Response, Problem> {
    match request.route() {
        "GET /api/seckill/activities" => list(state, &request).await,
        "GET /api/seckill/activities/{activityId}" => activity(state, &request).await,
        "GET /api/seckill/time" => Response::json(200, &TimeDocument { now: state.clock.now() }),
        _ => Err(Problem::not_found()),
    }
}

async fn list(state: &State, request: &Request) -> Result<Response, Problem> {
    let now = state.clock.now();
    let document = match state.list.get(&(), now) {
        Some(document) => document,
        None => {
            let document = read_list(state, now).await.map_err(failed)?;
            state.list.put((), document.clone(), now);
            document
        }
    };
    Response::cacheable(request, &document, CACHE_CONTROL)
}

async fn activity(state: &State, request: &Request) -> Result<Response, Problem> {
    // A text that is no id is an activity that is not there, and is not worth a read.
    let activity_id: ActivityId = request.path("activityId").map_err(|_| Problem::not_found())?;
    let now = state.clock.now();
    let document = match state.activities.get(&activity_id, now) {
        Some(document) => document,
        None => {
            let document = read_activity(state, &activity_id, now).await.map_err(failed)?;
            // Unknown ids are remembered too: whoever asks for them by the thousand reads the table once each.
            state.activities.put(activity_id, document.clone(), now);
            document
        }
    };
    match document {
        Some(document) => Response::cacheable(request, &document, CACHE_CONTROL),
        None => Err(Problem::not_found()),
    }
}

async fn read_list(state: &State, now: UnixMillis) -> Result<ListDocument, StoreError> {
    let rows = state.offers.activities().await?;
    let items = stream::iter(rows).map(|row| async move {
        // What is over is shown as such, whatever is in it: past sales pile up, and need no read each.
        let offers = if row.is_over(now) { Vec::new() } else { state.offers.offers_of(&row.activity_id).await? };
        Ok::<_, StoreError>(Summary::of(row, &offers, now))
    });
    let items: Vec<Option<Summary>> = items.buffered(READS_AT_ONCE).try_collect().await?;
    Ok(ListDocument { items: items.into_iter().flatten().collect() })
}

async fn read_activity(
    state: &State,
    activity_id: &ActivityId,
    now: UnixMillis,
) -> Result<Option<ActivityDocument>, StoreError> {
    let Some(row) = state.offers.activity(activity_id).await? else {
        return Ok(None);
    };
    let offers = state.offers.offers_of(activity_id).await?;
    let pay_window_secs = row.rules.pay_window_secs;
    Ok(Summary::of(row, &offers, now).map(|summary| {
        let products = offers.into_iter().filter(|offer| offer.on_sale).map(Product::from).collect();
        ActivityDocument { summary, pay_window_secs, products }
    }))
}

fn failed(error: StoreError) -> Problem {
    match &error {
        StoreError::Unavailable { .. } => Problem::unavailable(&error),
        StoreError::Corrupt(_) => Problem::internal(&error),
    }
}
