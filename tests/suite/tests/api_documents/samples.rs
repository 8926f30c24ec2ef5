//! The sample events of the HTTP functions, the queues' and the sweep: `events/<function>/<case>.<expected>.json`.
//!
//! What comes of them is seen where the functions run (`tests/e2e`); here, that each is the event it claims to be.

use std::collections::BTreeSet;
use std::fs;

use aws_lc_rs::hmac;
use chat::greetings::Greeting;
use contract::{Contract, root};
use kernel::ids::{ActivityId, RequestId, SkuId, UserId};
use kernel::time::{Clock, UnixMillis};
use platform::auth::{AuthConfig, Principal, Role, Verifier, bearer};
use platform::http::Request;
use platform::secrets::Secret;
use sale::offer::OfferId;
use sale::provider::{SIGNATURE_HEADER, SignatureError, Signer, TIMESTAMP_HEADER};
use sale::queue::{OrderMessage, ReminderMessage};
use serde_json::Value;

use crate::source::Source;
use crate::{HTTP_FUNCTIONS, operation};

/// The key, issuer and audiences of the local stack, as `tests/stack/stack.py` has them.
const KEY: &str = "hotcake-local-development-key-not-a-secret";
const ORDER_NO_SECRET: &str = "hotcake-local-order-numbers-not-a-secret";
const PAYMENT_KEY: &str = "hotcake-local-payments-not-a-secret";
const ISSUER: &str = "https://hotcake.local";
const AUDIENCE: &str = "hotcake";
const ADMIN_AUDIENCE: &str = "hotcake-admin";
/// Tokens of samples are good at least until 2095: a sample that expires is a test that fails on a date.
const FAR: UnixMillis = UnixMillis::new(3_944_678_400_000);

struct Sample {
    name: String,
    expected: String,
    text: String,
    event: Value,
}

fn samples(function: &str) -> Vec<Sample> {
    let entries =
        fs::read_dir(root().join("events").join(function)).unwrap_or_else(|error| panic!("events/{function}: {error}"));
    let samples: Vec<Sample> = entries
        .map(|entry| {
            let path = entry.unwrap().path();
            let name = format!("events/{function}/{}", path.file_name().unwrap().to_str().unwrap());
            let text = fs::read_to_string(&path).unwrap();
            let parts: Vec<&str> = name.rsplit('.').collect();
            let [extension, expected, _case] = parts[..] else { panic!("{name}: not <case>.<expected>.json") };
            assert_eq!(extension, "json", "{name}");
            let event = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{name}: {error}"));
            Sample { expected: expected.to_owned(), name: name.clone(), text, event }
        })
        .collect();
    assert!(!samples.is_empty(), "events/{function}");
    samples
}

fn verifier() -> Verifier {
    let config = AuthConfig {
        secret_arn: String::new(),
        issuer: ISSUER.into(),
        audience: AUDIENCE.into(),
        admin_audience: ADMIN_AUDIENCE.into(),
    };
    let keys = serde_json::json!({"kid": "local", "alg": "HS256", "key": KEY});
    Verifier::new(&config, &Secret::new(keys.to_string())).unwrap()
}

fn status(sample: &Sample) -> u16 {
    sample.expected.parse().unwrap_or_else(|_| panic!("{}: {} is no status", sample.name, sample.expected))
}

#[test]
fn the_local_stack_has_the_keys_that_samples_are_made_with() {
    let script = fs::read_to_string(root().join("tests/stack/stack.py")).unwrap();
    for text in [KEY, ORDER_NO_SECRET, PAYMENT_KEY, ISSUER, AUDIENCE, ADMIN_AUDIENCE] {
        assert!(script.contains(&format!("\"{text}\"")), "stack.py has another text than {text:?}");
    }
}

