//! Money that came in for nothing goes back, whatever is in the way.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use kernel::ids::OrderNo;
use kernel::money::Cents;
use sale::follow::{Decided, Told};
use sale::pay::Taken;
use sale::provider::{Provider, Signer};
use sale::refund::{self, Refunds};
use sale::store::payments::{Cursor, Mismatch, Payment, PaymentState};
use serde_json::json;
use suite::dynamo::{ORDERS, PAYMENTS};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use crate::house::{PRICE, Recorder, TestSale, order_key, payment_key};
use suite::wire::{Message, Wire};

/// A payment provider that may refuse.
struct Bank {
    provider: Provider,
    asked: Arc<AtomicUsize>,
    server: JoinHandle<()>,
}

impl Bank {
    /// It refuses the first `refusals` calls.
    async fn start(sale: &TestSale, refusals: usize) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let asked = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&asked);
        let server = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let count = Arc::clone(&count);
                tokio::spawn(async move {
                    let mut wire = Wire::new(stream);
                    while wire.read().await.is_some() {
                        let before = count.fetch_add(1, Ordering::SeqCst);
                        let answer = if before < refusals {
                            Message::answer(503, &json!({"message": "closed for today"}))
                        } else {
                            Message::answer(200, &json!({"refunded": true}))
                        };
                        wire.write(&answer).await;
                    }
                });
            }
        });
        let clock = sale.stores.clock.clone();
        let provider =
            Provider::new(url, "hotcake-test".parse().unwrap(), Signer::new(b"of the tests"), clock).unwrap();
        Self { provider, asked, server }
    }

    fn asked(&self) -> usize {
        self.asked.load(Ordering::SeqCst)
    }

    /// The sweep's step; what it did, and what buyers were told.
    async fn pay_back(&self, sale: &TestSale, told: Told) -> (Refunds, Vec<Decided>) {
        let recorder = Recorder::new(told);
        let (orders, payments, now) = (&sale.stores.orders, &sale.stores.payments, sale.now());
        let refunds = refund::pay_back(orders, payments, &self.provider, &recorder, now, || false).await.unwrap();
        (refunds, recorder.words())
    }
}

impl Drop for Bank {
    fn drop(&mut self) {
        self.server.abort();
    }
}

const BACK: Refunds = Refunds { refunded: 1, postponed: 0 };
const NOT_YET: Refunds = Refunds { refunded: 0, postponed: 1 };

/// Money comes in for an order that was cancelled.
async fn too_late(sale: &TestSale, user: &str, transaction: &str) -> OrderNo {
    let order_no = sale.unpaid(user, 1, "k").await;
    sale.cancel(&order_no).await;
    assert!(matches!(sale.pay(transaction, &order_no, 1).await, Taken::RefundDue(_)));
    order_no
}

async fn attempts(sale: &TestSale, transaction: &str) -> u32 {
    sale.stores.payments.get(&transaction.parse().unwrap()).await.unwrap().unwrap().attempts
}

#[tokio::test]
async fn a_refused_refund_is_tried_less_and_less_often_until_it_is_done() {
    const PAUSES: [i64; 8] = [60, 120, 240, 480, 960, 1_920, 3_600, 3_600];
    let sale = TestSale::open(10, 1).await;
    let bank = Bank::start(&sale, PAUSES.len()).await;
    too_late(&sale, "u1", "t1").await;
    for (tried, pause) in (1..).zip(PAUSES) {
        assert_eq!(bank.pay_back(&sale, Told::Stored).await.0, NOT_YET);
        assert_eq!((bank.asked(), attempts(&sale, "t1").await), (tried, u32::try_from(tried).unwrap()));
        sale.pass_secs(pause - 5);
        assert_eq!(bank.pay_back(&sale, Told::Stored).await.0, Refunds::default(), "{tried}");
        sale.pass_secs(5);
    }
    assert_eq!(sale.money("t1").await, Some(PaymentState::RefundDue));
    assert_eq!(bank.pay_back(&sale, Told::Stored).await.0, BACK);
    assert_eq!(sale.money("t1").await, Some(PaymentState::Refunded));
    assert_eq!(bank.pay_back(&sale, Told::Stored).await.0, Refunds::default());
    assert_eq!(bank.asked(), PAUSES.len() + 1);
}

