//! The JSON documents of the HTTP routes: what a client sends and what it is told.
//!
//! Money is an integer in minor units with an ISO 4217 currency. Instants are RFC 3339 in UTC, except in
//! [`ServerTime`]. What is received refuses unknown members, so that an answer and this page cannot drift apart.

use std::collections::BTreeMap;
use std::fmt;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::Secret;
use crate::frames::{AgentStatus, MessageFrame, SessionFrame};

/// `POST /api/seckill/buy`.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct BuyRequest {
    pub activity_id: String,
    pub sku_id: String,
    /// Missing means 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub qty: Option<u32>,
}

impl BuyRequest {
    pub fn new(activity_id: &str, sku_id: &str, qty: u32) -> Self {
        Self { activity_id: activity_id.to_owned(), sku_id: sku_id.to_owned(), qty: Some(qty) }
    }
}

/// 202: the right to the goods is held; the result follows.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Accepted {
    pub order_no: String,
    pub status: ResultStatus,
    pub message: String,
}

/// What a buyer is told about a purchase.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ResultStatus {
    Pending,
    Success,
    Fail,
}

/// Where an order stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum OrderStatus {
    PreCreated,
    Unpaid,
    Paid,
    Cancelled,
    Failed,
}

/// `GET /api/seckill/result/{orderNo}`.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PurchaseResult {
    pub order_no: String,
    pub status: ResultStatus,
    pub order_status: OrderStatus,
    pub message: String,
    pub amount: i64,
    pub currency: String,
    /// Until when it can be paid; known from UNPAID on.
    #[serde(default)]
    pub pay_deadline: Option<Timestamp>,
}

/// `GET /api/order/{orderNo}`, and one item of `GET /api/orders`.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Order {
    pub order_no: String,
    pub activity_id: String,
    pub sku_id: String,
    pub title: String,
    pub qty: u32,
    pub price: i64,
    pub amount: i64,
    pub currency: String,
    pub status: OrderStatus,
    #[serde(default)]
    pub reason: Option<String>,
    pub created_at: Timestamp,
    #[serde(default)]
    pub pay_deadline: Option<Timestamp>,
    #[serde(default)]
    pub paid_at: Option<Timestamp>,
}

/// `GET /api/order/{orderNo}/status`.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct OrderState {
    pub order_no: String,
    pub status: OrderStatus,
    #[serde(default)]
    pub reason: Option<String>,
    #[serde(default)]
    pub pay_deadline: Option<Timestamp>,
}

/// `GET /api/orders?limit=&cursor=`: own orders, newest first.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct OrderPage {
    pub items: Vec<Order>,
    /// Opaque; absent on the last page.
    #[serde(default)]
    pub next_cursor: Option<String>,
}

/// `POST /api/order/{orderNo}/pay`: what the cashier is opened with.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PayParameters {
    pub order_no: String,
    /// The shop, as the payment provider knows it.
    pub merchant_id: String,
    pub prepay_id: String,
    /// The cashier's page.
    pub pay_url: String,
    pub amount: i64,
    pub currency: String,
    #[serde(default)]
    pub pay_deadline: Option<Timestamp>,
}

/// `GET /api/seckill/time`: epoch milliseconds.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ServerTime {
    pub now: i64,
}

/// Where an activity stands. Shoppers are shown `SCHEDULED`, `OPEN`, `PAUSED` and `CLOSED` only.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum ActivityState {
    /// Nothing is put up yet.
    Draft,
    Scheduled,
    /// Ready; it opens by the clock.
    Preheated,
    Open,
    Paused,
    Closed,
    Settled,
}

/// `GET /api/seckill/activities`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ActivityList {
    pub items: Vec<ActivitySummary>,
}

/// One item of the list.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ActivitySummary {
    pub activity_id: String,
    pub name: String,
    pub state: ActivityState,
    pub starts_at: Timestamp,
    pub ends_at: Timestamp,
}

/// `GET /api/seckill/activities/{activityId}`. What is left is not said: only the gate knows, when asked to sell.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Activity {
    pub activity_id: String,
    pub name: String,
    pub state: ActivityState,
    pub starts_at: Timestamp,
    pub ends_at: Timestamp,
    pub pay_window_secs: u32,
    pub products: Vec<Product>,
}

