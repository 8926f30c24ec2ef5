//! A sale of one's own, and the people in it.

use std::time::Duration;

use client::documents::{
    Accepted, ActivityAction, ActivityPut, AdminActivity, AuditReport, BuyRequest, OrderStatus, Problem, ProblemCode,
    ProductPut, ProductStats, PurchaseResult, ResultStatus, SkuPut, Verdict,
};
use client::{Answer, Api, ConnectOptions, Role, Socket, Token};
use contract::root;
use jiff::{SignedDuration, Timestamp};
use kernel::ids::OrderNo;
use sale::gate::Snapshot;
use sale::offer::OfferId;
use sale::store::orders::OrderRow;
use serde_json::Value;

use crate::local::frame_is_documented;
use crate::{Local, SOON, eventually};

/// Price of everything sold here, in cents.
pub const PRICE: i64 = 1_999;
pub const CURRENCY: &str = "CNY";
/// A test counts what it hears, so nothing is asked behind its back.
const NO_HEARTBEAT: Duration = Duration::from_secs(3_600);

/// What is put up for sale, and on which terms. By default ten units, three for each, open for an hour.
#[derive(Debug, Clone)]
pub struct Offer {
    pub total: u64,
    pub limit_per_user: u32,
    /// From now; a past start is an open sale.
    pub starts_in: SignedDuration,
    pub lasts: SignedDuration,
    pub pay_window_secs: u32,
    pub user_interval_ms: u32,
    pub device_ip_interval_ms: u32,
}

impl Default for Offer {
    fn default() -> Self {
        Self {
            total: 10,
            limit_per_user: 3,
            starts_in: SignedDuration::from_secs(-60),
            lasts: SignedDuration::from_hours(1),
            pay_window_secs: 900,
            user_interval_ms: 0,
            device_ip_interval_ms: 0,
        }
    }
}

/// One activity with one product.
#[derive(Debug, Clone)]
pub struct Shop {
    pub local: Local,
    pub activity_id: String,
    pub sku_id: String,
    pub starts_at: Timestamp,
    pub ends_at: Timestamp,
}

/// Somebody who buys.
#[derive(Debug, Clone)]
pub struct Buyer {
    pub local: Local,
    pub id: String,
    pub token: Token,
    pub api: Api,
    activity_id: String,
    sku_id: String,
}

impl Shop {
    /// A sale whose gate is made: within its window it sells at once.
    pub async fn open(offer: Offer) -> Self {
        let shop = Self::publish(offer).await;
        shop.act(ActivityAction::Preheat).await;
        shop
    }

    /// A sale that is put up and not preheated.
    pub async fn publish(offer: Offer) -> Self {
        let local = Local::up().await;
        let tag = fresh_tag();
        let now = Timestamp::now();
        // Documents have milliseconds.
        let starts_at = Timestamp::from_millisecond((now + offer.starts_in).as_millisecond()).unwrap();
        let shop = Self {
            local,
            activity_id: format!("a-{tag}"),
            sku_id: format!("s-{tag}"),
            starts_at,
            ends_at: starts_at + offer.lasts,
        };
        let admin = &shop.local.admin;
        let sku = SkuPut { title: format!("Kettle {tag}"), stock: offer.total };
        done(admin.put_sku(&shop.sku_id, &sku).await);
        let activity = ActivityPut {
            name: format!("Sale {tag}"),
            starts_at: shop.starts_at,
            ends_at: shop.ends_at,
            pay_window_secs: offer.pay_window_secs,
            user_interval_ms: offer.user_interval_ms,
            device_ip_interval_ms: offer.device_ip_interval_ms,
        };
        done(admin.put_activity(&shop.activity_id, &activity).await);
        done(
            admin.put_product(&shop.activity_id, &shop.sku_id, &shop.product(offer.total, offer.limit_per_user)).await,
        );
        shop
    }

    pub fn product(&self, total: u64, limit_per_user: u32) -> ProductPut {
        ProductPut {
            title: format!("Kettle of {}", self.activity_id),
            price: PRICE,
            currency: CURRENCY.to_owned(),
            total,
            limit_per_user,
        }
    }

