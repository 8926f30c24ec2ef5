//! A sale in which a test is everybody: the buyers, the consumer, the sweep and the shop.
//!
//! The gate is a redis-server, the rows are a DynamoDB behind a wire that may misbehave, and every step is the function that
//! runs in earnest. Time stands still until the test moves it (never behind the real one, by which Redis judges).

use std::collections::HashMap;
use std::sync::Mutex;
use std::time::Duration;

use aws_lc_rs::hmac;
use aws_sdk_dynamodb::types::AttributeValue;
use kernel::ids::{ActivityId, OrderNo, Quantity, SkuId, UserId};
use kernel::money::Cents;
use kernel::time::{Clock, UnixMillis};
use redis::aio::{ConnectionManager, ConnectionManagerConfig};
use sale::Stores;
use sale::admission::{Admission, AdmitRequest, Fingerprint, Refusal};
use sale::audit::{self, Report, Verdict};
use sale::buy::{self, Bought, BuyError, Purchase, Shop};
use sale::dead_letters::DeadLetters;
use sale::due::{self, Attended};
use sale::follow::{Decided, Following, Messenger, Told};
use sale::gate::{Counters, Gate, Lowered, NewHold};
use sale::ledger::{Ledger, Outcome};
use sale::lifecycle::{self, ActivitySpec, Command, Edit, OfferSpec, SkuSpec};
use sale::offer::{LimitPeriod, OfferId, Rules};
use sale::order::{self, EndReason, OrderStatus};
use sale::pay::{Taken, Till};
use sale::queue::OrderMessage;
use sale::rebuild;
use sale::store::offers::{ActivityRow, OfferRow, SkuRow};
use sale::store::orders::{NewOrder, OrderRow, Put};
use sale::store::payments::{Payment, PaymentState};
use sale::store::{Offers, Orders, Payments};
use sale::sweep::{self, Swept};
use suite::dynamo::{Dynamo, OFFERS, ORDERS, PAYMENTS};
use suite::redis_server::{RedisServer, Shape};

use crate::weather::Weather;
use suite::queue::{self, TestQueue, TestSqs};

/// Units that the SKU has before any offer takes some.
pub(crate) const STOCK: i64 = 10_000;
/// What one unit costs.
pub(crate) const PRICE: u64 = 129_900;
pub(crate) const PAY_WINDOW_SECS: u32 = 900;
/// The shop, as the payment provider knows it.
const MERCHANT: &str = "hotcake-test";
/// How long sales here last, by the test's clock; Redis never sees the end of one.
const SALE_SECS: i64 = 30 * 24 * 3_600;
/// How long a commit may try.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

pub(crate) struct TestSale {
    pub redis: RedisServer,
    pub dynamo: Dynamo,
    pub weather: Weather,
    pub orders_queue: TestQueue,
    pub reminders: TestQueue,
    pub dead_letters: TestQueue,
    _sqs: TestSqs,
    pub stores: Stores<ConnectionManager>,
    pub shop: Shop<ConnectionManager>,
    pub ledger: Ledger,
    pub offer: OfferId,
}

impl TestSale {
    /// A shop with a SKU, and nothing for sale.
    pub(crate) async fn closed() -> Self {
        let (redis, dynamo, sqs) =
            tokio::join!(RedisServer::start(Shape::StandAlone), Dynamo::start(), TestSqs::start());
        let orders_queue = sqs.queue("orders");
        let reminders = sqs.queue("reminders");
        let weather = Weather::before(&dynamo).await;
        let clock = Clock::manual(Clock::System.now());
        let gate = gate_at(&redis.url());
        let orders = Orders::new(weather.client.clone(), ORDERS.to_owned());
        let offers = Offers::new(weather.client.clone(), OFFERS.to_owned());
        let offer = OfferId { activity_id: "a1".parse().unwrap(), sku_id: "s10".parse().unwrap() };
        let sale = Self {
            stores: Stores {
                gate: gate.clone(),
                orders: orders.clone(),
                offers: offers.clone(),
                payments: Payments::new(weather.client.clone(), PAYMENTS.to_owned()),
                queue: orders_queue.queue(),
                reminders: reminders.reminders(),
                clock: clock.clone(),
            },
            shop: Shop {
                gate,
                orders: orders.clone(),
                queue: orders_queue.queue(),
                order_no_key: hmac::Key::new(hmac::HMAC_SHA256, b"of the tests"),
                clock: clock.clone(),
            },
            ledger: Ledger { orders, offers, clock },
            redis,
            dynamo,
            weather,
            orders_queue,
            reminders,
            dead_letters: sqs.queue("dead-letters"),
            _sqs: sqs,
            offer,
        };
        done(sale.put_sku(STOCK).await);
        sale
    }

