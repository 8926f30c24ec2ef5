//! A sale's life: put up, made ready, paused, ended; and who did what to it.

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::api::{Api, Twice};
use crate::cli::{id, instant};
use crate::failure::{Ending, Failure};
use crate::show::{Out, clean, or_dash, table_or};

#[derive(Subcommand)]
pub(crate) enum Verb {
    /// Put up an activity and what is sold in it; again, to change it
    Create(Box<Create>),
    /// Make the gates, so that buyers are let in as soon as it starts
    Preheat(Activity),
    /// Stop selling for now
    Pause(Activity),
    /// Go on selling
    Resume(Activity),
    /// Stop selling for good; what is not paid yet may still be paid
    End(Activity),
    /// Show what was changed, by whom and when, oldest first
    Changes(Log),
}

#[derive(Args)]
pub(crate) struct Activity {
    #[arg(value_parser = id)]
    activity: String,
}

#[derive(Args)]
pub(crate) struct Log {
    #[arg(value_parser = id)]
    activity: String,
    /// Where the page before ended, as it says in its last line
    #[arg(long)]
    cursor: Option<String>,
}

/// One activity with one product from flags, or with many from a file.
#[derive(Args)]
pub(crate) struct Create {
    /// The activity's id
    #[arg(value_parser = id, required_unless_present = "file")]
    activity: Option<String>,
    /// {"activityId", "activity": {…}, "skus": [{"skuId", …}], "products": [{"skuId", …}]}, each as the API takes it
    #[arg(long, value_name = "JSON", conflicts_with = "activity")]
    file: Option<PathBuf>,
    /// What people see
    #[arg(long, required_unless_present = "file", conflicts_with = "file")]
    name: Option<String>,
    /// RFC 3339, or `now`, or from now: +90s, +10m, +2h, +3d
    #[arg(long, value_name = "INSTANT", value_parser = instant, required_unless_present = "file", conflicts_with = "file")]
    starts_at: Option<String>,
    /// As --starts-at
    #[arg(long, value_name = "INSTANT", value_parser = instant, required_unless_present = "file", conflicts_with = "file")]
    ends_at: Option<String>,
    /// An IANA name, as Asia/Shanghai: the two instants are then what a wall clock shows there
    #[arg(long, conflicts_with = "file")]
    time_zone: Option<String>,
    /// Time to pay
    #[arg(long, value_name = "SECS", conflicts_with = "file")]
    pay_window_secs: Option<u32>,
    /// The least time between two purchases of one user; 0 = no limit
    #[arg(long, value_name = "MS", conflicts_with = "file")]
    user_interval_ms: Option<u32>,
    /// The same for one device at one address
    #[arg(long, value_name = "MS", conflicts_with = "file")]
    device_ip_interval_ms: Option<u32>,
    /// The id of what is sold
    #[arg(long, value_parser = id, required_unless_present = "file", conflicts_with = "file")]
    sku: Option<String>,
    /// Of the SKU, in all sales; without it, the SKU is one that is there already
    #[arg(long, value_name = "UNITS", conflicts_with = "file")]
    stock: Option<u64>,
    /// Of the product, and of the SKU with --stock
    #[arg(long, required_unless_present = "file", conflicts_with = "file")]
    title: Option<String>,
    /// In minor units: 990 is 9.90 yuan; nothing is sold for nothing
    #[arg(long, value_name = "MINOR", value_parser = clap::value_parser!(u64).range(1..), required_unless_present = "file", conflicts_with = "file")]
    price: Option<u64>,
    /// Three letters (ISO 4217)
    #[arg(long, required_unless_present = "file", conflicts_with = "file")]
    currency: Option<String>,
    /// Units for sale, out of the SKU's stock
    #[arg(long, value_name = "UNITS", required_unless_present_any = ["file", "unlimited"], conflicts_with = "file")]
    total: Option<u64>,
    /// Sell without a total
    #[arg(long, conflicts_with_all = ["total", "file"])]
    unlimited: bool,
    /// Units that one user may have
    #[arg(long, value_name = "UNITS", required_unless_present = "file", conflicts_with = "file")]
    limit_per_user: Option<u32>,
    /// What that is a limit of: ACTIVITY (the default) or DAY
    #[arg(long, value_name = "PERIOD", conflicts_with = "file")]
    limit_period: Option<String>,
    /// Whether it is on the shelf; without it, as it is, and a new product is
    #[arg(long, value_name = "BOOL", conflicts_with = "file")]
    on_sale: Option<bool>,
    /// The https address of a picture
    #[arg(long, value_name = "URL", conflicts_with = "file")]
    image: Option<String>,
}

