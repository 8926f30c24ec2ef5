//! The payment provider: where buyers pay, and where money is paid back.
//!
//! Its shape is that of the usual ones. We are a merchant with an id and a secret; a payment is prepared by naming order,
//! amount and the address for notices, and the buyer's client is handed what it opens the cashier with. Both directions are
//! signed in the same way: `X-Pay-Signature` is the lowercase hex of HMAC-SHA256(secret, timestamp + "." + raw body), with the
//! timestamp, in epoch seconds, in `X-Pay-Timestamp`. Preparing twice and paying back twice are done once: the provider knows
//! them by our order number, and by its own transaction number.

use std::time::Duration;

use aws_lc_rs::hmac;
use data_encoding::HEXLOWER;
use kernel::ids::{MerchantId, OrderNo, TransactionId};
use kernel::money::{Cents, Currency};
use kernel::time::{Clock, Rfc3339, UnixMillis};
use serde::{Deserialize, Serialize};

use crate::store::orders::OrderRow;
use crate::store::payments::PaymentRow;

/// A notice may be this much older or younger than now, in seconds.
const MAX_AGE_SECS: i64 = 300;
const MAX_LEAD_SECS: i64 = 60;
/// How long the provider may take to answer.
const TIMEOUT: Duration = Duration::from_secs(5);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// How much is kept of what it says when it refuses, in characters.
const MAX_REFUSAL_CHARS: usize = 200;
/// The largest answer that is read, in bytes.
const MAX_ANSWER_BYTES: usize = 64 * 1024;

pub const TIMESTAMP_HEADER: &str = "x-pay-timestamp";
pub const SIGNATURE_HEADER: &str = "x-pay-signature";
const MERCHANT_HEADER: &str = "x-pay-merchant";

/// The secret that both sides sign with.
#[derive(Clone)]
pub struct Signer(hmac::Key);

impl std::fmt::Debug for Signer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Signer(…)")
    }
}

/// What we sign with at the provider, as the payment secret says it: `{"key"}`.
#[derive(Deserialize)]
pub struct Account {
    key: String,
}

impl Account {
    pub fn signer(&self) -> Signer {
        Signer::new(self.key.as_bytes())
    }
}

/// A notice that is not the provider's, or not of now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SignatureError {
    #[error("timestamp or signature is missing or malformed")]
    Malformed,
    #[error("the timestamp is too far from now")]
    NotNow,
    #[error("the signature is wrong")]
    Wrong,
}

impl Signer {
    pub fn new(secret: &[u8]) -> Self {
        Self(hmac::Key::new(hmac::HMAC_SHA256, secret))
    }

    /// The signature of `body` at `timestamp`, in epoch seconds.
    pub fn sign(&self, timestamp: i64, body: &[u8]) -> String {
        HEXLOWER.encode(hmac::sign(&self.0, &signed(&timestamp.to_string(), body)).as_ref())
    }

    /// Whether `body` was signed by the provider, and just now.
    pub fn verify(
        &self,
        timestamp: Option<&str>,
        signature: Option<&str>,
        body: &[u8],
        now: UnixMillis,
    ) -> Result<(), SignatureError> {
        let (Some(timestamp), Some(signature)) = (timestamp, signature) else { return Err(SignatureError::Malformed) };
        let at: i64 = timestamp.parse().map_err(|_| SignatureError::Malformed)?;
        let tag = HEXLOWER.decode(signature.as_bytes()).map_err(|_| SignatureError::Malformed)?;
        hmac::verify(&self.0, &signed(timestamp, body), &tag).map_err(|_| SignatureError::Wrong)?;
        if (-MAX_AGE_SECS..=MAX_LEAD_SECS).contains(&at.saturating_sub(now.secs())) {
            Ok(())
        } else {
            Err(SignatureError::NotNow)
        }
    }
}

/// The timestamp as it was sent, so that nothing else than what was sent is signed.
fn signed(timestamp: &str, body: &[u8]) -> Vec<u8> {
    [timestamp.as_bytes(), b".", body].concat()
}

/// What a buyer's client opens the cashier with.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Prepared {
    /// The provider's number of the prepared payment.
    pub prepay_id: String,
    /// The cashier's page.
    pub pay_url: String,
}

