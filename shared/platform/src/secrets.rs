//! Secrets: fetched from Secrets Manager by ARN at start, and kept out of every log.

use std::fmt;

use aws_sdk_secretsmanager::Client;
use serde::de::DeserializeOwned;

/// A secret's text. `Debug` hides it, and it has no `Display`.
#[derive(Clone)]
pub struct Secret(String);

#[derive(Debug, thiserror::Error)]
pub enum SecretError {
    #[error("the secret {arn} cannot be read")]
    Fetch {
        arn: String,
        #[source]
        source: Box<aws_sdk_secretsmanager::Error>,
    },
    #[error("the secret {arn} holds no text")]
    NoText { arn: String },
    /// The parser's own message is left out: it may quote the secret.
    #[error("a secret is not JSON of the expected shape (line {line}, column {column})")]
    Shape { line: usize, column: usize },
}

impl Secret {
    pub fn new(text: String) -> Self {
        Self(text)
    }

    /// The text. Whoever calls this keeps it out of logs, errors and `Debug`.
    pub fn expose(&self) -> &str {
        &self.0
    }

    /// The secret as a JSON document.
    pub fn json<T: DeserializeOwned>(&self) -> Result<T, SecretError> {
        serde_json::from_str(&self.0).map_err(|error| SecretError::Shape { line: error.line(), column: error.column() })
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(hidden)")
    }
}

/// Fetches the current version of a secret.
pub async fn fetch(client: &Client, arn: &str) -> Result<Secret, SecretError> {
    let answer = client
        .get_secret_value()
        .secret_id(arn)
        .send()
        .await
        .map_err(|error| SecretError::Fetch { arn: arn.to_owned(), source: Box::new(error.into()) })?;
    answer.secret_string.map(Secret).ok_or_else(|| SecretError::NoText { arn: arn.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neither_debug_nor_an_error_shows_a_secret() {
        let secret = Secret::new(r#"{"kid": "canary"}"#.into());
        assert!(!format!("{secret:?}").contains("canary"));
        let error = secret.json::<std::collections::BTreeMap<String, u8>>().unwrap_err();
        assert!(!format!("{error} {error:?}").contains("canary"));
        assert!(matches!(error, SecretError::Shape { line: 1, column: 16 }), "{error:?}");
    }
}
