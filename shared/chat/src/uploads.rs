//! Images: how they get into the bucket, and out again.
//!
//! No image passes through a function. A client that wants to send one gets a form, signed for one key, one type and a size
//! at most, and posts it to S3; whoever is to see it gets a link, signed for one key. Both are good for a while and cannot be
//! taken back, so the while is short, and a link is made anew whenever a message is delivered.
//!
//! A signature is worth what its signer may do: the function's role needs `s3:PutObject` for forms and `s3:GetObject` for
//! links. The role's own credentials end too, and with them what they signed; its session token is part of both.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use aws_lc_rs::digest;
use aws_sdk_dynamodb::config::{Credentials, ProvideCredentials, SharedCredentialsProvider};
use aws_sigv4::sign::v4::{calculate_signature, generate_signing_key};
use data_encoding::{BASE64, HEXLOWER};
use kernel::time::{Rfc3339, UnixMillis};
use serde_json::json;

use crate::message::ImageKey;

/// The largest image, in bytes (5 MiB).
pub const MAX_IMAGE_BYTES: u64 = 5 * 1024 * 1024;
/// How long a form is good: an upload has to begin within it.
pub const FORM_SECS: i64 = 5 * 60;
/// How long a link is good.
pub const LINK_SECS: i64 = 60 * 60;

const SERVICE: &str = "s3";
const ALGORITHM: &str = "AWS4-HMAC-SHA256";

/// There is nothing to sign with.
#[derive(Debug, thiserror::Error)]
#[error("the function's own credentials cannot be had")]
pub struct CredentialsError(#[source] Box<dyn std::error::Error + Send + Sync>);

/// An address that no bucket can have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("must be https://<host> or http://<host>/<bucket>, without a slash at the end")]
pub struct BucketUrlError;

/// Where the keys of a bucket begin: `https://<bucket>.s3.<region>.amazonaws.com` on AWS, `http://<endpoint>/<bucket>` on the
/// local stack, which has one name for all buckets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BucketUrl {
    url: String,
    /// What a client will say in its `Host` header.
    host: String,
    /// Before the key: nothing, or a slash and the bucket.
    path: String,
}

impl std::str::FromStr for BucketUrl {
    type Err = BucketUrlError;

    fn from_str(url: &str) -> Result<Self, BucketUrlError> {
        let (scheme, rest) = url.split_once("://").ok_or(BucketUrlError)?;
        let (host, path) = rest.find('/').map_or((rest, ""), |slash| rest.split_at(slash));
        let plain = |text: &str| text.bytes().all(|byte| is_unreserved(byte) || matches!(byte, b'/' | b':'));
        let fits = matches!(scheme, "http" | "https") && !host.is_empty() && !path.ends_with('/') && plain(rest);
        if !fits {
            return Err(BucketUrlError);
        }
        Ok(Self { url: url.to_owned(), host: host.to_owned(), path: path.to_owned() })
    }
}

/// The bucket, and who signs for it.
#[derive(Clone)]
pub struct Uploads {
    bucket: Arc<Bucket>,
    credentials: SharedCredentialsProvider,
}

struct Bucket {
    name: String,
    url: BucketUrl,
    region: String,
}

impl fmt::Debug for Uploads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Uploads").field("bucket", &self.bucket.name).finish_non_exhaustive()
    }
}

/// What a client posts an image with: these fields as they are, then the file, which S3 wants last and named `file`.
#[derive(Clone, PartialEq, Eq)]
pub struct Form {
    pub url: String,
    pub fields: BTreeMap<&'static str, String>,
    pub expires_at: UnixMillis,
}

impl fmt::Debug for Form {
    // Its signature is a right to write.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Form").field("expires_at", &self.expires_at).finish_non_exhaustive()
    }
}

impl Uploads {
    pub fn new(credentials: SharedCredentialsProvider, region: String, name: String, url: BucketUrl) -> Self {
        Self { bucket: Arc::new(Bucket { name, url, region }), credentials }
    }

