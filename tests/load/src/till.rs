//! At the till. The sale is over; of those who won some pay, some change their mind, some let the order run out of time,
//! and some of these pay all the same, too late.
//!
//! Who does what goes by turns, so that the shares hold among few winners too. What became of each order is heard as its
//! result was: over the socket, or by asking. In the end every order is looked at once more, and the payment provider's own
//! ledger is held against what the shop says about its money.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use client::documents::{
    ActivityAction, ActivityState, Money, OrderStatus, PayParameters, Problem, ProblemCode, ResultStatus,
};
use client::{Answer, Api, Backoff, Cashier, ClientError, Movement, Outcome, Paying, Socket, Stack};
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use jiff::{SignedDuration, Timestamp};
use load::calls::{accepted, insist, within};
use load::error::{DemoError, chain};
use load::progress::{Phase, Progress};
use serde::Serialize;
use tokio::sync::Semaphore;

use crate::buyer::Story;
use crate::promises::{Ledger, Promise};
use crate::stage::{CURRENCY, Sale, ServerClock};
use crate::storm::Crowd;

/// Calls under way at once: to the shop, and to the provider, who calls the shop for each.
const CALLS: usize = 8;
const CASHIERS: usize = 6;
/// Notices at once of a payment that is told more than once.
const COPIES: u32 = 3;
/// Who paid with less time left than this may have been too late.
const IN_TIME: SignedDuration = SignedDuration::from_secs(5);
/// From paying or cancelling to hearing of it. A reminder that is lost is made good by the sweep of the next minute.
const TOLD_WITHIN: Duration = Duration::from_secs(100);
const FIRST_LOOK: Duration = Duration::from_millis(400);
const LONGEST_LOOK: Duration = Duration::from_secs(3);
/// From the last order to a settled sale, with every late payment paid back: a few sweeps.
const SETTLED_WITHIN: Duration = Duration::from_secs(240);
const SETTLED_PAUSE: Duration = Duration::from_secs(2);
/// How long the phase may take, beside the time to pay.
const GRACE: Duration = Duration::from_secs(240);
/// Failures shown; a broken stack must not fill the screen.
const SHOWN_FAILURES: usize = 10;

/// What the winner of an order does about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Fate {
    Pays,
    /// The provider tells the shop three times at once.
    PaysAndIsToldThrice,
    /// The first try fails; the second one, by the same transaction, does not.
    FailsThenPays,
    Cancels,
    RunsOut,
    /// Goes to the cashier in time, and pays when the order is cancelled.
    PaysLate,
}

const FATES: [Fate; 10] = [
    Fate::Pays,
    Fate::PaysAndIsToldThrice,
    Fate::Cancels,
    Fate::FailsThenPays,
    Fate::PaysLate,
    Fate::Pays,
    Fate::RunsOut,
    Fate::PaysAndIsToldThrice,
    Fate::Cancels,
    Fate::Pays,
];

/// One order at the till.
#[derive(Debug)]
pub(crate) struct Bill {
    pub(crate) order_no: String,
    pub(crate) fate: Fate,
    /// Paid, and so early that the order has to be PAID.
    in_time: bool,
    transaction_id: Option<String>,
    /// From the provider's receipt to hearing that the order is PAID.
    pub(crate) told_after: Option<Duration>,
    buyer: Api,
}

/// What the shop's books say, and the provider's ledger.
#[derive(Debug, Clone, Copy, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Books {
    pub(crate) shop: Money,
    pub(crate) provider_took: u64,
    pub(crate) provider_paid_back: u64,
}

/// What became of the orders.
#[derive(Debug)]
pub(crate) struct Till {
    pub(crate) bills: Vec<Bill>,
    pub(crate) ledger: Ledger,
    /// From the end of the sale to its settlement; `None` when it did not come.
    pub(crate) settled_after: Option<Duration>,
    movements: Vec<Movement>,
}

/// What all have in common.
struct Counter<'a> {
    cashier: Cashier,
    cashiers: Semaphore,
    clock: ServerClock,
    pay_window: Duration,
    seen_to: &'a Phase,
}

