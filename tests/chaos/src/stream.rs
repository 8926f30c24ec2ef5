//! The buyers of a row: one a second, over HTTP, each with one wish. Of three who get an order one pays, one cancels and one
//! waits.
//!
//! They behave as a good client: told to come back, or not answered at all, they come back with the same request id.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::fmt;
use std::rc::Rc;
use std::time::{Duration, Instant};

use client::documents::{OrderStatus, ProblemCode};
use client::{Answer, Cashier, ClientError, Outcome, Paying};
use e2e::{Buyer, Shop};
use tokio::task::JoinHandle;

const EVERY: Duration = Duration::from_secs(1);
/// Of one row: a long one does not need more.
const MOST_BUYERS: usize = 24;
/// Of a row that is over at once.
const FEWEST_BUYERS: usize = 3;
/// Calls under way at once: when a gate opens again, all who waited come, and each environment more costs the machine a start.
const CALLS_AT_ONCE: usize = 3;
/// How long a buyer comes back before it is called lost: a gate that is made anew is closed for more than 50 s.
const PATIENCE: Duration = Duration::from_secs(150);
const COME_BACK: Duration = Duration::from_millis(1_500);

/// The buyers, while they come.
pub(crate) struct Stream {
    over: Rc<Cell<bool>>,
    buying: JoinHandle<Tally>,
}

/// What became of them.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    pub(crate) wishes: usize,
    pub(crate) ended: BTreeMap<&'static str, usize>,
    /// Refusals that are final.
    pub(crate) refused: BTreeMap<&'static str, usize>,
    /// Times that one was told to come back, by what was said.
    pub(crate) waits: BTreeMap<String, usize>,
}

impl Tally {
    /// Nobody was turned away, and nobody had to come back.
    pub(crate) fn assert_undisturbed(&self) {
        assert!(self.waits.is_empty(), "buyers noticed: {self}");
        self.assert_all_served();
    }

    /// Nobody was turned away: there is enough for all.
    pub(crate) fn assert_all_served(&self) {
        assert!(self.refused.is_empty(), "there is enough for everybody: {self}");
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} buyers {:?}", self.wishes, self.ended)?;
        if !self.refused.is_empty() {
            write!(f, ", refused {:?}", self.refused)?;
        }
        if !self.waits.is_empty() {
            write!(f, ", came back {:?}", self.waits)?;
        }
        Ok(())
    }
}

impl Stream {
    /// Buyers begin to come.
    pub(crate) fn of(shop: &Shop) -> Self {
        let over = Rc::new(Cell::new(false));
        let buying = tokio::task::spawn_local(buy(shop.clone(), Rc::clone(&over)));
        Self { over, buying }
    }

    /// No more come; those who are here are waited for.
    pub(crate) async fn ends(self) -> Tally {
        self.over.set(true);
        self.buying.await.expect("the buyers were served")
    }
}

async fn buy(mut shop: Shop, over: Rc<Cell<bool>>) -> Tally {
    shop.local.api = shop.local.api.at_most(CALLS_AT_ONCE);
    let mut visits = Vec::new();
    for n in 0..MOST_BUYERS {
        if over.get() && n >= FEWEST_BUYERS {
            break;
        }
        let buyer = shop.buyer(&format!("stream{n}"));
        visits.push(tokio::task::spawn_local(visit(buyer, n)));
        tokio::time::sleep(EVERY).await;
    }
    let mut tally = Tally { wishes: visits.len(), ..Tally::default() };
    for visit in visits {
        let (end, waits) = visit.await.expect("a buyer was served");
        match end {
            End::Ended(how) => *tally.ended.entry(how).or_default() += 1,
            End::Refused(code) => *tally.refused.entry(code.as_str()).or_default() += 1,
        }
        for wait in waits {
            *tally.waits.entry(wait).or_default() += 1;
        }
    }
    tally
}

enum End {
    Ended(&'static str),
    Refused(ProblemCode),
}

/// One buyer, from the wish to its end.
async fn visit(buyer: Buyer, n: usize) -> (End, Vec<String>) {
    let mut waits = Vec::new();
    let order_no = match insist(&mut waits, async || buyer.api.buy(&buyer.wish(1), Some("wish")).await).await {
        Ok(accepted) => accepted.order_no,
        Err(code) => return (End::Refused(code), waits),
    };
    let status = decided(&buyer, &order_no, |status| status != OrderStatus::PreCreated).await;
    if status != OrderStatus::Unpaid {
        return (End::Ended(name(status)), waits);
    }
    match n % 3 {
        0 => {}
        1 => {
            // Refused when its time was up a moment before.
            insist(&mut waits, async || buyer.api.cancel(&order_no).await).await.ok();
        }
        _ => {
            if let Ok(payment) = insist(&mut waits, async || buyer.api.pay(&order_no).await).await {
                let cashier = Cashier::new(&buyer.local.outputs).unwrap();
                cashier.pay(&payment.pay_url, &Paying::new(Outcome::Success)).await.unwrap();
            }
        }
    }
    let status = decided(&buyer, &order_no, |status| n.is_multiple_of(3) || status != OrderStatus::Unpaid).await;
    (End::Ended(name(status)), waits)
}

/// Where an order stands, once it stands there.
async fn decided(buyer: &Buyer, order_no: &str, is_there: impl Fn(OrderStatus) -> bool) -> OrderStatus {
    let started = Instant::now();
    loop {
        let state = insist(&mut Vec::new(), async || buyer.api.order_state(order_no).await).await;
        match state {
            Ok(state) if is_there(state.status) => return state.status,
            // Held, and not written down yet.
            Ok(_) | Err(ProblemCode::NotFound) => {}
            Err(code) => panic!("{order_no} is answered {code}"),
        }
        assert!(started.elapsed() < PATIENCE, "{order_no} is not decided within {PATIENCE:?}");
        tokio::time::sleep(COME_BACK).await;
    }
}

/// Asks until there is an answer that is final: the document, or the reason why not.
pub(crate) async fn insist<T>(
    waits: &mut Vec<String>,
    ask: impl AsyncFn() -> Result<Answer<T>, ClientError>,
) -> Result<T, ProblemCode> {
    let started = Instant::now();
    loop {
        let why = match ask().await {
            Ok(Answer { outcome: Ok(document), .. }) => return Ok(document),
            Ok(Answer { status: 429 | 503, outcome: Err(problem), .. }) => problem.code.as_str().to_owned(),
            Ok(Answer { outcome: Err(problem), .. }) => return Err(problem.code),
            Err(error @ (ClientError::NoAnswer { .. } | ClientError::NotOurs { .. })) => error.to_string(),
            Err(error) => panic!("{error}"),
        };
        assert!(started.elapsed() < PATIENCE, "told to come back for {PATIENCE:?}: {why}");
        waits.push(why);
        tokio::time::sleep(COME_BACK).await;
    }
}

fn name(status: OrderStatus) -> &'static str {
    match status {
        OrderStatus::PreCreated => "PRE_CREATED",
        OrderStatus::Unpaid => "UNPAID",
        OrderStatus::Paid => "PAID",
        OrderStatus::Cancelled => "CANCELLED",
        OrderStatus::Failed => "FAILED",
    }
}
