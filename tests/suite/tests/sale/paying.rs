//! Money comes in, once for each order, and every cent of it is accounted for.

use kernel::money::Cents;
use sale::follow::Told;
use sale::ledger::Outcome;
use sale::order::{EndReason, OrderStatus};
use sale::pay::Taken;
use sale::store::payments::{Mismatch, Payment, PaymentState};

use crate::house::{PAY_WINDOW_SECS, PRICE, Recorder, TestSale};

fn is_paid(taken: &Taken) -> bool {
    matches!(taken, Taken::Paid(_))
}

#[tokio::test]
async fn a_payment_makes_its_order_paid_and_everybody_learns_of_it() {
    let sale = TestSale::open(10, 3).await;
    let order_no = sale.unpaid("u1", 2, "k1").await;
    assert!(is_paid(&sale.pay("t1", &order_no, 2).await));
    let row = sale.row(&order_no).await;
    assert_eq!((row.status, row.transaction_id.as_ref().map(|id| id.as_str())), (OrderStatus::Paid, Some("t1")));
    assert!(row.is_owed());
    assert_eq!(sale.counters().await.sold, 0);

    let (attended, recorder) = sale.attend(std::slice::from_ref(&order_no)).await;
    assert_eq!((attended.acquitted, attended.left), (1, 0));
    assert_eq!(recorder.published(), std::slice::from_ref(&order_no));
    let words = recorder.words();
    assert_eq!((words.len(), &words[0].order_no, words[0].status), (1, &order_no, OrderStatus::Paid));
    assert_eq!((sale.counters().await.sold, sale.available().await), (2, 8));
    assert!(!sale.row(&order_no).await.is_owed());

    // Reminded once more, nobody is told again.
    let (attended, recorder) = sale.attend(&[order_no]).await;
    assert_eq!((attended.acquitted, recorder.published().len(), recorder.words().len()), (0, 0, 0));
    sale.assert_sound().await;
}

#[tokio::test]
async fn p22_five_notices_of_one_payment() {
    let sale = TestSale::open(10, 3).await;
    let order_no = sale.unpaid("u1", 1, "k1").await;
    let first = sale.payment("t1", &order_no, 1);
    let till = sale.till();
    let later = |secs: i64| Payment { paid_at: first.paid_at.plus_secs(secs), ..first.clone() };
    let notices = [later(0), later(1), later(2), later(3), later(4)];
    let taken = futures_util::future::try_join_all(notices.iter().map(|notice| till.take(notice))).await.unwrap();
    assert_eq!(taken.iter().filter(|taken| is_paid(taken)).count(), 1, "{taken:?}");
    assert_eq!(taken.iter().filter(|taken| **taken == Taken::Recorded).count(), 4, "{taken:?}");
    let winner = taken.iter().position(is_paid).unwrap();
    assert_eq!(sale.row(&order_no).await.paid_at, Some(notices[winner].paid_at));
    assert_eq!(sale.pay("t1", &order_no, 1).await, Taken::Recorded);
    sale.attend(&[order_no]).await;
    sale.assert_sound().await;
}

#[tokio::test]
async fn p21_money_that_fits_no_order_is_set_aside() {
    let sale = TestSale::open(10, 3).await;
    let order_no = sale.unpaid("u1", 2, "k1").await;
    let good = sale.payment("t", &order_no, 2);
    let foreign = "SK00000000000000000000000000".parse().unwrap();
    let named = |transaction: &str| transaction.parse().unwrap();
    for (payment, mismatch) in [
        (Payment { transaction_id: named("t1"), amount: Cents::new(PRICE), ..good.clone() }, Mismatch::Amount),
        (Payment { transaction_id: named("t2"), amount: Cents::new(PRICE * 3), ..good.clone() }, Mismatch::Amount),
        (
            Payment { transaction_id: named("t3"), currency: "USD".to_owned().try_into().unwrap(), ..good.clone() },
            Mismatch::Currency,
        ),
        (
            Payment { transaction_id: named("t4"), merchant_id: "another".parse().unwrap(), ..good.clone() },
            Mismatch::Merchant,
        ),
        (Payment { transaction_id: named("t5"), order_no: foreign, ..good.clone() }, Mismatch::UnknownOrder),
    ] {
        let till = sale.till();
        assert_eq!(till.take(&payment).await.unwrap(), Taken::Unmatched(mismatch));
        assert_eq!(till.take(&payment).await.unwrap(), Taken::Recorded);
        assert_eq!(sale.money(payment.transaction_id.as_str()).await, Some(PaymentState::Unmatched));
    }
    assert_eq!(sale.row(&order_no).await.status, OrderStatus::Unpaid);
    assert!(is_paid(&sale.till().take(&good).await.unwrap()));
    sale.attend(&[order_no]).await;
    sale.assert_sound().await;
    let money = sale.audit(0).await.counts.money;
    // The two that name no order of ours belong to no activity.
    assert_eq!((money["CNY"].paid, money["CNY"].unmatched), (PRICE * 2, PRICE * 4));
    assert_eq!((money["CNY"].received, money["USD"].unmatched), (PRICE * 6, PRICE * 2));
}