/// Wrong money for an order that waits for the right one: what the order says to its buyer is not touched.
#[tokio::test]
async fn unmatched_money_goes_back_when_people_say_so() {
    let sale = TestSale::open(10, 1).await;
    let bank = Bank::start(&sale, 0).await;
    let order_no = sale.unpaid("u1", 1, "k").await;
    let wrong = Payment { amount: Cents::new(PRICE - 1), ..sale.payment("t1", &order_no, 1) };
    assert_eq!(sale.till().take(&wrong).await.unwrap(), Taken::Unmatched(Mismatch::Amount));
    assert_eq!(bank.pay_back(&sale, Told::Stored).await.0, Refunds::default());

    let payments = &sale.stores.payments;
    assert!(payments.decide_refund(&wrong.transaction_id, sale.now()).await.unwrap());
    assert!(!payments.decide_refund(&wrong.transaction_id, sale.now()).await.unwrap());
    assert_eq!(bank.pay_back(&sale, Told::Stored).await, (BACK, vec![]));
    assert_eq!(sale.money("t1").await, Some(PaymentState::Refunded));
    assert!(matches!(sale.pay("t2", &order_no, 1).await, Taken::Paid(_)));
}

/// Wrong money came first, then the buyer let the order go, then people decided that the money goes back (or decided before
/// the buyer did): that is news about an order that has ended, and the same news when it is told again.
#[tokio::test]
async fn a_refund_that_is_decided_late_is_told_all_the_same() {
    for cancelled_first in [true, false] {
        let sale = TestSale::open(10, 1).await;
        let bank = Bank::start(&sale, 1).await;
        let order_no = sale.unpaid("u1", 1, "k").await;
        let wrong = Payment { amount: Cents::new(PRICE - 1), ..sale.payment("t1", &order_no, 1) };
        sale.till().take(&wrong).await.unwrap();
        for cancels in [cancelled_first, !cancelled_first] {
            sale.pass_secs(100_000);
            if cancels {
                sale.cancel(&order_no).await;
            } else {
                assert!(sale.stores.payments.decide_refund(&wrong.transaction_id, sale.now()).await.unwrap());
            }
        }
        let last = sale.now();
        let (refunds, first) = bank.pay_back(&sale, Told::Stored).await;
        assert_eq!((refunds, first.len()), (NOT_YET, 1));
        assert!(first[0].refund_due && first[0].at > sale.row(&order_no).await.updated_at, "{first:?}");
        assert!(last.millis_since(first[0].at) < 60_000, "it is kept for a day from then");
        sale.pass_secs(120);
        assert_eq!(bank.pay_back(&sale, Told::Stored).await, (BACK, first));
    }
}

