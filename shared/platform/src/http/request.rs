//! A request, as `lambda_http` hands it over, reduced to what is read.

use std::fmt::{self, Display};
use std::str::FromStr;

use kernel::time::UnixMillis;
use lambda_http::aws_lambda_events::apigw::ApiGatewayV2httpRequestContext;
use lambda_http::aws_lambda_events::query_map::QueryMap;
use lambda_http::request::{LambdaRequest, RequestContext};
use lambda_http::{Body, RequestExt};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer};

use super::{Language, Problem, Text};
use crate::MAX_BODY_BYTES;
use crate::auth::{self, Principal, Role, Verifier};

/// The longest explanation of a body's mistake that is passed on, in characters. A parser may quote what it found.
const MAX_EXPLANATION_CHARS: usize = 200;

/// A request whose route the gateway has matched.
pub struct Request(lambda_http::Request);

impl From<lambda_http::Request> for Request {
    fn from(request: lambda_http::Request) -> Self {
        Self(request)
    }
}

/// From the event that API Gateway sends (payload format 2.0): an `events/….json` file.
impl<'de> Deserialize<'de> for Request {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        LambdaRequest::deserialize(deserializer).map(|event| Self(event.into()))
    }
}

impl Request {
    fn context(&self) -> Option<&ApiGatewayV2httpRequestContext> {
        match self.0.request_context_ref() {
            Some(RequestContext::ApiGatewayV2(context)) => Some(context),
            // Somebody else's event; it has no route of ours.
            Some(_) | None => None,
        }
    }

    /// The gateway's id of this request. Not `X-Request-ID`, by which a client names an intent of its own.
    pub fn id(&self) -> &str {
        self.context().and_then(|context| context.request_id.as_deref()).unwrap_or_default()
    }

    /// Method and path pattern of the matched route: `GET /api/order/{orderNo}`.
    pub fn route(&self) -> &str {
        self.context().and_then(|context| context.route_key.as_deref()).unwrap_or_default()
    }

    /// The address that the gateway saw. Never what `X-Forwarded-For` claims.
    pub fn source_ip(&self) -> &str {
        self.context().and_then(|context| context.http.source_ip.as_deref()).unwrap_or_default()
    }

