//! Bearer tokens, good ones and bad ones.
//!
//! Locally tokens are HS256 with a key that everybody knows. A test of bad tokens starts from a good one and changes the
//! one thing it is about; header and claims are plain JSON here, so that anything can be put into them.

use std::fmt;
use std::time::Duration;

use data_encoding::BASE64URL_NOPAD;
use jiff::Timestamp;
use jsonwebtoken::{Algorithm, EncodingKey, crypto};
use serde_json::{Map, Value, json};

use crate::{ClientError, Jwt, Secret};

/// How long a token lives unless said otherwise, in seconds.
const DEFAULT_LIFE_SECS: i64 = 3_600;

/// What the caller is allowed to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    User,
    Agent,
    Admin,
}

impl Role {
    const fn as_str(self) -> &'static str {
        match self {
            Self::User => "user",
            Self::Agent => "agent",
            Self::Admin => "admin",
        }
    }
}

/// A token, hidden from logs.
#[derive(Clone)]
pub struct Token(Secret);

impl Token {
    /// A text as it stands, token or not.
    pub fn from_text(text: impl Into<String>) -> Self {
        Self(Secret::new(text))
    }

    pub fn text(&self) -> &str {
        self.0.reveal()
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(…)")
    }
}

/// A token in the making.
#[derive(Debug, Clone)]
pub struct TokenBuilder {
    header: Map<String, Value>,
    claims: Map<String, Value>,
    secret: Secret,
}

impl TokenBuilder {
    /// Valid for an hour, made out to the audience that `role` has.
    pub fn new(jwt: &Jwt, role: Role, subject: &str) -> Self {
        let audience = match role {
            Role::User | Role::Agent => &jwt.aud,
            Role::Admin => &jwt.admin_aud,
        };
        let builder = Self { header: Map::new(), claims: Map::new(), secret: jwt.secret.clone() };
        builder
            .header("alg", "HS256")
            .header("typ", "JWT")
            .header("kid", jwt.kid.as_str())
            .claim("iss", jwt.iss.as_str())
            .claim("aud", audience.as_str())
            .claim("sub", subject)
            .claim("role", role.as_str())
            .claim("exp", Timestamp::now().as_second() + DEFAULT_LIFE_SECS)
    }

    /// Sets one member of the header, whatever is signed with.
    #[must_use]
    pub fn header(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.header.insert(name.to_owned(), value.into());
        self
    }

    /// Sets one claim, to any JSON value.
    #[must_use]
    pub fn claim(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.claims.insert(name.to_owned(), value.into());
        self
    }

    /// Leaves one claim out.
    #[must_use]
    pub fn without(mut self, name: &str) -> Self {
        self.claims.remove(name);
        self
    }

    #[must_use]
    pub fn expires_in(self, life: Duration) -> Self {
        self.claim("exp", seconds_from_now(life, 1))
    }

    #[must_use]
    pub fn expired_since(self, age: Duration) -> Self {
        self.claim("exp", seconds_from_now(age, -1))
    }

    /// Not valid until then.
    #[must_use]
    pub fn valid_in(self, wait: Duration) -> Self {
        self.claim("nbf", seconds_from_now(wait, 1))
    }

    /// Signs with another key than the stack knows.
    #[must_use]
    pub fn secret(mut self, text: &str) -> Self {
        self.secret = Secret::new(text);
        self
    }

    /// HMAC-SHA256 over header and claims, also when the header names another algorithm: that is how a key confusion is
    /// tried.
    pub fn sign(&self) -> Result<Token, ClientError> {
        let message = self.message();
        let key = EncodingKey::from_secret(self.secret.reveal().as_bytes()).map_err(ClientError::Token)?;
        let signature = crypto::sign(message.as_bytes(), &key, Algorithm::HS256).map_err(ClientError::Token)?;
        Ok(Token::from_text(format!("{message}.{signature}")))
    }

    /// `alg: none`, with an empty signature.
    pub fn unsigned(self) -> Token {
        let unsigned = self.header("alg", "none");
        Token::from_text(format!("{}.", unsigned.message()))
    }

    fn message(&self) -> String {
        let [header, claims] =
            [&self.header, &self.claims].map(|part| BASE64URL_NOPAD.encode(json!(part).to_string().as_bytes()));
        format!("{header}.{claims}")
    }
}

fn seconds_from_now(distance: Duration, sign: i64) -> i64 {
    Timestamp::now()
        .as_second()
        .saturating_add(sign.saturating_mul(i64::try_from(distance.as_secs()).unwrap_or(i64::MAX)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use jsonwebtoken::{DecodingKey, Validation, decode, decode_header};

    fn jwt() -> Jwt {
        Jwt {
            kid: "local".into(),
            secret: Secret::new("canary-key"),
            iss: "https://hotcake.local".into(),
            aud: "hotcake".into(),
            admin_aud: "hotcake-admin".into(),
        }
    }

    fn verify(token: &Token, audience: &str) -> Result<Map<String, Value>, jsonwebtoken::errors::Error> {
        let mut rules = Validation::new(Algorithm::HS256);
        rules.set_audience(&[audience]);
        rules.set_issuer(&["https://hotcake.local"]);
        decode::<Map<String, Value>>(token.text(), &DecodingKey::from_secret(b"canary-key").unwrap(), &rules)
            .map(|data| data.claims)
    }

    #[test]
    fn a_good_token_verifies_and_names_role_and_key() {
        let token = TokenBuilder::new(&jwt(), Role::User, "u1").sign().unwrap();
        let claims = verify(&token, "hotcake").unwrap();
        assert_eq!((&claims["sub"], &claims["role"]), (&json!("u1"), &json!("user")));
        assert_eq!(decode_header(token.text()).unwrap().kid.as_deref(), Some("local"));
        assert!(!format!("{token:?}").contains(token.text()));
    }

    #[test]
    fn admins_have_an_audience_of_their_own() {
        let token = TokenBuilder::new(&jwt(), Role::Admin, "root").sign().unwrap();
        assert!(verify(&token, "hotcake-admin").is_ok());
        assert!(verify(&token, "hotcake").is_err());
    }

    #[test]
    fn each_bad_token_is_bad() {
        let good = TokenBuilder::new(&jwt(), Role::User, "u1");
        let bad = [
            good.clone().expired_since(Duration::from_secs(600)).sign().unwrap(),
            good.clone().secret("another").sign().unwrap(),
            good.clone().claim("iss", "https://elsewhere").sign().unwrap(),
            good.clone().without("exp").sign().unwrap(),
            good.clone().unsigned(),
            Token::from_text("not.a.token"),
        ];
        for token in bad {
            assert!(verify(&token, "hotcake").is_err(), "{}", token.text());
        }
    }
}