#[tokio::test]
async fn what_the_provider_says_when_it_refuses_is_kept_for_people() {
    let sale = TestSale::open(10, 1).await;
    let bank = Bank::start(&sale, 1).await;
    let order_no = sale.unpaid("u1", 1, "k").await;
    let refused = bank.provider.prepare(&sale.row(&order_no).await, "http://127.0.0.1:1/").await.unwrap_err();
    assert_eq!(refused.to_string(), r#"the payment provider answers 503: {"message":"closed for today"}"#);
}

/// Only who took the money can pay it back.
#[tokio::test]
async fn money_of_another_merchant_stays_where_it_is() {
    let sale = TestSale::open(10, 1).await;
    let order_no = sale.unpaid("u1", 1, "k").await;
    let foreign = Payment { merchant_id: "another".parse().unwrap(), ..sale.payment("t1", &order_no, 1) };
    assert_eq!(sale.till().take(&foreign).await.unwrap(), Taken::Unmatched(Mismatch::Merchant));
    assert!(!sale.stores.payments.decide_refund(&foreign.transaction_id, sale.now()).await.unwrap());
    assert_eq!(sale.money("t1").await, Some(PaymentState::Unmatched));
}

/// The buyer is told first, and again after a try in vain; but the money does not wait for the word for ever.
#[tokio::test]
async fn a_buyer_who_cannot_be_told_gets_the_money_all_the_same() {
    let sale = TestSale::open(10, 1).await;
    let bank = Bank::start(&sale, 1).await;
    let order_no = too_late(&sale, "u1", "t1").await;
    for (told, expected, asked) in
        [(Told::NotStored, NOT_YET, 0), (Told::Stored, NOT_YET, 1), (Told::NotStored, BACK, 2)]
    {
        let (refunds, words) = bank.pay_back(&sale, told).await;
        assert_eq!((refunds, bank.asked()), (expected, asked));
        let words: Vec<_> = words.iter().map(|word| (&word.order_no, word.refund_due)).collect();
        assert_eq!(words, [(&order_no, true)]);
        sale.pass_secs(120);
    }
}

/// Rows that nobody can read (of a later version, say) are their own payments' matter.
#[tokio::test]
async fn one_unreadable_row_holds_nobody_up() {
    let sale = TestSale::open(10, 1).await;
    let bank = Bank::start(&sale, 0).await;
    let damaged = too_late(&sale, "u1", "t1").await;
    too_late(&sale, "u2", "t2").await;
    too_late(&sale, "u3", "t3").await;
    sale.damage(ORDERS, order_key(&damaged), "status").await;
    sale.damage(PAYMENTS, payment_key("t2"), "amount").await;
    assert_eq!(bank.pay_back(&sale, Told::Stored).await.0, Refunds { refunded: 1, postponed: 1 });
    assert_eq!(sale.money("t3").await, Some(PaymentState::Refunded));
    sale.pass_secs(60);
    assert_eq!(bank.pay_back(&sale, Told::Stored).await.0, BACK);
    assert_eq!(sale.money("t1").await, Some(PaymentState::Refunded));
}

#[tokio::test]
async fn payments_are_listed_page_by_page() {
    const COUNT: usize = 5;
    let sale = TestSale::open(10, 1).await;
    let bank = Bank::start(&sale, 0).await;
    for n in 0..COUNT {
        sale.pass_secs(1);
        too_late(&sale, &format!("u{n}"), &format!("t{n}")).await;
    }
    assert_eq!(listed(&sale, PaymentState::RefundDue).await, ["t0", "t1", "t2", "t3", "t4"]);
    for n in 0..COUNT {
        sale.pass_secs(1);
        let recorder = Recorder::new(Told::Stored);
        let asked = bank.asked();
        // One in each run.
        let is_over = || bank.asked() > asked;
        let (orders, payments) = (&sale.stores.orders, &sale.stores.payments);
        let refunds = refund::pay_back(orders, payments, &bank.provider, &recorder, sale.now(), is_over).await.unwrap();
        assert_eq!(refunds, BACK, "{n}");
    }
    // What went back last is what people look for.
    assert_eq!(listed(&sale, PaymentState::Refunded).await, ["t4", "t3", "t2", "t1", "t0"]);
    assert_eq!(listed(&sale, PaymentState::RefundDue).await, Vec::<String>::new());
}

/// All pages, of two each.
async fn listed(sale: &TestSale, state: PaymentState) -> Vec<String> {
    let (mut all, mut cursor) = (Vec::new(), None::<Cursor>);
    for _ in 0..10 {
        let page = sale.stores.payments.list(state, 2, cursor.as_ref()).await.unwrap();
        assert!(page.payments.len() <= 2);
        all.extend(page.payments.iter().map(|row| row.transaction_id.to_string()));
        let Some(next) = page.next else { return all };
        cursor = Some(Cursor::decode(&next.encode()).unwrap());
    }
    panic!("no end: {all:?}");
}
