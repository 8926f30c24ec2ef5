//! Functions whose clock is wrong by ten minutes. libfaketime stands between them and the machine's, which stays as it is.
//!
//! When a sale opens and closes is the gate's word, and until when one may pay is the row's, so whoever reads them late or early
//! does no harm. Somebody whose clock is right comes by in the end.

use std::path::{Path, PathBuf};
use std::time::Duration;

use client::{Cashier, Outcome, Paying};
use e2e::{Buyer, FunctionProcess, Offer, Shop, events};
use jiff::{SignedDuration, Timestamp};
use kernel::time::UnixMillis;
use sale::offer::SaleState;
use sale::order::{EndReason, OrderStatus};
use serde_json::{Value, json};

use crate::hands::{
    Broom, PLENTY, acquitted, at_the_cashier, decided, deliver, hasty, hold_of, made_once, millis, plenty, run_out,
    unpaid, unsent, until,
};
use crate::row::Seen;
use crate::stream::Stream;

const JUMP_SECS: i64 = 600;
/// Between two looks at a clock, on a busy machine.
const SLACK_SECS: i64 = 30;
const PAY_WINDOW_SECS: i64 = 900;

/// Ten minutes ahead, a function takes the time for its work to be over, and leaves it to others.
pub(crate) async fn ahead() -> Seen {
    let Some(wrong) = Wrong::by(JUMP_SECS) else { return Seen::skipped(NO_LIBRARY) };
    // It goes on for nine minutes, and by the wrong clocks it is over.
    let lasts = SignedDuration::from_secs(JUMP_SECS);
    let shop = Shop::open(Offer { total: PLENTY, lasts, ..Offer::default() }).await;
    let stream = Stream::of(&shop);
    let mut pids = Vec::new();

    let early = Shop::open(Offer { starts_in: SignedDuration::from_secs(JUMP_SECS / 2), ..Offer::default() }).await;
    pids.push(wrong.buy(&shop, &early, "NOT_STARTED").await);

    let messages = unsent(&shop, 2).await;
    let consumer = wrong.start(&shop, "consumer").await;
    let answer = consumer.invoke(&events::orders(&messages)).await;
    assert_eq!(answer["batchItemFailures"].as_array().unwrap().len(), messages.len(), "{answer}");
    pids.push(wrong.is_over(consumer));
    deliver(&shop, &messages).await;
    made_once(&shop, &messages).await;

    pids.push(wrong.notice(&shop).await);

    // By the wrong clock its time is over.
    let brisk = Shop::open(Offer { pay_window_secs: 300, ..Offer::default() }).await;
    let order_no = unpaid(&brisk.buyer("sloth"), "k1").await;
    let due = wrong.start(&brisk, "order-due").await;
    due.invoke(&events::reminders(std::slice::from_ref(&order_no))).await;
    assert_eq!(brisk.row(&order_no).await.unwrap().status, OrderStatus::Unpaid);
    pids.push(wrong.is_over(due));

    let broom = Broom::take(&shop.local).await;
    pids.push(wrong.sweep(&shop, &broom).await);
    assert_eq!(state(&shop).await, SaleState::Live, "closed ten minutes before its end");
    broom.let_go().await;
    shop.buyer("last").accepted(1, "k1").await;

    let tally = stream.ends().await;
    tally.assert_undisturbed();
    let fired = u32::try_from(pids.len()).unwrap();
    let what = format!("nothing opened, closed, ran out or was paid before its time; {tally}");
    Seen::new(&shop, fired, format!("functions ten minutes ahead {pids:?}"), what)
}

/// Ten minutes behind, a function does what it is asked to, and takes nothing for over.
pub(crate) async fn behind() -> Seen {
    let Some(wrong) = Wrong::by(-JUMP_SECS) else { return Seen::skipped(NO_LIBRARY) };
    let shop = plenty().await;
    let stream = Stream::of(&shop);
    let mut pids = Vec::new();

    let broom = Broom::take(&shop.local).await;
    // Open for a minute, and for two seconds more.
    let over = Shop::open(Offer { lasts: SignedDuration::from_secs(62), ..Offer::default() }).await;
    until("a sale is over", async || Timestamp::now() > over.ends_at + SignedDuration::from_millis(100)).await;
    pids.push(wrong.buy(&shop, &over, "ENDED").await);
    pids.push(wrong.sweep(&shop, &broom).await);
    assert_eq!(state(&over).await, SaleState::Live);
    broom.let_go().await;
    until("a right clock closes the sale", async || state(&over).await != SaleState::Live).await;

    // They may be paid for until the row's deadline, which is early then.
    let messages = unsent(&shop, 2).await;
    let consumer = wrong.start(&shop, "consumer").await;
    let answer = consumer.invoke(&events::orders(&messages)).await;
    assert_eq!(answer["batchItemFailures"], json!([]), "{answer}");
    pids.push(wrong.is_over(consumer));
    made_once(&shop, &messages).await;
    for message in &messages {
        let row = shop.row(&message.order_no).await.unwrap();
        wrong.is_by(row.pay_deadline.unwrap().plus_secs(-PAY_WINDOW_SECS));
    }

    pids.push(wrong.notice(&shop).await);

    let rushed = hasty().await;
    let (broom, order_no) = run_out(&rushed, &rushed.buyer("sloth")).await;
    let due = wrong.start(&rushed, "order-due").await;
    due.invoke(&events::reminders(std::slice::from_ref(&order_no))).await;
    assert_eq!(rushed.row(&order_no).await.unwrap().status, OrderStatus::Unpaid);
    pids.push(wrong.is_over(due));

    broom.let_go().await;
    until("a right clock cancels the order", async || {
        rushed.row(&order_no).await.unwrap().status != OrderStatus::Unpaid
    })
    .await;
    let row = acquitted(&rushed, &order_no).await;
    assert_eq!((row.status, row.reason), (OrderStatus::Cancelled, Some(EndReason::PayTimeout)));

    let tally = stream.ends().await;
    tally.assert_undisturbed();
    rushed.audit().await;
    over.audit().await;
    let fired = u32::try_from(pids.len()).unwrap();
    let what = format!("nothing stayed open, and right clocks did the rest; {tally}");
    Seen::new(&shop, fired, format!("functions ten minutes behind {pids:?}"), what)
}