/// All that makes a sale. Bodies are passed on as they are: what the API takes, and no list of it here.
#[derive(Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Sale {
    activity_id: String,
    activity: Map<String, Value>,
    #[serde(default)]
    skus: Vec<OfSku>,
    #[serde(default)]
    products: Vec<OfSku>,
}

#[derive(Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
struct OfSku {
    sku_id: String,
    #[serde(flatten)]
    body: Map<String, Value>,
}

impl Create {
    fn sale(self) -> Result<Sale, Failure> {
        if let Some(file) = &self.file {
            return read(file);
        }
        let (Some(activity_id), Some(sku_id)) = (self.activity, self.sku) else {
            return Err(Failure::Misused("an activity and a SKU are needed".to_owned()));
        };
        let sku = self.stock.map(|stock| OfSku {
            sku_id: sku_id.clone(),
            body: members([("title", self.title.clone().map(Value::from)), ("stock", Some(stock.into()))]),
        });
        Ok(Sale {
            activity_id,
            activity: members([
                ("name", self.name.map(Value::from)),
                ("startsAt", self.starts_at.map(Value::from)),
                ("endsAt", self.ends_at.map(Value::from)),
                ("timeZone", self.time_zone.map(Value::from)),
                ("payWindowSecs", self.pay_window_secs.map(Value::from)),
                ("userIntervalMs", self.user_interval_ms.map(Value::from)),
                ("deviceIpIntervalMs", self.device_ip_interval_ms.map(Value::from)),
            ]),
            skus: sku.into_iter().collect(),
            products: vec![OfSku {
                sku_id,
                body: members([
                    ("title", self.title.map(Value::from)),
                    ("price", self.price.map(Value::from)),
                    ("currency", self.currency.map(Value::from)),
                    ("total", self.total.map(Value::from)),
                    ("unlimited", self.unlimited.then_some(Value::Bool(true))),
                    ("limitPerUser", self.limit_per_user.map(Value::from)),
                    ("limitPeriod", self.limit_period.map(Value::from)),
                    ("onSale", self.on_sale.map(Value::from)),
                    ("image", self.image.map(Value::from)),
                ]),
            }],
        })
    }
}

/// Those that are there; for the others the API has its own defaults.
fn members<const N: usize>(members: [(&str, Option<Value>); N]) -> Map<String, Value> {
    members.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect()
}

fn read(file: &Path) -> Result<Sale, Failure> {
    let text = std::fs::read(file).map_err(|error| Failure::Misused(format!("{}: {error}", file.display())))?;
    parse(&text).map_err(|why| Failure::Misused(format!("{}: {why}", file.display())))
}