    /// A shopper; `name` is unique within the shop only.
    pub fn buyer(&self, name: &str) -> Buyer {
        let id = format!("{name}-{}", self.activity_id);
        let token = self.local.outputs.user_token(&id).unwrap();
        Buyer {
            api: self.local.api.signed_in(token.clone()),
            local: self.local.clone(),
            id,
            token,
            activity_id: self.activity_id.clone(),
            sku_id: self.sku_id.clone(),
        }
    }

    // ---- as the admin

    pub async fn act(&self, action: ActivityAction) -> AdminActivity {
        done(self.local.admin.activity_action(&self.activity_id, action).await)
    }

    /// Units as the gate and the rows count them.
    pub async fn stats(&self) -> ProductStats {
        let mut stats = done(self.local.admin.stats(&self.activity_id).await);
        assert_eq!(stats.products.len(), 1, "{stats:?}");
        stats.products.remove(0)
    }

    /// `(available, held)` at the gate.
    pub async fn units(&self) -> (i64, i64) {
        let stats = self.stats().await;
        (stats.available.expect("the gate is made"), stats.held.expect("the gate is made"))
    }

    /// The audit passes, with nothing left in motion. Other tests share the queue, so it may take some looks until a look
    /// meets none of their messages; what is broken stays broken.
    pub async fn audit(&self) -> AuditReport {
        let mut last = None;
        let passed = tokio::time::timeout(SOON, async {
            loop {
                let report = self.audit_once().await;
                if report.verdict == Verdict::Pass {
                    assert!(report.violations.is_empty(), "{report:?}");
                    return report;
                }
                last = Some(report);
            }
        });
        match passed.await {
            Ok(report) => report,
            Err(_) => panic!("the audit does not pass within {SOON:?}: {last:#?}"),
        }
    }

    pub async fn audit_once(&self) -> AuditReport {
        done(self.local.admin.audit(&self.activity_id, Some(0)).await)
    }

    // ---- behind the counter

    pub fn offer_id(&self) -> OfferId {
        OfferId { activity_id: self.activity_id.parse().unwrap(), sku_id: self.sku_id.parse().unwrap() }
    }

    /// Everything that the gate has of this offer.
    pub async fn snapshot(&self) -> Snapshot {
        self.local.gate().await.snapshot(&self.offer_id()).await.unwrap().expect("the gate is made")
    }

    /// The orders of `buyer` that the gate holds places for, whatever their rows say.
    pub async fn holds_of(&self, buyer: &Buyer) -> Vec<OrderNo> {
        let holds = self.snapshot().await.holds;
        holds.into_iter().filter(|(_, hold)| hold.user_id.as_str() == buyer.id).map(|(order_no, _)| order_no).collect()
    }

    /// The row of an order, if there is one.
    pub async fn row(&self, order_no: &OrderNo) -> Option<OrderRow> {
        self.local.orders().get(order_no).await.unwrap()
    }

    /// All rows of this offer.
    pub async fn rows(&self) -> Vec<OrderRow> {
        self.local.orders().all_of_offer(&self.offer_id()).await.unwrap()
    }
}

impl Buyer {
    pub fn wish(&self, qty: u32) -> BuyRequest {
        BuyRequest::new(&self.activity_id, &self.sku_id, qty)
    }

    pub async fn buy(&self, qty: u32, request_id: &str) -> Answer<Accepted> {
        self.api.buy(&self.wish(qty), Some(request_id)).await.unwrap()
    }

    /// Buys and is let in: the order's number.
    pub async fn accepted(&self, qty: u32, request_id: &str) -> String {
        accepted(self.buy(qty, request_id).await)
    }

    /// Buys and is turned away.
    pub async fn refused(&self, qty: u32, request_id: &str, code: ProblemCode) -> Problem {
        refusal(self.buy(qty, request_id).await, code)
    }

    /// How a purchase ends, by asking until it has ended.
    pub async fn outcome(&self, order_no: &str) -> PurchaseResult {
        self.api.follow(order_no, SOON).await.unwrap().result
    }

    /// The purchase ends as an order to be paid.
    pub async fn wins(&self, order_no: &str) -> PurchaseResult {
        let result = self.outcome(order_no).await;
        assert_eq!((result.status, result.order_status), (ResultStatus::Success, OrderStatus::Unpaid), "{result:?}");
        result
    }