    /// A form for one image of 1 to `max_bytes` bytes.
    pub async fn form(&self, key: &ImageKey, max_bytes: u64, now: UnixMillis) -> Result<Form, CredentialsError> {
        let signer = self.signer(now).await?;
        let expires_at = now.plus_secs(FORM_SECS);
        let mut fields = BTreeMap::from([
            ("key", key.as_str().to_owned()),
            ("Content-Type", key.content_type().to_owned()),
            ("x-amz-algorithm", ALGORITHM.to_owned()),
            ("x-amz-credential", signer.credential()),
            ("x-amz-date", signer.date.clone()),
        ]);
        if let Some(token) = signer.credentials.session_token() {
            fields.insert("x-amz-security-token", token.to_owned());
        }
        // Each field exactly as it is given out; anything besides is refused.
        let mut conditions: Vec<_> = fields.iter().map(|(name, value)| json!({*name: value})).collect();
        conditions.push(json!({"bucket": self.bucket.name}));
        conditions.push(json!(["content-length-range", 1, max_bytes]));
        let policy = json!({"expiration": String::from(Rfc3339(expires_at)), "conditions": conditions});
        let policy = BASE64.encode(policy.to_string().as_bytes());
        fields.insert("x-amz-signature", signer.sign(&policy));
        fields.insert("policy", policy);
        // What takes forms is the bucket itself.
        Ok(Form { url: format!("{}/", self.bucket.url.url), fields, expires_at })
    }

    /// Links to images, good for [`LINK_SECS`]. Never an error: a link that cannot be made is left out, and a later reading has it.
    pub async fn links(&self, keys: impl IntoIterator<Item = &ImageKey>, now: UnixMillis) -> Links {
        match self.signer(now).await {
            Ok(signer) => {
                Links(keys.into_iter().map(|key| (key.clone(), signer.link(key.as_str(), LINK_SECS))).collect())
            }
            Err(error) => {
                tracing::error!(error = &error as &dyn std::error::Error, "images are shown without a link");
                Links::default()
            }
        }
    }

    async fn signer(&self, now: UnixMillis) -> Result<Signer, CredentialsError> {
        let credentials = self.credentials.provide_credentials().await;
        let credentials = credentials.map_err(|error| CredentialsError(error.into()))?;
        let key = generate_signing_key(credentials.secret_access_key(), system_time(now), &self.bucket.region, SERVICE);
        let key = key.as_ref().to_vec();
        Ok(Signer { bucket: Arc::clone(&self.bucket), credentials, date: amz_date(now), key })
    }
}

/// Where images can be read, for a while.
#[derive(Default)]
pub struct Links(HashMap<ImageKey, String>);

impl fmt::Debug for Links {
    // Each is a right to read.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Links({})", self.0.len())
    }
}

impl Links {
    pub fn get(&self, key: &ImageKey) -> Option<String> {
        self.0.get(key).cloned()
    }
}

/// The credentials of a moment.
struct Signer {
    bucket: Arc<Bucket>,
    credentials: Credentials,
    /// `20260528T202640Z`.
    date: String,
    key: Vec<u8>,
}

impl Signer {
    fn scope(&self) -> String {
        let day = self.date.get(..8).unwrap_or_default();
        format!("{day}/{}/{SERVICE}/aws4_request", self.bucket.region)
    }

    fn credential(&self) -> String {
        format!("{}/{}", self.credentials.access_key_id(), self.scope())
    }