async fn state(shop: &Shop) -> SaleState {
    shop.local.offers().activity(&shop.offer_id().activity_id).await.unwrap().unwrap().state
}

const NO_LIBRARY: &str = "needs libfaketime, where Debian has it";

/// A clock that is wrong.
struct Wrong {
    by_secs: i64,
    library: PathBuf,
}

impl Wrong {
    /// None: there is no libfaketime here.
    fn by(by_secs: i64) -> Option<Self> {
        // Where Debian and its like have it: a folder for each architecture.
        let folders = std::fs::read_dir("/usr/lib").ok()?.filter_map(Result::ok);
        let library =
            folders.map(|folder| folder.path().join("faketime/libfaketimeMT.so.1")).find(|path| path.is_file())?;
        Some(Self { by_secs, library })
    }

    async fn start(&self, shop: &Shop, function: &str) -> FunctionProcess {
        let offset = format!("{:+}", self.by_secs);
        let changed = [
            ("LD_PRELOAD", self.library.to_str().unwrap()),
            ("FAKETIME", offset.as_str()),
            // How long something takes is not wrong.
            ("FAKETIME_DONT_FAKE_MONOTONIC", "1"),
        ];
        FunctionProcess::start_with(&shop.local, function, &changed).await
    }

    /// One who buys in a sale that is on gets an order, and one who buys in `not_on` is told so.
    async fn buy(&self, on: &Shop, not_on: &Shop, code: &str) -> i32 {
        let function = self.start(on, "buy").await;
        let buyer = on.buyer("served");
        let answer = function.invoke(&buyer.buy_event(1, "k1")).await;
        assert_eq!(answer["statusCode"], 202, "{answer}");
        let order_no = hold_of(on, &buyer).await;
        self.is_by(on.row(&order_no).await.unwrap().created_at);
        let answer = function.invoke(&not_on.buyer("turned-away").buy_event(1, "k1")).await;
        assert_eq!((&answer["statusCode"], problem(&answer)), (&json!(409), code.into()), "{answer}");
        let pid = self.is_over(function);
        assert_eq!(decided(on, &order_no).await.status, OrderStatus::Unpaid);
        pid
    }

    /// A notice that is right is not of this time; told again to somebody whose clock is right, it counts.
    async fn notice(&self, shop: &Shop) -> i32 {
        let buyer: Buyer = shop.buyer("payer");
        let (order_no, payment) = at_the_cashier(&buyer, "k1").await;
        let function = self.start(shop, "pay-notify").await;
        let answer = function.invoke(&events::paid(&shop.local, &payment, &format!("tx-{}", shop.activity_id))).await;
        assert_eq!(answer["statusCode"], 401, "{answer}");
        assert_eq!(shop.row(&order_no).await.unwrap().status, OrderStatus::Unpaid);
        let pid = self.is_over(function);
        let cashier = Cashier::new(&shop.local.outputs).unwrap();
        assert_eq!(cashier.pay(&payment.pay_url, &Paying::new(Outcome::Success)).await.unwrap().notified, 1);
        assert_eq!(acquitted(shop, &order_no).await.status, OrderStatus::Paid);
        pid
    }

    /// A sweep by a wrong clock, while nobody else sweeps.
    async fn sweep(&self, shop: &Shop, broom: &Broom<'_>) -> i32 {
        let function = self.start(shop, "sweep").await;
        let tick = broom.lend(&function).await;
        function.answer_within(tick, Duration::from_secs(60)).await;
        until("it says that it swept", async || function.said().contains("\"swept\"")).await;
        self.is_over(function)
    }

    /// This was read from the wrong clock a moment ago.
    fn is_by(&self, instant: UnixMillis) {
        let off_secs = instant.millis_since(millis()) / 1_000 - self.by_secs;
        assert!(off_secs.abs() < SLACK_SECS, "{off_secs} s from the wrong clock");
    }

    /// Ends the function, whose log has to tell the wrong time: its process number.
    fn is_over(&self, function: FunctionProcess) -> i32 {
        let said = function.said();
        let lines = said.lines().rev().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let told = lines.filter_map(|line| line["timestamp"].as_str()?.parse::<Timestamp>().ok()).next();
        let told = told.unwrap_or_else(|| panic!("nothing logged: {said}"));
        self.is_by(UnixMillis::new(told.as_millisecond()));
        let pid = function.pid();
        drop(function);
        // What a killed process leaves of the library.
        for left in ["faketime_shm_", "sem.faketime_sem_"] {
            std::fs::remove_file(Path::new("/dev/shm").join(format!("{left}{pid}"))).ok();
        }
        pid
    }
}

/// The code in an answer of the API.
fn problem(answer: &Value) -> Value {
    serde_json::from_str::<Value>(answer["body"].as_str().unwrap()).unwrap()["code"].clone()
}