#[test]
fn each_http_sample_is_a_request_that_its_function_serves() {
    let contract = Contract::read();
    for function in HTTP_FUNCTIONS {
        let routes = Source::read(&format!("functions/{function}")).routes();
        let mut sampled = BTreeSet::new();
        for sample in samples(function) {
            let Sample { name, event, .. } = &sample;
            let request: Request = serde_json::from_str(&sample.text).unwrap_or_else(|error| panic!("{name}: {error}"));
            assert!(routes.contains(request.route()), "{name}: {function} does not serve {}", request.route());
            sampled.insert(request.route().to_owned());

            // The route is the path with its parameters put in, here and in the context.
            let (method, template) = request.route().split_once(' ').unwrap();
            let parameters = event["pathParameters"].as_object().into_iter().flatten();
            let path = parameters.fold(template.to_owned(), |path, (parameter, value)| {
                path.replace(&format!("{{{parameter}}}"), value.as_str().unwrap())
            });
            assert_eq!((&event["version"], &event["rawPath"]), (&"2.0".into(), &path.as_str().into()), "{name}");
            let context = &event["requestContext"];
            assert_eq!(context["routeKey"], request.route(), "{name}");
            assert_eq!(
                (&context["http"]["method"], &context["http"]["path"]),
                (&method.into(), &path.as_str().into()),
                "{name}"
            );
            assert!(!request.id().is_empty() && !request.source_ip().is_empty(), "{name}");
            let query: Vec<String> = event["queryStringParameters"]
                .as_object()
                .into_iter()
                .flatten()
                .map(|(parameter, value)| format!("{parameter}={}", value.as_str().unwrap()))
                .collect();
            assert_eq!(event["rawQueryString"], query.join("&"), "{name}");

            let operation = operation(&contract, request.route());
            let documented: Vec<u16> = operation.statuses().collect();
            assert!(
                documented.contains(&status(&sample)),
                "{name}: {} is not documented to answer so",
                request.route()
            );
        }
        assert_eq!(sampled, routes, "routes of {function}, and those with a sample");
    }
}

#[test]
fn tokens_of_the_samples_are_good_for_long_or_refused_as_expected() {
    let verifier = verifier();
    let role_of = |sample: &Sample| {
        let request: Request = serde_json::from_str(&sample.text).unwrap();
        let verified = |now| bearer(request.header("authorization")).and_then(|token| verifier.verify(token, now));
        let now = verified(Clock::System.now());
        assert_eq!(now, verified(FAR), "{}: the token will not be judged as it is today", sample.name);
        now.map(|Principal { role, .. }| role)
    };
    let needed = |sample: &Sample| match sample.event["routeKey"].as_str().unwrap() {
        rate if rate.ends_with("/rate") => vec![Role::User],
        "GET /api/chat/agents" => vec![Role::Agent, Role::Admin],
        admin if admin.contains(" /api/admin/") => vec![Role::Admin],
        chat if chat.contains(" /api/chat/") => vec![Role::User, Role::Agent],
        _ => vec![Role::User],
    };
    for sample in ["buy", "orders", "admin", "chat-api"].into_iter().flat_map(samples) {
        let (role, needed) = (role_of(&sample), needed(&sample));
        match status(&sample) {
            401 => assert!(role.is_err(), "{}: the token is good", sample.name),
            403 => assert!(role.is_ok_and(|role| !needed.contains(&role)), "{}: not another role's", sample.name),
            _ => assert!(role.is_ok_and(|role| needed.contains(&role)), "{}: another role's", sample.name),
        }
    }
    for sample in samples("catalog") {
        assert!(role_of(&sample).is_err(), "{}: carries a token that nobody reads", sample.name);
    }
}

#[test]
fn bodies_of_the_samples_fit_the_document_unless_they_are_refused_for_it() {
    let contract = Contract::read();
    let (mut fitting, mut refused) = (0, 0);
    for sample in HTTP_FUNCTIONS.iter().flat_map(|function| samples(function)) {
        let Sample { name, event, .. } = &sample;
        if event["body"].is_null() || event["isBase64Encoded"] == true {
            continue;
        }
        let (method, path) =
            (event["requestContext"]["http"]["method"].as_str().unwrap(), event["rawPath"].as_str().unwrap());
        let body: Value =
            serde_json::from_str(event["body"].as_str().unwrap()).unwrap_or_else(|error| panic!("{name}: {error}"));
        let fits = contract.check_request(method, path, &body);
        let headers_are_wrong = name.contains("malformed-request-id");
        if status(&sample) == 400 && !headers_are_wrong {
            assert!(fits.is_err(), "{name}: openapi.yaml has nothing against this body");
            refused += 1;
        } else {
            fits.unwrap_or_else(|drift| panic!("{name}: {drift}"));
            fitting += 1;
        }
    }
    assert!(fitting >= 10 && refused >= 4, "{fitting} fitting and {refused} refused bodies were found");
}

/// A notice is good for five minutes, so no sample of one can be: each is refused, and one of them for its age alone.
#[test]
fn notices_of_the_samples_are_refused_for_ever() {
    let signer = Signer::new(PAYMENT_KEY.as_bytes());
    let mut reasons = Vec::new();
    for sample in samples("pay-notify") {
        let request: Request = serde_json::from_str(&sample.text).unwrap();
        let (timestamp, signature) = (request.header(TIMESTAMP_HEADER), request.header(SIGNATURE_HEADER));
        let verified = |now| signer.verify(timestamp, signature, request.body().unwrap(), now);
        assert_eq!(verified(Clock::System.now()), verified(FAR), "{}", sample.name);
        assert_eq!(status(&sample), 401, "{}", sample.name);
        reasons.push(verified(FAR).expect_err(&sample.name));
    }
    for reason in [SignatureError::Malformed, SignatureError::NotNow, SignatureError::Wrong] {
        assert!(reasons.contains(&reason), "no sample is refused since {reason}");
    }
}

