//! Tokens for those who hold the key: an HS256 key is shared by whoever signs and whoever verifies.

use clap::{Args, ValueEnum};
use jsonwebtoken::{Algorithm, EncodingKey, Header};
use serde::Serialize;

use crate::cli::id;
use crate::failure::{Ending, Failure};
use crate::show::Out;
use crate::target::{Jwt, Target};

/// The longest life of a token that is made by hand.
const MAX_LIFE_SECS: u32 = 31_536_000;

#[derive(Args)]
#[command(after_help = "With HOTCAKE_JWT_SECRET set, HOTCAKE_JWT_KID, HOTCAKE_JWT_ISS, HOTCAKE_JWT_AUD and \
                        HOTCAKE_JWT_ADMIN_AUD are needed too, as the deployment has them.")]
pub(crate) struct Wanted {
    /// Whose token it is
    #[arg(value_parser = id)]
    user: String,
    #[arg(long, value_enum, default_value_t = Role::User)]
    role: Role,
    /// How long it lives
    #[arg(long, value_name = "SECS", default_value_t = 3_600, value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_LIFE_SECS)))]
    seconds: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
enum Role {
    User,
    Agent,
    Admin,
}

#[derive(Serialize)]
struct Claims<'a> {
    iss: &'a str,
    aud: &'a str,
    sub: &'a str,
    role: Role,
    iat: i64,
    exp: i64,
}

pub(crate) fn run(wanted: &Wanted, target: &Target, out: &Out) -> Result<Ending, Failure> {
    let environment = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty() && !target.says_local());
    let jwt = match from_environment(environment)? {
        Some(jwt) => jwt,
        None if target.url().is_some() => {
            return Err(Failure::Misused("the key of that deployment is needed: set HOTCAKE_JWT_SECRET".to_owned()));
        }
        None => target.outputs()?.jwt,
    };
    out.line(sign(wanted, &jwt, jiff::Timestamp::now().as_second())?)?;
    Ok(Ending::Right)
}

/// The key that the environment has, if it has one.
fn from_environment(read: impl Fn(&str) -> Option<String>) -> Result<Option<Jwt>, Failure> {
    let Some(secret) = read("HOTCAKE_JWT_SECRET") else { return Ok(None) };
    let needed = |name: &str| {
        read(name).ok_or_else(|| Failure::Misused(format!("HOTCAKE_JWT_SECRET is set, and {name} is not")))
    };
    Ok(Some(Jwt {
        secret,
        kid: needed("HOTCAKE_JWT_KID")?,
        iss: needed("HOTCAKE_JWT_ISS")?,
        aud: needed("HOTCAKE_JWT_AUD")?,
        admin_aud: needed("HOTCAKE_JWT_ADMIN_AUD")?,
    }))
}

fn sign(wanted: &Wanted, jwt: &Jwt, now_secs: i64) -> Result<String, Failure> {
    let unusable = |error: jsonwebtoken::errors::Error| Failure::Misused(format!("the key cannot be used: {error}"));
    let header = Header { kid: Some(jwt.kid.clone()), ..Header::new(Algorithm::HS256) };
    let claims = Claims {
        iss: &jwt.iss,
        aud: if wanted.role == Role::Admin { &jwt.admin_aud } else { &jwt.aud },
        sub: &wanted.user,
        role: wanted.role,
        iat: now_secs,
        exp: now_secs + i64::from(wanted.seconds),
    };
    let key = EncodingKey::from_secret(jwt.secret.as_bytes()).map_err(unusable)?;
    jsonwebtoken::encode(&header, &claims, &key).map_err(unusable)
}

#[cfg(test)]
mod tests {
    use jsonwebtoken::{DecodingKey, Validation, decode, decode_header};
    use serde_json::{Value, json};

    use super::*;

    const NOW: i64 = 4_102_444_800;

    fn environment(name: &str) -> Option<String> {
        name.strip_prefix("HOTCAKE_JWT_").map(|name| format!("the-{}-of-the-environment", name.to_lowercase()))
    }

    fn claims(role: Role) -> Value {
        let Ok(Some(jwt)) = from_environment(environment) else { panic!() };
        let wanted = Wanted { user: "u1".into(), role, seconds: 60 };
        let token = sign(&wanted, &jwt, NOW).unwrap();
        assert_eq!(decode_header(&token).unwrap().kid, Some(jwt.kid));
        let mut rules = Validation::new(Algorithm::HS256);
        rules.validate_aud = false;
        decode::<Value>(&token, &DecodingKey::from_secret(jwt.secret.as_bytes()).unwrap(), &rules).unwrap().claims
    }

    #[test]
    fn a_token_is_made_out_to_what_its_role_may_enter() {
        assert_eq!(
            claims(Role::User),
            json!({
                "iss": "the-iss-of-the-environment", "aud": "the-aud-of-the-environment", "sub": "u1", "role": "user",
                "iat": NOW, "exp": NOW + 60,
            })
        );
        assert_eq!(claims(Role::Agent)["aud"], "the-aud-of-the-environment");
        assert_eq!(claims(Role::Admin)["aud"], "the-admin_aud-of-the-environment");
    }

    #[test]
    fn half_a_key_is_none() {
        assert!(matches!(from_environment(|_| None), Ok(None)));
        let Err(failure) = from_environment(|name| environment(name).filter(|_| name != "HOTCAKE_JWT_AUD")) else {
            panic!("there is no audience")
        };
        assert!(failure.to_string().contains("HOTCAKE_JWT_AUD is not"), "{failure}");
        assert!(!failure.to_string().contains("of-the-environment"));
    }
}