/// What a limit is a limit of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum LimitPeriod {
    Activity,
    Day,
}

/// What a shopper sees of a product.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Product {
    pub sku_id: String,
    pub title: String,
    pub price: i64,
    pub currency: String,
    pub limit_per_user: u32,
    pub limit_period: LimitPeriod,
    #[serde(default)]
    pub image: Option<String>,
}

/// Body of `PUT /api/admin/skus/{skuId}`.
#[derive(Debug, Clone, Serialize)]
pub struct SkuPut {
    pub title: String,
    pub stock: u64,
}

/// Body of `PUT /api/admin/activities/{activityId}`. An interval of 0 is no limit.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ActivityPut {
    pub name: String,
    pub starts_at: Timestamp,
    pub ends_at: Timestamp,
    pub pay_window_secs: u32,
    pub user_interval_ms: u32,
    pub device_ip_interval_ms: u32,
}

/// Body of `PUT /api/admin/activities/{activityId}/products/{skuId}`.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ProductPut {
    pub title: String,
    pub price: i64,
    pub currency: String,
    pub total: u64,
    pub limit_per_user: u32,
}

/// Answers `PUT /api/admin/skus/{skuId}`.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AdminSku {
    pub sku_id: String,
    pub title: String,
    pub stock: i64,
    /// Units that no offer has.
    pub free: i64,
}

/// Answers `PUT /api/admin/activities/{activityId}` and the actions.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AdminActivity {
    pub activity_id: String,
    pub name: String,
    pub state: ActivityState,
    pub starts_at: Timestamp,
    pub ends_at: Timestamp,
    pub pay_window_secs: u32,
    pub user_interval_ms: u32,
    pub device_ip_interval_ms: u32,
    pub challenge: bool,
    pub products: Vec<AdminProduct>,
}

/// Answers `PUT /api/admin/activities/{activityId}/products/{skuId}`.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AdminProduct {
    pub sku_id: String,
    pub title: String,
    pub price: i64,
    pub currency: String,
    /// Absent when unlimited.
    #[serde(default)]
    pub total: Option<i64>,
    pub limit_per_user: u32,
    pub limit_period: LimitPeriod,
    pub unlimited: bool,
    pub on_sale: bool,
    #[serde(default)]
    pub image: Option<String>,
    /// While it is not, buyers are answered `NOT_READY`.
    pub gate_ready: bool,
}

/// `POST /api/admin/activities/{activityId}/{action}`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ActivityAction {
    Preheat,
    Pause,
    Resume,
    End,
}

impl ActivityAction {
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Preheat => "preheat",
            Self::Pause => "pause",
            Self::Resume => "resume",
            Self::End => "end",
        }
    }
}

/// `GET /api/admin/activities/{activityId}/stats`.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Stats {
    pub activity_id: String,
    pub state: ActivityState,
    pub products: Vec<ProductStats>,
}

/// Units of one offer. `committed` is what order rows hold; `total = available + held + sold` at the gate, which says
/// nothing while it is being made.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ProductStats {
    pub sku_id: String,
    /// Absent when unlimited.
    #[serde(default)]
    pub total: Option<i64>,
    pub committed: i64,
    #[serde(default)]
    pub available: Option<i64>,
    #[serde(default)]
    pub held: Option<i64>,
    #[serde(default)]
    pub sold: Option<i64>,
}

/// `GET /api/admin/activities/{activityId}/audit`.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AuditReport {
    pub activity_id: String,
    pub verdict: Verdict,
    pub violations: Vec<Violation>,
    pub counts: AuditCounts,
    pub checked_at: Timestamp,
}

/// What the audit counted on its way. The verdict comes from the violations alone.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AuditCounts {
    pub offers: usize,
    pub orders: BTreeMap<OrderStatus, usize>,
    pub total: i64,
    pub committed: i64,
    pub available: i64,
    pub held: i64,
    pub sold: i64,
    /// Holds not yet settled with their row.
    pub pending: usize,
    /// By currency.
    pub money: BTreeMap<String, Money>,
    /// Messages in the orders queue and in its dead-letter queue.
    pub queued: u64,
    pub dead_letters: u64,
    /// Offers whose sums moved under the audit's eyes, so that it did not judge them.
    pub moving: usize,
}