/// Samples lead to each other: the consumer gets what `buy/admit` admitted, and `orders` reads it.
#[test]
fn the_order_of_the_samples_is_the_one_that_buy_makes() {
    let admit = samples("buy").into_iter().find(|sample| sample.name.contains("/admit.")).unwrap();
    let request: Request = serde_json::from_str(&admit.text).unwrap();
    let user: UserId = verifier().verify(bearer(request.header("authorization")).unwrap(), FAR).unwrap().id;
    let body: Value = request.json().unwrap();
    let offer = OfferId {
        activity_id: body["activityId"].as_str().unwrap().parse::<ActivityId>().unwrap(),
        sku_id: body["skuId"].as_str().unwrap().parse::<SkuId>().unwrap(),
    };
    let request_id: RequestId = request.header("x-request-id").unwrap().parse().unwrap();
    let key = hmac::Key::new(hmac::HMAC_SHA256, ORDER_NO_SECRET.as_bytes());
    let order_no = sale::order::order_no(&key, &user, &offer, &request_id).unwrap();

    let mut named = 0;
    for sample in
        samples("orders").iter().filter(|sample| status(sample) == 200 && sample.event["pathParameters"].is_object())
    {
        assert_eq!(sample.event["pathParameters"]["orderNo"], order_no.as_str(), "{}", sample.name);
        named += 1;
    }
    for sample in samples("consumer") {
        let mut good = 0;
        let records = sample.event["Records"].as_array().unwrap();
        for record in records {
            assert!(record["messageId"].as_str().is_some_and(|id| !id.is_empty()), "{}", sample.name);
            let Ok(message) = serde_json::from_str::<OrderMessage>(record["body"].as_str().unwrap()) else { continue };
            if message.order_no == order_no {
                assert_eq!((&message.user_id, &message.offer()), (&user, &offer), "{}", sample.name);
                good += 1;
            }
        }
        match sample.expected.as_str() {
            "done" => assert_eq!(good, records.len(), "{}", sample.name),
            "failed" => assert_eq!(good, 0, "{}", sample.name),
            "partial" => assert!(0 < good && good < records.len(), "{}", sample.name),
            other => panic!("{}: {other} is not done, failed or partial", sample.name),
        }
        named += good;
    }
    for sample in samples("order-due") {
        let records = sample.event["Records"].as_array().unwrap();
        let read = records.iter().map(|record| serde_json::from_str(record["body"].as_str().unwrap()));
        let good: Vec<ReminderMessage> = read.filter_map(Result::ok).collect();
        named += good.iter().filter(|reminder| reminder.order_no == order_no).count();
        match sample.expected.as_str() {
            // whatever order it names, one that is not there too: the row decides
            "done" => assert_eq!(good.len(), records.len(), "{}", sample.name),
            "failed" => assert_eq!(good.len(), 0, "{}", sample.name),
            "partial" => assert!(!good.is_empty() && good.len() < records.len(), "{}", sample.name),
            other => panic!("{}: {other} is not done, failed or partial", sample.name),
        }
    }
    assert!(named >= 5, "only {named} samples name the order");
}

#[test]
fn greetings_name_a_connection() {
    for sample in samples("chat-greet") {
        let records = sample.event["Records"].as_array().unwrap();
        let read = records.iter().map(|record| serde_json::from_str::<Greeting>(record["body"].as_str().unwrap()));
        let good = read.filter(Result::is_ok).count();
        let expected = match sample.expected.as_str() {
            "done" => good == records.len(),
            "failed" => good == 0,
            "partial" => 0 < good && good < records.len(),
            other => panic!("{}: {other} is not done, failed or partial", sample.name),
        };
        assert!(expected, "{}: {good} of {} are greetings", sample.name, records.len());
    }
}

#[test]
fn the_sweeps_take_whatever_the_scheduler_sends() {
    for sample in ["sweep", "chat-sweep"].into_iter().flat_map(samples) {
        assert_eq!(sample.expected, "ok", "{}", sample.name);
        assert_eq!(sample.event["source"], "aws.scheduler", "{}", sample.name);
    }
}
