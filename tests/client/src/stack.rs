//! Where a deployment listens and who may call it: the file that `make up` writes.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

use serde::Deserialize;

use crate::{ClientError, Role, Token, TokenBuilder};

/// A deployed stack, as `.local/outputs.json` describes it. The file serves other readers too, so members that this
/// client has no use for are passed over.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Stack {
    /// Base of the HTTP routes, without a slash at the end.
    pub http_url: String,
    /// The WebSocket endpoint with its stage, without a query.
    pub ws_url: String,
    admin_token: Secret,
    pub jwt: Jwt,
    /// Where the payment provider listens, without a slash at the end.
    pub pay_provider_url: String,
    /// What the provider and the shop sign with.
    pub pay_notify_secret: Secret,
    /// The shop, as the provider knows it.
    pub merchant_id: String,
    pub redis_url: String,
    pub aws_endpoint: String,
    pub tables: Tables,
    pub queues: Queues,
    /// Short name (`buy`) to the deployed name.
    pub functions: BTreeMap<String, String>,
    /// Name of the bus that paid orders are published on.
    pub event_bus: String,
}

/// What tokens are signed with and made out to.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Jwt {
    pub kid: String,
    pub secret: Secret,
    pub iss: String,
    pub aud: String,
    pub admin_aud: String,
}

/// Table names.
#[derive(Debug, Clone, Deserialize)]
pub struct Tables {
    pub orders: String,
    pub offers: String,
    pub payments: String,
    pub connections: String,
    pub chat: String,
}

/// Queue URLs.
#[derive(Debug, Clone, Deserialize)]
pub struct Queues {
    pub orders: String,
    pub dlq: String,
    pub reminders: String,
}

/// A text that no log may show.
#[derive(Clone, Deserialize)]
#[serde(transparent)]
pub struct Secret(String);

impl Secret {
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The text itself, for the one place that needs it.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

impl Stack {
    pub fn from_outputs(path: impl AsRef<Path>) -> Result<Self, ClientError> {
        let path = path.as_ref();
        let text = std::fs::read_to_string(path)
            .map_err(|source| ClientError::OutputsMissing { path: path.to_owned(), source })?;
        let mut stack: Self = serde_json::from_str(&text)
            .map_err(|source| ClientError::OutputsUnreadable { path: path.to_owned(), source })?;
        stack.http_url.truncate(stack.http_url.trim_end_matches('/').len());
        Ok(stack)
    }

    /// The long-lived admin token that `make up` made.
    pub fn admin_token(&self) -> Token {
        Token::from_text(self.admin_token.reveal())
    }

    /// A token to start from: valid for an hour, changed by the builder's methods.
    pub fn token(&self, role: Role, subject: &str) -> TokenBuilder {
        TokenBuilder::new(&self.jwt, role, subject)
    }

    /// A good token of a shopper.
    pub fn user_token(&self, user_id: &str) -> Result<Token, ClientError> {
        self.token(Role::User, user_id).sign()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OUTPUTS: &str = r#"{
        "httpUrl": "http://127.0.0.1:4566/_aws/execute-api/abc/", "wsUrl": "ws://127.0.0.1:4566/_aws/execute-api/def/prod",
        "adminToken": "canary-admin", "payProviderUrl": "http://127.0.0.1:4577", "payNotifySecret": "canary-pay", "merchantId": "m1",
        "jwt": {"kid": "local", "secret": "canary-key", "iss": "https://hotcake.local", "aud": "hotcake", "adminAud": "hotcake-admin"},
        "redisUrl": "redis://127.0.0.1:6477", "awsEndpoint": "http://127.0.0.1:4566",
        "tables": {"orders": "o", "offers": "f", "payments": "p", "connections": "c", "chat": "h"},
        "queues": {"orders": "http://q", "dlq": "http://d", "reminders": "http://r"}, "functions": {"buy": "local-buy"},
        "eventBus": "events"
    }"#;

    #[test]
    fn the_outputs_file_is_read_and_its_secrets_stay_hidden() {
        let stack: Stack = serde_json::from_str(OUTPUTS).unwrap();
        assert_eq!(stack.functions["buy"], "local-buy");
        assert_eq!(stack.admin_token().text(), "canary-admin");
        assert!(!format!("{stack:?}").contains("canary"), "{stack:?}");
    }

    #[test]
    fn a_missing_file_says_what_to_do() {
        let error = Stack::from_outputs("no/such/outputs.json").unwrap_err();
        assert_eq!(error.to_string(), "cannot read no/such/outputs.json; is the stack up?");
    }
}
