//! What buyers read about their orders, in both languages.

use kernel::text::Text;

use crate::order::{FailReason, OrderStatus};

/// One sentence about where an order stands.
pub fn about(status: OrderStatus, reason: Option<FailReason>) -> Text {
    match (status, reason) {
        (OrderStatus::PreCreated, _) => {
            Text::new("Your place is held; the order is being made.", "资格已锁定，正在生成订单。")
        }
        (OrderStatus::Unpaid, _) => {
            Text::new("It is yours. Please pay before the deadline.", "抢购成功，请在截止时间前付款。")
        }
        (OrderStatus::Paid, _) => Text::new("Paid. Thank you.", "已付款，感谢您的购买。"),
        (OrderStatus::Cancelled, _) => {
            Text::new("The order was cancelled and its goods given back.", "订单已取消，商品已退回。")
        }
        (OrderStatus::Failed, Some(FailReason::StockEmpty)) => {
            Text::new("Sold out: the order could not be kept.", "已抢完，订单未能保留。")
        }
        (OrderStatus::Failed, Some(FailReason::LimitExceeded)) => {
            Text::new("Over the limit for one buyer: the order could not be kept.", "超出限购数量，订单未能保留。")
        }
        (OrderStatus::Failed, Some(FailReason::Abandoned)) => Text::new(
            "The purchase did not go through and nothing was charged. Please try again.",
            "抢购未完成，未产生费用，请重试。",
        ),
        (OrderStatus::Failed, Some(FailReason::GaveUp) | None) => Text::new(
            "The order could not be made and nothing was charged. Please try again.",
            "订单创建失败，未产生费用，请重试。",
        ),
    }
}
