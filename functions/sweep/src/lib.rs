//! Once a minute: whatever was left lying is picked up, and buyers are told. One sweep runs at a time.

use std::convert::Infallible;
use std::time::Duration;

use backoffice::{Herald, HeraldConfig, StoresConfig};
use kernel::ids::MerchantId;
use kernel::time::Clock;
use platform::boot::{self, Boot};
use platform::config::{Env, FromEnv, Noted};
use platform::redis::RedisConnection;
use platform::schedule::Tick;
use sale::Stores;
use sale::provider::{Account, Provider};
use sale::refund;

/// What is left of the time-out when sweeping stops: the page of holds being judged is told and followed in it.
const AFTER_STEPS: Duration = Duration::from_secs(12);
/// The part of the time that is kept for refunds, however much else there is to do: one in so many.
const REFUNDS_SHARE: i64 = 4;
/// The lease that keeps sweeps apart.
const LEASE: &str = "sweep";

pub struct Config {
    stores: StoresConfig,
    herald: HeraldConfig,
    payment_secret_arn: String,
    pay_merchant_id: MerchantId,
    pay_provider_url: String,
}

impl FromEnv for Config {
    fn from_env(env: &mut Env) -> Result<Self, Noted> {
        let stores = StoresConfig::from_env(env);
        let herald = HeraldConfig::from_env(env);
        let payment_secret_arn = env.required("PAYMENT_SECRET_ARN");
        let pay_merchant_id = env.required("PAY_MERCHANT_ID");
        let pay_provider_url = env.required("PAY_PROVIDER_URL");
        Ok(Self {
            stores: stores?,
            herald: herald?,
            payment_secret_arn: payment_secret_arn?,
            pay_merchant_id: pay_merchant_id?,
            pay_provider_url: pay_provider_url?,
        })
    }
}

pub struct State {
    stores: Stores<RedisConnection>,
    herald: Herald,
    provider: Provider,
    /// Who this environment is, to others that sweep.
    name: String,
}

impl State {
    pub async fn start(boot: &Boot<Config>) -> Result<Self, boot::Error> {
        let config = &boot.config;
        let account: Account = boot.secret(&config.payment_secret_arn).await?.json()?;
        let (signer, url) = (account.signer(), config.pay_provider_url.clone());
        Ok(Self {
            stores: config.stores.open(boot).await?,
            herald: Herald::new(boot, &config.herald)?,
            provider: Provider::new(url, config.pay_merchant_id.clone(), signer, Clock::System)?,
            name: kernel::ids::RequestId::random()?.into(),
        })
    }
}

pub async fn handle(state: &State, tick: Tick) -> Result<(), Infallible> {
    let stores = &state.stores;
    // A sweep that is killed keeps the lease no longer than it could have run.
    match stores.offers.lease(LEASE, &state.name, tick.deadline, stores.clock.now()).await {
        Ok(true) => {}
        Ok(false) => {
            tracing::warn!("another sweep is running");
            return Ok(());
        }
        Err(error) => {
            // Two at once do no harm, none at all would.
            tracing::warn!(error = &error as &dyn std::error::Error, "swept without a lease");
        }
    }
    let stop = tick.deadline.plus_millis(-(AFTER_STEPS.as_millis() as i64));
    let now = stores.clock.now();
    let refunds_begin = stop.plus_millis(-(stop.millis_since(now) / REFUNDS_SHARE));
    let swept = sale::sweep::sweep(stores, refunds_begin, &state.herald).await;
    tracing::info!(?swept, "swept");
    let now = stores.clock.now();
    let is_over = || stores.clock.now() >= stop;
    match refund::pay_back(&stores.orders, &stores.payments, &state.provider, &state.herald, now, is_over).await {
        Ok(refunds) => tracing::info!(?refunds, "paid back"),
        Err(error) => tracing::error!(error = &error as &dyn std::error::Error, "refunds are left to the next sweep"),
    }
    if let Err(error) = stores.offers.end_lease(LEASE, &state.name).await {
        tracing::warn!(error = &error as &dyn std::error::Error, "the lease runs out by itself");
    }
    Ok(())
}
