//! What buyers read about their orders, in both languages.

use kernel::text::Text;

use crate::order::{EndReason, OrderStatus};

/// One sentence about where an order stands.
pub fn about(status: OrderStatus, reason: Option<EndReason>) -> Text {
    match (status, reason) {
        (OrderStatus::PreCreated, _) => {
            Text::new("Your place is held; the order is being made.", "资格已锁定，正在生成订单。")
        }
        (OrderStatus::Unpaid, _) => {
            Text::new("It is yours. Please pay before the deadline.", "抢购成功，请在截止时间前付款。")
        }
        (OrderStatus::Paid, _) => Text::new("Paid. Thank you.", "已付款，感谢您的购买。"),
        (OrderStatus::Cancelled, Some(EndReason::PayTimeout)) => {
            Text::new("The order was not paid in time and has been cancelled.", "订单超时未付款，已自动取消。")
        }
        (OrderStatus::Cancelled, _) => Text::new("The order was cancelled, as you wished.", "订单已按您的要求取消。"),
        (OrderStatus::Failed, Some(EndReason::StockEmpty)) => {
            Text::new("Sold out: the order could not be kept.", "已抢完，订单未能保留。")
        }
        (OrderStatus::Failed, Some(EndReason::LimitExceeded)) => {
            Text::new("Over the limit for one buyer: the order could not be kept.", "超出限购数量，订单未能保留。")
        }
        (OrderStatus::Failed, Some(EndReason::Abandoned)) => Text::new(
            "The purchase did not go through and nothing was charged. Please try again.",
            "抢购未完成，未产生费用，请重试。",
        ),
        (
            OrderStatus::Failed,
            Some(EndReason::GaveUp | EndReason::CancelledByBuyer | EndReason::PayTimeout | EndReason::Unknown) | None,
        ) => Text::new(
            "The order could not be made and nothing was charged. Please try again.",
            "订单创建失败，未产生费用，请重试。",
        ),
    }
}

/// One sentence about money that goes back for an order that has ended.
pub fn refund_due() -> Text {
    Text::new("The order has ended. Your payment will be paid back in full.", "订单已结束，您的付款将全额退回。")
}
