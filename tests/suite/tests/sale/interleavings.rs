//! All of it in any order: buyers who come again, processes that die, messages that come twice or never, a Redis that
//! forgets, a shop that changes its mind. Then everybody is left in peace, and every promise must have been kept.

use kernel::ids::OrderNo;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use sale::admission::{AdmitRequest, Fingerprint};
use sale::audit::Verdict;
use sale::buy::Bought;
use sale::lifecycle::{Command, Edit};
use sale::order::OrderStatus;
use sale::queue::OrderMessage;
use sale::store::orders::OrderRow;

use crate::house::{PAY_WINDOW_SECS, STOCK, TestSale, quantity, spec, user_id};

const CASES: u32 = 24;
const STEPS: usize = 40;
const TOTAL: i64 = 6;
const LIMIT: u32 = 3;
/// Sweeps after which nothing may be left to do.
const PEACE: usize = 12;

#[derive(Debug, Clone)]
enum Step {
    Buy(Wish),
    /// Let in, then dead before the row.
    DieAfterScript(Wish),
    /// The row is put, the message is not sent.
    DieAfterRow(Wish),
    Deliver,
    /// The consumer dies after its transaction.
    CommitUntold,
    /// The queue delivers what it has delivered before.
    DeliverAgain,
    LoseMessages,
    Sweep {
        after_secs: i64,
    },
    TwoSweeps {
        after_secs: i64,
    },
    Wipe,
    Pay(u8),
    /// Paid, and then the function dies.
    PayUntold(u8),
    Cancel(u8),
    /// All reminders come at once.
    Remind,
    /// Whoever has not paid by now is late.
    TimeOut,
    Raise(i64),
    Lower(i64),
    /// A lower that dies after the gate gave way.
    DieLowering(i64),
    Preheat,
    Pause,
    Resume,
}

#[derive(Debug, Clone)]
struct Wish {
    user: u8,
    qty: u32,
    key: u8,
}

fn wish() -> impl Strategy<Value = Wish> {
    (0..4_u8, 1..=3_u32, 0..3_u8).prop_map(|(user, qty, key)| Wish { user, qty, key })
}

fn step() -> impl Strategy<Value = Step> {
    let secs = prop_oneof![Just(1_i64), Just(16), Just(31), Just(51)];
    prop_oneof![
        8 => wish().prop_map(Step::Buy),
        3 => wish().prop_map(Step::DieAfterScript),
        3 => wish().prop_map(Step::DieAfterRow),
        5 => Just(Step::Deliver),
        2 => Just(Step::CommitUntold),
        2 => Just(Step::DeliverAgain),
        1 => Just(Step::LoseMessages),
        5 => secs.clone().prop_map(|after_secs| Step::Sweep { after_secs }),
        1 => secs.prop_map(|after_secs| Step::TwoSweeps { after_secs }),
        2 => Just(Step::Wipe),
        3 => any::<u8>().prop_map(Step::Pay),
        2 => any::<u8>().prop_map(Step::PayUntold),
        2 => any::<u8>().prop_map(Step::Cancel),
        2 => Just(Step::Remind),
        1 => Just(Step::TimeOut),
        1 => (1..4_i64).prop_map(Step::Raise),
        1 => (1..4_i64).prop_map(Step::Lower),
        1 => (1..4_i64).prop_map(Step::DieLowering),
        1 => Just(Step::Preheat),
        1 => Just(Step::Pause),
        2 => Just(Step::Resume),
    ]
}

#[test]
fn whatever_happens_it_sells_what_there_is_and_settles_every_order() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let config = Config { cases: CASES, max_shrink_iters: 200, failure_persistence: None, ..Config::default() };
    let played = TestRunner::new(config).run(&vec(step(), 1..STEPS), |steps| runtime.block_on(play(steps)));
    played.unwrap_or_else(|failure| panic!("{failure}"));
}

