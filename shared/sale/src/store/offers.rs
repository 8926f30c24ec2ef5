//! What is sold, and the counts that guard it.
//!
//! | item | key | guards |
//! | --- | --- | --- |
//! | activity | `ACTIVITY`, id | its version: two edits at once, one wins |
//! | offer | `OFFER#activity`, sku | `remaining ≥ q`: the last line against an oversell, right even when the gate is wrong |
//! | claim | `CLAIM#activity#sku#user`, or `…#user@day` where each day has its limit | `units + q ≤ limit` |
//! | SKU | `SKU`, id | `free ≥ n`: units allotted to offers never exceed the stock |
//! | change | `CHANGE#subject`, time | nothing: the log of what admins did |
//! | lease | `LEASE`, name | one sweep at a time |
//! | blacklisted user | `BLACKLIST`, user | nothing; beside it the list's version |
//!
//! A condition cannot add, so the offer keeps `total` and `remaining`, and what is committed is their difference.

use std::collections::HashMap;

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::operation::query::builders::QueryFluentBuilder;
use aws_sdk_dynamodb::types::builders::{PutBuilder, UpdateBuilder};
use aws_sdk_dynamodb::types::{AttributeValue, ConditionCheck, Delete, Put, TransactWriteItem, Update};
use kernel::ids::{ActivityId, SkuId, UserId};
use kernel::time::UnixMillis;
use serde::{Deserialize, Serialize};

pub use super::Written;
use super::orders::CursorError;
use super::{
    Item, Pages, StoreError, batch_get, from_item, number, query_all, readable, text, to_item, write_together,
};
use crate::blacklist::Entry;
use crate::gate::GateSettings;
use crate::offer::{Allowance, LimitPeriod, OfferId, Rules, SaleState, Shown, Terms, UNLIMITED_TOTAL};

const ACTIVITIES: &str = "ACTIVITY";
const SKUS: &str = "SKU";
const LEASES: &str = "LEASE";
const BLACKLIST: &str = "BLACKLIST";
const BLACKLIST_VERSION: &str = "BLACKLIST-VERSION";
/// The subject of changes that concern no single sale. No identifier has a slash.
pub const SYSTEM: &str = "/system";
/// The most equal actions of one millisecond in the change log; nobody is as fast.
const SAME_MILLISECOND: usize = 20;
/// The longest sort key, in bytes, by DynamoDB's own bound.
const MAX_SORT_KEY_LEN: usize = 1_024;
/// Sort key of items that are alone under their partition key.
const ALONE: &str = "-";
/// `free` is a reserved word of DynamoDB.
const FREE_NAME: (&str, &str) = ("#free", "free");

/// An activity as it is stored.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ActivityRow {
    pub activity_id: ActivityId,
    pub name: String,
    #[serde(flatten)]
    pub rules: Rules,
    pub state: SaleState,
    /// Goes up by one with every change.
    pub version: i64,
    /// SETTLED, and its gates know it: nothing is left to be done about it.
    #[serde(default)]
    pub archived: bool,
}

impl ActivityRow {
    /// Whether it sells no more, by the row or by the clock.
    pub fn is_over(&self, now: UnixMillis) -> bool {
        match self.state {
            SaleState::Closed | SaleState::Settled => true,
            SaleState::Live | SaleState::Paused => now >= self.rules.ends_at,
        }
    }

    /// Where it stands; `offers` are its own.
    pub fn shown(&self, offers: &[OfferRow], now: UnixMillis) -> Shown {
        match self.state {
            SaleState::Settled => Shown::Settled,
            SaleState::Closed => Shown::Closed,
            SaleState::Live | SaleState::Paused if self.is_over(now) => Shown::Closed,
            SaleState::Live | SaleState::Paused if offers.is_empty() => Shown::Draft,
            SaleState::Paused => Shown::Paused,
            SaleState::Live if now >= self.rules.starts_at => Shown::Open,
            SaleState::Live if offers.iter().all(OfferRow::is_gate_ready) => Shown::Preheated,
            SaleState::Live => Shown::Scheduled,
        }
    }
}

