//! Events for those who go on with an order: the warehouse, the books.

use std::collections::HashMap;

use aws_sdk_eventbridge::Client;
use aws_sdk_eventbridge::types::PutEventsRequestEntry;
use kernel::ids::{ActivityId, OrderNo, SkuId, TransactionId, UserId};
use kernel::money::{Cents, Currency};
use kernel::time::Rfc3339;
use sale::store::orders::OrderRow;
use serde::Serialize;

/// EventBridge takes ten events a call.
const EVENTS_A_CALL: usize = 10;

/// Who publishes, as rules see it.
pub const SOURCE: &str = "hotcake.sale";
/// An order is PAID. At least once for each order; its detail is the same every time, and `orderNo` tells a repetition.
pub const ORDER_PAID: &str = "OrderPaid";

/// The detail of [`ORDER_PAID`].
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct OrderPaid<'a> {
    order_no: &'a OrderNo,
    user_id: &'a UserId,
    activity_id: &'a ActivityId,
    sku_id: &'a SkuId,
    title: &'a str,
    qty: u32,
    amount: Cents,
    currency: Currency,
    #[serde(skip_serializing_if = "Option::is_none")]
    transaction_id: Option<&'a TransactionId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    paid_at: Option<Rfc3339>,
}

/// The bus did not take an event.
#[derive(Debug, thiserror::Error)]
#[error("the event bus does not take events")]
pub struct EventsError(#[source] Box<dyn std::error::Error + Send + Sync>);

/// The event bus.
#[derive(Debug, Clone)]
pub struct Events {
    client: Client,
    bus: String,
}

impl Events {
    /// `bus`: its name or ARN.
    pub fn new(client: Client, bus: String) -> Self {
        Self { client, bus }
    }

    /// Publishes that orders are PAID. On an error some may be published; publishing all again does no harm.
    pub async fn publish_paid(&self, orders: &[&OrderRow]) -> Result<(), EventsError> {
        for some in orders.chunks(EVENTS_A_CALL) {
            let mut entries = Vec::with_capacity(some.len());
            for order in some {
                let detail = OrderPaid {
                    order_no: &order.order_no,
                    user_id: &order.user_id,
                    activity_id: &order.activity_id,
                    sku_id: &order.sku_id,
                    title: &order.terms.title,
                    qty: order.qty.get(),
                    amount: order.amount,
                    currency: order.terms.currency,
                    transaction_id: order.transaction_id.as_ref(),
                    paid_at: order.paid_at.map(Rfc3339),
                };
                let detail = serde_json::to_string(&detail).map_err(|error| EventsError(error.into()))?;
                entries.push(
                    PutEventsRequestEntry::builder()
                        .event_bus_name(&self.bus)
                        .source(SOURCE)
                        .detail_type(ORDER_PAID)
                        .detail(detail)
                        .build(),
                );
            }
            let answer = self.client.put_events().set_entries(Some(entries)).send().await;
            let answer = answer.map_err(|error| EventsError(error.into()))?;
            if answer.failed_entry_count > 0 {
                let codes = answer.entries().iter().filter_map(|entry| entry.error_code());
                let codes = codes.fold(HashMap::<&str, u32>::new(), |mut codes, code| {
                    *codes.entry(code).or_default() += 1;
                    codes
                });
                return Err(EventsError(format!("refused: {codes:?}").into()));
            }
        }
        Ok(())
    }
}
