//! The sale is set up: stock, activity, two products, preheat. As an admin would do it, by the admin routes.

use std::time::{Duration, Instant};

use client::documents::{ActivityAction, ActivityPut, BuyRequest, ProblemCode, ProductPut, SkuPut};
use client::{Api, Stack};
use jiff::{SignedDuration, Timestamp};
use load::calls::{accepted, insist};
use load::error::DemoError;
use load::progress::Progress;

use crate::plan::{Offer, Plan};
use crate::promises::{Ledger, Promise};
use crate::settings::Settings;

/// From the setup to the start: enough for a few calls to cold functions.
const START_LEAD: SignedDuration = SignedDuration::from_secs(10);
/// It is ended by hand.
const OPEN_FOR: SignedDuration = SignedDuration::from_hours(2);
/// Long enough for the storm and for all winners to come to the till, and no longer: the demo waits for those who let it
/// run out. So much, and a second more for each of so many buyers and units.
const PAY_WINDOW_SECS: u32 = 25;
const BUYERS_A_SECOND: u32 = 80;
const UNITS_A_SECOND: u32 = 10;
/// Short, so that a buyer with two wishes meets the limit and still gets through within the demo.
const USER_INTERVAL_MS: u32 = 1_000;
const DEVICE_IP_INTERVAL_MS: u32 = 1_000;
/// Minor units (分).
const PRICE: i64 = 9_900;
pub(crate) const CURRENCY: &str = "CNY";
/// The clock is asked this often; the fastest answer is the most exact one.
const CLOCK_SAMPLES: usize = 5;

/// A sale that is about to begin.
#[derive(Debug)]
pub(crate) struct Sale {
    pub(crate) activity_id: String,
    /// By the own clock.
    pub(crate) opens: Instant,
    /// How long an order may wait for its payment.
    pub(crate) pay_window: Duration,
    pub(crate) clock: ServerClock,
    /// What was judged before the start.
    pub(crate) ledger: Ledger,
}

/// The server's clock as seen from here.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ServerClock {
    at: Instant,
    shows: Timestamp,
}

impl ServerClock {
    async fn read(api: &Api) -> Result<Self, DemoError> {
        let mut samples = Vec::with_capacity(CLOCK_SAMPLES);
        for _ in 0..CLOCK_SAMPLES {
            let asked = Instant::now();
            let now = accepted("asking for the time", async || api.time().await).await?.now;
            let trip = asked.elapsed();
            let shows = Timestamp::from_millisecond(now).map_err(|_| DemoError::NoClock { now })?;
            // The answer was made halfway, more or less.
            samples.push((trip, Self { at: asked + trip / 2, shows }));
        }
        let best = samples.into_iter().min_by_key(|(trip, _)| *trip);
        best.map(|(_, clock)| clock).ok_or(DemoError::NoClock { now: 0 })
    }

    pub(crate) fn now(self) -> Timestamp {
        self.shows + self.at.elapsed()
    }

    /// When the own clock will have come to `instant`; now, if that is past.
    fn local(self, instant: Timestamp) -> Instant {
        let wait = Duration::try_from(instant.duration_since(self.now())).unwrap_or_default();
        Instant::now() + wait
    }
}

/// Sets the sale up and shows that it is still closed.
pub(crate) async fn set(
    api: &Api,
    stack: &Stack,
    plan: &Plan,
    settings: &Settings,
    progress: &Progress,
) -> Result<Sale, DemoError> {
    let admin = api.signed_in(stack.admin_token());
    let activity_id = plan.activity_id.clone();
    for offer in Offer::ALL {
        let sku_id = plan.sku_id(offer);
        let sku = SkuPut { title: title(offer), stock: settings.stock.into() };
        let what = format!("putting SKU {sku_id}");
        accepted(&what, async || admin.put_sku(&sku_id, &sku).await).await?;
    }

    let clock = ServerClock::read(api).await?;
    let buyers = u32::try_from(settings.buyers).unwrap_or(u32::MAX);
    let pay_window_secs = PAY_WINDOW_SECS + buyers / BUYERS_A_SECOND + settings.stock.min(buyers) / UNITS_A_SECOND;
    // Whole milliseconds: what the documents show.
    let starts_at = truncated(clock.now() + START_LEAD);
    let activity = ActivityPut {
        name: "Demo".to_owned(),
        starts_at,
        ends_at: starts_at + OPEN_FOR,
        pay_window_secs,
        user_interval_ms: USER_INTERVAL_MS,
        device_ip_interval_ms: DEVICE_IP_INTERVAL_MS,
    };
    let what = format!("putting activity {activity_id}");
    accepted(&what, async || admin.put_activity(&activity_id, &activity).await).await?;
    for offer in Offer::ALL {
        let sku_id = plan.sku_id(offer);
        let product = ProductPut {
            title: title(offer),
            price: PRICE,
            currency: CURRENCY.to_owned(),
            total: settings.stock.into(),
            limit_per_user: offer.limit(),
        };
        let what = format!("putting product {sku_id}");
        accepted(&what, async || admin.put_product(&activity_id, &sku_id, &product).await).await?;
    }
    accepted("preheating", async || admin.activity_action(&activity_id, ActivityAction::Preheat).await).await?;

    let ledger = press_too_early(api, stack, plan, clock, starts_at).await?;
    let opens = clock.local(starts_at);
    let wait = opens.saturating_duration_since(Instant::now());
    progress.say(&format!("activity {activity_id} opens at {starts_at}, in {:.1} s", wait.as_secs_f64()));
    let pay_window = Duration::from_secs(pay_window_secs.into());
    Ok(Sale { activity_id, opens, pay_window, clock, ledger })
}

/// Somebody who is not of the crowd presses the button before the start.
async fn press_too_early(
    api: &Api,
    stack: &Stack,
    plan: &Plan,
    clock: ServerClock,
    starts_at: Timestamp,
) -> Result<Ledger, DemoError> {
    let user_id = format!("{}-early", plan.activity_id);
    let early = api.signed_in(stack.user_token(&user_id)?).on_device(&user_id);
    let request = BuyRequest::new(&plan.activity_id, &plan.sku_id(Offer::Single), 1);
    let answer = insist("pressing too early", async || early.buy(&request, Some(&user_id)).await).await?;
    let mut ledger = Ledger::default();
    if clock.now() < starts_at {
        let code = answer.problem().map(|problem| (problem.code, problem.starts_at));
        let kept = code == Some((ProblemCode::NotStarted, Some(starts_at)));
        ledger.judge(Promise::ClosedBeforeStart, kept, None, || format!("{} {code:?}", answer.status));
    }
    Ok(ledger)
}

fn title(offer: Offer) -> String {
    match offer {
        Offer::Single => "Hotcake, one per person".to_owned(),
        Offer::Multi => "Hotcake, up to three".to_owned(),
    }
}

fn truncated(instant: Timestamp) -> Timestamp {
    Timestamp::from_millisecond(instant.as_millisecond()).unwrap_or(instant)
}