    /// An open sale of `total` units, `limit` for each user.
    pub(crate) async fn open(total: i64, limit: u32) -> Self {
        let sale = Self::closed().await;
        sale.open_with(total, limit, |_| {}).await;
        sale
    }

    /// Opens a sale by rules of its own.
    pub(crate) async fn open_with(&self, total: i64, limit: u32, rules: impl FnOnce(&mut Rules)) {
        done(self.put_activity_with(-3_600, SALE_SECS, rules).await);
        done(self.put_offer(&spec(total, limit)).await);
        done(lifecycle::preheat(&self.stores, self.activity_id()).await.unwrap());
        assert_eq!(self.counters().await.available, total);
    }

    pub(crate) fn activity_id(&self) -> &ActivityId {
        &self.offer.activity_id
    }

    // Time.

    /// The test's clock, which is never behind the real one.
    pub(crate) fn now(&self) -> UnixMillis {
        let behind = Clock::System.now().millis_since(self.stores.clock.now());
        if behind > 0 {
            self.stores.clock.advance_millis(behind);
        }
        self.stores.clock.now()
    }

    pub(crate) fn pass_secs(&self, secs: i64) {
        self.now();
        self.stores.clock.advance_millis(secs * 1_000);
    }

    /// Two edits of one millisecond would be one entry of the change log.
    fn tick(&self) {
        self.now();
        self.stores.clock.advance_millis(1);
    }

    // The shop.

    pub(crate) async fn put_sku(&self, stock: i64) -> Edit<SkuRow> {
        self.tick();
        let spec = SkuSpec { title: "Hotcake 热蛋糕".to_owned(), stock };
        spec.check().unwrap();
        lifecycle::put_sku(&self.stores, &admin(), &self.offer.sku_id, &spec).await.unwrap()
    }

    /// Puts the activity, from and until so many seconds from now.
    pub(crate) async fn put_activity(&self, from_secs: i64, until_secs: i64) -> Edit<ActivityRow> {
        self.put_activity_with(from_secs, until_secs, |_| {}).await
    }

    pub(crate) async fn put_activity_with(
        &self,
        from_secs: i64,
        until_secs: i64,
        change: impl FnOnce(&mut Rules),
    ) -> Edit<ActivityRow> {
        self.tick();
        let mut rules = Rules {
            starts_at: self.now().plus_secs(from_secs),
            ends_at: self.now().plus_secs(until_secs),
            pay_window_secs: PAY_WINDOW_SECS,
            user_interval_ms: 0,
            device_ip_interval_ms: 0,
            utc_offset_secs: 0,
        };
        change(&mut rules);
        let spec = ActivitySpec { name: "Double Eleven 双十一".to_owned(), rules };
        spec.check().unwrap();
        lifecycle::put_activity(&self.stores, &admin(), self.activity_id(), &spec).await.unwrap()
    }

    pub(crate) async fn put_offer(&self, spec: &OfferSpec) -> Edit<OfferRow> {
        self.tick();
        spec.check().unwrap();
        lifecycle::put_offer(&self.stores, &admin(), &self.offer, spec).await.unwrap()
    }

    pub(crate) async fn command(&self, command: Command) -> Edit<ActivityRow> {
        self.tick();
        lifecycle::command(&self.stores, &admin(), self.activity_id(), command).await.unwrap()
    }

    pub(crate) async fn preheat(&self) -> Edit<ActivityRow> {
        lifecycle::preheat(&self.stores, self.activity_id()).await.unwrap()
    }