    /// S3's "authenticating requests: using query parameters". No part of a key needs encoding.
    fn link(&self, key: &str, good_secs: i64) -> String {
        let BucketUrl { url, host, path } = &self.bucket.url;
        let (date, credential) = (&self.date, encoded(&self.credential()));
        let mut query = format!(
            "X-Amz-Algorithm={ALGORITHM}&X-Amz-Credential={credential}&X-Amz-Date={date}&X-Amz-Expires={good_secs}"
        );
        // In the order of their names, as they are signed.
        if let Some(token) = self.credentials.session_token() {
            query.push_str(&format!("&X-Amz-Security-Token={}", encoded(token)));
        }
        query.push_str("&X-Amz-SignedHeaders=host");
        let request = format!("GET\n{path}/{key}\n{query}\nhost:{host}\n\nhost\nUNSIGNED-PAYLOAD");
        let digest = HEXLOWER.encode(digest::digest(&digest::SHA256, request.as_bytes()).as_ref());
        let signature = self.sign(&format!("{ALGORITHM}\n{date}\n{}\n{digest}", self.scope()));
        format!("{url}/{key}?{query}&X-Amz-Signature={signature}")
    }

    fn sign(&self, text: &str) -> String {
        calculate_signature(&self.key, text.as_bytes())
    }
}

fn is_unreserved(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b'~')
}

/// Percent-encoded, as SigV4 wants it in a query.
fn encoded(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        if is_unreserved(byte) {
            encoded.push(char::from(byte));
        } else {
            encoded.push_str(&format!("%{byte:02X}"));
        }
    }
    encoded
}

fn system_time(at: UnixMillis) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_millis(u64::try_from(at.get()).unwrap_or(0))
}

fn amz_date(at: UnixMillis) -> String {
    let text = String::from(Rfc3339(at));
    let seconds = text.split('.').next().unwrap_or_default();
    format!("{}Z", seconds.replace(['-', ':'], ""))
}

#[cfg(test)]
mod tests {
    use kernel::time::local_time;
    use serde_json::Value;

    use super::*;

    /// The credentials and the bucket's region of the published examples.
    fn uploads(bucket: &str, url: &str, session_token: Option<&str>) -> Uploads {
        let credentials = Credentials::new(
            "AKIAIOSFODNN7EXAMPLE",
            "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
            session_token.map(str::to_owned),
            None,
            "test",
        );
        Uploads::new(
            SharedCredentialsProvider::new(credentials),
            "us-east-1".into(),
            bucket.into(),
            url.parse().unwrap(),
        )
    }

    const KEY: &str = "s1/00112233445566778899aabbccddeeff.png";

    fn key() -> ImageKey {
        ImageKey::try_from(KEY.to_owned()).unwrap()
    }

    fn at(local: &str) -> UnixMillis {
        local_time(local, "UTC").unwrap()
    }

    /// "Example: Browser-Based Upload using HTTP POST (Using AWS Signature Version 4)", S3's API reference.
    #[tokio::test]
    async fn a_policy_is_signed_as_in_the_published_example() {
        let policy = concat!(
            "{ \"expiration\": \"2015-12-30T12:00:00.000Z\",\r\n  \"conditions\": [\r\n",
            "    {\"bucket\": \"sigv4examplebucket\"},\r\n    [\"starts-with\", \"$key\", \"user/user1/\"],\r\n",
            "    {\"acl\": \"public-read\"},\r\n",
            "    {\"success_action_redirect\": \"http://sigv4examplebucket.s3.amazonaws.com/successful_upload.html\"},\r\n",
            "    [\"starts-with\", \"$Content-Type\", \"image/\"],\r\n",
            "    {\"x-amz-meta-uuid\": \"14365123651274\"},\r\n",
            "    {\"x-amz-server-side-encryption\": \"AES256\"},\r\n",
            "    [\"starts-with\", \"$x-amz-meta-tag\", \"\"],\r\n\r\n",
            "    {\"x-amz-credential\": \"AKIAIOSFODNN7EXAMPLE/20151229/us-east-1/s3/aws4_request\"},\r\n",
            "    {\"x-amz-algorithm\": \"AWS4-HMAC-SHA256\"},\r\n    {\"x-amz-date\": \"20151229T000000Z\" }\r\n  ]\r\n}",
        );
        let uploads = uploads("sigv4examplebucket", "https://sigv4examplebucket.s3.amazonaws.com", None);
        let signer = uploads.signer(at("2015-12-29T00:00:00")).await.unwrap();
        assert_eq!(
            signer.sign(&BASE64.encode(policy.as_bytes())),
            "8afdbf4008c03f22c2cd3cdb72e4afbb1f6a588f3255ac628749a66d7f09699e"
        );
    }