/// Everybody comes to the till, and the sale is settled.
pub(crate) async fn run(
    api: &Api,
    stack: &Stack,
    sale: &Sale,
    crowd: &mut Crowd<'_>,
    progress: &Progress,
) -> Result<Till, DemoError> {
    let admin = api.signed_in(stack.admin_token());
    accepted("ending the sale", async || admin.activity_action(&sale.activity_id, ActivityAction::End).await).await?;
    let ended = Instant::now();
    let secs = sale.pay_window.as_secs();
    progress.say(&format!("the sale is over; each order can be paid until {secs} s after it was made"));

    let lane = api.at_most(CALLS);
    let mut fates = FATES.into_iter().cycle();
    let mut all = Vec::new();
    for story in &mut crowd.stories {
        let buyer = lane.signed_in(stack.user_token(&story.buyer.user_id)?);
        let won = story.orders.iter().filter(|order| order.end.is_some_and(|end| end.status == ResultStatus::Success));
        let bills: Vec<Bill> = won
            .zip(&mut fates)
            .map(|(order, fate)| Bill {
                order_no: order.order_no.clone(),
                fate,
                in_time: false,
                transaction_id: None,
                told_after: None,
                buyer: buyer.clone(),
            })
            .collect();
        if !bills.is_empty() {
            all.push((story, bills));
        }
    }
    let seen_to = progress.phase("orders seen to", all.iter().map(|(_, bills)| bills.len()).sum());
    let counter = Counter {
        cashier: Cashier::new(stack)?,
        cashiers: Semaphore::new(CASHIERS),
        clock: sale.clock,
        pay_window: sale.pay_window,
        seen_to: &seen_to,
    };
    let visits = all.into_iter().map(|(story, bills)| counter.serve(story, bills)).collect::<FuturesUnordered<_>>();
    let visits = within(sale.pay_window + GRACE, "the winners pay", &seen_to, visits.collect::<Vec<_>>()).await?;
    seen_to.finish();

    let mut till = Till { bills: Vec::new(), ledger: Ledger::default(), settled_after: None, movements: Vec::new() };
    let mut failures = Vec::new();
    for visit in visits {
        till.bills.extend(visit.bills);
        till.ledger.merge(&visit.ledger);
        failures.extend(visit.failures);
    }
    for error in failures.iter().take(SHOWN_FAILURES) {
        progress.say(&chain(error));
    }
    till.settle(&admin, sale, &counter, ended, progress).await?;
    till.look_again().await?;
    Ok(till)
}

/// One buyer at the till.
struct Visit {
    bills: Vec<Bill>,
    ledger: Ledger,
    failures: Vec<ClientError>,
}

impl Counter<'_> {
    async fn serve(&self, story: &mut Story<'_>, bills: Vec<Bill>) -> Visit {
        let mut visit = Visit { bills, ledger: Ledger::default(), failures: Vec::new() };
        let mut prepared: HashMap<usize, PayParameters> = HashMap::new();
        let mut paid_at: HashMap<usize, Instant> = HashMap::new();
        for index in 0..visit.bills.len() {
            match visit.bills[index].fate {
                Fate::Pays | Fate::PaysAndIsToldThrice | Fate::FailsThenPays => {
                    if let Some(parameters) = visit.prepare(index).await {
                        visit.pay(self, index, &parameters).await;
                        paid_at.insert(index, Instant::now());
                    }
                }
                Fate::Cancels => visit.cancel(index).await,
                Fate::RunsOut => {}
                Fate::PaysLate => {
                    prepared.extend(visit.prepare(index).await.map(|parameters| (index, parameters)));
                }
            }
        }
        // What nobody does anything about takes its time, and is waited for last.
        let mut by_patience: Vec<usize> = (0..visit.bills.len()).collect();
        by_patience.sort_by_key(|index| visit.bills[*index].is_left_lying());
        for index in by_patience {
            let told = visit.hear(self, story.socket.as_mut(), index).await;
            if let (Some(told), Some(paid_at)) = (told, paid_at.get(&index)) {
                visit.bills[index].told_after = Some(told.saturating_duration_since(*paid_at));
            }
            if let Some(parameters) = prepared.get(&index) {
                visit.pay(self, index, parameters).await;
            }
            self.seen_to.one_done();
        }
        visit
    }
}

