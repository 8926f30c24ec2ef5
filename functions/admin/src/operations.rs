//! What operators do when something is wrong: compare and put right, make a gate anew, keep somebody out, see to dead letters.

use kernel::ids::{ActivityId, OrderNo, SkuId, UserId};
use kernel::time::Rfc3339;
use platform::http::{Problem, Request, Response, Text};
use sale::blacklist::{self, Entry, MAX_REASON_CHARS};
use sale::dead_letters::{Letter, Settled};
use sale::offer::SaleState;
use sale::rebuild::Readiness;
use sale::reconcile::{self, Drift, Repair};
use sale::store::offers::{Cursor, OfferRow, Page, SYSTEM};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::{PAGE, State, changes, cursor, failed, note};

/// Drifts that one answer names, of each offer.
const MAX_DRIFTS: usize = 100;
/// Characters of a dead letter that are shown: a hundred whole ones may be more than a function may answer.
const MAX_LETTER_CHARS: usize = 4_096;

/// `GET /api/admin/changes`: what was done that concerns no single sale, oldest first.
pub(crate) async fn system_changes(state: &State, request: &Request) -> Result<Response, Problem> {
    changes(state, request, SYSTEM).await
}

/// The offers of the activity that the path names.
async fn offers(state: &State, request: &Request) -> Result<Vec<OfferRow>, Problem> {
    let activity_id: ActivityId = request.path("activityId")?;
    let offers = &state.stores.offers;
    if offers.activity(&activity_id).await.map_err(|error| failed(&error.into()))?.is_none() {
        return Err(Problem::not_found());
    }
    offers.offers_of(&activity_id).await.map_err(|error| failed(&error.into()))
}