fn parse(text: &[u8]) -> Result<Sale, String> {
    let value: Value = serde_json::from_slice(text).map_err(|error| format!("not JSON: {error}"))?;
    if !value.is_object() {
        return Err(r#"a sale is a JSON object: {"activityId": "a1", "activity": {…}, "skus": […], "products": […]}"#
            .to_owned());
    }
    let sale: Sale = serde_json::from_value(value).map_err(|error| error.to_string())?;
    let sku_ids = sale.skus.iter().chain(&sale.products).map(|entry| &entry.sku_id);
    for named in std::iter::once(&sale.activity_id).chain(sku_ids) {
        id(named).map_err(|why| format!("{named:?}: {why}"))?;
    }
    Ok(sale)
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ActivityDocument {
    activity_id: String,
    state: String,
    starts_at: String,
    ends_at: String,
}

impl ActivityDocument {
    fn lines(&self) -> Vec<String> {
        let Self { activity_id, state, starts_at, ends_at } = self;
        vec![format!("activity {activity_id}: {state}, {starts_at} to {ends_at}")]
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct SkuDocument {
    sku_id: String,
    stock: i64,
    free: i64,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ProductDocument {
    sku_id: String,
    price: u64,
    currency: String,
    total: Option<i64>,
    limit_per_user: u32,
}

impl ProductDocument {
    fn lines(&self) -> Vec<String> {
        let Self { sku_id, price, currency, total, limit_per_user } = self;
        let total = total.map_or_else(|| "unlimited".to_owned(), |total| format!("{total} units"));
        vec![format!("product {sku_id}: {total}, {currency} {price} (minor units), {limit_per_user} a user")]
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Changes {
    items: Vec<Change>,
    next_cursor: Option<String>,
}

#[derive(Deserialize)]
struct Change {
    by: String,
    at: String,
    action: String,
    before: Option<Value>,
    after: Value,
}

impl Changes {
    fn lines(&self) -> Vec<String> {
        let rows = self
            .items
            .iter()
            .map(|change| [change.at.clone(), change.by.clone(), change.action.clone(), change.what()]);
        let more = self.next_cursor.as_ref().map(|cursor| format!("more: --cursor {}", clean(cursor)));
        let table = table_or("Nothing was changed yet.", ["AT", "BY", "ACTION", "CHANGED"], rows.collect());
        table.into_iter().chain(more).collect()
    }
}

impl Change {
    fn what(&self) -> String {
        match &self.before {
            Some(before) => changed(before, &self.after),
            None if self.action.starts_with("put-") => "new".to_owned(),
            // Something that was done, and no row that was changed.
            None => self.after.to_string(),
        }
    }
}

/// The members that are not what they were.
fn changed(before: &Value, after: &Value) -> String {
    let (Value::Object(before), Value::Object(after)) = (before, after) else {
        return after.to_string();
    };
    let names: std::collections::BTreeSet<&String> = before.keys().chain(after.keys()).collect();
    let changes = names.into_iter().filter(|name| before.get(*name) != after.get(*name)).map(|name| {
        let [old, new] = [before, after].map(|row| or_dash(row.get(name).map(|value| shown(name, value))));
        format!("{name} {old} → {new}")
    });
    changes.collect::<Vec<_>>().join(", ")
}

/// Rows have instants as milliseconds, which nobody reads.
fn shown(name: &str, value: &Value) -> String {
    let instant =
        value.as_i64().filter(|_| name.ends_with("At")).and_then(|ms| jiff::Timestamp::from_millisecond(ms).ok());
    instant.map_or_else(|| value.to_string(), |instant| instant.to_string())
}

pub(crate) async fn run(verb: Verb, api: &Api, out: &Out) -> Result<Ending, Failure> {
    match verb {
        Verb::Create(wanted) => create(&wanted.sale()?, api, out).await?,
        Verb::Preheat(Activity { activity }) => act(&activity, "preheat", api, out).await?,
        Verb::Pause(Activity { activity }) => act(&activity, "pause", api, out).await?,
        Verb::Resume(Activity { activity }) => act(&activity, "resume", api, out).await?,
        Verb::End(Activity { activity }) => act(&activity, "end", api, out).await?,
        Verb::Changes(Log { activity, cursor }) => {
            let query = cursor.as_deref().map(|cursor| ("cursor", cursor));
            let answer = api.get(&["activities", &activity, "changes"], query.as_slice()).await?;
            out.answer(&answer, Changes::lines)?;
        }
    }
    Ok(Ending::Right)
}

/// One after the other, each told as it is done: if one is refused, it is plain what is there already.
async fn create(sale: &Sale, api: &Api, out: &Out) -> Result<(), Failure> {
    let Sale { activity_id, activity, skus, products } = sale;
    for OfSku { sku_id, body } in skus {
        let answer = api.put(&["skus", sku_id], &Value::Object(body.clone())).await?;
        out.answer(&answer, |SkuDocument { sku_id, stock, free }| {
            vec![format!("SKU {}: {stock} units, {free} of them in no sale", clean(sku_id))]
        })?;
    }
    let answer = api.put(&["activities", activity_id], &Value::Object(activity.clone())).await?;
    out.answer(&answer, ActivityDocument::lines)?;
    for OfSku { sku_id, body } in products {
        let path = ["activities", activity_id, "products", sku_id];
        let answer = api.put(&path, &Value::Object(body.clone())).await?;
        out.answer(&answer, ProductDocument::lines)?;
    }
    Ok(())
}

async fn act(activity: &str, action: &str, api: &Api, out: &Out) -> Result<(), Failure> {
    let answer = api.post(&["activities", activity, action], &[], Twice::IsOnce).await?;
    out.answer(&answer, ActivityDocument::lines)
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use serde_json::json;

    use super::*;
    use crate::cli::{self, Cli};

    fn sale(flags: &str) -> Sale {
        let line = format!(
            "hotcake create a1 --name Sale --starts-at 2200-01-01T00:00:00Z --ends-at 2200-01-02T00:00:00Z --sku s1 --title Cake --price 990 --currency CNY --limit-per-user 2 {flags}"
        );
        let Ok(Cli { verb: cli::Verb::Sale(Verb::Create(wanted)), .. }) = Cli::try_parse_from(line.split_whitespace())
        else {
            panic!("{line}")
        };
        wanted.sale().unwrap()
    }

    #[test]
    fn flags_become_bodies_and_what_is_not_said_is_left_to_the_api() {
        let plain = sale("--total 5");
        assert_eq!(
            Value::Object(plain.activity),
            json!({"name": "Sale", "startsAt": "2200-01-01T00:00:00Z", "endsAt": "2200-01-02T00:00:00Z"})
        );
        assert_eq!(
            Value::Object(plain.products[0].body.clone()),
            json!({"title": "Cake", "price": 990, "currency": "CNY", "total": 5, "limitPerUser": 2})
        );
        assert!(plain.skus.is_empty());

        let full = sale(
            "--unlimited --on-sale false --stock 9 --pay-window-secs 60 --user-interval-ms 0 --time-zone Asia/Shanghai",
        );
        assert_eq!(Value::Object(full.skus[0].body.clone()), json!({"title": "Cake", "stock": 9}));
        assert_eq!(
            (&full.products[0].body["unlimited"], &full.products[0].body["onSale"]),
            (&json!(true), &json!(false))
        );
        assert_eq!((&full.activity["userIntervalMs"], &full.activity["payWindowSecs"]), (&json!(0), &json!(60)));
    }

    #[test]
    fn a_file_says_the_same_and_may_say_what_this_program_does_not_know() {
        let text = json!({"activityId": "a1", "activity": {"name": "Sale", "new": true}, "products": [{"skuId": "s1", "total": 5}]});
        let sale = parse(text.to_string().as_bytes()).unwrap();
        assert_eq!(
            (sale.activity["new"].clone(), sale.products[0].body.clone()),
            (json!(true), members([("total", Some(5.into()))]))
        );
        for (bad, why) in [
            (json!({"activityId": "a/1", "activity": {}}), "an id is"),
            (json!({"activityId": "a1", "activity": {}, "product": []}), "unknown field"),
            (json!({"activityId": "a1", "activity": {}, "products": [{}]}), "skuId"),
            (json!([]), "a sale is a JSON object"),
        ] {
            let refused = parse(bad.to_string().as_bytes()).unwrap_err();
            assert!(refused.contains(why), "{refused}");
        }
    }

    #[test]
    fn a_change_shows_what_is_not_as_it_was() {
        let (before, after) = (
            json!({"state": "LIVE", "version": 1, "name": "A"}),
            json!({"state": "PAUSED", "version": 2, "name": "A"}),
        );
        assert_eq!(changed(&before, &after), "state \"LIVE\" → \"PAUSED\", version 1 → 2");
        let (before, after) = (json!({"endsAt": 1_780_000_000_000_i64}), json!({"endsAt": 1_780_000_060_500_i64}));
        assert_eq!(changed(&before, &after), "endsAt 2026-05-28T20:26:40Z → 2026-05-28T20:27:40.5Z");
        let log: Changes = serde_json::from_value(json!({"nextCursor": "c2", "items": [
            {"by": "admin", "at": "T1", "action": "put-activity", "after": {"name": "A"}},
            {"by": "admin", "at": "T2", "action": "rebuild", "after": {"products": ["s1"]}},
        ]}))
        .unwrap();
        assert_eq!(
            log.lines(),
            [
                "AT  BY     ACTION        CHANGED",
                "T1  admin  put-activity  new",
                "T2  admin  rebuild       {\"products\":[\"s1\"]}",
                "more: --cursor c2",
            ]
        );
    }

    #[test]
    fn an_unlimited_product_says_so() {
        let product = |total| ProductDocument {
            sku_id: "s1".into(),
            price: 990,
            currency: "CNY".into(),
            total,
            limit_per_user: 1,
        };
        assert_eq!(product(Some(5)).lines(), ["product s1: 5 units, CNY 990 (minor units), 1 a user"]);
        assert!(product(None).lines()[0].contains("unlimited"));
    }
}