impl Visit {
    /// Asks what to open the cashier with. Who is too late for it has let the order run out.
    async fn prepare(&mut self, index: usize) -> Option<PayParameters> {
        let bill = &self.bills[index];
        let answer = insist("preparing a payment", async || bill.buyer.pay(&bill.order_no).await).await;
        let parameters = self.expected(index, answer, |problem| problem.code == ProblemCode::OrderState);
        if parameters.is_none() {
            self.bills[index].fate = Fate::RunsOut;
        }
        parameters
    }

    async fn pay(&mut self, counter: &Counter<'_>, index: usize, parameters: &PayParameters) {
        let Bill { order_no, fate, .. } = &self.bills[index];
        let (order_no, fate) = (order_no.clone(), *fate);
        let _one_of_few = counter.cashiers.acquire().await;
        let mut tries = Vec::new();
        if fate == Fate::FailsThenPays {
            tries.push(Paying::new(Outcome::Failed));
        }
        let copies = if fate == Fate::PaysAndIsToldThrice { COPIES } else { 1 };
        tries.push(Paying::new(Outcome::Success).told(copies));
        for paying in tries {
            match counter.cashier.pay(&parameters.pay_url, &paying).await {
                Ok(receipt) => {
                    let kept = receipt.notified == paying.copies;
                    self.ledger.judge(Promise::NoticesAreTaken, kept, Some(&order_no), || {
                        format!("{} of {} notices were taken", receipt.notified, paying.copies)
                    });
                    if paying.outcome == Outcome::Success {
                        let early = |deadline: Timestamp| counter.clock.now() + IN_TIME < deadline;
                        self.bills[index].in_time = fate != Fate::PaysLate && parameters.pay_deadline.is_none_or(early);
                        self.bills[index].transaction_id = Some(receipt.transaction_id);
                    } else {
                        self.nothing_changed(counter, index, parameters.pay_deadline).await;
                    }
                }
                Err(error) => self.failures.push(error),
            }
        }
    }

    /// A try that failed leaves the order to be paid, as long as there is time.
    async fn nothing_changed(&mut self, counter: &Counter<'_>, index: usize, deadline: Option<Timestamp>) {
        let bill = &self.bills[index];
        match bill.buyer.order_state(&bill.order_no).await {
            Ok(answer) => {
                let status = answer.outcome.ok().map(|state| state.status);
                let kept = is_untouched(status, deadline, counter.clock.now());
                self.ledger
                    .judge(Promise::FailedTryChangesNothing, kept, Some(&bill.order_no), || format!("{status:?}"));
            }
            Err(error) => self.failures.push(error),
        }
    }

    async fn cancel(&mut self, index: usize) {
        let bill = &self.bills[index];
        let answer = insist("cancelling", async || bill.buyer.cancel(&bill.order_no).await).await;
        self.expected(index, answer, |_| false);
    }

    /// The document, unless it is a refusal. Any that `may_be` does not expect is a breach.
    fn expected<T>(
        &mut self,
        index: usize,
        answer: Result<Answer<T>, DemoError>,
        may_be: impl Fn(&Problem) -> bool,
    ) -> Option<T> {
        let order_no = &self.bills[index].order_no;
        let seen = answer.map_err(|error| chain(&error)).and_then(|answer| {
            answer
                .outcome
                .map(Some)
                .or_else(|problem| if may_be(&problem) { Ok(None) } else { Err(problem.code.to_string()) })
        });
        self.ledger.judge(Promise::NothingUnexpected, seen.is_ok(), Some(order_no), || {
            seen.as_ref().err().cloned().unwrap_or_default()
        });
        seen.ok().flatten()
    }

