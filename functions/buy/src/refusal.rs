//! How each refusal reads over HTTP.

use kernel::time::Rfc3339;
use platform::http::{Problem, Text};
use sale::admission::Refusal;

/// How long a buyer waits before asking a sale that is paused, or a gate that is being made, again.
const PAUSED_RETRY_MS: u64 = 5_000;
const NOT_READY_RETRY_MS: u64 = 2_000;

pub(crate) fn problem(refusal: Refusal) -> Problem {
    match refusal {
        Refusal::NotReady => {
            Problem::new(503, "NOT_READY", Text::new("The sale is not ready yet.", "活动尚未就绪，请稍后再试。"))
                .retry_after_ms(NOT_READY_RETRY_MS)
        }
        Refusal::Paused => Problem::new(503, "PAUSED", Text::new("The sale is paused.", "活动已暂停，请稍后再试。"))
            .retry_after_ms(PAUSED_RETRY_MS),
        Refusal::Ended { ends_at } => Problem::new(409, "ENDED", Text::new("The sale is over.", "活动已结束。"))
            .with("endsAt", String::from(Rfc3339(ends_at))),
        Refusal::NotStarted { starts_at } => {
            Problem::new(409, "NOT_STARTED", Text::new("The sale has not started.", "活动尚未开始。"))
                .with("startsAt", String::from(Rfc3339(starts_at)))
        }
        Refusal::RequestIdReused => Problem::new(
            422,
            "REQUEST_ID_REUSED",
            Text::new(
                "This request id was used for another quantity. Use a new id for a new wish.",
                "该请求号已用于不同的购买数量，新的购买请使用新的请求号。",
            ),
        ),
        Refusal::Blocked(blocked) => {
            let problem =
                Problem::new(403, "BLOCKED", Text::new("You cannot buy here at the moment.", "您当前无法参与抢购。"));
            match blocked.retry_after_ms {
                Some(wait) => problem.retry_after_ms(wait),
                None => problem,
            }
        }
        Refusal::AlreadyBought => Problem::new(
            409,
            "ALREADY_BOUGHT",
            Text::new("You have bought this already; one for each buyer.", "您已抢购过该商品，每人限购一件。"),
        ),
        Refusal::LimitExceeded { remaining } => Problem::new(
            409,
            "LIMIT_EXCEEDED",
            Text::of(
                format!("That is more than one buyer may have; {remaining} more are allowed."),
                format!("超出限购数量，还可购买 {remaining} 件。"),
            ),
        )
        .with("remaining", remaining),
        Refusal::StockEmpty => Problem::new(409, "STOCK_EMPTY", Text::new("Sold out.", "已抢完。")),
        Refusal::InsufficientStock { remaining } => Problem::new(
            409,
            "INSUFFICIENT_STOCK",
            Text::of(format!("Only {remaining} are left."), format!("库存不足，仅剩 {remaining} 件。")),
        )
        .with("remaining", remaining),
        Refusal::RateLimited { retry_after_ms } => Problem::rate_limited(u64::from(retry_after_ms)),
    }
}

pub(crate) fn request_expired() -> Problem {
    Problem::new(
        409,
        "REQUEST_EXPIRED",
        Text::new(
            "An earlier try with this request id was given up. Try again with a new id.",
            "该请求号的上一次抢购已被放弃，请使用新的请求号重试。",
        ),
    )
}