/// An offer as it is stored: the source that the gate is made equal to. Carries a copy of its activity's rules, written in
/// the transaction that changes them, so that one row says all there is to say about it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct OfferRow {
    pub activity_id: ActivityId,
    pub sku_id: SkuId,
    pub title: String,
    pub price: kernel::money::Price,
    pub currency: kernel::money::Currency,
    pub limit_per_user: u32,
    #[serde(default)]
    pub limit_period: LimitPeriod,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    pub unlimited: bool,
    /// False: taken off the shelf, for now or for good.
    #[serde(default = "on_sale")]
    pub on_sale: bool,
    #[serde(flatten)]
    pub rules: Rules,
    pub state: SaleState,
    pub total: i64,
    /// Units of `total` that no UNPAID or PAID order has.
    pub remaining: i64,
    /// Goes up by one with every change of what the gate copies.
    pub version: i64,
    /// Which making of the gate is the valid one; 0 = never made.
    pub epoch: i64,
    /// Whether a making of the gate was ever finished: before it, nobody can have bought.
    #[serde(default)]
    pub made: bool,
    /// The epoch of a gate that is being made, and since when.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rebuilding: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rebuilding_since: Option<UnixMillis>,
}

const fn on_sale() -> bool {
    true
}

impl OfferRow {
    pub fn id(&self) -> OfferId {
        OfferId { activity_id: self.activity_id.clone(), sku_id: self.sku_id.clone() }
    }

    /// Whether the gate is made; while it is not, buyers are answered NOT_READY.
    pub fn is_gate_ready(&self) -> bool {
        self.epoch > 0 && self.rebuilding.is_none()
    }

    /// Units of UNPAID and PAID orders.
    pub fn committed(&self) -> i64 {
        self.total - self.remaining
    }

    pub fn terms(&self) -> Terms {
        Terms {
            title: self.title.clone(),
            price: self.price,
            currency: self.currency,
            limit_per_user: self.limit_per_user,
            pay_window_secs: self.rules.pay_window_secs,
            limit_day: None,
        }
    }

    /// What the gate must say when this row is all there is to know.
    pub fn gate_settings(&self) -> GateSettings {
        GateSettings {
            epoch: self.epoch,
            version: self.version,
            total: self.total,
            state: self.state,
            rules: self.rules.clone(),
            limit_period: self.limit_period,
            on_sale: self.on_sale,
            terms: self.terms(),
        }
    }

    /// Units taken out of the SKU's stock for this offer.
    pub fn allotted(&self) -> i64 {
        if self.unlimited { 0 } else { self.total }
    }
}

/// The stock of a SKU.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SkuRow {
    pub sku_id: SkuId,
    pub title: String,
    /// Units put up for flash sales in all.
    pub stock: i64,
    /// Units of them that no offer has.
    pub free: i64,
}

/// Units that a user has of an offer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ClaimRow {
    pub(crate) pk: String,
    pub(crate) units: i64,
}

/// One entry of the change log.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Change {
    pub by: UserId,
    pub at: UnixMillis,
    pub action: String,
    /// JSON, as the row was; absent for something new.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub before: Option<String>,
    pub after: String,
}

/// A page of a list.
#[derive(Debug, Clone)]
pub struct Page<T> {
    pub items: Vec<T>,
    pub next: Option<Cursor>,
}

/// Where a page ended.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Cursor {
    sk: String,
}

impl Cursor {
    /// The opaque form for clients.
    pub fn encode(&self) -> String {
        data_encoding::BASE64URL_NOPAD.encode(self.sk.as_bytes())
    }

    pub fn decode(opaque: &str) -> Result<Self, CursorError> {
        let bytes = data_encoding::BASE64URL_NOPAD.decode(opaque.as_bytes()).map_err(|_| CursorError)?;
        let sk = String::from_utf8(bytes).map_err(|_| CursorError)?;
        if (1..=MAX_SORT_KEY_LEN).contains(&sk.len()) { Ok(Self { sk }) } else { Err(CursorError) }
    }
}

pub(crate) fn offer_key(offer: &OfferId) -> Item {
    key(format!("OFFER#{}", offer.activity_id), offer.sku_id.as_str())
}

/// A partition key per user and offer: claims of one offer in one partition would be a hot one.
pub(crate) fn claim_key(allowance: &Allowance, offer: &OfferId) -> Item {
    key(claim_pk(allowance, offer), ALONE)
}

pub(crate) fn claim_pk(allowance: &Allowance, offer: &OfferId) -> String {
    format!("CLAIM#{}#{}#{allowance}", offer.activity_id, offer.sku_id)
}