    /// A header, by its name in any case; one that is no text is absent.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.0.headers().get(name).and_then(|value| value.to_str().ok())
    }

    /// The language to answer in.
    pub fn language(&self) -> Language {
        Language::negotiate(self.header("accept-language").unwrap_or_default())
    }

    /// A parameter of the route's path.
    pub fn path<T: FromStr<Err: Display>>(&self, name: &str) -> Result<T, Problem> {
        parse(name, self.0.path_parameters_ref().and_then(|parameters| parameters.first(name)).unwrap_or_default())
    }

    /// A query parameter; `None` when it is absent. Given more than once, it is malformed.
    pub fn query<T: FromStr<Err: Display>>(&self, name: &str) -> Result<Option<T>, Problem> {
        let values = self.0.query_string_parameters_ref().and_then(|parameters: &QueryMap| parameters.all(name));
        match values.as_deref() {
            None | Some([]) => Ok(None),
            Some([value]) => parse(name, value).map(Some),
            Some(_) => Err(Problem::validation(Text::of(
                format!("{name} is malformed: it is given more than once."),
                format!("{name} 格式不正确：只能出现一次。"),
            ))),
        }
    }

    /// Refuses query parameters that are none of `known`: to overlook a misspelt one would do what was not asked for.
    pub fn only_query(&self, known: &[&str]) -> Result<(), Problem> {
        let given = self.0.query_string_parameters_ref();
        match given.into_iter().flat_map(QueryMap::iter).find(|(name, _)| !known.contains(name)) {
            None => Ok(()),
            Some((name, _)) => {
                let name: String = name.chars().take(MAX_EXPLANATION_CHARS).collect();
                Err(Problem::validation(Text::of(
                    format!("{name} is no query parameter of this request."),
                    format!("此请求没有查询参数 {name}。"),
                )))
            }
        }
    }

    /// A header with a meaning of its own; `None` when it is absent.
    pub fn parsed_header<T: FromStr<Err: Display>>(&self, name: &str) -> Result<Option<T>, Problem> {
        // One that is no text is there, and malformed: to overlook it would take a retry for a new wish.
        let value = self.0.headers().get(name);
        value.map(|value| parse(name, &String::from_utf8_lossy(value.as_bytes()))).transpose()
    }

    /// The body as it was sent.
    pub fn body(&self) -> Result<&[u8], Problem> {
        let body: &[u8] = match self.0.body() {
            Body::Text(text) => text.as_bytes(),
            Body::Binary(bytes) => bytes,
            // Empty, or a kind that is not invented yet.
            _ => &[],
        };
        if body.len() > MAX_BODY_BYTES {
            return Err(Problem::payload_too_large());
        }
        Ok(body)
    }

    /// For a request that says everything by its path and query: no body, or `{}`.
    pub fn no_body(&self) -> Result<(), Problem> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Nothing {}
        if self.body()?.is_empty() { Ok(()) } else { self.json::<Nothing>().map(|Nothing {}| ()) }
    }

    /// The body. `T` refuses unknown members (`deny_unknown_fields`). The content type is not asked for: there is only JSON.
    pub fn json<T: DeserializeOwned>(&self) -> Result<T, Problem> {
        let body = self.body()?;
        let first = body.iter().find(|byte| !byte.is_ascii_whitespace());
        // serde reads an array into a struct just as well.
        if first == Some(&b'[') {
            return Err(not_an_object());
        }
        serde_json::from_slice(body).map_err(|error| match error.is_data() {
            false => not_json(),
            true if first == Some(&b'{') => wrong_shape(&error),
            true => not_an_object(),
        })
    }

    /// The caller, who must have `role`: 401 without a valid token, 403 with another role.
    pub fn authenticate(&self, verifier: &Verifier, now: UnixMillis, role: Role) -> Result<Principal, Problem> {
        self.authenticate_one_of(verifier, now, &[role])
    }

    /// The caller, who must have one of `roles`.
    pub fn authenticate_one_of(
        &self,
        verifier: &Verifier,
        now: UnixMillis,
        roles: &[Role],
    ) -> Result<Principal, Problem> {
        let principal = auth::bearer(self.header("authorization"))
            .and_then(|token| verifier.verify(token, now))
            .map_err(|reason| {
                tracing::info!(gatewayRequestId = self.id(), %reason, "token refused");
                Problem::unauthenticated()
            })?;
        if roles.contains(&principal.role) { Ok(principal) } else { Err(Problem::forbidden()) }
    }
}

impl fmt::Debug for Request {
    // Headers and body may hold tokens.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Request").field("id", &self.id()).field("route", &self.route()).finish_non_exhaustive()
    }
}

fn parse<T: FromStr<Err: Display>>(name: &str, value: &str) -> Result<T, Problem> {
    value.parse().map_err(|error| {
        Problem::validation(Text::of(format!("{name} is malformed: {error}"), format!("{name} 格式不正确：{error}")))
    })
}

fn not_an_object() -> Problem {
    Problem::validation(Text::new("The body is not a JSON object.", "请求内容不是 JSON 对象。"))
}

fn not_json() -> Problem {
    Problem::validation(Text::new("The body is not JSON.", "请求内容不是有效的 JSON。"))
}

fn wrong_shape(error: &serde_json::Error) -> Problem {
    let explanation: String = error.to_string().chars().take(MAX_EXPLANATION_CHARS).collect();
    Problem::validation(Text::of(
        format!("The body does not fit: {explanation}"),
        format!("请求内容不符合要求：{explanation}"),
    ))
}

#[cfg(test)]
mod tests {
    use data_encoding::BASE64;
    use serde_json::{Value, json};

    use super::*;
    use crate::MAX_BODY_BYTES;
    use crate::auth::AuthConfig;
    use crate::secrets::Secret;

    #[derive(Debug, PartialEq, Deserialize)]
    #[serde(rename_all = "camelCase", deny_unknown_fields)]
    struct Purchase {
        sku_id: String,
        #[serde(default)]
        qty: u32,
    }

    fn request(members: Value) -> Request {
        let mut event = json!({
            "version": "2.0", "routeKey": "POST /buy/{id}", "rawPath": "/buy/x",
            "requestContext": {
                "requestId": "gw-1", "routeKey": "POST /buy/{id}", "stage": "$default",
                "http": {"method": "POST", "path": "/buy/x", "sourceIp": "192.0.2.7"},
            },
            "isBase64Encoded": false,
        });
        event.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
        serde_json::from_value(event).unwrap()
    }