/// The provider did not do what it was asked to.
#[derive(Debug, thiserror::Error)]
pub enum ProviderError {
    #[error("the payment provider does not answer")]
    Unreachable(#[source] reqwest::Error),
    /// `said`: the beginning of its answer, for people.
    #[error("the payment provider answers {status}: {said}")]
    Refused { status: u16, said: String },
    #[error("the payment provider's answer cannot be read")]
    Answer(#[source] Box<dyn std::error::Error + Send + Sync>),
}

/// The way to the provider.
#[derive(Debug, Clone)]
pub struct Provider {
    http: reqwest::Client,
    url: String,
    merchant_id: MerchantId,
    signer: Signer,
    clock: Clock,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Prepare<'a> {
    merchant_id: &'a MerchantId,
    order_no: &'a OrderNo,
    title: &'a str,
    amount: Cents,
    currency: Currency,
    #[serde(skip_serializing_if = "Option::is_none")]
    expires_at: Option<Rfc3339>,
    notify_url: &'a str,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Refund<'a> {
    merchant_id: &'a MerchantId,
    transaction_id: &'a TransactionId,
    amount: Cents,
    currency: Currency,
}

impl Provider {
    /// `url`: where the provider's API begins, without a slash at its end.
    pub fn new(url: String, merchant_id: MerchantId, signer: Signer, clock: Clock) -> Result<Self, ProviderError> {
        let http = reqwest::Client::builder()
            .timeout(TIMEOUT)
            .connect_timeout(CONNECT_TIMEOUT)
            .redirect(reqwest::redirect::Policy::none())
            .build()
            .map_err(ProviderError::Unreachable)?;
        Ok(Self { http, url, merchant_id, signer, clock })
    }

    pub fn merchant_id(&self) -> &MerchantId {
        &self.merchant_id
    }

    /// Prepares the payment of an order. The notice of it goes to `notify_url`.
    pub async fn prepare(&self, order: &OrderRow, notify_url: &str) -> Result<Prepared, ProviderError> {
        let prepare = Prepare {
            merchant_id: &self.merchant_id,
            order_no: &order.order_no,
            title: &order.terms.title,
            amount: order.amount,
            currency: order.terms.currency,
            expires_at: order.pay_deadline.map(Rfc3339),
            notify_url,
        };
        let answer = self.post("/v1/payments", &prepare).await?;
        serde_json::from_slice(&answer).map_err(|error| ProviderError::Answer(error.into()))
    }

    /// Pays a payment back, whole. Asked again, the provider says that it has.
    pub async fn refund(&self, payment: &PaymentRow) -> Result<(), ProviderError> {
        let refund = Refund {
            merchant_id: &self.merchant_id,
            transaction_id: &payment.transaction_id,
            amount: payment.amount,
            currency: payment.currency,
        };
        self.post("/v1/refunds", &refund).await.map(|_| ())
    }

    async fn post(&self, path: &str, document: &impl Serialize) -> Result<Vec<u8>, ProviderError> {
        let body = serde_json::to_vec(document).map_err(|error| ProviderError::Answer(error.into()))?;
        let timestamp = self.clock.now().secs();
        let request = self
            .http
            .post(format!("{}{path}", self.url))
            .header("content-type", "application/json")
            .header(MERCHANT_HEADER, self.merchant_id.as_str())
            .header(TIMESTAMP_HEADER, timestamp.to_string())
            .header(SIGNATURE_HEADER, self.signer.sign(timestamp, &body))
            .body(body);
        let mut answer = request.send().await.map_err(ProviderError::Unreachable)?;
        let status = answer.status();
        let mut bytes = Vec::new();
        while let Some(chunk) = answer.chunk().await.map_err(ProviderError::Unreachable)? {
            bytes.extend_from_slice(&chunk);
            if bytes.len() > MAX_ANSWER_BYTES {
                return Err(ProviderError::Answer("too long".into()));
            }
        }
        if !status.is_success() {
            let said = String::from_utf8_lossy(&bytes).chars().take(MAX_REFUSAL_CHARS).collect();
            return Err(ProviderError::Refused { status: status.as_u16(), said });
        }
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: UnixMillis = UnixMillis::new(1_780_000_000_000);

    #[test]
    fn only_what_the_provider_signed_just_now_is_believed() {
        let signer = Signer::new(b"secret");
        let body = br#"{"transactionId":"t1"}"#;
        let verify = |timestamp: i64, signature: &str, body: &[u8]| {
            signer.verify(Some(&timestamp.to_string()), Some(signature), body, NOW)
        };
        for (offset, expected) in [
            (0, Ok(())),
            (-300, Ok(())),
            (60, Ok(())),
            (-301, Err(SignatureError::NotNow)),
            (61, Err(SignatureError::NotNow)),
        ] {
            let at = NOW.secs() + offset;
            assert_eq!(verify(at, &signer.sign(at, body), body), expected, "{offset}");
        }
        let at = NOW.secs();
        let signature = signer.sign(at, body);
        assert_eq!(verify(at, &signature, b"{}"), Err(SignatureError::Wrong));
        assert_eq!(verify(at + 1, &signature, body), Err(SignatureError::Wrong));
        assert_eq!(verify(at, &Signer::new(b"other").sign(at, body), body), Err(SignatureError::Wrong));
        assert_eq!(verify(at, "00", body), Err(SignatureError::Wrong));
        assert_eq!(verify(at, "xyz", body), Err(SignatureError::Malformed));
        assert_eq!(verify(at, &signature.to_uppercase(), body), Err(SignatureError::Malformed));
        let text = at.to_string();
        assert_eq!(signer.verify(None, Some(&signature), body, NOW), Err(SignatureError::Malformed));
        assert_eq!(signer.verify(Some(&text), None, body, NOW), Err(SignatureError::Malformed));
        assert_eq!(signer.verify(Some("now"), Some(&signature), body, NOW), Err(SignatureError::Malformed));
        assert_eq!(format!("{signer:?}"), "Signer(…)");
    }

    #[test]
    fn the_signature_is_the_documented_one() {
        // printf '1780000000.{}' | openssl dgst -sha256 -hmac secret
        let expected = "f2dadf9ad78978e9a3a09f360d82463bb247403b8a15405e9a194ed17a4d5357";
        assert_eq!(Signer::new(b"secret").sign(1_780_000_000, b"{}"), expected);
    }
}
