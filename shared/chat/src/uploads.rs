//! Images: how they get into the bucket, and out again.
//!
//! No image passes through a function. A client that wants to send one gets a form, signed for one key, one type and a size
//! at most, and posts it to S3; whoever is to see it gets a link, signed for one key. Both are good for a while and cannot be
//! taken back, so the while is short, and a link is made anew whenever a message is delivered.
//!
//! A signature is worth what its signer may do: the function's role needs `s3:PutObject` for forms and `s3:GetObject` for
//! links. The role's own credentials end too, and with them what they signed; its session token is part of both.

use std::collections::BTreeMap;
use std::fmt;
use std::time::{Duration, SystemTime};

use aws_sdk_dynamodb::config::{Credentials, ProvideCredentials, SharedCredentialsProvider};
use aws_sigv4::http_request::{
    PercentEncodingMode, SignableBody, SignableRequest, SignatureLocation, SigningSettings, UriPathNormalizationMode,
    sign,
};
use aws_sigv4::sign::v4;
use data_encoding::BASE64;
use kernel::time::{Rfc3339, UnixMillis};
use serde_json::json;

/// The largest image, in bytes (5 MiB).
pub const MAX_IMAGE_BYTES: u64 = 5 * 1024 * 1024;
/// How long a form is good: an upload has to begin within it.
pub const FORM_SECS: i64 = 5 * 60;
/// How long a link is good.
const LINK: Duration = Duration::from_secs(60 * 60);

const SERVICE: &str = "s3";
const ALGORITHM: &str = "AWS4-HMAC-SHA256";

/// Nothing could be signed.
#[derive(Debug, thiserror::Error)]
#[error("{what} cannot be signed")]
pub struct SigningError {
    what: &'static str,
    #[source]
    source: Box<dyn std::error::Error + Send + Sync>,
}

impl SigningError {
    fn new(what: &'static str, source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self { what, source: source.into() }
    }
}

/// The bucket, and who signs for it.
#[derive(Clone)]
pub struct Images {
    credentials: SharedCredentialsProvider,
    region: String,
    bucket: String,
    url: String,
}

impl fmt::Debug for Images {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Images").field("bucket", &self.bucket).finish_non_exhaustive()
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

impl Images {
    /// `url` is where the bucket's keys begin, without a slash at the end: `https://<bucket>.s3.<region>.amazonaws.com` on
    /// AWS, `http://<endpoint>/<bucket>` on the local stack, which has one name for all buckets.
    pub fn new(credentials: SharedCredentialsProvider, region: String, bucket: String, url: String) -> Self {
        Self { credentials, region, bucket, url }
    }

    /// The credentials of now, which sign any number of links.
    pub async fn signer(&self, now: UnixMillis) -> Result<Signer<'_>, SigningError> {
        let credentials = self.credentials.provide_credentials().await;
        let credentials = credentials.map_err(|error| SigningError::new("nothing", error))?;
        Ok(Signer { images: self, credentials, now })
    }
}

/// Signs, as of a moment.
pub struct Signer<'a> {
    images: &'a Images,
    credentials: Credentials,
    now: UnixMillis,
}

impl Signer<'_> {
    /// A form for an image of `content_type` with 1 to `max_bytes` bytes, to be stored under `key`.
    pub fn form(&self, key: &str, content_type: &str, max_bytes: u64) -> Form {
        let expires_at = self.now.plus_secs(FORM_SECS);
        let date = amz_date(self.now);
        let day = date.get(..8).unwrap_or_default();
        let credential = format!("{}/{day}/{}/{SERVICE}/aws4_request", self.credentials.access_key_id(), self.images.region);
        let mut fields = BTreeMap::from([
            ("key", key.to_owned()),
            ("Content-Type", content_type.to_owned()),
            ("x-amz-algorithm", ALGORITHM.to_owned()),
            ("x-amz-credential", credential),
            ("x-amz-date", date),
        ]);
        if let Some(token) = self.credentials.session_token() {
            fields.insert("x-amz-security-token", token.to_owned());
        }
        // Each field exactly as it is given out; anything besides is refused.
        let mut conditions: Vec<_> = fields.iter().map(|(name, value)| json!({*name: value})).collect();
        conditions.push(json!({"bucket": self.images.bucket}));
        conditions.push(json!(["content-length-range", 1, max_bytes]));
        let policy = json!({"expiration": String::from(Rfc3339(expires_at)), "conditions": conditions});
        let policy = BASE64.encode(policy.to_string().as_bytes());
        fields.insert("x-amz-signature", self.sign_policy(&policy));
        fields.insert("policy", policy);
        // What S3 takes forms at is the bucket itself.
        Form { url: format!("{}/", self.images.url), fields, expires_at }
    }

    fn sign_policy(&self, policy: &str) -> String {
        let secret = self.credentials.secret_access_key();
        let key = v4::generate_signing_key(secret, system_time(self.now), &self.images.region, SERVICE);
        v4::calculate_signature(key, policy.as_bytes())
    }

    /// A link to the image under `key`, which must need no encoding in an address.
    pub fn link(&self, key: &str) -> Result<String, SigningError> {
        self.link_for(key, LINK)
    }

    fn link_for(&self, key: &str, good_for: Duration) -> Result<String, SigningError> {
        let failed = |error: Box<dyn std::error::Error + Send + Sync>| SigningError::new("a link", error);
        let mut settings = SigningSettings::default();
        settings.signature_location = SignatureLocation::QueryParams;
        settings.expires_in = Some(good_for);
        // S3 takes paths as they come.
        settings.percent_encoding_mode = PercentEncodingMode::Single;
        settings.uri_path_normalization_mode = UriPathNormalizationMode::Disabled;
        let identity = self.credentials.clone().into();
        let parameters = v4::SigningParams::builder()
            .identity(&identity)
            .region(&self.images.region)
            .name(SERVICE)
            .time(system_time(self.now))
            .settings(settings)
            .build()
            .map_err(|error| failed(error.into()))?;
        let url = format!("{}/{key}", self.images.url);
        let mut request = http::Request::get(&url).body(()).map_err(|error| failed(error.into()))?;
        let signable = SignableRequest::new("GET", &url, std::iter::empty(), SignableBody::UnsignedPayload)
            .map_err(|error| failed(error.into()))?;
        let signed = sign(signable, &parameters.into()).map_err(|error| failed(error.into()))?;
        signed.into_parts().0.apply_to_request_http1x(&mut request);
        Ok(request.uri().to_string())
    }
}