    /// A live connection.
    pub async fn online(&self) -> Socket {
        self.connect(ConnectOptions::new(self.token.clone())).await
    }

    /// The same from a device.
    pub async fn online_on(&self, device: &str) -> Socket {
        self.connect(ConnectOptions::new(self.token.clone()).on_device(device)).await
    }

    /// Connects, and waits until the connection is live: `sync` answers nothing when there is nothing, `ping` always does.
    pub async fn connect(&self, options: ConnectOptions) -> Socket {
        let options = options.heartbeat(NO_HEARTBEAT).watched(frame_is_documented);
        let mut socket = Socket::connect(&self.local.outputs, options).await.unwrap();
        socket.sync().await.unwrap();
        pong(&mut socket).await;
        socket
    }

    /// A token of another role for the same person.
    pub fn token_as(&self, role: Role) -> Token {
        self.local.outputs.token(role, &self.id).sign().unwrap()
    }

    /// The event that API Gateway makes of a purchase, for a function that runs beside the stack.
    pub fn buy_event(&self, qty: u32, request_id: &str) -> Value {
        let sample = std::fs::read(root().join("events/buy/admit.202.json")).unwrap();
        let mut event: Value = serde_json::from_slice(&sample).unwrap();
        event["headers"]["authorization"] = format!("Bearer {}", self.token.text()).into();
        event["headers"]["x-request-id"] = request_id.into();
        event["body"] = serde_json::to_string(&self.wish(qty)).unwrap().into();
        event
    }
}

/// Sends `ping` and waits for its answer. Results that come meanwhile stay known to the socket.
pub async fn pong(socket: &mut Socket) {
    socket.ping().await.unwrap();
    loop {
        match socket.next(SOON).await.unwrap().frame {
            client::frames::ServerFrame::Pong { .. } => return,
            client::frames::ServerFrame::SeckillResult(_) | client::frames::ServerFrame::OrderStatus(_) => {}
            other => panic!("{other:?} instead of pong"),
        }
    }
}

/// The order's number in a 202 that says the right is held.
pub fn accepted(answer: Answer<Accepted>) -> String {
    assert_eq!(answer.status, 202, "{:?}", answer.outcome);
    let accepted = answer.outcome.unwrap();
    assert!(!accepted.message.is_empty());
    accepted.order_no
}

/// The refusal in an answer that must be one. Both say the same status, and 429 and 503 say when to come back.
pub fn refusal<T: std::fmt::Debug>(answer: Answer<T>, code: ProblemCode) -> Problem {
    let problem = match &answer.outcome {
        Ok(document) => panic!("{document:?} instead of {code}"),
        Err(problem) => problem,
    };
    assert_eq!((problem.code, problem.status), (code, answer.status), "{problem:?}");
    assert!(!problem.title.is_empty() && !problem.detail.is_empty() && !problem.request_id.is_empty(), "{problem:?}");
    if matches!(answer.status, 429 | 503) {
        let wait = Duration::from_secs(answer.headers.retry_after_secs().expect("a Retry-After"));
        let exact = Duration::from_millis(problem.retry_after_ms.expect("a retryAfterMs"));
        assert!(wait >= exact && wait < exact + Duration::from_secs(1), "{wait:?} is not {exact:?} in whole seconds");
    }
    answer.outcome.unwrap_err()
}

/// The document of an answer that must be one.
pub fn done<T: std::fmt::Debug>(answer: Result<Answer<T>, client::ClientError>) -> T {
    answer.unwrap().outcome.unwrap_or_else(|problem| panic!("refused: {problem:?}"))
}

/// Waits until an order's row is settled.
pub async fn settled(shop: &Shop, order_no: &OrderNo) -> OrderRow {
    eventually(&format!("{order_no} is settled"), SOON, async || {
        shop.row(order_no).await.filter(|row| row.status != sale::order::OrderStatus::PreCreated)
    })
    .await
}

/// Ids of this run and test alone.
fn fresh_tag() -> String {
    format!("{:012x}", rand::random_range(0..1_u64 << 48))
}
