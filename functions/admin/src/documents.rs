//! What admins send and get.

use kernel::ids::{ActivityId, SkuId, UserId};
use kernel::money::{Currency, Price};
use kernel::time::{LocalTimeError, Rfc3339, UnixMillis, local_time, utc_offset_secs};
use platform::http::{Problem, Text};
use sale::gate::Counters;
use sale::lifecycle::{ActivitySpec, OfferSpec, SkuSpec, SpecError};
use sale::offer::{LimitPeriod, Rules, Shown};
use sale::store::offers::{ActivityRow, Change, Cursor, OfferRow, Page, SkuRow};
use serde::{Deserialize, Serialize};

const PAY_WINDOW_SECS: u32 = 900;
const USER_INTERVAL_MS: u32 = 1_000;
const DEVICE_IP_INTERVAL_MS: u32 = 5_000;
/// The longest address of a picture, in bytes.
const MAX_IMAGE_LEN: usize = 2_048;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct SkuBody {
    title: String,
    stock: i64,
}

impl SkuBody {
    pub(crate) fn spec(self) -> SkuSpec {
        SkuSpec { title: self.title, stock: self.stock }
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct ActivityBody {
    name: String,
    starts_at: String,
    ends_at: String,
    /// An IANA name: then the two are what a wall clock shows there.
    #[serde(default)]
    time_zone: Option<String>,
    #[serde(default = "pay_window_secs")]
    pay_window_secs: u32,
    #[serde(default = "user_interval_ms")]
    user_interval_ms: u32,
    #[serde(default = "device_ip_interval_ms")]
    device_ip_interval_ms: u32,
    #[serde(default)]
    challenge: bool,
}

const fn pay_window_secs() -> u32 {
    PAY_WINDOW_SECS
}
const fn user_interval_ms() -> u32 {
    USER_INTERVAL_MS
}
const fn device_ip_interval_ms() -> u32 {
    DEVICE_IP_INTERVAL_MS
}

impl ActivityBody {
    pub(crate) fn spec(self) -> Result<ActivitySpec, Problem> {
        if self.challenge {
            return Err(Problem::validation(Text::new(
                "challenge must be false: this version asks no questions at the door.",
                "challenge 只能为 false：当前版本不支持答题。",
            )));
        }
        let zone = self.time_zone.as_deref();
        let starts_at = instant("startsAt", &self.starts_at, zone)?;
        Ok(ActivitySpec {
            name: self.name,
            rules: Rules {
                utc_offset_secs: zone.map_or(0, |zone| utc_offset_secs(zone, starts_at).unwrap_or(0)),
                starts_at,
                ends_at: instant("endsAt", &self.ends_at, zone)?,
                pay_window_secs: self.pay_window_secs,
                user_interval_ms: self.user_interval_ms,
                device_ip_interval_ms: self.device_ip_interval_ms,
            },
        })
    }
}

fn instant(member: &str, text: &str, zone: Option<&str>) -> Result<UnixMillis, Problem> {
    let instant = match zone {
        None => Rfc3339::try_from(text.to_owned()).map(|instant| instant.0).map_err(|error| error.to_string()),
        Some(zone) => local_time(text, zone).map_err(|error: LocalTimeError| error.to_string()),
    };
    instant.map_err(|why| {
        Problem::validation(Text::of(format!("{member}: {why}."), format!("{member}：时间格式或时区不正确。")))
    })
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct ProductBody {
    title: String,
    price: Price,
    currency: Currency,
    #[serde(default)]
    total: Option<i64>,
    limit_per_user: u32,
    #[serde(default)]
    limit_period: LimitPeriod,
    #[serde(default)]
    unlimited: bool,
    /// Absent: as it is.
    #[serde(default)]
    on_sale: Option<bool>,
    #[serde(default)]
    image: Option<String>,
}

impl ProductBody {
    pub(crate) fn spec(self) -> Result<OfferSpec, Problem> {
        if self.unlimited == self.total.is_some() {
            return Err(Problem::validation(Text::new(
                "A product has a total, or is unlimited and has none.",
                "商品须指定 total；不限量的商品则不能指定 total。",
            )));
        }
        // Pages put it into an attribute: no blank, quote or bracket.
        let in_address = |char: char| char.is_ascii_graphic() && !matches!(char, '"' | '\'' | '<' | '>' | '`' | '\\');
        let image_fits = |image: &String| {
            let host = image.strip_prefix("https://");
            image.len() <= MAX_IMAGE_LEN
                && host.is_some_and(|host| host.starts_with(|first: char| first.is_ascii_alphanumeric()))
                && image.chars().all(in_address)
        };
        if !self.image.as_ref().is_none_or(image_fits) {
            return Err(Problem::validation(Text::new("image is an https address.", "image 须为 https 地址。")));
        }
        Ok(OfferSpec {
            title: self.title,
            price: self.price,
            currency: self.currency,
            total: self.total.unwrap_or(0),
            limit_per_user: self.limit_per_user,
            limit_period: self.limit_period,
            unlimited: self.unlimited,
            on_sale: self.on_sale,
            image: self.image,
        })
    }
}

/// A document that cannot be right, as people read it.
pub(crate) fn invalid(error: SpecError) -> Problem {
    let zh = match error {
        SpecError::Title => "名称或标题为空、过长或含有控制字符。",
        SpecError::Window => "结束时间须晚于开始时间，且活动时长不超过 366 天。",
        SpecError::PayWindow => "payWindowSecs 超出允许范围。",
        SpecError::Interval => "间隔毫秒数超出允许范围。",
        SpecError::Limit => "limitPerUser 超出允许范围。",
        SpecError::Units => "数量超出允许范围。",
    };
    Problem::validation(Text::of(format!("{error}."), zh.to_owned()))
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct SkuDocument {
    sku_id: SkuId,
    title: String,
    stock: i64,
    /// Units of it that no offer has.
    free: i64,
}

impl From<SkuRow> for SkuDocument {
    fn from(row: SkuRow) -> Self {
        Self { sku_id: row.sku_id, title: row.title, stock: row.stock, free: row.free }
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ActivityDocument {
    activity_id: ActivityId,
    name: String,
    state: Shown,
    starts_at: Rfc3339,
    ends_at: Rfc3339,
    pay_window_secs: u32,
    user_interval_ms: u32,
    device_ip_interval_ms: u32,
    challenge: bool,
    products: Vec<ProductDocument>,
}

impl ActivityDocument {
    pub(crate) fn of(row: ActivityRow, offers: Vec<OfferRow>, now: UnixMillis) -> Self {
        Self {
            state: row.shown(&offers, now),
            activity_id: row.activity_id,
            name: row.name,
            starts_at: Rfc3339(row.rules.starts_at),
            ends_at: Rfc3339(row.rules.ends_at),
            pay_window_secs: row.rules.pay_window_secs,
            user_interval_ms: row.rules.user_interval_ms,
            device_ip_interval_ms: row.rules.device_ip_interval_ms,
            challenge: false,
            products: offers.into_iter().map(ProductDocument::from).collect(),
        }
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ProductDocument {
    sku_id: SkuId,
    title: String,
    price: Price,
    currency: Currency,
    /// Absent when unlimited.
    #[serde(skip_serializing_if = "Option::is_none")]
    total: Option<i64>,
    limit_per_user: u32,
    limit_period: LimitPeriod,
    unlimited: bool,
    /// Whether it is on the shelf.
    on_sale: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    image: Option<String>,
    /// Whether the gate is made; while it is not, buyers are answered NOT_READY.
    gate_ready: bool,
}

impl From<OfferRow> for ProductDocument {
    fn from(row: OfferRow) -> Self {
        Self {
            gate_ready: row.is_gate_ready(),
            total: (!row.unlimited).then_some(row.total),
            sku_id: row.sku_id,
            title: row.title,
            price: row.price,
            currency: row.currency,
            limit_per_user: row.limit_per_user,
            limit_period: row.limit_period,
            unlimited: row.unlimited,
            on_sale: row.on_sale,
            image: row.image,
        }
    }
}

/// `GET …/changes?cursor=`: who did what, and when, a hundred a page.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ChangesDocument {
    items: Vec<ChangeDocument>,
    #[serde(skip_serializing_if = "Option::is_none")]
    next_cursor: Option<String>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ChangeDocument {
    by: UserId,
    at: Rfc3339,
    action: String,
    /// The row as it was; absent for something new.
    #[serde(skip_serializing_if = "Option::is_none")]
    before: Option<serde_json::Value>,
    after: serde_json::Value,
}

impl From<Page<Change>> for ChangesDocument {
    fn from(page: Page<Change>) -> Self {
        // Rows were written as JSON, so they are read as such; a text that is none is shown as the text it is.
        let row = |text: String| serde_json::from_str(&text).unwrap_or(serde_json::Value::String(text));
        let items = page
            .items
            .into_iter()
            .map(|change| ChangeDocument {
                by: change.by,
                at: Rfc3339(change.at),
                action: change.action,
                before: change.before.map(row),
                after: row(change.after),
            })
            .collect();
        Self { items, next_cursor: page.next.as_ref().map(Cursor::encode) }
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct StatsDocument {
    activity_id: ActivityId,
    state: Shown,
    products: Vec<StatsProduct>,
}

/// Of one product: what its row says, and what the gate says (absent while there is no valid gate).
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct StatsProduct {
    sku_id: SkuId,
    #[serde(skip_serializing_if = "Option::is_none")]
    total: Option<i64>,
    committed: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    available: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    held: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    sold: Option<i64>,
}

impl StatsDocument {
    pub(crate) fn of(row: &ActivityRow, products: Vec<(OfferRow, Option<Counters>)>, now: UnixMillis) -> Self {
        let offers: Vec<OfferRow> = products.iter().map(|(offer, _)| offer.clone()).collect();
        let products = products
            .into_iter()
            .map(|(offer, counters)| {
                let gate = counters.filter(|counters| counters.loading.is_none());
                StatsProduct {
                    // Of one moment with the numbers beside it, where there is a gate.
                    total: (!offer.unlimited).then_some(gate.as_ref().map_or(offer.total, |gate| gate.total)),
                    committed: offer.committed(),
                    available: gate.as_ref().filter(|_| !offer.unlimited).map(|gate| gate.available),
                    held: gate.as_ref().map(Counters::held),
                    sold: gate.as_ref().map(|gate| gate.sold),
                    sku_id: offer.sku_id,
                }
            })
            .collect();
        Self { activity_id: row.activity_id.clone(), state: row.shown(&offers, now), products }
    }
}