fn activity_key(activity_id: &ActivityId) -> Item {
    key(ACTIVITIES, activity_id.as_str())
}

fn sku_key(sku_id: &SkuId) -> Item {
    key(SKUS, sku_id.as_str())
}

fn key(pk: impl Into<String>, sk: &str) -> Item {
    Item::from([("pk".to_owned(), text(pk)), ("sk".to_owned(), text(sk))])
}

/// A row with its key.
fn keyed(row: &impl Serialize, key: Item) -> Result<Item, StoreError> {
    let mut item = to_item(row)?;
    item.extend(key);
    Ok(item)
}

/// The offers table.
#[derive(Debug, Clone)]
pub struct Offers {
    pub(crate) db: Client,
    pub(crate) table: String,
    /// Whether reads see every write that came before them.
    consistent: bool,
}

impl Offers {
    pub fn new(db: Client, table: String) -> Self {
        Self { db, table, consistent: true }
    }

    /// The same table, read at half the price, and perhaps as it was a moment ago: for those who only show it.
    pub fn to_show(db: Client, table: String) -> Self {
        Self { db, table, consistent: false }
    }

    async fn read<T: serde::de::DeserializeOwned>(&self, key: Item) -> Result<Option<T>, StoreError> {
        let answer = self
            .db
            .get_item()
            .table_name(&self.table)
            .set_key(Some(key))
            .consistent_read(self.consistent)
            .send()
            .await
            .map_err(StoreError::unavailable("GetItem offers"))?;
        answer.item.map(from_item).transpose()
    }

    async fn list<T: serde::de::DeserializeOwned>(&self, pk: String) -> Result<Vec<T>, StoreError> {
        query_all(self.query(pk), "Query offers").await
    }

    fn query(&self, pk: String) -> QueryFluentBuilder {
        self.db
            .query()
            .table_name(&self.table)
            .key_condition_expression("pk = :pk")
            .expression_attribute_values(":pk", text(pk))
            .consistent_read(self.consistent)
    }

    pub async fn activity(&self, activity_id: &ActivityId) -> Result<Option<ActivityRow>, StoreError> {
        self.read(activity_key(activity_id)).await
    }

    /// All activities that can be read, by id.
    pub async fn activities(&self) -> Result<Vec<ActivityRow>, StoreError> {
        let mut pages = Pages::<ActivityRow>::new(self.query(ACTIVITIES.to_owned()), "Query offers");
        let mut rows = Vec::new();
        while let Some(items) = pages.next_items().await? {
            rows.extend(readable(items));
        }
        Ok(rows)
    }

    pub async fn offer(&self, offer: &OfferId) -> Result<Option<OfferRow>, StoreError> {
        self.read(offer_key(offer)).await
    }

    /// The offers of an activity, by SKU.
    pub async fn offers_of(&self, activity_id: &ActivityId) -> Result<Vec<OfferRow>, StoreError> {
        self.list(format!("OFFER#{activity_id}")).await
    }

    pub async fn sku(&self, sku_id: &SkuId) -> Result<Option<SkuRow>, StoreError> {
        self.read(sku_key(sku_id)).await
    }

    /// A page of what admins did to `subject` (an activity, a SKU or [`SYSTEM`]), oldest first.
    pub async fn changes_of(
        &self,
        subject: &str,
        limit: u16,
        after: Option<&Cursor>,
    ) -> Result<Page<Change>, StoreError> {
        self.page(format!("CHANGE#{subject}"), limit, after).await
    }

    /// A page of the blacklist, by user.
    pub async fn blacklisted(&self, limit: u16, after: Option<&Cursor>) -> Result<Page<Entry>, StoreError> {
        self.page(BLACKLIST.to_owned(), limit, after).await
    }

    async fn page<T: serde::de::DeserializeOwned>(
        &self,
        pk: String,
        limit: u16,
        after: Option<&Cursor>,
    ) -> Result<Page<T>, StoreError> {
        let query = self.query(pk.clone()).limit(i32::from(limit));
        let query = query.set_exclusive_start_key(after.map(|after| key(pk, &after.sk)));
        let answer = query.send().await.map_err(StoreError::unavailable("Query offers"))?;
        Ok(Page {
            next: answer.last_evaluated_key.map(from_item).transpose()?,
            items: readable(answer.items.unwrap_or_default()).collect(),
        })
    }