    /// Hears what became of an order, whether by the socket or by asking: when that was.
    async fn hear(&mut self, counter: &Counter<'_>, socket: Option<&mut Socket>, index: usize) -> Option<Instant> {
        let bill = &self.bills[index];
        let patience = if bill.is_left_lying() { counter.pay_window + TOLD_WITHIN } else { TOLD_WITHIN };
        let wanted = bill.wanted();
        if let (Some(socket), Some(wanted)) = (socket, wanted) {
            let heard = socket.order_in(&bill.order_no, wanted, patience).await;
            self.ledger.judge(Promise::ConnectedHearsTheEnd, heard.is_ok(), Some(&bill.order_no), || {
                heard.as_ref().err().map(|error| chain(error)).unwrap_or_default()
            });
            match heard {
                Ok(delivered) => {
                    if let Err(error) = socket.result_ack(&delivered.result).await {
                        self.failures.push(error);
                    }
                    return Some(delivered.at);
                }
                Err(error) => self.failures.push(error),
            }
        }
        let started = Instant::now();
        let mut backoff = Backoff::new(FIRST_LOOK, LONGEST_LOOK);
        let mut last = None;
        while started.elapsed() < patience {
            match bill.buyer.order_state(&bill.order_no).await {
                Ok(answer) => last = answer.outcome.ok().map(|state| state.status),
                Err(error) => self.failures.push(error),
            }
            let is_over = match wanted {
                Some(wanted) => last == Some(wanted),
                None => matches!(last, Some(OrderStatus::Paid | OrderStatus::Cancelled)),
            };
            if is_over {
                return Some(Instant::now());
            }
            tokio::time::sleep(backoff.next_wait(None)).await;
        }
        None
    }
}

/// Whether the order is as it was before a try to pay that failed; `now` is when it was looked at, or later.
fn is_untouched(status: Option<OrderStatus>, deadline: Option<Timestamp>, now: Timestamp) -> bool {
    match status {
        Some(OrderStatus::Unpaid) => true,
        Some(OrderStatus::Cancelled) => deadline.is_some_and(|deadline| deadline <= now),
        Some(OrderStatus::PreCreated | OrderStatus::Paid | OrderStatus::Failed) | None => false,
    }
}

impl Bill {
    /// Only the end of its time brings the order to an end.
    const fn is_left_lying(&self) -> bool {
        match self.fate {
            Fate::RunsOut | Fate::PaysLate => true,
            Fate::Pays | Fate::PaysAndIsToldThrice | Fate::FailsThenPays | Fate::Cancels => false,
        }
    }

    /// How the order has to end; `None` where both is right, for a payment at the last moment.
    const fn wanted(&self) -> Option<OrderStatus> {
        match self.fate {
            Fate::Pays | Fate::PaysAndIsToldThrice | Fate::FailsThenPays if self.in_time => Some(OrderStatus::Paid),
            Fate::Pays | Fate::PaysAndIsToldThrice | Fate::FailsThenPays => None,
            Fate::Cancels | Fate::RunsOut | Fate::PaysLate => Some(OrderStatus::Cancelled),
        }
    }
}

impl Till {
    /// Waits until nothing of the sale is undecided and late money is back.
    async fn settle(
        &mut self,
        admin: &Api,
        sale: &Sale,
        counter: &Counter<'_>,
        ended: Instant,
        progress: &Progress,
    ) -> Result<(), DemoError> {
        progress.say(
            "waiting for the sale to be settled, and for late payments to be paid back: the sweep comes every minute",
        );
        let started = Instant::now();
        let late: Vec<String> = self.late().map(str::to_owned).collect();
        let (state, owed) = loop {
            let state = accepted("reading the stats", async || admin.stats(&sale.activity_id).await).await?.state;
            self.movements =
                counter.cashier.ledger().await.map_err(DemoError::step("reading the provider's ledger"))?;
            let is_back = |id: &String| {
                self.movements.iter().any(|paid| paid.transaction_id == *id && paid.refunded == paid.amount)
            };
            let owed = late.iter().filter(|id| !is_back(id)).count();
            if state == ActivityState::Settled {
                self.settled_after.get_or_insert(ended.elapsed());
            }
            if (state == ActivityState::Settled && owed == 0) || started.elapsed() >= SETTLED_WITHIN {
                break (state, owed);
            }
            tokio::time::sleep(SETTLED_PAUSE).await;
        };
        self.ledger.judge(Promise::SaleIsSettled, state == ActivityState::Settled, None, || {
            format!("{state:?} after {SETTLED_WITHIN:?}, {owed} late payments not back")
        });
        Ok(())
    }

