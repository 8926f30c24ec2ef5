//! How a function starts. A `main.rs` is
//!
//! ```no_run
//! # mod catalog {
//! #     pub struct State;
//! #     impl State { pub async fn start(_: &platform::boot::Boot<()>) -> Result<Self, platform::boot::Error> { Ok(Self) } }
//! #     pub async fn handle(_: &State, _: platform::http::Request) -> Result<platform::http::Response, platform::http::Problem> {
//! #         Err(platform::http::Problem::not_found())
//! #     }
//! # }
//! fn main() -> std::process::ExitCode {
//!     platform::boot::run(async |boot| {
//!         let state = catalog::State::start(&boot).await?;
//!         platform::http::serve(state, catalog::handle).await
//!     })
//! }
//! ```
//!
//! Everything that can be wrong with a deployment stops the function here, with one log line that says what.

use std::process::ExitCode;
use std::time::Duration;

use aws_config::retry::RetryConfig;
use aws_config::timeout::TimeoutConfig;
use aws_config::{BehaviorVersion, SdkConfig};

use crate::auth::{AuthConfig, Verifier};
use crate::config::{self, FromEnv};
use crate::redis::{Credentials, RedisConfig, RedisConnection};
use crate::secrets::{self, Secret};
use crate::telemetry;

/// Whatever stops a function.
pub type Error = lambda_runtime::Error;

/// How long connecting to an AWS service may take.
const AWS_CONNECT_TIMEOUT: Duration = Duration::from_millis(1_000);
/// How long one attempt of an AWS call may take.
const AWS_ATTEMPT_TIMEOUT: Duration = Duration::from_millis(2_000);
/// How long an AWS call may take with its retries. With the bound of a Redis command before it, it leaves a function with a
/// time-out of ten seconds the time to answer 503 itself.
const AWS_CALL_TIMEOUT: Duration = Duration::from_millis(4_000);
/// Attempts of one AWS call.
const AWS_ATTEMPTS: u32 = 3;

/// What a function has in hand when it builds its state.
pub struct Boot<C> {
    pub config: C,
    /// For the AWS clients: `aws_sdk_dynamodb::Client::new(&boot.aws)`. They share one connection pool.
    pub aws: SdkConfig,
}

impl<C> Boot<C> {
    /// Fetches a secret.
    pub async fn secret(&self, arn: &str) -> Result<Secret, Error> {
        Ok(secrets::fetch(&aws_sdk_secretsmanager::Client::new(&self.aws), arn).await?)
    }

    /// Fetches the keys that tokens are verified with.
    pub async fn verifier(&self, auth: &AuthConfig) -> Result<Verifier, Error> {
        let keys = self.secret(&auth.secret_arn).await?;
        Ok(Verifier::new(auth, &keys)?)
    }

    /// A connection to Redis, made by its first command.
    pub async fn redis(&self, redis: &RedisConfig) -> Result<RedisConnection, Error> {
        let credentials = match &redis.secret_arn {
            Some(arn) => Some(Credentials::from_secret(&self.secret(arn).await?)?),
            None => None,
        };
        Ok(RedisConnection::lazy(&redis.url, redis.cluster, credentials.as_ref())?)
    }
}

/// Runs a function until Lambda ends the process. `main` builds the state and serves; whatever it fails with is logged here,
/// and the process exits with 1, which Lambda reports as a failed start.
pub fn run<C: FromEnv>(main: impl AsyncFnOnce(Boot<C>) -> Result<(), Error>) -> ExitCode {
    match start(main) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!(error = telemetry::chain(error.as_ref()), "stopped");
            ExitCode::FAILURE
        }
    }
}

fn start<C: FromEnv>(main: impl AsyncFnOnce(Boot<C>) -> Result<(), Error>) -> Result<(), Error> {
    start_telemetry()?;
    install_tls()?;
    let config = config::load()?;
    // One thread: an environment handles one event at a time, and what it does at once is waiting.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let aws = aws_config().await;
        main(Boot { config, aws }).await
    })
}

fn start_telemetry() -> Result<(), Error> {
    let level = config::load()?;
    if let Err(error) = telemetry::init(&level) {
        // The mistake is in the level, and it can be logged at the default one.
        telemetry::init(&telemetry::LogLevel::default())?;
        return Err(error.into());
    }
    Ok(())
}

/// TLS to Redis takes the process's provider. The AWS SDK brings its own, of the same make.
fn install_tls() -> Result<(), Error> {
    rustls::crypto::aws_lc_rs::default_provider()
        .install_default()
        .map_err(|_| Error::from("a TLS provider is installed already"))
}

/// Region, credentials and, locally, `AWS_ENDPOINT_URL` come from the environment that Lambda sets.
async fn aws_config() -> SdkConfig {
    let timeouts = TimeoutConfig::builder()
        .connect_timeout(AWS_CONNECT_TIMEOUT)
        .operation_attempt_timeout(AWS_ATTEMPT_TIMEOUT)
        .operation_timeout(AWS_CALL_TIMEOUT)
        .build();
    aws_config::defaults(BehaviorVersion::latest())
        .timeout_config(timeouts)
        .retry_config(RetryConfig::standard().with_max_attempts(AWS_ATTEMPTS))
        .load()
        .await
}