    fn purchase(body: &str) -> Result<Purchase, Problem> {
        let plain = request(json!({"body": body})).json();
        let encoded =
            request(json!({"body": BASE64.encode(body.as_bytes()), "isBase64Encoded": true})).json::<Purchase>();
        match (&plain, &encoded) {
            (Ok(plain), Ok(encoded)) => assert_eq!(plain, encoded),
            (Err(plain), Err(encoded)) => assert_eq!(plain.code(), encoded.code()),
            (plain, encoded) => panic!("the form of the body matters: {plain:?}, {encoded:?}"),
        }
        plain
    }

    fn detail(problem: &Problem, language: Language) -> String {
        let body: Value = serde_json::from_str(problem.render(language, "").body()).unwrap();
        body["detail"].as_str().unwrap().to_owned()
    }

    #[test]
    fn a_body_is_read_strictly() {
        assert_eq!(purchase(r#"{"skuId":"s1","qty":2}"#).unwrap(), Purchase { sku_id: "s1".into(), qty: 2 });
        let cases = [
            ("", "The body is not JSON."),
            ("{", "The body is not JSON."),
            ("qty=1", "The body is not JSON."),
            (r#"{"skuId":"s1"} x"#, "The body is not JSON."),
            (r#"{"skuId":"s1","price":1}"#, "unknown field `price`"),
            (r#"{"qty":1}"#, "missing field `skuId`"),
            (r#"{"skuId":"s1","skuId":"s2"}"#, "duplicate field `skuId`"),
            (r#"{"skuId":"s1","qty":-5}"#, "invalid value: integer `-5`"),
            (r#"{"skuId":"s1","qty":1.5}"#, "invalid type: floating point `1.5`"),
            (r#"{"skuId":"s1","qty":"1"}"#, "invalid type: string"),
            (r#"{"skuId":"s1","qty":null}"#, "invalid type: null"),
            // serde would read it into a struct
            (r#"["s1",2]"#, "The body is not a JSON object."),
            (" \n[]", "The body is not a JSON object."),
            ("null", "The body is not a JSON object."),
            ("7", "The body is not a JSON object."),
        ];
        for (body, expected) in cases {
            let problem = purchase(body).unwrap_err();
            assert_eq!((problem.status(), problem.code()), (400, "VALIDATION"), "{body}");
            let text = detail(&problem, Language::En);
            assert!(text.contains(expected), "{body}: {text}");
            assert_ne!(text, detail(&problem, Language::Zh));
        }
        let absent = request(json!({})).json::<Purchase>().unwrap_err();
        assert_eq!(absent.code(), "VALIDATION");
    }

    #[test]
    fn a_body_is_bounded_and_so_is_what_is_said_about_it() {
        let padded = |size: usize| format!("{:size$}", r#"{"skuId":"s1"}"#);
        assert!(purchase(&padded(MAX_BODY_BYTES)).is_ok());
        let problem = purchase(&padded(MAX_BODY_BYTES + 1)).unwrap_err();
        assert_eq!((problem.status(), problem.code()), (413, "PAYLOAD_TOO_LARGE"));

        let long = format!(r#"{{"skuId":"s1","{}":1}}"#, "字".repeat(4_000));
        let text = detail(&purchase(&long).unwrap_err(), Language::En);
        assert!(text.chars().count() < MAX_EXPLANATION_CHARS + 50, "{text}");
    }

    #[test]
    fn parameters_are_parsed_and_named_when_malformed() {
        let request = request(json!({
            "pathParameters": {"id": "42"},
            "rawQueryString": "limit=20&page=x&size=1&size=2",
            "headers": {"x-count": "3", "X-Mixed-Case": "4", "x-bad": "?"},
        }));
        assert_eq!(request.path::<u32>("id").unwrap(), 42);
        assert_eq!(request.query::<u32>("limit").unwrap(), Some(20));
        assert_eq!(request.query::<u32>("absent").unwrap(), None);
        assert_eq!(request.parsed_header::<u32>("X-Count").unwrap(), Some(3));
        assert_eq!(request.parsed_header::<u32>("x-mixed-case").unwrap(), Some(4));
        assert_eq!(request.parsed_header::<u32>("x-absent").unwrap(), None);

        let malformed = [
            ("page", request.query::<u32>("page").unwrap_err()),
            ("size", request.query::<u32>("size").unwrap_err()),
            ("x-bad", request.parsed_header::<u32>("x-bad").unwrap_err()),
            ("absent", request.path::<u32>("absent").unwrap_err()),
        ];
        for (name, problem) in malformed {
            assert_eq!(problem.code(), "VALIDATION");
            assert!(detail(&problem, Language::En).starts_with(&format!("{name} is malformed")), "{name}");
        }
    }

    #[test]
    fn what_a_request_does_not_have_is_not_overlooked() {
        let query = |query: &str| request(json!({"rawQueryString": query})).only_query(&["dryRun"]);
        assert!(query("").is_ok() && query("dryRun=true").is_ok());
        for misspelt in ["dryrun=true", "dry_run=true", "dryRun=true&x=", "DRYRUN"] {
            assert_eq!(query(misspelt).unwrap_err().code(), "VALIDATION", "{misspelt}");
        }
        let text = detail(&query("dryrun=true").unwrap_err(), Language::En);
        assert_eq!(text, "dryrun is no query parameter of this request.");

        let body = |body: &str| request(json!({"body": body})).no_body();
        assert!(request(json!({})).no_body().is_ok() && body("").is_ok() && body("{}").is_ok());
        let long = " ".repeat(MAX_BODY_BYTES + 1);
        for (sent, code) in [
            ("[]", "VALIDATION"),
            ("null", "VALIDATION"),
            (r#"{"dryRun":true}"#, "VALIDATION"),
            ("x", "VALIDATION"),
            (long.as_str(), "PAYLOAD_TOO_LARGE"),
        ] {
            assert_eq!(body(sent).unwrap_err().code(), code, "{sent}");
        }
        assert_eq!(detail(&body("null").unwrap_err(), Language::En), "The body is not a JSON object.");
    }

    #[test]
    fn the_gateways_word_counts_and_nothing_is_shown_whole() {
        let request = request(json!({
            "headers": {"authorization": "Bearer canary", "x-forwarded-for": "203.0.113.9", "x-request-id": "mine"},
            "queryStringParameters": null, "pathParameters": null, "body": "canary",
        }));
        assert_eq!((request.id(), request.source_ip(), request.route()), ("gw-1", "192.0.2.7", "POST /buy/{id}"));
        assert!(!format!("{request:?}").contains("canary"));
    }

    #[test]
    fn callers_are_told_apart_by_token_and_role() {
        let config = AuthConfig {
            secret_arn: String::new(),
            issuer: "iss".into(),
            audience: "shop".into(),
            admin_audience: "shop-admin".into(),
        };
        let secret = "a shared secret of more than thirty-two bytes";
        let keys = Secret::new(json!({"kid": "k", "alg": "HS256", "key": secret}).to_string());
        let verifier = Verifier::new(&config, &keys).unwrap();
        let now = UnixMillis::new(1_780_000_000_000);
        let header = jsonwebtoken::Header { kid: Some("k".into()), ..jsonwebtoken::Header::default() };
        let claims = json!({"iss": "iss", "aud": "shop", "sub": "u1", "role": "user", "exp": now.secs() + 60});
        let key = jsonwebtoken::EncodingKey::from_secret(secret.as_bytes()).unwrap();
        let token = jsonwebtoken::encode(&header, &claims, &key).unwrap();

        let call = |authorization: Option<String>, role: Role| {
            request(json!({"headers": authorization.map(|value| json!({"authorization": value}))}))
                .authenticate(&verifier, now, role)
                .map(|principal| principal.id.to_string())
                .map_err(|problem| problem.code())
        };
        assert_eq!(call(Some(format!("Bearer {token}")), Role::User), Ok("u1".into()));
        assert_eq!(call(Some(format!("Bearer {token}")), Role::Admin), Err("FORBIDDEN"));
        assert_eq!(call(Some(format!("Bearer {token}x")), Role::User), Err("UNAUTHENTICATED"));
        assert_eq!(call(Some(token), Role::User), Err("UNAUTHENTICATED"));
        assert_eq!(call(None, Role::User), Err("UNAUTHENTICATED"));
    }
}