/// Money of one currency, in minor units: `received` is the sum of the others.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Money {
    pub received: u64,
    pub paid: u64,
    pub refund_due: u64,
    pub refunded: u64,
    pub unmatched: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Verdict {
    Pass,
    Fail,
}

/// One broken invariant (`I1`…`I9`).
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Violation {
    pub invariant: String,
    pub detail: String,
    pub order_nos: Vec<String>,
}

/// `GET /api/admin/activities/{activityId}/changes`: oldest first.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ChangeList {
    pub items: Vec<Change>,
    /// Absent on the last page.
    #[serde(default)]
    pub next_cursor: Option<String>,
}

/// Who did what to a sale.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Change {
    /// An admin, or `sweep`.
    pub by: String,
    pub at: Timestamp,
    pub action: String,
    /// The row as it was; absent for something new.
    #[serde(default)]
    pub before: Option<serde_json::Value>,
    pub after: serde_json::Value,
}

/// `POST /api/admin/activities/{activityId}/reconcile`.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Reconciled {
    pub dry_run: bool,
    pub products: Vec<ReconciledProduct>,
}

/// What comparing the orders of a product with their holds found.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ReconciledProduct {
    pub sku_id: String,
    pub drift_count: usize,
    /// The first hundred.
    pub drifts: Vec<FoundDrift>,
    pub sums_differ: bool,
    /// The gate has to be made anew.
    pub rebuild: bool,
}

/// An order whose hold does not fit.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct FoundDrift {
    pub order_no: String,
    pub drift: Drift,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Drift {
    HoldMissing,
    NotSold,
    NotReleased,
    OrderMissing,
    ReleasedLive,
}

/// `POST /api/admin/activities/{activityId}/rebuild`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rebuilt {
    pub products: Vec<RebuiltProduct>,
}

/// Where the making of a gate stands.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RebuiltProduct {
    pub sku_id: String,
    pub state: RebuildState,
    #[serde(default)]
    pub not_before: Option<Timestamp>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum RebuildState {
    Ready,
    Making,
    /// There is no gate to make.
    None,
}

/// `GET /api/admin/payments?state=&cursor=`: of REFUNDED what went back last first, of others the oldest; a hundred a page.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PaymentList {
    pub items: Vec<Payment>,
    #[serde(default)]
    pub next_cursor: Option<String>,
}

/// A payment as the shop has it; answers `POST /api/admin/payments/{transactionId}/refund` too.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Payment {
    pub transaction_id: String,
    pub merchant_id: String,
    pub order_no: String,
    /// Absent when its order is unknown.
    #[serde(default)]
    pub user_id: Option<String>,
    #[serde(default)]
    pub activity_id: Option<String>,
    pub amount: u64,
    pub currency: String,
    pub state: PaymentState,
    /// Why it fits no order.
    #[serde(default)]
    pub mismatch: Option<Mismatch>,
    pub paid_at: Timestamp,
    pub received_at: Timestamp,
    /// How often paying it back was tried in vain.
    pub attempts: u32,
    #[serde(default)]
    pub refunded_at: Option<Timestamp>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum PaymentState {
    Matched,
    RefundDue,
    Refunded,
    Unmatched,
}

impl PaymentState {
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Matched => "MATCHED",
            Self::RefundDue => "REFUND_DUE",
            Self::Refunded => "REFUNDED",
            Self::Unmatched => "UNMATCHED",
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Mismatch {
    Merchant,
    UnknownOrder,
    Amount,
    Currency,
}

/// Body of `PUT /api/admin/blacklist/{userId}`.
#[derive(Debug, Clone, Serialize)]
pub struct BlockPut {
    pub reason: String,
    /// Without it: until taken off.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until: Option<Timestamp>,
}

/// `GET /api/admin/blacklist`.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Blacklist {
    pub items: Vec<Blocked>,
    /// Absent on the last page.
    #[serde(default)]
    pub next_cursor: Option<String>,
}