    /// "Authenticating Requests: Using Query Parameters", the same reference.
    #[tokio::test]
    async fn a_link_is_signed_as_in_the_published_example() {
        let uploads = uploads("examplebucket", "https://examplebucket.s3.amazonaws.com", None);
        let signer = uploads.signer(at("2013-05-24T00:00:00")).await.unwrap();
        let link = signer.link("test.txt", 86_400);
        assert_eq!(
            link,
            "https://examplebucket.s3.amazonaws.com/test.txt?X-Amz-Algorithm=AWS4-HMAC-SHA256\
             &X-Amz-Credential=AKIAIOSFODNN7EXAMPLE%2F20130524%2Fus-east-1%2Fs3%2Faws4_request&X-Amz-Date=20130524T000000Z\
             &X-Amz-Expires=86400&X-Amz-SignedHeaders=host\
             &X-Amz-Signature=aeeed9bbccd4d02ee5c0109b86d86835f995330da4c265957d157751f604d404"
        );
    }

    #[tokio::test]
    async fn a_form_allows_one_image_and_nothing_else() {
        let uploads = uploads("b1", "http://127.0.0.1:4566/b1", Some("session"));
        let now = at("2026-05-28T20:26:40");
        let form = uploads.form(&key(), 7, now).await.unwrap();
        assert_eq!((form.url.as_str(), form.expires_at), ("http://127.0.0.1:4566/b1/", now.plus_secs(300)));
        assert_eq!(form.fields["x-amz-date"], "20260528T202640Z");
        let policy: Value = serde_json::from_slice(&BASE64.decode(form.fields["policy"].as_bytes()).unwrap()).unwrap();
        assert_eq!(
            policy,
            json!({"expiration": "2026-05-28T20:31:40.000Z", "conditions": [
                {"Content-Type": "image/png"},
                {"key": KEY},
                {"x-amz-algorithm": "AWS4-HMAC-SHA256"},
                {"x-amz-credential": "AKIAIOSFODNN7EXAMPLE/20260528/us-east-1/s3/aws4_request"},
                {"x-amz-date": "20260528T202640Z"},
                {"x-amz-security-token": "session"},
                {"bucket": "b1"},
                ["content-length-range", 1, 7],
            ]})
        );
        // What the policy does not name would be refused.
        let named: Vec<_> = form.fields.keys().filter(|name| !matches!(**name, "policy" | "x-amz-signature")).collect();
        assert_eq!(named.len(), 6);
        assert!(!format!("{form:?} {uploads:?}").contains("session"));
    }

    #[tokio::test]
    async fn a_link_carries_the_session_token() {
        let uploads = uploads("b1", "http://127.0.0.1:4566/b1", Some("a/b+c="));
        let link = uploads.links([&key()], at("2026-05-28T20:26:40")).await.get(&key()).unwrap();
        assert!(link.starts_with(&format!("http://127.0.0.1:4566/b1/{KEY}?")), "{link}");
        assert!(link.contains("X-Amz-Security-Token=a%2Fb%2Bc%3D"), "{link}");
        assert!(link.contains("X-Amz-Expires=3600"), "{link}");
    }

    #[test]
    fn a_bucket_has_an_address() {
        for good in ["https://b1.s3.eu-central-1.amazonaws.com", "http://127.0.0.1:4566/b1"] {
            assert!(good.parse::<BucketUrl>().is_ok(), "{good}");
        }
        for bad in ["", "b1", "ftp://b1", "https://", "https://b1/", "http://h/b1?x", "http://h/b 1"] {
            assert_eq!(bad.parse::<BucketUrl>(), Err(BucketUrlError), "{bad}");
        }
    }
}