async fn play(steps: Vec<Step>) -> Result<(), TestCaseError> {
    let sale = TestSale::open(TOTAL, LIMIT).await;
    let mut accepted = Vec::new();
    let mut delivered: Vec<OrderMessage> = Vec::new();
    let mut paid = 0;
    for step in steps {
        match step {
            Step::Buy(Wish { user, qty, key }) => {
                let bought = sale.buy(&format!("u{user}"), qty, &format!("k{key}")).await;
                if let Bought::Accepted { order_no, .. } = bought {
                    accepted.push(order_no);
                }
            }
            Step::DieAfterScript(Wish { user, qty, key }) => {
                let user = format!("u{user}");
                let request = AdmitRequest {
                    order_no: sale.order_no(&user, &format!("k{key}")),
                    user_id: user_id(&user),
                    quantity: quantity(qty),
                    fingerprint: Fingerprint::of(quantity(qty)),
                    device_address: "phone|203.0.113.7".to_owned(),
                    blocked: None,
                };
                sale.stores.gate.admit(&sale.offer, &request).await.unwrap();
            }
            Step::DieAfterRow(Wish { user, qty, key }) => {
                sale.buy_without_queue(&format!("u{user}"), qty, &format!("k{key}")).await;
            }
            Step::Deliver => {
                let messages = sale.orders_queue.take();
                delivered.extend(messages.iter().cloned());
                sale.consume(messages).await;
            }
            Step::CommitUntold => {
                let messages = sale.orders_queue.take();
                delivered.extend(messages.iter().cloned());
                sale.commit(messages).await;
            }
            Step::DeliverAgain => {
                sale.consume(delivered.clone()).await;
            }
            Step::LoseMessages => {
                sale.orders_queue.take();
            }
            Step::Sweep { after_secs } => {
                sale.pass_secs(after_secs);
                sale.sweep().await;
            }
            Step::TwoSweeps { after_secs } => {
                sale.pass_secs(after_secs);
                tokio::join!(sale.sweep(), sale.sweep());
            }
            Step::Wipe => sale.wipe_gate().await,
            Step::Pay(which) | Step::PayUntold(which) => {
                if let Some(row) = pick(&sale, which).await {
                    paid += 1;
                    sale.pay(&format!("t{paid}"), &row.order_no, u64::from(row.qty.get())).await;
                    if matches!(step, Step::Pay(_)) {
                        sale.attend(&[row.order_no]).await;
                    }
                }
            }
            Step::Cancel(which) => {
                if let Some(row) = pick(&sale, which).await {
                    sale.cancel(&row.order_no).await;
                }
            }
            Step::Remind => {
                let all: Vec<OrderNo> = sale.rows().await.into_iter().map(|row| row.order_no).collect();
                sale.attend(&all).await;
            }
            Step::TimeOut => sale.pass_secs(i64::from(PAY_WINDOW_SECS)),
            Step::Raise(units) => {
                sale.put_offer(&spec(sale.offer_row().await.total + units, LIMIT)).await;
            }
            Step::Lower(units) => {
                let total = (sale.offer_row().await.total - units).max(0);
                sale.put_offer(&spec(total, LIMIT)).await;
            }
            Step::DieLowering(units) => {
                sale.die_lowering(units).await;
            }
            Step::Preheat => {
                sale.preheat().await;
            }
            Step::Pause => {
                sale.command(Command::Pause).await;
            }
            Step::Resume => {
                sale.command(Command::Resume).await;
            }
        }
        let offer = sale.offer_row().await;
        prop_assert!(offer.remaining >= 0, "sold {} of {}", offer.committed(), offer.total);
    }

    for _ in 0..PEACE {
        sale.pass_secs(60);
        sale.sweep().await;
        sale.deliver().await;
    }
    sale.pass_secs(60);
    // For whom it is over just now the reminder comes.
    let all: Vec<OrderNo> = sale.rows().await.into_iter().map(|row| row.order_no).collect();
    sale.attend(&all).await;
    let swept = sale.sweep().await;
    prop_assert_eq!((swept.resent, swept.ended.len(), swept.followed, swept.gates_waiting), (0, 0, 0, 0));
    // Somebody's time to pay may be over at this very moment.
    prop_assert_eq!((swept.attended.left, swept.attended.later, swept.drifts), (0, 0, 0));

    let report = sale.audit(0).await;
    prop_assert_eq!((report.verdict, report.violations), (Verdict::Pass, Vec::new()));
    let rows = sale.rows().await;
    let sold: i64 = rows.iter().filter(|row| row.status.is_committed()).map(|row| row.qty.units()).sum();
    let offer = sale.offer_row().await;
    prop_assert!(sold <= offer.total && offer.total - sold == offer.remaining);
    prop_assert_eq!(sale.available().await, offer.remaining);
    prop_assert_eq!(sale.sku().await.free + offer.total, STOCK);
    for order_no in accepted {
        let status = sale.row(&order_no).await.status;
        prop_assert!(status != OrderStatus::PreCreated, "{} is {:?}", order_no, status);
    }
    // And it sells on, down to the last unit.
    prop_assert!(matches!(sale.command(Command::Resume).await, Edit::Done(_)));
    for unit in 0..offer.remaining {
        sale.bought(&format!("late{unit}"), 1, "k").await;
    }
    Ok(())
}

/// One of the orders, whatever became of it.
async fn pick(sale: &TestSale, which: u8) -> Option<OrderRow> {
    let mut rows = sale.rows().await;
    rows.sort_by(|one, other| one.order_no.cmp(&other.order_no));
    let count = rows.len();
    (count > 0).then(|| rows.swap_remove(usize::from(which) % count))
}
