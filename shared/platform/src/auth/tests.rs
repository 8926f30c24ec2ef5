//! Tokens that are accepted, and the many that are not (cases P38).

use aws_lc_rs::encoding::{AsDer, PublicKeyX509Der};
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, ECDSA_P384_SHA384_FIXED_SIGNING, EcdsaKeyPair, EcdsaSigningAlgorithm,
    Ed25519KeyPair, KeyPair,
};
use data_encoding::{BASE64, BASE64URL_NOPAD};
use jsonwebtoken::{EncodingKey, Header};
use serde_json::{Value, json};

use super::*;

const NOW: UnixMillis = UnixMillis::new(1_780_000_000_000);
const NOW_SECS: i64 = 1_780_000_000;
const SECRET: &str = "a shared secret of more than thirty-two bytes";
const OTHER_SECRET: &str = "another secret of more than thirty-two bytes";

fn config() -> AuthConfig {
    AuthConfig {
        secret_arn: String::new(),
        issuer: "https://issuer.test".into(),
        audience: "shop".into(),
        admin_audience: "shop-admin".into(),
    }
}

fn verifier(keys: &Value) -> Result<Verifier, KeyError> {
    Verifier::new(&config(), &Secret::new(keys.to_string()))
}

fn hs256_key() -> Value {
    json!({"kid": "k1", "alg": "HS256", "key": SECRET})
}

/// Claims of a user, with changes; `null` takes a claim out.
fn claims(changes: Value) -> Value {
    let mut claims =
        json!({"iss": "https://issuer.test", "aud": "shop", "sub": "u1", "role": "user", "exp": NOW_SECS + 600});
    for (name, value) in changes.as_object().unwrap() {
        match value {
            Value::Null => claims.as_object_mut().unwrap().remove(name),
            value => claims.as_object_mut().unwrap().insert(name.clone(), value.clone()),
        };
    }
    claims
}

fn token(algorithm: Algorithm, kid: Option<&str>, key: &EncodingKey, claims: &Value) -> String {
    let header = Header { kid: kid.map(str::to_owned), ..Header::new(algorithm) };
    jsonwebtoken::encode(&header, claims, key).unwrap()
}

fn signed(secret: &str, claims: &Value) -> String {
    token(Algorithm::HS256, Some("k1"), &EncodingKey::from_secret(secret.as_bytes()).unwrap(), claims)
}

/// A token with a header of our own making, and a signature that the key would make.
fn crafted(header: &Value, claims: &Value) -> String {
    let part = |value: &Value| BASE64URL_NOPAD.encode(value.to_string().as_bytes());
    let message = format!("{}.{}", part(header), part(claims));
    let key = EncodingKey::from_secret(SECRET.as_bytes()).unwrap();
    let signature = jsonwebtoken::crypto::sign(message.as_bytes(), &key, Algorithm::HS256).unwrap();
    format!("{message}.{signature}")
}

fn pem(public_key: &impl AsDer<PublicKeyX509Der<'static>>) -> String {
    let der = public_key.as_der().unwrap();
    format!("-----BEGIN PUBLIC KEY-----\n{}\n-----END PUBLIC KEY-----\n", BASE64.encode(der.as_ref()))
}

/// A private key to sign with, and its public key as PEM.
fn ec_key(curve: &'static EcdsaSigningAlgorithm) -> (EncodingKey, String) {
    let document = EcdsaKeyPair::generate_pkcs8(curve, &SystemRandom::new()).unwrap();
    let pair = EcdsaKeyPair::from_pkcs8(curve, document.as_ref()).unwrap();
    (EncodingKey::from_ec_der(document.as_ref()), pem(pair.public_key()))
}

fn ed_key() -> (EncodingKey, String) {
    let document = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).unwrap();
    let pair = Ed25519KeyPair::from_pkcs8(document.as_ref()).unwrap();
    (EncodingKey::from_ed_der(document.as_ref()), pem(pair.public_key()))
}

#[test]
fn each_pinned_algorithm_is_accepted() {
    let (es_private, es_public) = ec_key(&ECDSA_P256_SHA256_FIXED_SIGNING);
    let (ed_private, ed_public) = ed_key();
    let expected =
        Principal { role: Role::User, id: "u1".parse().unwrap(), expires_at: NOW.plus_secs(600 + LEEWAY_SECS) };

    let hs = verifier(&hs256_key()).unwrap();
    assert_eq!(hs.verify(&signed(SECRET, &claims(json!({}))), NOW), Ok(expected.clone()));

    // Two keys are live during a rotation, here with two algorithms.
    let both = verifier(&json!([
        {"kid": "es", "alg": "ES256", "key": es_public},
        {"kid": "ed", "alg": "EdDSA", "key": ed_public},
    ]))
    .unwrap();
    let es_token = token(Algorithm::ES256, Some("es"), &es_private, &claims(json!({})));
    let ed_token = token(Algorithm::EdDSA, Some("ed"), &ed_private, &claims(json!({})));
    assert_eq!(both.verify(&es_token, NOW), Ok(expected.clone()));
    assert_eq!(both.verify(&ed_token, NOW), Ok(expected));

    // Each under the other's name.
    let es_as_ed = token(Algorithm::ES256, Some("ed"), &es_private, &claims(json!({})));
    let ed_as_es = token(Algorithm::EdDSA, Some("es"), &ed_private, &claims(json!({})));
    assert_eq!(both.verify(&es_as_ed, NOW), Err(AuthError::Algorithm));
    assert_eq!(both.verify(&ed_as_es, NOW), Err(AuthError::Algorithm));
}