    /// Everybody on the blacklist, by user.
    pub(crate) async fn blacklist(&self) -> Result<Vec<Entry>, StoreError> {
        self.list(BLACKLIST.to_owned()).await
    }

    /// Goes up with every change of the blacklist.
    pub(crate) async fn blacklist_version(&self) -> Result<i64, StoreError> {
        #[derive(Deserialize)]
        struct Version {
            version: i64,
        }
        let row: Option<Version> = self.read(key(BLACKLIST_VERSION, ALONE)).await?;
        Ok(row.map_or(0, |row| row.version))
    }

    /// Puts a user on the blacklist, or changes the entry.
    pub async fn put_blacklisted(&self, entry: &Entry) -> Result<(), StoreError> {
        let mut batch = self.batch();
        batch.put(keyed(entry, key(BLACKLIST, entry.user_id.as_str()))?, Put::builder())?;
        batch.raise_blacklist_version()?;
        batch.write("put blacklisted").await.map(|_| ())
    }

    /// Takes a user off the blacklist. False: they are not on it.
    pub async fn delete_blacklisted(&self, user_id: &UserId) -> Result<bool, StoreError> {
        let mut batch = self.batch();
        batch.delete(key(BLACKLIST, user_id.as_str()))?;
        batch.raise_blacklist_version()?;
        Ok(batch.write("delete blacklisted").await? == Written::Done)
    }

    /// Notes what somebody did to `subject`, or to [`SYSTEM`], beside what changed its rows.
    pub async fn log<T: Serialize>(
        &self,
        subject: &str,
        by: &UserId,
        at: UnixMillis,
        action: String,
        before: Option<&T>,
        after: &T,
    ) -> Result<(), StoreError> {
        let document = |what: &T| serde_json::to_string(what).map_err(|error| StoreError::Corrupt(error.to_string()));
        let before = before.map(document).transpose()?;
        let change = Change { by: by.clone(), at, action, before, after: document(after)? };
        for n in 0..SAME_MILLISECOND {
            // The same may be done twice in one millisecond, and both are noted.
            let sk = format!("{:013}#{}#{n}", change.at.get(), change.action);
            let mut batch = self.batch();
            batch.put_new(keyed(&change, key(format!("CHANGE#{subject}"), &sk))?)?;
            if batch.write("log change").await? == Written::Done {
                return Ok(());
            }
        }
        Err(StoreError::Corrupt(format!("{subject} has {SAME_MILLISECOND} equal changes of one millisecond")))
    }

    /// Units that count against each of `allowances` by its claim; those without one are left out.
    pub(crate) async fn claims(&self, offer: &OfferId, allowances: &[Allowance]) -> Result<Vec<ClaimRow>, StoreError> {
        batch_get(&self.db, &self.table, allowances, |each| claim_key(each, offer)).await
    }

    /// Begins the making of a gate: the offer's epoch goes from `epoch` to `epoch + 1`, if it still is `epoch`.
    pub async fn begin_rebuild(&self, offer: &OfferId, epoch: i64, now: UnixMillis) -> Result<Written, StoreError> {
        let update = Update::builder()
            .update_expression("SET epoch = :next, rebuilding = :next, rebuildingSince = :now")
            .condition_expression("epoch = :epoch AND #state <> :settled")
            .expression_attribute_names("#state", "state")
            .expression_attribute_values(":epoch", number(epoch))
            .expression_attribute_values(":next", number(epoch + 1))
            .expression_attribute_values(":now", number(now.get()))
            .expression_attribute_values(":settled", text("SETTLED"));
        let mut batch = Batch::new(self);
        batch.update(update, offer_key(offer))?;
        batch.write("begin rebuild").await
    }

    /// Ends it, if no other one has begun.
    pub async fn end_rebuild(&self, offer: &OfferId, epoch: i64) -> Result<Written, StoreError> {
        let update = Update::builder()
            .update_expression("SET made = :true REMOVE rebuilding, rebuildingSince")
            .expression_attribute_values(":true", AttributeValue::Bool(true))
            .condition_expression("rebuilding = :epoch")
            .expression_attribute_values(":epoch", number(epoch));
        let mut batch = Batch::new(self);
        batch.update(update, offer_key(offer))?;
        batch.write("end rebuild").await
    }