#[tokio::test]
async fn p20_money_that_comes_after_the_end_goes_back() {
    let sale = TestSale::open(1, 1).await;
    let order_no = sale.unpaid("u1", 1, "k1").await;
    sale.pass_secs(i64::from(PAY_WINDOW_SECS));
    let (attended, _) = sale.attend(std::slice::from_ref(&order_no)).await;
    assert_eq!((attended.cancelled, attended.acquitted), (1, 1));
    assert_eq!(sale.status(&order_no).await, (OrderStatus::Cancelled, Some(EndReason::PayTimeout)));
    // The unit is somebody else's by now.
    sale.unpaid("u2", 1, "k1").await;
    sale.pass_secs(5);
    assert!(matches!(sale.pay("t1", &order_no, 1).await, Taken::RefundDue(_)));
    assert_eq!(sale.money("t1").await, Some(PaymentState::RefundDue));
    assert_eq!(sale.status(&order_no).await.0, OrderStatus::Cancelled);
    sale.assert_sound().await;
}

/// Paid by two transactions: the second one goes back.
#[tokio::test]
async fn an_order_is_paid_once() {
    let sale = TestSale::open(10, 3).await;
    let order_no = sale.unpaid("u1", 1, "k1").await;
    assert!(is_paid(&sale.pay("t1", &order_no, 1).await));
    assert!(matches!(sale.pay("t2", &order_no, 1).await, Taken::RefundDue(_)));
    sale.attend(&[order_no]).await;
    sale.assert_sound().await;
    let money = sale.audit(0).await.counts.money;
    assert_eq!((money["CNY"].paid, money["CNY"].refund_due), (PRICE, PRICE));
}

/// S14: pay, cancel and the clock at once; one of them wins, and the others see it.
#[tokio::test]
async fn s14_paying_and_cancelling_at_once() {
    for round in 0..6 {
        let sale = TestSale::open(1, 1).await;
        let order_no = sale.unpaid("u1", 1, "k1").await;
        if round % 2 == 1 {
            sale.pass_secs(i64::from(PAY_WINDOW_SECS));
        }
        let (taken, cancelled, _) = tokio::join!(sale.pay("t1", &order_no, 1), sale.cancel(&order_no), async {
            sale.attend(std::slice::from_ref(&order_no)).await
        });
        let status = sale.status(&order_no).await.0;
        assert_eq!(is_paid(&taken), status == OrderStatus::Paid, "{taken:?}, {cancelled:?}");
        assert!(matches!(cancelled, Outcome::Settled { status: said, .. } if said == status), "{cancelled:?}");
        sale.attend(&[order_no]).await;
        assert_eq!(sale.available().await, i64::from(status == OrderStatus::Cancelled));
        sale.assert_sound().await;
    }
}

/// P40: paid, and the function died before anybody was told. The sweep tells, and gives nothing back.
#[tokio::test]
async fn p40_paid_and_nobody_told() {
    let sale = TestSale::open(3, 1).await;
    let order_no = sale.unpaid("u1", 1, "k1").await;
    assert!(is_paid(&sale.pay("t1", &order_no, 1).await));
    sale.sweep().await;
    assert_eq!(sale.counters().await.sold, 0, "somebody may be at it");
    sale.pass_secs(31);
    let swept = sale.sweep().await;
    assert_eq!(swept.attended.acquitted, 1);
    assert_eq!((sale.counters().await.sold, sale.available().await), (1, 2));
    sale.assert_sound().await;
}

/// Nobody can be told now: the order stays due until they are, and each may hear it twice.
#[tokio::test]
async fn what_cannot_be_told_stays_due() {
    let sale = TestSale::open(3, 1).await;
    let order_no = sale.unpaid("u1", 1, "k1").await;
    assert!(is_paid(&sale.pay("t1", &order_no, 1).await));
    sale.pass_secs(31);
    for told in [Told::NotStored, Told::NotStored, Told::Stored] {
        let recorder = Recorder::new(told);
        let stop = sale.now().plus_secs(20);
        let attended = sale::due::attend(&sale.stores, &recorder, std::slice::from_ref(&order_no), stop).await.unwrap();
        assert_eq!(attended.acquitted, usize::from(told == Told::Stored));
        assert_eq!(sale.row(&order_no).await.is_owed(), told == Told::NotStored);
        assert_eq!(sale.counters().await.sold, 1);
    }
    sale.assert_sound().await;
}