fn system_time(at: UnixMillis) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_millis(u64::try_from(at.get()).unwrap_or(0))
}

/// `20260528T202640Z`.
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
    fn images(bucket: &str, url: &str, session_token: Option<&str>) -> Images {
        let credentials = Credentials::new(
            "AKIAIOSFODNN7EXAMPLE",
            "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
            session_token.map(str::to_owned),
            None,
            "test",
        );
        Images::new(SharedCredentialsProvider::new(credentials), "us-east-1".into(), bucket.into(), url.into())
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
        let images = images("sigv4examplebucket", "https://sigv4examplebucket.s3.amazonaws.com", None);
        let signer = images.signer(at("2015-12-29T00:00:00")).await.unwrap();
        assert_eq!(
            signer.sign_policy(&BASE64.encode(policy.as_bytes())),
            "8afdbf4008c03f22c2cd3cdb72e4afbb1f6a588f3255ac628749a66d7f09699e"
        );
    }

    /// "Authenticating Requests: Using Query Parameters", the same reference.
    #[tokio::test]
    async fn a_link_is_signed_as_in_the_published_example() {
        let images = images("examplebucket", "https://examplebucket.s3.amazonaws.com", None);
        let signer = images.signer(at("2013-05-24T00:00:00")).await.unwrap();
        let link = signer.link_for("test.txt", Duration::from_secs(86_400)).unwrap();
        let (address, query) = link.split_once('?').unwrap();
        assert_eq!(address, "https://examplebucket.s3.amazonaws.com/test.txt");
        let mut pairs: Vec<_> = query.split('&').collect();
        pairs.sort_unstable();
        assert_eq!(
            pairs,
            [
                "X-Amz-Algorithm=AWS4-HMAC-SHA256",
                "X-Amz-Credential=AKIAIOSFODNN7EXAMPLE%2F20130524%2Fus-east-1%2Fs3%2Faws4_request",
                "X-Amz-Date=20130524T000000Z",
                "X-Amz-Expires=86400",
                "X-Amz-Signature=aeeed9bbccd4d02ee5c0109b86d86835f995330da4c265957d157751f604d404",
                "X-Amz-SignedHeaders=host",
            ]
        );
    }

    #[tokio::test]
    async fn a_form_allows_one_image_and_nothing_else() {
        let images = images("b1", "http://127.0.0.1:4566/b1", Some("session"));
        let now = at("2026-05-28T20:26:40");
        let form = images.signer(now).await.unwrap().form("s1/0f.png", "image/png", 7);
        assert_eq!((form.url.as_str(), form.expires_at), ("http://127.0.0.1:4566/b1/", now.plus_secs(300)));
        assert_eq!(form.fields["x-amz-date"], "20260528T202640Z");
        let policy: Value = serde_json::from_slice(&BASE64.decode(form.fields["policy"].as_bytes()).unwrap()).unwrap();
        assert_eq!(
            policy,
            json!({"expiration": "2026-05-28T20:31:40.000Z", "conditions": [
                {"Content-Type": "image/png"},
                {"key": "s1/0f.png"},
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
        assert!(!format!("{form:?} {images:?}").contains("session"));
    }

    #[tokio::test]
    async fn a_link_carries_the_session_token() {
        let images = images("b1", "http://127.0.0.1:4566/b1", Some("a/b+c="));
        let link = images.signer(at("2026-05-28T20:26:40")).await.unwrap().link("s1/0f.png").unwrap();
        assert!(link.starts_with("http://127.0.0.1:4566/b1/s1/0f.png?"), "{link}");
        assert!(link.contains("X-Amz-Security-Token=a%2Fb%2Bc%3D"), "{link}");
        assert!(link.contains("X-Amz-Expires=3600"), "{link}");
    }
}
