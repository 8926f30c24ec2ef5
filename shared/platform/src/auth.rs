//! Who calls: JSON Web Tokens, verified inside each function.
//!
//! A token names its key by `kid`, and each key has one algorithm, pinned where the key is configured: what the token says
//! about algorithms is compared with it and never believed. Up to two keys are live at once, so that they can be rotated.
//! `iss`, `aud`, `sub`, `exp` and `role` are required and `nbf` is honoured, by the [`kernel::time::Clock`] of the caller and
//! not by the library's: a test can move it. Admin tokens have an audience of their own, so that a token issued for shopping
//! cannot administer, whatever role it claims.

use std::fmt;

use jsonwebtoken::errors::ErrorKind;
use jsonwebtoken::{Algorithm, DecodingKey, Validation};
use kernel::ids::UserId;
use kernel::time::UnixMillis;
use serde::Deserialize;

use crate::config::{Env, FromEnv, Noted};
use crate::secrets::{Secret, SecretError};

/// How far the issuer's clock and ours may be apart.
const LEEWAY_SECS: i64 = 30;
/// The longest token that is looked at, in bytes. Ours have some 300.
const MAX_TOKEN_BYTES: usize = 4 * 1024;
/// Keys that may be live at once: the current one, and the next or previous one.
const MAX_KEYS: usize = 2;
/// The shortest HS256 key, in bytes: as long as the hash (RFC 7518, 3.2).
const MIN_HMAC_KEY_BYTES: usize = 32;
/// An uncompressed point on P-256. Any other curve cannot be ES256.
const P256_PUBLIC_KEY_BYTES: usize = 65;

/// Whose tokens are accepted.
#[derive(Debug, Clone)]
pub struct AuthConfig {
    /// A secret with one key, or an array of up to two: `{"kid", "alg": "HS256" | "ES256" | "EdDSA", "key"}`, where `key` is
    /// the shared secret, or the public key as PEM.
    pub secret_arn: String,
    pub issuer: String,
    /// The audience of users and agents.
    pub audience: String,
    pub admin_audience: String,
}

impl FromEnv for AuthConfig {
    fn from_env(env: &mut Env<'_>) -> Result<Self, Noted> {
        let (secret_arn, issuer) = (env.required("AUTH_SECRET_ARN"), env.required("AUTH_ISSUER"));
        let (audience, admin_audience) = (env.required("AUTH_AUDIENCE"), env.required("AUTH_ADMIN_AUDIENCE"));
        Ok(Self { secret_arn: secret_arn?, issuer: issuer?, audience: audience?, admin_audience: admin_audience? })
    }
}

/// What a caller may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    User,
    Agent,
    Admin,
}

/// A caller whose token was verified.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Principal {
    pub role: Role,
    pub id: UserId,
    /// From when on the token is refused: its `exp`, and the leeway after it. A connection made with it ends then too, so
    /// that nothing is open to it on a socket that is closed over HTTP, or the other way round.
    pub expires_at: UnixMillis,
}

/// Why a token was refused. For the log: a client is told no more than that it was.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum AuthError {
    #[error("no bearer token")]
    Missing,
    #[error("not a token, or one with a claim missing or of the wrong type")]
    Malformed,
    #[error("no such key")]
    UnknownKey,
    #[error("another algorithm than the key's")]
    Algorithm,
    #[error("wrong signature")]
    Signature,
    #[error("another issuer")]
    Issuer,
    #[error("another audience")]
    Audience,
    #[error("expired")]
    Expired,
    #[error("not valid yet")]
    NotYetValid,
}

/// Why the keys cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    #[error("the authentication keys cannot be read")]
    Secret(#[from] SecretError),
    #[error("there must be one or two authentication keys, with different kids")]
    Count,
    #[error("the authentication key {kid:?} does not fit its algorithm")]
    Key { kid: String },
}