    /// Notes that the gates of a settled activity know it.
    pub async fn archive(&self, activity_id: &ActivityId) -> Result<Written, StoreError> {
        let update = Update::builder()
            .update_expression("SET archived = :true")
            .condition_expression("#state = :settled")
            .expression_attribute_names("#state", "state")
            .expression_attribute_values(":true", AttributeValue::Bool(true))
            .expression_attribute_values(":settled", text("SETTLED"));
        let mut batch = Batch::new(self);
        batch.update(update, activity_key(activity_id))?;
        batch.write("archive activity").await
    }

    /// Takes the lease `name` for `owner`, until an instant. False: somebody else has it.
    pub async fn lease(&self, name: &str, owner: &str, until: UnixMillis, now: UnixMillis) -> Result<bool, StoreError> {
        let update = Update::builder()
            .update_expression("SET heldBy = :owner, heldUntil = :until")
            .condition_expression("attribute_not_exists(heldUntil) OR heldUntil <= :now OR heldBy = :owner")
            .expression_attribute_values(":owner", text(owner))
            .expression_attribute_values(":until", number(until.get()))
            .expression_attribute_values(":now", number(now.get()));
        let mut batch = Batch::new(self);
        batch.update(update, key(LEASES, name))?;
        Ok(batch.write("lease").await? == Written::Done)
    }

    /// Gives a lease back.
    pub async fn end_lease(&self, name: &str, owner: &str) -> Result<(), StoreError> {
        let update = Update::builder()
            .update_expression("REMOVE heldUntil")
            .condition_expression("heldBy = :owner")
            .expression_attribute_values(":owner", text(owner));
        let mut batch = Batch::new(self);
        batch.update(update, key(LEASES, name))?;
        batch.write("end lease").await.map(|_| ())
    }

    /// A write of several rows of this table at once.
    pub(crate) fn batch(&self) -> Batch<'_> {
        Batch::new(self)
    }
}

/// Rows of the offers table that change together or not at all.
pub(crate) struct Batch<'a> {
    offers: &'a Offers,
    actions: Vec<TransactWriteItem>,
}

impl<'a> Batch<'a> {
    fn new(offers: &'a Offers) -> Self {
        Self { offers, actions: Vec::new() }
    }

    fn update(&mut self, update: UpdateBuilder, key: Item) -> Result<(), StoreError> {
        let update = update.table_name(&self.offers.table).set_key(Some(key)).build();
        let update = update.map_err(|error| StoreError::Corrupt(error.to_string()))?;
        self.actions.push(TransactWriteItem::builder().update(update).build());
        Ok(())
    }

    fn delete(&mut self, key: Item) -> Result<(), StoreError> {
        let delete = Delete::builder().table_name(&self.offers.table).set_key(Some(key));
        let delete = delete.condition_expression("attribute_exists(pk)").build();
        let delete = delete.map_err(|error| StoreError::Corrupt(error.to_string()))?;
        self.actions.push(TransactWriteItem::builder().delete(delete).build());
        Ok(())
    }

    fn raise_blacklist_version(&mut self) -> Result<(), StoreError> {
        let update =
            Update::builder().update_expression("ADD version :one").expression_attribute_values(":one", number(1));
        self.update(update, key(BLACKLIST_VERSION, ALONE))
    }

    fn put_new(&mut self, item: Item) -> Result<(), StoreError> {
        self.put(item, Put::builder().condition_expression("attribute_not_exists(pk)"))
    }

    fn put(&mut self, item: Item, put: PutBuilder) -> Result<(), StoreError> {
        let put = put.table_name(&self.offers.table).set_item(Some(item)).build();
        let put = put.map_err(|error| StoreError::Corrupt(error.to_string()))?;
        self.actions.push(TransactWriteItem::builder().put(put).build());
        Ok(())
    }

    /// The activity, new (`before` absent) or changed from version `before`.
    pub(crate) fn activity(&mut self, row: &ActivityRow, before: Option<i64>) -> Result<(), StoreError> {
        let item = keyed(row, activity_key(&row.activity_id))?;
        match before {
            None => self.put_new(item),
            Some(version) => {
                let condition = Put::builder()
                    .condition_expression("version = :before")
                    .expression_attribute_values(":before", number(version));
                self.put(item, condition)
            }
        }
    }