/// Notes what is about to be done to the gates of an activity. Before it is: it may be done in part when it fails.
async fn note_asked(state: &State, admin: &UserId, action: &str, offers: &[OfferRow]) {
    let Some(first) = offers.first() else { return };
    let products: Vec<&SkuId> = offers.iter().map(|offer| &offer.sku_id).collect();
    note(state, first.activity_id.as_str(), admin, action.to_owned(), &json!({"products": products})).await;
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Reconciled {
    dry_run: bool,
    products: Vec<ReconciledProduct>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ReconciledProduct {
    sku_id: SkuId,
    /// How many there are; at most [`MAX_DRIFTS`] of them are named.
    drift_count: usize,
    drifts: Vec<DriftDocument>,
    /// The gate's sums are not those of its holds.
    sums_differ: bool,
    /// The gate has to be made anew: is being made, unless this was a dry run.
    rebuild: bool,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct DriftDocument {
    order_no: OrderNo,
    drift: Drift,
}

/// `POST …/reconcile?dryRun=`: compares every order with its hold, and puts right what does not fit. Units of orders that have
/// FAILED are left to the sweep, which can tell their buyers first.
pub(crate) async fn reconcile(state: &State, request: &Request, admin: &UserId) -> Result<Response, Problem> {
    let dry_run = request.query::<bool>("dryRun")?.unwrap_or(false);
    let mut products = Vec::new();
    let offers = offers(state, request).await?;
    if !dry_run {
        note_asked(state, admin, "reconcile", &offers).await;
    }
    for offer in offers {
        let repair = if dry_run { Repair::OnlyLook } else { Repair::Do };
        let compared = reconcile::whole(&state.stores, &offer, repair).await.map_err(|error| failed(&error))?;
        if compared.rebuild && !dry_run {
            sale::rebuild::begin(&state.stores, &offer).await.map_err(|error| failed(&error))?;
        }
        products.push(ReconciledProduct {
            sku_id: offer.sku_id,
            drift_count: compared.drifts.len(),
            drifts: compared
                .drifts
                .into_iter()
                .take(MAX_DRIFTS)
                .map(|(order_no, drift)| DriftDocument { order_no, drift })
                .collect(),
            sums_differ: compared.sums_differ,
            rebuild: compared.rebuild,
        });
    }
    if !dry_run {
        let activity_id: ActivityId = request.path("activityId")?;
        // Without the orders: those of many products may be more than an item holds.
        let found = |product: &ReconciledProduct| json!({"skuId": product.sku_id, "driftCount": product.drift_count, "sumsDiffer": product.sums_differ, "rebuild": product.rebuild});
        let found: Vec<Value> = products.iter().map(found).collect();
        note(state, activity_id.as_str(), admin, "reconciled".to_owned(), &json!({"products": found})).await;
    }
    Response::json(200, &Reconciled { dry_run, products })
}

#[derive(Serialize)]
struct Rebuilt {
    products: Vec<RebuiltProduct>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct RebuiltProduct {
    sku_id: SkuId,
    state: RebuildState,
    /// Not made before this instant; the sweep goes on with it.
    #[serde(skip_serializing_if = "Option::is_none")]
    not_before: Option<Rfc3339>,
}

#[derive(Serialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
enum RebuildState {
    Ready,
    Making,
    /// Settled, or never preheated: there is no gate to make.
    None,
}

/// `POST …/rebuild`: makes the gates anew, from the rows; one that is being made already goes on. Nobody can buy until they are.
pub(crate) async fn rebuild(state: &State, request: &Request, admin: &UserId) -> Result<Response, Problem> {
    let mut products = Vec::new();
    let offers = offers(state, request).await?;
    note_asked(state, admin, "rebuild", &offers).await;
    for offer in offers {
        let readiness = match offer.state {
            SaleState::Live | SaleState::Paused | SaleState::Closed if offer.epoch > 0 => {
                sale::rebuild::ask(&state.stores, &offer).await.map_err(|error| failed(&error))?
            }
            SaleState::Live | SaleState::Paused | SaleState::Closed | SaleState::Settled => Readiness::Over,
        };
        let (made, not_before) = match readiness {
            Readiness::Ready => (RebuildState::Ready, None),
            Readiness::Making { until } => (RebuildState::Making, Some(Rfc3339(until))),
            Readiness::Contended => (RebuildState::Making, None),
            Readiness::Over => (RebuildState::None, None),
        };
        products.push(RebuiltProduct { sku_id: offer.sku_id, state: made, not_before });
    }
    Response::json(200, &Rebuilt { products })
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct BlockBody {
    reason: String,
    #[serde(default)]
    until: Option<Rfc3339>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct BlockedDocument {
    user_id: UserId,
    reason: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    until: Option<Rfc3339>,
    by: UserId,
    at: Rfc3339,
}

impl From<Entry> for BlockedDocument {
    fn from(entry: Entry) -> Self {
        Self {
            user_id: entry.user_id,
            reason: entry.reason,
            until: entry.until.map(Rfc3339),
            by: entry.by,
            at: Rfc3339(entry.at),
        }
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct BlacklistDocument {
    items: Vec<BlockedDocument>,
    #[serde(skip_serializing_if = "Option::is_none")]
    next_cursor: Option<String>,
}

/// `GET /api/admin/blacklist?cursor=`: a hundred a page.
pub(crate) async fn blacklist(state: &State, request: &Request) -> Result<Response, Problem> {
    let cursor = cursor(request, Cursor::decode)?;
    let page = state.stores.offers.blacklisted(PAGE, cursor.as_ref()).await;
    let Page { items, next } = page.map_err(|error| failed(&error.into()))?;
    let items = items.into_iter().map(BlockedDocument::from).collect();
    Response::json(200, &BlacklistDocument { items, next_cursor: next.as_ref().map(Cursor::encode) })
}

/// `PUT /api/admin/blacklist/{userId}`: within five seconds this user can buy no more.
pub(crate) async fn block(state: &State, request: &Request, admin: &UserId) -> Result<Response, Problem> {
    let user_id: UserId = request.path("userId")?;
    let body: BlockBody = request.json()?;
    if !blacklist::is_reason(&body.reason) {
        return Err(Problem::validation(Text::of(
            format!("reason is 1 to {MAX_REASON_CHARS} visible characters."),
            format!("reason 的长度为 1 到 {MAX_REASON_CHARS} 个可见字符。"),
        )));
    }
    let now = state.stores.clock.now();
    if body.until.is_some_and(|until| until.0 <= now) {
        return Err(Problem::validation(Text::new("until lies in the past.", "until 已过期。")));
    }
    let until = body.until.map(|until| until.0);
    let entry = Entry { user_id, reason: body.reason, until, by: admin.clone(), at: now };
    state.stores.offers.put_blacklisted(&entry).await.map_err(|error| failed(&error.into()))?;
    let answer = BlockedDocument::from(entry);
    note(state, SYSTEM, admin, format!("block {}", answer.user_id), &answer).await;
    Response::json(200, &answer)
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Unblocked {
    user_id: UserId,
}

/// `DELETE /api/admin/blacklist/{userId}`.
pub(crate) async fn unblock(state: &State, request: &Request, admin: &UserId) -> Result<Response, Problem> {
    let user_id: UserId = request.path("userId")?;
    if !state.stores.offers.delete_blacklisted(&user_id).await.map_err(|error| failed(&error.into()))? {
        return Err(Problem::not_found());
    }
    let answer = Unblocked { user_id };
    note(state, SYSTEM, admin, format!("unblock {}", answer.user_id), &answer).await;
    Response::json(200, &answer)
}

#[derive(Serialize)]
struct DeadLetterList {
    items: Vec<LetterDocument>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct LetterDocument {
    message_id: String,
    body: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    order_no: Option<OrderNo>,
    #[serde(skip_serializing_if = "Option::is_none")]
    sent_at: Option<Rfc3339>,
    /// What became of its order; in the answer of `settle`.
    #[serde(skip_serializing_if = "Option::is_none")]
    settled: Option<Settled>,
}

impl LetterDocument {
    fn of(letter: Letter, settled: Option<Settled>) -> Self {
        Self {
            message_id: letter.message_id,
            body: letter.body.chars().take(MAX_LETTER_CHARS).collect(),
            order_no: letter.order_no,
            sent_at: letter.sent_at.map(Rfc3339),
            settled,
        }
    }
}

/// `GET /api/admin/dlq`: at most a hundred dead letters; they stay.
pub(crate) async fn dead_letters(state: &State) -> Result<Response, Problem> {
    let letters = state.dead_letters.list().await.map_err(|error| failed(&error.into()))?;
    let items = letters.into_iter().map(|letter| LetterDocument::of(letter, None)).collect();
    Response::json(200, &DeadLetterList { items })
}

#[derive(Serialize)]
struct Redriven {
    redriven: usize,
}

/// `POST /api/admin/dlq/redrive`: at most a hundred dead letters are sent again, as they are.
pub(crate) async fn redrive(state: &State, admin: &UserId) -> Result<Response, Problem> {
    let redriven = state.dead_letters.redrive().await.map_err(|error| failed(&error.into()))?;
    let answer = Redriven { redriven };
    note(state, SYSTEM, admin, "redrive".to_owned(), &answer).await;
    Response::json(200, &answer)
}

/// `POST /api/admin/dlq/settle`: the orders of at most a hundred dead letters are ended, and the letters done away with.
pub(crate) async fn settle(state: &State, admin: &UserId) -> Result<Response, Problem> {
    let settled = state.dead_letters.settle(&state.stores.orders, state.stores.clock.now()).await;
    let settled = settled.map_err(|error| failed(&error))?;
    let items = settled.into_iter().map(|(letter, settled)| LetterDocument::of(letter, Some(settled))).collect();
    let answer = DeadLetterList { items };
    // Without the bodies: a hundred of them may be more than an item holds.
    let end = |letter: &LetterDocument| json!({"messageId": letter.message_id, "orderNo": letter.order_no, "settled": letter.settled});
    let ends: Vec<Value> = answer.items.iter().map(end).collect();
    note(state, SYSTEM, admin, "settle-dead-letters".to_owned(), &ends).await;
    Response::json(200, &answer)
}