/// Somebody who may not buy.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Blocked {
    pub user_id: String,
    pub reason: String,
    #[serde(default)]
    pub until: Option<Timestamp>,
    pub by: String,
    pub at: Timestamp,
}

/// Answers `DELETE /api/admin/blacklist/{userId}`.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Unblocked {
    pub user_id: String,
}

/// `GET /api/admin/dlq`, and with [`DeadLetter::settled`] `POST /api/admin/dlq/settle`: at most a hundred.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DeadLetters {
    pub items: Vec<DeadLetter>,
}

/// An order message that failed too often.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct DeadLetter {
    pub message_id: String,
    /// As it was sent.
    pub body: String,
    #[serde(default)]
    pub order_no: Option<String>,
    #[serde(default)]
    pub sent_at: Option<Timestamp>,
    #[serde(default)]
    pub settled: Option<Settled>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Settled {
    Failed,
    Decided,
    NoOrder,
    Malformed,
}

/// Answers `POST /api/admin/dlq/redrive`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Redriven {
    pub redriven: usize,
}

/// `POST /api/chat/ticket`: opens one socket, within 30 s.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Ticket {
    pub ticket: Secret,
    pub expires_at: Timestamp,
}

/// `GET /api/chat/sessions`: a customer's own, the newest first; an agent's open ones, those that moved last first.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SessionPage {
    pub items: Vec<SessionFrame>,
    /// Opaque; absent on the last page, and for agents.
    #[serde(default)]
    pub cursor: Option<String>,
}

/// Which messages of a session to read: the newest, those before a number, or those after one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stretch {
    Newest,
    Before(u64),
    After(u64),
}

/// `GET /api/chat/sessions/{sessionId}/messages`: in order.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MessagePage {
    pub items: Vec<MessageFrame>,
    /// The number of the session's last message.
    pub head: u64,
}

/// Body of `POST /api/chat/sessions/{sessionId}/rate`.
#[derive(Debug, Clone, Serialize)]
pub struct RatePost {
    /// 1 to 5.
    pub score: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub comment: Option<String>,
}

/// What a customer thinks of a session.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Rating {
    pub session_id: String,
    pub score: u32,
    #[serde(default)]
    pub comment: Option<String>,
    pub rated_at: Timestamp,
}

/// Body of `POST /api/chat/uploads`.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct UploadPost {
    pub session_id: String,
    pub content_type: String,
    pub size: u64,
}

/// A form for one image: send its fields and the file to `url`, then say `image` with the key.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct UploadForm {
    pub key: String,
    pub url: String,
    /// Among them a signature: whoever has all of them may upload.
    pub fields: BTreeMap<String, Secret>,
    pub expires_at: Timestamp,
}

/// `GET /api/chat/agents`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AgentList {
    pub agents: Vec<Agent>,
    /// Sessions that wait.
    pub waiting: u64,
}

/// An agent; answers `PUT /api/admin/agents/{agentId}` too.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Agent {
    pub agent_id: String,
    /// What they said last.
    pub status: AgentStatus,
    /// They have been heard of lately.
    pub present: bool,
    /// How many sessions they take at once.
    pub capacity: u32,
    /// How many they have: as many as `sessions` names.
    pub open: u32,
    pub sessions: Vec<String>,
    /// Absent until they say something for the first time.
    #[serde(default)]
    pub seen_at: Option<Timestamp>,
}

/// Body of `PUT /api/admin/agents/{agentId}`.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct AgentPut {
    pub capacity: u32,
}

/// A refusal (RFC 9457).
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Problem {
    #[serde(rename = "type")]
    pub kind: String,
    pub title: String,
    pub status: u16,
    /// In the caller's language.
    pub detail: String,
    pub code: ProblemCode,
    pub request_id: String,
    #[serde(default)]
    pub retry_after_ms: Option<u64>,
    /// With `LIMIT_EXCEEDED` and `INSUFFICIENT_STOCK`: how many would still be possible.
    #[serde(default)]
    pub remaining: Option<u32>,
    /// With `NOT_STARTED`.
    #[serde(default)]
    pub starts_at: Option<Timestamp>,
    /// With `ENDED`.
    #[serde(default)]
    pub ends_at: Option<Timestamp>,
    /// With `ORDER_STATE`.
    #[serde(default)]
    pub order_status: Option<OrderStatus>,
}