#[derive(Deserialize)]
#[serde(untagged)]
enum KeyDocuments {
    One(KeyDocument),
    Several(Vec<KeyDocument>),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct KeyDocument {
    kid: String,
    alg: PinnedAlgorithm,
    key: String,
}

#[derive(Clone, Copy, Deserialize)]
enum PinnedAlgorithm {
    #[serde(rename = "HS256")]
    Hs256,
    #[serde(rename = "ES256")]
    Es256,
    #[serde(rename = "EdDSA")]
    EdDsa,
}

struct Key {
    kid: String,
    key: DecodingKey,
    validation: Validation,
}

impl Key {
    fn new(document: KeyDocument) -> Result<Self, KeyError> {
        let KeyDocument { kid, alg, key } = document;
        let material = key.as_bytes();
        let (algorithm, key) = match alg {
            PinnedAlgorithm::Hs256 if material.len() < MIN_HMAC_KEY_BYTES => {
                return Err(KeyError::Key { kid });
            }
            PinnedAlgorithm::Hs256 => (Algorithm::HS256, DecodingKey::from_secret(material)),
            PinnedAlgorithm::Es256 => (Algorithm::ES256, DecodingKey::from_ec_pem(material)),
            PinnedAlgorithm::EdDsa => (Algorithm::EdDSA, DecodingKey::from_ed_pem(material)),
        };
        let fits = |key: &DecodingKey| match alg {
            PinnedAlgorithm::Es256 => key.try_get_as_bytes().is_ok_and(|point| point.len() == P256_PUBLIC_KEY_BYTES),
            PinnedAlgorithm::Hs256 | PinnedAlgorithm::EdDsa => true,
        };
        match key {
            Ok(key) if fits(&key) => Ok(Self { kid, key, validation: signature_only(algorithm) }),
            Ok(_) | Err(_) => Err(KeyError::Key { kid }),
        }
    }
}

/// The library checks form, algorithm and signature. It reads the system's clock for `exp`, ignores `nbf` by default, and skips
/// claims that are absent: all claims are judged in [`Verifier::verify`].
fn signature_only(algorithm: Algorithm) -> Validation {
    let mut validation = Validation::new(algorithm);
    validation.required_spec_claims.clear();
    validation.validate_exp = false;
    validation.validate_nbf = false;
    validation.validate_aud = false;
    validation
}

#[derive(Deserialize)]
struct Claims {
    iss: String,
    aud: Audience,
    sub: UserId,
    exp: NumericDate,
    nbf: Option<NumericDate>,
    role: Role,
}

/// One audience, or several of which ours must be one (RFC 7519, 4.1.3).
#[derive(Deserialize)]
#[serde(untagged)]
enum Audience {
    One(String),
    Several(Vec<String>),
}

impl Audience {
    fn names(&self, audience: &str) -> bool {
        match self {
            Self::One(one) => one == audience,
            Self::Several(several) => several.iter().any(|one| one == audience),
        }
    }
}

/// Seconds since 1970, possibly with a fraction (RFC 7519, 2). A text is none.
#[derive(Clone, Copy, Deserialize)]
#[serde(transparent)]
struct NumericDate(f64);

impl NumericDate {
    fn instant(self) -> UnixMillis {
        // A cast of a float saturates: the far future stays there.
        UnixMillis::new((self.0 * 1_000.0) as i64)
    }
}

/// Verifies tokens. Built once, at start.
pub struct Verifier {
    keys: Vec<Key>,
    issuer: String,
    audience: String,
    admin_audience: String,
}

impl fmt::Debug for Verifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kids: Vec<&str> = self.keys.iter().map(|key| key.kid.as_str()).collect();
        f.debug_struct("Verifier").field("kids", &kids).field("issuer", &self.issuer).finish_non_exhaustive()
    }
}

impl Verifier {
    pub fn new(config: &AuthConfig, keys: &Secret) -> Result<Self, KeyError> {
        let documents = match keys.json()? {
            KeyDocuments::One(document) => vec![document],
            KeyDocuments::Several(documents) => documents,
        };
        let keys = documents.into_iter().map(Key::new).collect::<Result<Vec<_>, _>>()?;
        let distinct = match keys.as_slice() {
            [first, second] => first.kid != second.kid,
            keys => keys.len() < MAX_KEYS,
        };
        if keys.is_empty() || !distinct {
            return Err(KeyError::Count);
        }
        let AuthConfig { issuer, audience, admin_audience, .. } = config.clone();
        Ok(Self { keys, issuer, audience, admin_audience })
    }

    /// Judges a token as of `now`.
    pub fn verify(&self, token: &str, now: UnixMillis) -> Result<Principal, AuthError> {
        if token.len() > MAX_TOKEN_BYTES {
            return Err(AuthError::Malformed);
        }
        let header = jsonwebtoken::decode_header(token).map_err(|_| AuthError::Malformed)?;
        let kid = header.kid.ok_or(AuthError::UnknownKey)?;
        let key = self.keys.iter().find(|key| key.kid == kid).ok_or(AuthError::UnknownKey)?;
        let claims = jsonwebtoken::decode::<Claims>(token, &key.key, &key.validation)
            .map_err(|error| match error.kind() {
                ErrorKind::InvalidAlgorithm => AuthError::Algorithm,
                ErrorKind::InvalidSignature => AuthError::Signature,
                _ => AuthError::Malformed,
            })?
            .claims;

        let audience = match claims.role {
            Role::User | Role::Agent => &self.audience,
            Role::Admin => &self.admin_audience,
        };
        if claims.iss != self.issuer {
            return Err(AuthError::Issuer);
        }
        if !claims.aud.names(audience) {
            return Err(AuthError::Audience);
        }
        let expires_at = claims.exp.instant().plus_secs(LEEWAY_SECS);
        if now >= expires_at {
            return Err(AuthError::Expired);
        }
        if claims.nbf.is_some_and(|nbf| now.plus_secs(LEEWAY_SECS) < nbf.instant()) {
            return Err(AuthError::NotYetValid);
        }
        Ok(Principal { role: claims.role, id: claims.sub, expires_at })
    }
}

/// The token in an `Authorization` header (RFC 6750, 2.1; the scheme's name in any case).
pub fn bearer(authorization: Option<&str>) -> Result<&str, AuthError> {
    let (scheme, token) = authorization.and_then(|value| value.trim().split_once(' ')).ok_or(AuthError::Missing)?;
    let token = token.trim_start();
    if scheme.eq_ignore_ascii_case("bearer") && !token.is_empty() { Ok(token) } else { Err(AuthError::Missing) }
}

#[cfg(test)]
mod tests;