    /// Transactions of those who paid when the order was cancelled already.
    fn late(&self) -> impl Iterator<Item = &str> {
        let late = self.bills.iter().filter(|bill| bill.fate == Fate::PaysLate);
        late.filter_map(|bill| bill.transaction_id.as_deref())
    }

    /// Every order once more, now that nothing moves.
    async fn look_again(&mut self) -> Result<(), DemoError> {
        let seen = futures_util::stream::iter(&self.bills)
            .map(async |bill| {
                let order = accepted("looking at an order", async || bill.buyer.order(&bill.order_no).await).await;
                order.map(|order| (bill, order))
            })
            .buffer_unordered(CALLS)
            .collect::<Vec<_>>()
            .await;
        for seen in seen {
            let (bill, order) = seen?;
            let refunded = self
                .movements
                .iter()
                .find(|paid| Some(&paid.transaction_id) == bill.transaction_id.as_ref())
                .map(|paid| (paid.refunded, paid.amount));
            let is_back = refunded.is_some_and(|(refunded, amount)| refunded == amount);
            let (promise, kept) = match (bill.wanted(), bill.fate) {
                (Some(OrderStatus::Paid), _) => {
                    let kept = order.status == OrderStatus::Paid && refunded.is_some_and(|(refunded, _)| refunded == 0);
                    (Promise::PaidIsPaid, kept)
                }
                (Some(_), Fate::PaysLate) => {
                    (Promise::LateMoneyGoesBack, order.status == OrderStatus::Cancelled && is_back)
                }
                (Some(_), _) => (Promise::CancelledIsCancelled, order.status == OrderStatus::Cancelled),
                // At the last moment: the goods or the money.
                (None, _) => (Promise::PaidIsPaid, (order.status == OrderStatus::Paid) != is_back),
            };
            self.ledger.judge(promise, kept, Some(&bill.order_no), || {
                format!("{:?}: {:?} {:?}, paid back {refunded:?}", bill.fate, order.status, order.reason)
            });
        }
        Ok(())
    }

    /// Holds the shop's books against the provider's ledger.
    pub(crate) fn compare(&mut self, shop: Money) -> Books {
        let own: HashMap<&str, &Bill> = self.bills.iter().map(|bill| (bill.order_no.as_str(), bill)).collect();
        let own: Vec<&Movement> =
            self.movements.iter().filter(|paid| own.contains_key(paid.order_no.as_str())).collect();
        let books = Books {
            shop,
            provider_took: own.iter().map(|paid| paid.amount).sum(),
            provider_paid_back: own.iter().map(|paid| paid.refunded).sum(),
        };
        let foreign = own.iter().any(|paid| paid.currency != CURRENCY);
        let Money { received, refund_due, refunded, unmatched, .. } = shop;
        let kept = !foreign
            && received == books.provider_took
            && refunded == books.provider_paid_back
            && refund_due == 0
            && unmatched == 0;
        if !own.is_empty() || received > 0 {
            self.ledger.judge(Promise::MoneyAgrees, kept, None, || format!("{books:?}"));
        }
        books
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_end_of_its_time_changes_an_order_that_was_not_paid() {
        let at = |second| Timestamp::from_second(second).unwrap();
        for (status, deadline, untouched) in [
            (Some(OrderStatus::Unpaid), Some(at(100)), true),
            (Some(OrderStatus::Unpaid), Some(at(0)), true),
            (Some(OrderStatus::Cancelled), Some(at(100)), false),
            (Some(OrderStatus::Cancelled), Some(at(50)), true),
            (Some(OrderStatus::Cancelled), None, false),
            (Some(OrderStatus::Paid), Some(at(0)), false),
            (None, Some(at(0)), false),
        ] {
            assert_eq!(is_untouched(status, deadline, at(50)), untouched, "{status:?} {deadline:?}");
        }
    }
}
