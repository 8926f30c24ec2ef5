//! Events for functions that run beside the stack: a sample event of its trigger, made out to a sale of the test.

use client::documents::PayParameters;
use contract::root;
use jiff::Timestamp;
use kernel::ids::OrderNo;
use sale::provider::{SIGNATURE_HEADER, Signer, TIMESTAMP_HEADER};
use sale::queue::{OrderMessage, ReminderMessage};
use serde_json::{Value, json};

use crate::shop::CURRENCY;
use crate::{Buyer, Local, Shop};

/// A sample event: `admin/pause.200`.
pub fn sample(name: &str) -> Value {
    let text = std::fs::read(root().join(format!("events/{name}.json"))).unwrap();
    serde_json::from_slice(&text).unwrap()
}

/// Something that an admin asks for about the activity of a shop, after the sample `name`.
pub fn admin(shop: &Shop, name: &str) -> Value {
    let mut event = sample(name);
    event["headers"]["authorization"] = format!("Bearer {}", shop.local.outputs.admin_token().text()).into();
    event["pathParameters"]["activityId"] = shop.activity_id.as_str().into();
    event
}

/// The admin changes how many units there are.
pub fn put_total(shop: &Shop, total: u64, limit_per_user: u32) -> Value {
    let mut event = admin(shop, "admin/put-product.200");
    event["pathParameters"]["skuId"] = shop.sku_id.as_str().into();
    event["body"] = serde_json::to_string(&shop.product(total, limit_per_user)).unwrap().into();
    event
}

/// A buyer lets an order go.
pub fn cancel(buyer: &Buyer, order_no: &str) -> Value {
    let mut event = sample("orders/cancel-unknown.404");
    event["headers"]["authorization"] = format!("Bearer {}", buyer.token.text()).into();
    event["pathParameters"]["orderNo"] = order_no.into();
    event
}

/// The provider's notice that a payment was made, as `transaction_id`.
pub fn paid(local: &Local, payment: &PayParameters, transaction_id: &str) -> Value {
    let now = Timestamp::now();
    let body = json!({
        "transactionId": transaction_id,
        "merchantId": local.outputs.merchant_id,
        "orderNo": payment.order_no,
        "amount": payment.amount,
        "currency": CURRENCY,
        "status": "SUCCESS",
        "paidAt": now.to_string(),
    })
    .to_string();
    let signature =
        Signer::new(local.outputs.pay_notify_secret.reveal().as_bytes()).sign(now.as_second(), body.as_bytes());
    let mut event = sample("pay-notify/unsigned.401");
    event["headers"][TIMESTAMP_HEADER] = now.as_second().to_string().into();
    event["headers"][SIGNATURE_HEADER] = signature.into();
    event["body"] = body.into();
    event
}

/// A batch of the orders queue.
pub fn orders(messages: &[OrderMessage]) -> Value {
    bodies(messages.iter().map(|message| serde_json::to_string(message).unwrap()))
}

/// A batch of the reminders queue.
pub fn reminders(order_nos: &[OrderNo]) -> Value {
    let reminders = order_nos.iter().map(|order_no| ReminderMessage { order_no: order_no.clone() });
    bodies(reminders.map(|reminder| serde_json::to_string(&reminder).unwrap()))
}

/// A batch of anything.
pub fn bodies(bodies: impl Iterator<Item = String>) -> Value {
    let records = bodies.enumerate().map(|(n, body)| {
        json!({
            "messageId": message_id(n),
            "receiptHandle": "e2e",
            "body": body,
            "attributes": {"ApproximateReceiveCount": "1"},
            "messageAttributes": {},
            "eventSource": "aws:sqs",
        })
    });
    json!({"Records": records.collect::<Vec<_>>()})
}

/// What the n-th message of a batch is called.
pub fn message_id(n: usize) -> String {
    format!("00000000-0000-0000-0000-{n:012}")
}