#[test]
fn roles_have_their_audiences() {
    let verifier = verifier(&hs256_key()).unwrap();
    let role = |changes: Value| verifier.verify(&signed(SECRET, &claims(changes)), NOW).map(|principal| principal.role);

    assert_eq!(role(json!({"role": "user"})), Ok(Role::User));
    assert_eq!(role(json!({"role": "agent"})), Ok(Role::Agent));
    assert_eq!(role(json!({"role": "admin", "aud": "shop-admin"})), Ok(Role::Admin));
    assert_eq!(role(json!({"aud": ["elsewhere", "shop"]})), Ok(Role::User));

    assert_eq!(role(json!({"role": "admin", "aud": "shop"})), Err(AuthError::Audience));
    assert_eq!(role(json!({"role": "user", "aud": "shop-admin"})), Err(AuthError::Audience));
    assert_eq!(role(json!({"role": "agent", "aud": "shop-admin"})), Err(AuthError::Audience));
}

#[test]
fn claims_are_required_and_judged_by_the_clock_that_is_passed_in() {
    let verifier = verifier(&hs256_key()).unwrap();
    let cases: &[(&str, Value, Result<(), AuthError>)] = &[
        ("as issued", json!({}), Ok(())),
        ("unknown claims are ignored", json!({"scope": "all"}), Ok(())),
        ("no exp", json!({"exp": null}), Err(AuthError::Malformed)),
        ("exp as text", json!({"exp": (NOW_SECS + 600).to_string()}), Err(AuthError::Malformed)),
        ("exp as object", json!({"exp": {}}), Err(AuthError::Malformed)),
        ("exp with a fraction", json!({"exp": NOW_SECS as f64 + 0.5}), Ok(())),
        ("exp passed, within the leeway", json!({"exp": NOW_SECS - 29}), Ok(())),
        ("exp passed by the leeway", json!({"exp": NOW_SECS - 30}), Err(AuthError::Expired)),
        ("exp long passed", json!({"exp": 0}), Err(AuthError::Expired)),
        ("exp negative", json!({"exp": -1}), Err(AuthError::Expired)),
        ("exp beyond any calendar", json!({"exp": 1e300}), Ok(())),
        ("nbf reached", json!({"nbf": NOW_SECS}), Ok(())),
        ("nbf ahead, within the leeway", json!({"nbf": NOW_SECS + 30}), Ok(())),
        ("nbf ahead", json!({"nbf": NOW_SECS + 31}), Err(AuthError::NotYetValid)),
        ("nbf as text", json!({"nbf": "0"}), Err(AuthError::Malformed)),
        ("no aud", json!({"aud": null}), Err(AuthError::Malformed)),
        ("other aud", json!({"aud": "elsewhere"}), Err(AuthError::Audience)),
        ("empty aud", json!({"aud": []}), Err(AuthError::Audience)),
        ("no iss", json!({"iss": null}), Err(AuthError::Malformed)),
        ("other iss", json!({"iss": "https://issuer.test/"}), Err(AuthError::Issuer)),
        ("several iss", json!({"iss": ["https://issuer.test"]}), Err(AuthError::Malformed)),
        ("no sub", json!({"sub": null}), Err(AuthError::Malformed)),
        ("empty sub", json!({"sub": ""}), Err(AuthError::Malformed)),
        ("sub with a separator", json!({"sub": "u1|x"}), Err(AuthError::Malformed)),
        ("no role", json!({"role": null}), Err(AuthError::Malformed)),
        ("unknown role", json!({"role": "root"}), Err(AuthError::Malformed)),
    ];
    for (name, changes, expected) in cases {
        let outcome = verifier.verify(&signed(SECRET, &claims(changes.clone())), NOW).map(|_| ());
        assert_eq!(&outcome, expected, "{name}");
    }
}