    /// The same stores, with a gate that nobody reaches: whoever changes something now dies before telling the gate.
    pub(crate) fn cut_from_gate(&self) -> Stores<ConnectionManager> {
        Stores { gate: gate_at("redis://127.0.0.1:1"), ..self.stores.clone() }
    }

    // Buyers.

    pub(crate) async fn buy(&self, user: &str, qty: u32, key: &str) -> Bought {
        self.try_buy(user, qty, key).await.unwrap()
    }

    pub(crate) async fn try_buy(&self, user: &str, qty: u32, key: &str) -> Result<Bought, BuyError> {
        self.now();
        buy::buy(&self.shop, self.purchase(user, qty, key)).await
    }

    /// Buys while SQS takes nothing.
    pub(crate) async fn buy_without_queue(&self, user: &str, qty: u32, key: &str) -> Bought {
        self.now();
        let shop = Shop {
            gate: self.shop.gate.clone(),
            orders: self.shop.orders.clone(),
            queue: queue::unreachable(),
            order_no_key: self.shop.order_no_key.clone(),
            clock: self.shop.clock.clone(),
        };
        buy::buy(&shop, self.purchase(user, qty, key)).await.unwrap()
    }

    fn purchase(&self, user: &str, qty: u32, key: &str) -> Purchase {
        Purchase {
            user_id: user_id(user),
            offer: self.offer.clone(),
            quantity: quantity(qty),
            request_id: key.parse().unwrap(),
            device_address: format!("phone-of-{user}|203.0.113.7"),
            blocked: None,
        }
    }

    /// Buys what is there to be bought, for the first time.
    pub(crate) async fn bought(&self, user: &str, qty: u32, key: &str) -> OrderNo {
        let order_no = self.order_no(user, key);
        let expected = Bought::Accepted {
            order_no: order_no.clone(),
            status: OrderStatus::PreCreated,
            reason: None,
            replayed: false,
        };
        assert_eq!(self.buy(user, qty, key).await, expected);
        order_no
    }