    /// The activity must still be at `version`.
    pub(crate) fn require_activity(&mut self, row: &ActivityRow) -> Result<(), StoreError> {
        let check = ConditionCheck::builder()
            .table_name(&self.offers.table)
            .set_key(Some(activity_key(&row.activity_id)))
            .condition_expression("version = :version")
            .expression_attribute_values(":version", number(row.version))
            .build();
        let check = check.map_err(|error| StoreError::Corrupt(error.to_string()))?;
        self.actions.push(TransactWriteItem::builder().condition_check(check).build());
        Ok(())
    }

    pub(crate) fn new_offer(&mut self, row: &OfferRow) -> Result<(), StoreError> {
        self.put_new(keyed(row, offer_key(&row.id()))?)
    }

    /// What admins may change of an offer, from version `row.version - 1`. Its counts are changed by `raise` units, never
    /// set: orders are being committed meanwhile.
    pub(crate) fn change_offer(&mut self, row: &OfferRow, raise: i64) -> Result<(), StoreError> {
        const CHANGED: [&str; 14] = [
            "title",
            "price",
            "currency",
            "limitPerUser",
            "onSale",
            "utcOffsetSecs",
            "startsAt",
            "endsAt",
            "payWindowSecs",
            "userIntervalMs",
            "deviceIpIntervalMs",
            "state",
            "version",
            "image",
        ];
        let mut item = to_item(row)?;
        // `total` is a reserved word of DynamoDB, and so are some of the others.
        let mut set = "#total = #total + :raise, remaining = remaining + :raise".to_owned();
        let mut names = HashMap::from([("#total".to_owned(), "total".to_owned())]);
        let mut values = Item::from([
            (":raise".to_owned(), number(raise)),
            (":floor".to_owned(), number(-raise)),
            (":before".to_owned(), number(row.version - 1)),
        ]);
        for attribute in CHANGED {
            if let Some(value) = item.remove(attribute) {
                set.push_str(&format!(", #{attribute} = :{attribute}"));
                names.insert(format!("#{attribute}"), attribute.to_owned());
                values.insert(format!(":{attribute}"), value);
            }
        }
        let remove = if row.image.is_none() { " REMOVE image" } else { "" };
        let update = Update::builder()
            .update_expression(format!("SET {set}{remove}"))
            // The gate copies the version; the rest of the condition keeps what is committed below the total.
            .condition_expression("#version = :before AND remaining >= :floor")
            .set_expression_attribute_names(Some(names))
            .set_expression_attribute_values(Some(values));
        self.update(update, offer_key(&row.id()))
    }

    /// Settles an offer that is as `row` says: what it has not sold is its no more, so an order that comes too late finds
    /// nothing left.
    pub(crate) fn settle_offer(&mut self, row: &OfferRow) -> Result<(), StoreError> {
        let update = Update::builder()
            .update_expression("SET #state = :settled, #total = :committed, remaining = :none, version = :next REMOVE rebuilding, rebuildingSince")
            .condition_expression("version = :version AND remaining = :remaining")
            .expression_attribute_names("#state", "state")
            .expression_attribute_names("#total", "total")
            .expression_attribute_values(":settled", text("SETTLED"))
            .expression_attribute_values(":committed", number(row.committed()))
            .expression_attribute_values(":none", number(0))
            .expression_attribute_values(":version", number(row.version))
            .expression_attribute_values(":next", number(row.version + 1))
            .expression_attribute_values(":remaining", number(row.remaining));
        self.update(update, offer_key(&row.id()))
    }

    /// The SKU, new (`before` absent) or changed from what it was.
    pub(crate) fn sku(&mut self, row: &SkuRow, before: Option<&SkuRow>) -> Result<(), StoreError> {
        let item = keyed(row, sku_key(&row.sku_id))?;
        match before {
            None => self.put_new(item),
            Some(before) => {
                let condition = Put::builder()
                    .condition_expression("stock = :stock AND #free = :free")
                    .expression_attribute_names(FREE_NAME.0, FREE_NAME.1)
                    .expression_attribute_values(":stock", number(before.stock))
                    .expression_attribute_values(":free", number(before.free));
                self.put(item, condition)
            }
        }
    }