/// Why a call was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum ProblemCode {
    Validation,
    Unauthenticated,
    Forbidden,
    /// On the blacklist, or in a cool-down.
    Blocked,
    NotFound,
    AlreadyBought,
    LimitExceeded,
    StockEmpty,
    InsufficientStock,
    NotStarted,
    Ended,
    Paused,
    NotReady,
    Unavailable,
    RequestIdReused,
    RequestExpired,
    RateLimited,
    OrderState,
    /// The chat session is closed, or is not yet.
    SessionState,
    PayloadTooLarge,
    Internal,
}

impl ProblemCode {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Validation => "VALIDATION",
            Self::Unauthenticated => "UNAUTHENTICATED",
            Self::Forbidden => "FORBIDDEN",
            Self::Blocked => "BLOCKED",
            Self::NotFound => "NOT_FOUND",
            Self::AlreadyBought => "ALREADY_BOUGHT",
            Self::LimitExceeded => "LIMIT_EXCEEDED",
            Self::StockEmpty => "STOCK_EMPTY",
            Self::InsufficientStock => "INSUFFICIENT_STOCK",
            Self::NotStarted => "NOT_STARTED",
            Self::Ended => "ENDED",
            Self::Paused => "PAUSED",
            Self::NotReady => "NOT_READY",
            Self::Unavailable => "UNAVAILABLE",
            Self::RequestIdReused => "REQUEST_ID_REUSED",
            Self::RequestExpired => "REQUEST_EXPIRED",
            Self::RateLimited => "RATE_LIMITED",
            Self::OrderState => "ORDER_STATE",
            Self::SessionState => "SESSION_STATE",
            Self::PayloadTooLarge => "PAYLOAD_TOO_LARGE",
            Self::Internal => "INTERNAL",
        }
    }

    /// The same request, with the same id, may well succeed a little later. The other refusals stand until the buyer
    /// or the world changes.
    pub const fn may_pass_later(self) -> bool {
        match self {
            Self::RateLimited | Self::Paused | Self::NotReady | Self::Unavailable => true,
            Self::Validation
            | Self::Unauthenticated
            | Self::Forbidden
            | Self::Blocked
            | Self::NotFound
            | Self::AlreadyBought
            | Self::LimitExceeded
            | Self::StockEmpty
            | Self::InsufficientStock
            | Self::NotStarted
            | Self::Ended
            | Self::RequestIdReused
            | Self::RequestExpired
            | Self::OrderState
            | Self::SessionState
            | Self::PayloadTooLarge
            | Self::Internal => false,
        }
    }
}

impl fmt::Display for ProblemCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_written_as_they_are_read() {
        for code in ["VALIDATION", "ALREADY_BOUGHT", "REQUEST_ID_REUSED", "PAYLOAD_TOO_LARGE", "NOT_READY"] {
            let read: ProblemCode = serde_json::from_value(code.into()).unwrap();
            assert_eq!(read.as_str(), code);
        }
        assert!(serde_json::from_value::<ProblemCode>("SOLD_OUT".into()).is_err());
    }

    #[test]
    fn a_member_that_the_contract_does_not_know_is_noticed() {
        let pending = r#"{"orderNo":"SK1","status":"pending","message":"…"}"#;
        assert!(serde_json::from_str::<Accepted>(pending).is_ok());
        let drifted = r#"{"orderNo":"SK1","status":"pending","message":"…","eta":3}"#;
        assert!(serde_json::from_str::<Accepted>(drifted).is_err());
    }

    #[test]
    fn a_purchase_is_written_in_camel_case() {
        let body = serde_json::to_string(&BuyRequest::new("a1", "s10", 2)).unwrap();
        assert_eq!(body, r#"{"activityId":"a1","skuId":"s10","qty":2}"#);
    }
}
