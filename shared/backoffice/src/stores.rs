//! The gate, the tables and the queues, as a function's environment names them.

use kernel::time::Clock;
use platform::boot::{self, Boot};
use platform::config::{Env, FromEnv, Noted};
use platform::redis::{RedisConfig, RedisConnection};
use sale::Stores;
use sale::gate::Gate;
use sale::queue::{Queue, Reminders};
use sale::store::{Offers, Orders, Payments};

pub struct StoresConfig {
    orders_table: String,
    offers_table: String,
    payments_table: String,
    order_queue_url: String,
    reminder_queue_url: String,
    redis: RedisConfig,
}

impl FromEnv for StoresConfig {
    fn from_env(env: &mut Env) -> Result<Self, Noted> {
        let orders_table = env.required("ORDERS_TABLE");
        let offers_table = env.required("OFFERS_TABLE");
        let payments_table = env.required("PAYMENTS_TABLE");
        let order_queue_url = env.required("ORDER_QUEUE_URL");
        let reminder_queue_url = env.required("REMINDER_QUEUE_URL");
        let redis = RedisConfig::from_env(env);
        Ok(Self {
            orders_table: orders_table?,
            offers_table: offers_table?,
            payments_table: payments_table?,
            order_queue_url: order_queue_url?,
            reminder_queue_url: reminder_queue_url?,
            redis: redis?,
        })
    }
}

impl StoresConfig {
    pub async fn open<C>(&self, boot: &Boot<C>) -> Result<Stores<RedisConnection>, boot::Error> {
        let db = aws_sdk_dynamodb::Client::new(&boot.aws);
        let sqs = aws_sdk_sqs::Client::new(&boot.aws);
        Ok(Stores {
            gate: Gate::new(boot.redis(&self.redis).await?),
            orders: Orders::new(db.clone(), self.orders_table.clone()),
            offers: Offers::new(db.clone(), self.offers_table.clone()),
            payments: Payments::new(db, self.payments_table.clone()),
            queue: Queue::new(sqs.clone(), self.order_queue_url.clone()),
            reminders: Reminders::new(sqs, self.reminder_queue_url.clone()),
            clock: Clock::System,
        })
    }
}