    /// Why somebody who would buy one unit is turned away.
    pub(crate) async fn refusal(&self, user: &str, key: &str) -> Refusal {
        match self.buy(user, 1, key).await {
            Bought::Refused(refusal) => refusal,
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn order_no(&self, user: &str, key: &str) -> OrderNo {
        order::order_no(&self.shop.order_no_key, &user_id(user), &self.offer, &key.parse().unwrap()).unwrap()
    }

    /// A buyer is let in, and then the function dies.
    pub(crate) async fn admitted_and_dead(&self, user: &str, qty: u32, key: &str) -> OrderNo {
        let request = AdmitRequest {
            order_no: self.order_no(user, key),
            user_id: user_id(user),
            quantity: quantity(qty),
            fingerprint: Fingerprint::of(quantity(qty)),
            device_address: format!("phone-of-{user}|203.0.113.7"),
            blocked: None,
        };
        let admission = self.stores.gate.admit(&self.offer, &request).await.unwrap();
        assert!(matches!(admission, Admission::Admitted(_)), "{admission:?}");
        request.order_no
    }

    /// A gate that had lost its count lets somebody in whom it should not: hold and row are there, whatever the stock.
    pub(crate) async fn let_in_by_force(&self, user: &str, qty: u32, key: &str) -> OrderNo {
        let row = self.new_row(user, qty, key).await;
        assert_eq!(self.stores.orders.put(&row).await.unwrap(), Put::Created);
        self.stores.gate.take(&self.offer, &[NewHold::of(&row)]).await.unwrap();
        // A hold that was let in is pending; one that was put back is not.
        let second = row.created_at.secs().to_string();
        self.tamper(&["ZADD", &self.pending(), &second, row.order_no.as_str()]).await;
        self.stores.queue.send(&OrderMessage::from(&row)).await.unwrap();
        row.order_no
    }

    /// The row that a buy would put.
    pub(crate) async fn new_row(&self, user: &str, qty: u32, key: &str) -> OrderRow {
        let order = NewOrder {
            order_no: self.order_no(user, key),
            user_id: user_id(user),
            offer: self.offer.clone(),
            quantity: quantity(qty),
            fingerprint: Fingerprint::of(quantity(qty)),
            request_id: Some(key.parse().unwrap()),
            terms: self.offer_row().await.terms(),
        };
        OrderRow::pre_created(order, self.now())
    }

    // The consumer.

    /// Commits all that is queued, and lets the gate follow.
    pub(crate) async fn deliver(&self) -> HashMap<OrderNo, Outcome> {
        let messages = self.orders_queue.take();
        self.consume(messages).await
    }

    pub(crate) async fn consume(&self, messages: Vec<OrderMessage>) -> HashMap<OrderNo, Outcome> {
        let outcomes = self.commit(messages).await;
        self.follow(&outcomes).await;
        outcomes
    }

    pub(crate) async fn commit(&self, messages: Vec<OrderMessage>) -> HashMap<OrderNo, Outcome> {
        let deadline = self.now().plus_millis(PATIENCE.as_millis() as i64);
        self.ledger.commit(messages, deadline).await
    }

    /// As the consumer does: of those whom the rows refused, the gate is not told.
    pub(crate) async fn follow(&self, outcomes: &HashMap<OrderNo, Outcome>) {
        let mut following = Following::default();
        for (order_no, outcome) in outcomes {
            match outcome {
                Outcome::Settled { reason: Some(reason), .. } if reason.is_drift() => {}
                Outcome::Settled { status, .. } => following.note(order_no.clone(), *status),
                Outcome::Busy | Outcome::Unknown => {}
            }
        }
        following.tell(&self.stores.gate, &self.offer).await.unwrap();
    }

    // The sweep.

    pub(crate) async fn sweep(&self) -> Swept {
        let (swept, _) = self.sweep_telling(&self.stores, Told::Stored).await;
        assert_eq!(swept.failures, 0, "{swept:?}");
        swept
    }

    /// A sweep whose words to the buyers are all stored, or none of them; and those words.
    pub(crate) async fn sweep_telling(&self, stores: &Stores<ConnectionManager>, told: Told) -> (Swept, Vec<Decided>) {
        let recorder = Recorder::new(told);
        let swept = sweep::sweep(stores, self.now().plus_secs(60), &recorder).await;
        (swept, recorder.words())
    }

    /// The sweep comes by for the holds whose orders the rows refused.
    pub(crate) async fn looked_at_again(&self) {
        self.pass_secs(31);
        self.sweep().await;
    }

    /// Sweeps, waits and sweeps, until the lost gate is made again.
    pub(crate) async fn rebuilt(&self) {
        assert_eq!(self.sweep().await.gates_waiting, 1);
        self.pass_secs(rebuild::WAIT_SECS);
        assert_eq!(self.sweep().await.gates_ready, 1);
    }

    /// Redis forgets everything.
    pub(crate) async fn wipe_gate(&self) {
        redis::cmd("FLUSHALL").exec_async(&mut self.redis.operator().await).await.unwrap();
    }

    /// A command to Redis that no part of the sale would give.
    pub(crate) async fn tamper(&self, command: &[&str]) {
        let mut tampering = redis::cmd(command[0]);
        tampering.arg(&command[1..]).exec_async(&mut self.redis.operator().await).await.unwrap();
    }

    /// Somebody takes units out at the gate, dies before the row is written, and has been dead for a while.
    pub(crate) async fn die_lowering(&self, units: i64) {
        let version = self.offer_row().await.version + 1;
        if self.stores.gate.lower(&self.offer, units, version).await.unwrap() == Lowered::Done {
            self.tamper(&["HSET", &self.book(), "lowering", &format!("{units} {version} 0")]).await;
        }
    }

    /// Redis loses an order's hold, and its units are for sale again.
    pub(crate) async fn lose_hold(&self, user: &str, order_no: &OrderNo, units: i64) {
        self.lose(&format!("u:{user}"), order_no, units).await;
    }

    /// The same, where each day has its limit.
    pub(crate) async fn lose_hold_of_day(&self, user: &str, day: i64, order_no: &OrderNo, units: i64) {
        self.lose(&format!("u:{user}@{day}"), order_no, units).await;
    }

    async fn lose(&self, count: &str, order_no: &OrderNo, units: i64) {
        let (book, units) = (self.book(), units.to_string());
        self.tamper(&["HDEL", &book, order_no.as_str(), count]).await;
        self.tamper(&["HINCRBY", &book, "avail", &units]).await;
        self.tamper(&["ZREM", &self.pending(), order_no.as_str()]).await;
    }

    /// Book and pending as they are now.
    pub(crate) async fn copy_gate(&self) -> [Vec<u8>; 2] {
        let mut redis = self.redis.operator().await;
        let mut dumps = Vec::new();
        for key in [self.book(), self.pending()] {
            dumps.push(redis::cmd("DUMP").arg(key).query_async::<Vec<u8>>(&mut redis).await.unwrap());
        }
        dumps.try_into().unwrap()
    }

    /// What was written since is lost, as after a failover.
    pub(crate) async fn restore_gate(&self, dumps: [Vec<u8>; 2]) {
        let mut redis = self.redis.operator().await;
        for (key, dump) in [self.book(), self.pending()].into_iter().zip(dumps) {
            let mut restore = redis::cmd("RESTORE");
            restore.arg(key).arg(0).arg(dump).arg("REPLACE").exec_async(&mut redis).await.unwrap();
        }
    }

    /// The order's row says that everybody has been told.
    pub(crate) async fn forget_due(&self, order_no: &OrderNo, status: OrderStatus) {
        assert_eq!(self.row(order_no).await.status, status);
        let update = self.dynamo.client.update_item().table_name(ORDERS).set_key(Some(order_key(order_no)));
        update.update_expression("REMOVE dueShard, dueAt").send().await.unwrap();
    }

    /// As if the settlement had died before it told the gates.
    pub(crate) async fn unarchive(&self) {
        let key = item_key("ACTIVITY", self.activity_id().as_str());
        let update = self.dynamo.client.update_item().table_name(OFFERS).set_key(Some(key));
        update.update_expression("REMOVE archived").send().await.unwrap();
    }

    /// A row that this code cannot read.
    pub(crate) async fn damage(&self, table: &str, key: HashMap<String, AttributeValue>, attribute: &str) {
        let update = self.dynamo.client.update_item().table_name(table).set_key(Some(key));
        let update = update.update_expression("SET #a = :v").expression_attribute_names("#a", attribute);
        update.expression_attribute_values(":v", AttributeValue::S("?".to_owned())).send().await.unwrap();
    }

    pub(crate) fn book(&self) -> String {
        format!("seckill:book:{{{}:{}}}", self.offer.activity_id, self.offer.sku_id)
    }

    pub(crate) fn pending(&self) -> String {
        format!("seckill:pending:{{{}:{}}}", self.offer.activity_id, self.offer.sku_id)
    }

    // What is there.

    pub(crate) async fn counters(&self) -> Counters {
        self.stores.gate.counters(&self.offer).await.unwrap().expect("the gate has the offer")
    }

    pub(crate) async fn available(&self) -> i64 {
        self.counters().await.available
    }

    /// Live units of a user, as the gate counts them.
    pub(crate) async fn units(&self, user: &str) -> i64 {
        let snapshot = self.stores.gate.snapshot(&self.offer).await.unwrap().expect("the gate has the offer");
        snapshot.units.iter().filter(|(of, _)| of.user_id == user_id(user)).map(|(_, units)| units).sum()
    }

    pub(crate) async fn offer_row(&self) -> OfferRow {
        self.stores.offers.offer(&self.offer).await.unwrap().expect("the offer is there")
    }

    pub(crate) async fn sku(&self) -> SkuRow {
        self.stores.offers.sku(&self.offer.sku_id).await.unwrap().expect("the SKU is there")
    }

    pub(crate) async fn row(&self, order_no: &OrderNo) -> OrderRow {
        self.stores.orders.get(order_no).await.unwrap().expect("the order is there")
    }

    pub(crate) async fn status(&self, order_no: &OrderNo) -> (OrderStatus, Option<EndReason>) {
        let row = self.row(order_no).await;
        (row.status, row.reason)
    }

    pub(crate) async fn rows(&self) -> Vec<OrderRow> {
        self.stores.orders.all_of_offer(&self.offer).await.unwrap()
    }

    /// Units of a user's claim, as the row says.
    pub(crate) async fn claim(&self, user: &str) -> Option<i64> {
        let item =
            self.dynamo.client.get_item().table_name(OFFERS).set_key(Some(self.claim_key(user))).send().await.unwrap();
        item.item.map(|item| item["units"].as_n().unwrap().parse().unwrap())
    }

    pub(crate) fn claim_key(&self, user: &str) -> HashMap<String, AttributeValue> {
        item_key(&format!("CLAIM#{}#{}#{user}", self.offer.activity_id, self.offer.sku_id), "-")
    }

    pub(crate) fn offer_key(&self) -> HashMap<String, AttributeValue> {
        item_key(&format!("OFFER#{}", self.offer.activity_id), self.offer.sku_id.as_str())
    }

    pub(crate) fn dead_letters(&self) -> DeadLetters {
        self.dead_letters.dead_letters_of(&self.orders_queue)
    }

    // Money.

    pub(crate) fn till(&self) -> Till {
        Till {
            orders: self.stores.orders.clone(),
            payments: self.stores.payments.clone(),
            merchant_id: MERCHANT.parse().unwrap(),
            clock: self.stores.clock.clone(),
        }
    }

    /// What the provider says of a payment of an order, whole.
    pub(crate) fn payment(&self, transaction: &str, order_no: &OrderNo, units: u64) -> Payment {
        Payment {
            transaction_id: transaction.parse().unwrap(),
            merchant_id: MERCHANT.parse().unwrap(),
            order_no: order_no.clone(),
            amount: Cents::new(PRICE * units),
            currency: "CNY".to_owned().try_into().unwrap(),
            paid_at: self.now(),
        }
    }

    pub(crate) async fn pay(&self, transaction: &str, order_no: &OrderNo, units: u64) -> Taken {
        self.till().take(&self.payment(transaction, order_no, units)).await.unwrap()
    }

    pub(crate) async fn money(&self, transaction: &str) -> Option<PaymentState> {
        let row = self.stores.payments.get(&transaction.parse().unwrap()).await.unwrap();
        row.map(|row| row.state)
    }

    // Reminders.

    /// Buys, and has it made: UNPAID.
    pub(crate) async fn unpaid(&self, user: &str, qty: u32, key: &str) -> OrderNo {
        let order_no = self.bought(user, qty, key).await;
        assert!(unpaid(&self.deliver().await[&order_no]));
        order_no
    }

    /// Sees to orders as if reminded of them; answers what was done and said.
    pub(crate) async fn attend(&self, order_nos: &[OrderNo]) -> (Attended, Recorder) {
        let recorder = Recorder::new(Told::Stored);
        let deadline = self.now().plus_secs(20);
        let attended = due::attend(&self.stores, &recorder, order_nos, deadline).await.unwrap();
        (attended, recorder)
    }

    /// The buyer lets an order go; the reminder that follows is left to the test.
    pub(crate) async fn cancel(&self, order_no: &OrderNo) -> Outcome {
        let row = self.row(order_no).await;
        let deadline = self.now().plus_secs(20);
        let outcomes = self.ledger.cancel(&[row], EndReason::CancelledByBuyer, deadline).await;
        outcomes[order_no].clone()
    }

    // The oracle.

    pub(crate) async fn audit(&self, bound_secs: u32) -> Report {
        // Holds are stamped by Redis in whole seconds; none may lie ahead.
        self.pass_secs(1);
        audit::audit(&self.stores, &self.dead_letters(), self.activity_id(), bound_secs)
            .await
            .unwrap()
            .expect("the activity is there")
    }

    /// Every promise is kept, now and without any grace.
    pub(crate) async fn assert_sound(&self) {
        let report = self.audit(0).await;
        assert_eq!((report.verdict, report.violations), (Verdict::Pass, Vec::new()));
    }
}

/// Notes what buyers and the warehouse are told.
pub(crate) struct Recorder {
    told: Told,
    /// Each a telling of its own.
    tellings: Mutex<usize>,
    words: Mutex<Vec<Decided>>,
    published: Mutex<Vec<OrderNo>>,
}

impl Recorder {
    pub(crate) fn new(told: Told) -> Self {
        Self { told, tellings: Mutex::default(), words: Mutex::default(), published: Mutex::default() }
    }

    pub(crate) fn words(&self) -> Vec<Decided> {
        self.words.lock().unwrap().clone()
    }

    pub(crate) fn tellings(&self) -> usize {
        *self.tellings.lock().unwrap()
    }

    pub(crate) fn published(&self) -> Vec<OrderNo> {
        self.published.lock().unwrap().clone()
    }
}

impl Messenger for Recorder {
    async fn tell(&self, decided: &[Decided]) -> Told {
        self.words.lock().unwrap().extend_from_slice(decided);
        *self.tellings.lock().unwrap() += 1;
        if decided.is_empty() { Told::Stored } else { self.told }
    }

    async fn publish_paid(&self, orders: &[&OrderRow]) -> Told {
        self.published.lock().unwrap().extend(orders.iter().map(|order| order.order_no.clone()));
        self.told
    }
}

/// A gate over a connection that waits: the functions' own gives up after half a second, which a machine busy with other
/// tests may well take.
fn gate_at(url: &str) -> Gate<ConnectionManager> {
    let config = ConnectionManagerConfig::new()
        .set_number_of_retries(0)
        .set_connection_timeout(Some(PATIENCE))
        .set_response_timeout(Some(PATIENCE));
    let client = redis::Client::open(url).unwrap();
    Gate::new(ConnectionManager::new_lazy_with_config(client, config).unwrap())
}

pub(crate) fn item_key(pk: &str, sk: &str) -> HashMap<String, AttributeValue> {
    HashMap::from([
        ("pk".to_owned(), AttributeValue::S(pk.to_owned())),
        ("sk".to_owned(), AttributeValue::S(sk.to_owned())),
    ])
}

pub(crate) fn order_key(order_no: &OrderNo) -> HashMap<String, AttributeValue> {
    HashMap::from([("orderNo".to_owned(), AttributeValue::S(order_no.to_string()))])
}

pub(crate) fn payment_key(transaction: &str) -> HashMap<String, AttributeValue> {
    HashMap::from([("transactionId".to_owned(), AttributeValue::S(transaction.to_owned()))])
}

/// An offer of `total` units, `limit` for each user.
pub(crate) fn spec(total: i64, limit: u32) -> OfferSpec {
    OfferSpec {
        title: "Hotcake 热蛋糕".to_owned(),
        price: PRICE.try_into().unwrap(),
        currency: "CNY".to_owned().try_into().unwrap(),
        total,
        limit_per_user: limit,
        limit_period: LimitPeriod::Activity,
        unlimited: false,
        on_sale: None,
        image: None,
    }
}

/// What came of an edit that cannot be refused here.
#[track_caller]
pub(crate) fn done<T: std::fmt::Debug>(edit: Edit<T>) -> T {
    match edit {
        Edit::Done(row) => row,
        Edit::Refused(refusal) => panic!("refused: {refusal:?}"),
    }
}

pub(crate) fn refused(refusal: Refusal) -> Bought {
    Bought::Refused(refusal)
}

pub(crate) fn unpaid(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::Settled { status: OrderStatus::Unpaid, reason: None, .. })
}

pub(crate) fn failed(outcome: &Outcome, because: EndReason) -> bool {
    matches!(outcome, Outcome::Settled { status: OrderStatus::Failed, reason: Some(reason), .. } if *reason == because)
}

pub(crate) fn user_id(user: &str) -> UserId {
    user.parse().unwrap()
}

pub(crate) fn quantity(units: u32) -> Quantity {
    Quantity::try_from(units).unwrap()
}

pub(crate) fn admin() -> UserId {
    user_id("admin1")
}

pub(crate) fn sku_id(sku: &str) -> SkuId {
    sku.parse().unwrap()
}