#[test]
fn nothing_a_token_says_about_itself_is_believed() {
    let (es_private, es_public) = ec_key(&ECDSA_P256_SHA256_FIXED_SIGNING);
    let verifier = verifier(&json!([hs256_key(), {"kid": "es", "alg": "ES256", "key": es_public}])).unwrap();
    let good = claims(json!({}));
    let genuine = signed(SECRET, &good);
    let (message, signature) = genuine.rsplit_once('.').unwrap();
    let (header, payload) = message.split_once('.').unwrap();
    let forged_payload = BASE64URL_NOPAD.encode(claims(json!({"sub": "u2"})).to_string().as_bytes());
    let none = BASE64URL_NOPAD.encode(br#"{"alg":"none","kid":"k1"}"#);
    // The public key, which everybody may know, taken for a shared secret.
    let confused = token(Algorithm::HS256, Some("es"), &EncodingKey::from_secret(es_public.as_bytes()).unwrap(), &good);

    let cases: Vec<(&str, String, AuthError)> = vec![
        ("alg none, no signature", format!("{none}.{payload}."), AuthError::Malformed),
        ("alg none, signed", format!("{none}.{payload}.{signature}"), AuthError::Malformed),
        ("a public key as HMAC secret", confused, AuthError::Algorithm),
        ("RS256 claimed for an HS256 key", crafted(&json!({"alg": "RS256", "kid": "k1"}), &good), AuthError::Algorithm),
        ("HS512 claimed for an HS256 key", crafted(&json!({"alg": "HS512", "kid": "k1"}), &good), AuthError::Algorithm),
        ("no kid", crafted(&json!({"alg": "HS256"}), &good), AuthError::UnknownKey),
        ("unknown kid", crafted(&json!({"alg": "HS256", "kid": "k9"}), &good), AuthError::UnknownKey),
        ("kid as number", crafted(&json!({"alg": "HS256", "kid": 1}), &good), AuthError::Malformed),
        (
            "critical extension",
            crafted(&json!({"alg": "HS256", "kid": "k1", "crit": ["x"], "x": 1}), &good),
            AuthError::Malformed,
        ),
        ("another key", signed(OTHER_SECRET, &good), AuthError::Signature),
        ("the other key's name", token(Algorithm::ES256, Some("k1"), &es_private, &good), AuthError::Algorithm),
        ("payload exchanged", format!("{header}.{forged_payload}.{signature}"), AuthError::Signature),
        ("signature cut off", format!("{message}."), AuthError::Signature),
        ("signature shortened", genuine[..genuine.len() - 4].to_owned(), AuthError::Signature),
        ("two parts", message.to_owned(), AuthError::Malformed),
        ("four parts", format!("{genuine}.x"), AuthError::Malformed),
        ("claims as array", signed(SECRET, &json!([1])), AuthError::Malformed),
        ("nothing", String::new(), AuthError::Malformed),
        ("a word", "token".into(), AuthError::Malformed),
        ("an endless one", "x".repeat(MAX_TOKEN_BYTES + 1), AuthError::Malformed),
    ];
    assert!(verifier.verify(&genuine, NOW).is_ok());
    for (name, token, expected) in cases {
        assert_eq!(verifier.verify(&token, NOW), Err(expected), "{name}");
    }
}

#[test]
fn keys_that_cannot_work_stop_the_start() {
    let (_, p384_public) = ec_key(&ECDSA_P384_SHA384_FIXED_SIGNING);
    let (_, es_public) = ec_key(&ECDSA_P256_SHA256_FIXED_SIGNING);
    let second = json!({"kid": "k2", "alg": "HS256", "key": OTHER_SECRET});
    let third = json!({"kid": "k3", "alg": "HS256", "key": OTHER_SECRET});
    assert!(verifier(&json!([hs256_key()])).is_ok());
    assert!(verifier(&json!([hs256_key(), second])).is_ok());
    for (name, keys) in [
        ("none", json!([])),
        ("three", json!([hs256_key(), second, third])),
        ("one kid twice", json!([hs256_key(), hs256_key()])),
    ] {
        assert!(matches!(verifier(&keys), Err(KeyError::Count)), "{name}");
    }
    for (name, key) in [
        ("short secret", json!({"kid": "k", "alg": "HS256", "key": "short"})),
        ("no PEM", json!({"kid": "k", "alg": "ES256", "key": "canary"})),
        ("another curve", json!({"kid": "k", "alg": "ES256", "key": p384_public})),
        ("another family", json!({"kid": "k", "alg": "EdDSA", "key": es_public})),
    ] {
        let error = verifier(&key).unwrap_err();
        assert!(matches!(&error, KeyError::Key { kid } if kid == "k"), "{name}: {error}");
        assert!(!error.to_string().contains("canary"));
    }
    for (name, keys) in [
        ("unknown algorithm", json!({"kid": "k", "alg": "none", "key": ""})),
        ("no algorithm", json!({"kid": "k", "key": SECRET})),
        ("unknown member", json!({"kid": "k", "alg": "HS256", "key": SECRET, "use": "sig"})),
        ("text", json!("key")),
    ] {
        assert!(matches!(verifier(&keys), Err(KeyError::Secret(_))), "{name}");
    }
}

#[test]
fn the_verifier_shows_no_key() {
    let text = format!("{:?}", verifier(&hs256_key()).unwrap());
    assert!(text.contains("k1") && !text.contains(SECRET), "{text}");
}

#[test]
fn bearer_tokens_are_found() {
    for good in ["Bearer abc", "bearer abc", "BEARER  abc", " Bearer abc "] {
        assert_eq!(bearer(Some(good)), Ok("abc"), "{good:?}");
    }
    for bad in [None, Some(""), Some("abc"), Some("Bearer"), Some("Bearer "), Some("Basic abc")] {
        assert_eq!(bearer(bad), Err(AuthError::Missing), "{bad:?}");
    }
}
