//! A gate on a Redis of its own, with an offer to sell, and short words for what buyers do there.

use kernel::ids::{OrderNo, Quantity, UserId};
use kernel::time::UnixMillis;
use platform::redis::RedisConnection;
use sale::admission::{Admission, AdmitRequest, Fingerprint};
use sale::gate::{Counters, Gate, GateError, GateSettings, Loading, NewHold};
use sale::offer::{LimitPeriod, OfferId, Rules, SaleState, Terms};

use crate::redis_server::{RedisServer, Shape};

/// An instant long past, and one that no test lives to see.
pub const LONG_AGO: UnixMillis = UnixMillis::new(1_500_000_000_000);
pub const FAR_AHEAD: UnixMillis = UnixMillis::new(9_000_000_000_000);

/// A server, a gate on it, and one offer.
pub struct GateHouse {
    pub server: RedisServer,
    pub gate: Gate<RedisConnection>,
    pub offer: OfferId,
}

impl GateHouse {
    pub async fn start(shape: Shape) -> Self {
        Self::on(RedisServer::start(shape).await)
    }

    pub fn on(server: RedisServer) -> Self {
        let gate = Gate::new(server.connect());
        Self { server, gate, offer: offer_id("s10") }
    }

    /// Opens the offer with these settings, nothing sold.
    pub async fn open(&self, settings: &GateSettings) {
        assert_eq!(self.gate.load_begin(&self.offer, settings.epoch).await.unwrap(), Loading::Going);
        assert_eq!(self.gate.load_finish(&self.offer, settings).await.unwrap(), Loading::Going);
    }

    pub async fn buy(&self, request: &AdmitRequest) -> Admission {
        self.try_buy(request).await.unwrap()
    }

    pub async fn try_buy(&self, request: &AdmitRequest) -> Result<Admission, GateError> {
        self.gate.admit(&self.offer, request).await
    }

    pub async fn counters(&self) -> Counters {
        self.gate.counters(&self.offer).await.unwrap().unwrap()
    }

    /// The server's clock.
    pub async fn now(&self) -> UnixMillis {
        let mut operator = self.server.operator().await;
        let (second, micros): (i64, i64) = redis::cmd("TIME").query_async(&mut operator).await.unwrap();
        UnixMillis::new(second * 1_000 + micros / 1_000)
    }
}

/// Runs a case on a fresh server of each shape.
pub async fn on_both(case: impl AsyncFn(GateHouse)) {
    for shape in Shape::BOTH {
        case(GateHouse::start(shape).await).await;
    }
}

pub fn offer_id(sku: &str) -> OfferId {
    OfferId { activity_id: "a1".parse().unwrap(), sku_id: sku.parse().unwrap() }
}

/// An open sale without intervals.
pub fn settings(total: i64, limit_per_user: u32) -> GateSettings {
    GateSettings {
        epoch: 1,
        version: 1,
        total,
        state: SaleState::Live,
        rules: Rules {
            starts_at: LONG_AGO,
            ends_at: FAR_AHEAD,
            pay_window_secs: 900,
            user_interval_ms: 0,
            device_ip_interval_ms: 0,
            utc_offset_secs: 0,
        },
        limit_period: LimitPeriod::Activity,
        on_sale: true,
        terms: Terms {
            title: "Hotcake 热蛋糕".to_owned(),
            price: 129_900.try_into().unwrap(),
            currency: "CNY".to_owned().try_into().unwrap(),
            limit_per_user,
            pay_window_secs: 900,
            limit_day: None,
        },
    }
}

/// What `BUY(user, quantity, key)` asks the gate: the order number follows from user and key, as it does in earnest.
pub fn request(user: &str, quantity: u32, key: &str) -> AdmitRequest {
    let quantity = Quantity::try_from(quantity).unwrap();
    AdmitRequest {
        order_no: order_no(user, key),
        user_id: user_id(user),
        quantity,
        fingerprint: Fingerprint::of(quantity),
        device_address: format!("phone-of-{user}|203.0.113.7"),
        blocked: None,
    }
}

/// The hold that a request would have had.
pub fn hold_of(request: &AdmitRequest, held_at: UnixMillis) -> NewHold {
    NewHold {
        order_no: request.order_no.clone(),
        user_id: request.user_id.clone(),
        limit_day: None,
        quantity: request.quantity,
        fingerprint: request.fingerprint.clone(),
        held_at,
    }
}

pub fn order_no(user: &str, key: &str) -> OrderNo {
    format!("SK-{user}-{key}").parse().unwrap()
}

pub fn user_id(user: &str) -> UserId {
    user.parse().unwrap()
}
