//! The payment provider of the local stack, as a buyer's client meets it: the page that [`Api::pay`](crate::Api::pay) names,
//! and what its buttons do. Tests and the demo may say more there than a page would, and look into the provider's ledger.

use std::time::Duration;

use jiff::Timestamp;
use reqwest::Method;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::{ClientError, Stack};

/// A notice is repeated for a while before the provider gives up and answers.
const CALL_TIMEOUT: Duration = Duration::from_secs(180);

/// The provider's cashier.
#[derive(Debug, Clone)]
pub struct Cashier {
    http: reqwest::Client,
    url: String,
}

/// How a try to pay ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Outcome {
    Success,
    Failed,
}

/// One try to pay. Of what is absent the prepared payment's own is taken.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Paying {
    pub outcome: Outcome,
    /// How many notices of it come at the same moment.
    pub copies: u32,
    /// From the money to the notice.
    pub delay_ms: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub amount: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub merchant_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub order_no: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub transaction_id: Option<String>,
}

/// What the cashier says afterwards.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Receipt {
    pub transaction_id: String,
    /// Notices that the shop took.
    pub notified: u32,
}

/// Money that the provider took.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Movement {
    pub transaction_id: String,
    pub order_no: String,
    pub amount: u64,
    pub currency: String,
    pub paid_at: Timestamp,
    /// What of it was paid back.
    pub refunded: u64,
}

#[derive(Deserialize)]
struct Ledger {
    payments: Vec<Movement>,
}

impl Paying {
    pub fn new(outcome: Outcome) -> Self {
        Self { outcome, copies: 1, delay_ms: 0, amount: None, merchant_id: None, order_no: None, transaction_id: None }
    }

    /// As often as this at once.
    #[must_use]
    pub fn told(self, copies: u32) -> Self {
        Self { copies, ..self }
    }
}

impl Cashier {
    pub fn new(stack: &Stack) -> Result<Self, ClientError> {
        let http = reqwest::Client::builder()
            .timeout(CALL_TIMEOUT)
            .tcp_nodelay(true)
            .build()
            .map_err(|source| ClientError::NoAnswer { method: "setup".into(), path: String::new(), source })?;
        Ok(Self { http, url: stack.pay_provider_url.clone() })
    }

    /// What the buttons of the page at `pay_url` do. The answer comes when the shop has taken the notice, or the provider
    /// has given up.
    pub async fn pay(&self, pay_url: &str, paying: &Paying) -> Result<Receipt, ClientError> {
        self.call(Method::POST, pay_url, Some(paying)).await
    }

    /// All money that the provider took.
    pub async fn ledger(&self) -> Result<Vec<Movement>, ClientError> {
        let ledger: Ledger = self.call(Method::GET, &format!("{}/v1/ledger", self.url), None::<&()>).await?;
        Ok(ledger.payments)
    }

    async fn call<T: DeserializeOwned>(
        &self,
        method: Method,
        url: &str,
        body: Option<&impl Serialize>,
    ) -> Result<T, ClientError> {
        let no_answer = |source| ClientError::NoAnswer { method: method.to_string(), path: url.to_owned(), source };
        let request = self.http.request(method.clone(), url);
        let request = body.into_iter().fold(request, |request, body| request.json(body));
        let answer = request.send().await.map_err(no_answer)?;
        let status = answer.status().as_u16();
        let body = answer.text().await.map_err(no_answer)?;
        if status != 200 {
            return Err(ClientError::NotOurs { status, path: url.to_owned(), body });
        }
        serde_json::from_str(&body).map_err(|source| ClientError::Drift { status, path: url.to_owned(), body, source })
    }
}