    /// Takes `units` out of what is free of a SKU (gives them back when negative).
    pub(crate) fn allot(&mut self, sku_id: &SkuId, units: i64) -> Result<(), StoreError> {
        let update = Update::builder()
            .update_expression("SET #free = #free - :units")
            .condition_expression("#free >= :units")
            .expression_attribute_names(FREE_NAME.0, FREE_NAME.1)
            .expression_attribute_values(":units", number(units));
        self.update(update, sku_key(sku_id))
    }

    /// An entry of the change log.
    pub(crate) fn change(&mut self, subject: &str, change: &Change) -> Result<(), StoreError> {
        // Two changes of one millisecond differ in what they did, or are the same.
        let sk = format!("{:013}#{}", change.at.get(), change.action);
        let item = keyed(change, key(format!("CHANGE#{subject}"), &sk))?;
        self.put_new(item)
    }

    /// Writes all, or nothing. The offer's row is written by every commit of a storm, so meeting one is normal here.
    pub(crate) async fn write(self, operation: &'static str) -> Result<Written, StoreError> {
        write_together(&self.offers.db, self.actions, operation).await
    }
}

/// The total that an offer begins with.
pub(crate) fn initial_total(unlimited: bool, total: i64) -> i64 {
    if unlimited { UNLIMITED_TOTAL } else { total }
}

#[cfg(test)]
mod tests {
    use aws_sdk_dynamodb::types::AttributeValue;

    use super::*;

    #[test]
    fn keys_of_different_things_differ() {
        let offer = OfferId { activity_id: "a-1".parse().unwrap(), sku_id: "s".parse().unwrap() };
        let other = OfferId { activity_id: "a".parse().unwrap(), sku_id: "1-s".parse().unwrap() };
        let user = "u".parse().unwrap();
        assert_ne!(claim_pk(&user, &offer), claim_pk(&user, &other));
        assert_ne!(offer_key(&offer), offer_key(&other));
        assert_eq!(offer_key(&offer)["sk"], AttributeValue::S("s".into()));
    }

    #[test]
    fn where_a_sale_stands_is_said_by_its_rows_and_the_clock() {
        let (starts_at, ends_at) = (UnixMillis::new(1_000), UnixMillis::new(2_000));
        let (before, during) = (starts_at.plus_millis(-1), starts_at);
        let rules = Rules {
            starts_at,
            ends_at,
            pay_window_secs: 900,
            user_interval_ms: 0,
            device_ip_interval_ms: 0,
            utc_offset_secs: 0,
        };
        let activity = |state| ActivityRow {
            activity_id: "a".parse().unwrap(),
            name: "Sale".into(),
            rules: rules.clone(),
            state,
            version: 1,
            archived: false,
        };
        let offer = |epoch, rebuilding| OfferRow {
            activity_id: "a".parse().unwrap(),
            sku_id: "s".parse().unwrap(),
            title: "Hotcake".into(),
            price: 990.try_into().unwrap(),
            currency: "CNY".to_owned().try_into().unwrap(),
            limit_per_user: 1,
            image: None,
            unlimited: false,
            limit_period: LimitPeriod::Activity,
            on_sale: true,
            rules: rules.clone(),
            state: SaleState::Live,
            total: 1,
            remaining: 1,
            version: 1,
            epoch,
            made: true,
            rebuilding,
            rebuilding_since: None,
        };
        let (made, not_made, remade) = (offer(1, None), offer(0, None), offer(2, Some(2)));
        for (state, offers, now, shown) in [
            (SaleState::Live, vec![], before, Shown::Draft),
            (SaleState::Paused, vec![], during, Shown::Draft),
            (SaleState::Live, vec![], ends_at, Shown::Closed),
            (SaleState::Live, vec![made.clone(), not_made], before, Shown::Scheduled),
            (SaleState::Live, vec![remade.clone()], before, Shown::Scheduled),
            (SaleState::Live, vec![made.clone()], before, Shown::Preheated),
            (SaleState::Live, vec![remade], during, Shown::Open),
            (SaleState::Paused, vec![made.clone()], before, Shown::Paused),
            (SaleState::Paused, vec![made.clone()], ends_at, Shown::Closed),
            (SaleState::Closed, vec![made.clone()], before, Shown::Closed),
            (SaleState::Settled, vec![made], ends_at, Shown::Settled),
        ] {
            assert_eq!(activity(state).shown(&offers, now), shown, "{state:?} at {now:?}");
        }
    }
}
