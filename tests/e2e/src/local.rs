//! The stack under test, and the doors that shoppers do not have.

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::sync::LazyLock;
use std::time::Duration;

use aws_config::{BehaviorVersion, Region, SdkConfig};
use aws_sdk_sqs::config::Credentials;
use chat::connections::Connections;
use client::{Api, Method, RawAnswer, Stack};
use contract::{Contract, root};
use redis::aio::MultiplexedConnection;
use sale::gate::Gate;
use sale::store::{Offers, Orders, Payments};
use serde_json::{Value, json};

use crate::eventually;

/// The local AWS asks for no more than that there are some, and takes these for the account's owner.
const KEY: &str = "test";
const REGION: &str = "us-east-1";
/// One sweep runs at a time, and takes a while when many sales are open.
const SWEEP_TIMEOUT: Duration = Duration::from_secs(120);
/// The longest call of the operators' doors.
const CALL_TIMEOUT: Duration = Duration::from_secs(60);

/// What every answer and every frame is held against.
static CONTRACT: LazyLock<Contract> = LazyLock::new(Contract::read);

/// Held by whoever sweeps: on the stack one sweep runs at a time, and a test may want to be the one.
pub static SWEEPING: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

/// A running stack, as one test sees it.
#[derive(Debug, Clone)]
pub struct Local {
    pub outputs: Stack,
    /// Nobody in particular.
    pub api: Api,
    /// The admin.
    pub admin: Api,
    pub aws: SdkConfig,
    http: reqwest::Client,
}

/// What a function answered to an invocation past its gateway.
#[derive(Debug)]
pub struct Invoked {
    pub payload: Value,
    /// `Unhandled` and the like: the function failed instead of answering.
    pub error: Option<String>,
}

/// How a function is deployed.
#[derive(Debug)]
pub struct Deployed {
    pub environment: HashMap<String, String>,
    pub timeout: Duration,
    pub log_group: String,
}

impl Local {
    /// The stack that `$HOTCAKE_STATE/outputs.json` describes. Without one there is nothing to test, and the test fails.
    pub async fn up() -> Self {
        let file = state_directory().join("outputs.json");
        let how = "`make test` runs all tests on a stack of their own; `make up` starts one that stays";
        let outputs = Stack::from_outputs(&file).unwrap_or_else(|error| panic!("no stack to test: {error} {how}"));
        let api = Api::new(&outputs).unwrap().watched(answer_is_documented);
        if let Err(error) = api.time().await {
            panic!("the stack of {} does not answer: {error}. {how}", file.display());
        }
        let admin = api.signed_in(outputs.admin_token());
        let aws = SdkConfig::builder()
            .behavior_version(BehaviorVersion::latest())
            .region(Region::from_static(REGION))
            .endpoint_url(&outputs.aws_endpoint)
            .credentials_provider(aws_sdk_sqs::config::SharedCredentialsProvider::new(Credentials::new(
                KEY, KEY, None, None, "test",
            )))
            .build();
        let http = reqwest::Client::builder().timeout(CALL_TIMEOUT).build().unwrap();
        Self { outputs, api, admin, aws, http }
    }

    // ---- the truth and the gate, read as they are

    pub fn orders(&self) -> Orders {
        Orders::new(aws_sdk_dynamodb::Client::new(&self.aws), self.outputs.tables.orders.clone())
    }

    pub fn offers(&self) -> Offers {
        Offers::new(aws_sdk_dynamodb::Client::new(&self.aws), self.outputs.tables.offers.clone())
    }

    pub fn payments(&self) -> Payments {
        Payments::new(aws_sdk_dynamodb::Client::new(&self.aws), self.outputs.tables.payments.clone())
    }

    pub fn connections(&self) -> Connections {
        Connections::new(aws_sdk_dynamodb::Client::new(&self.aws), self.outputs.tables.connections.clone())
    }

    pub async fn gate(&self) -> Gate<MultiplexedConnection> {
        let client = redis::Client::open(self.outputs.redis_url.as_str()).unwrap();
        Gate::new(client.get_multiplexed_async_connection().await.unwrap())
    }

    // ---- queues

    pub fn sqs(&self) -> aws_sdk_sqs::Client {
        aws_sdk_sqs::Client::new(&self.aws)
    }

    /// Puts a body into the orders queue, as it stands.
    pub async fn enqueue(&self, body: &str) {
        self.sqs().send_message().queue_url(&self.outputs.queues.orders).message_body(body).send().await.unwrap();
    }

    // ---- functions. The local AWS wants to know who calls and checks no signature of its owner, so plain HTTP does for the
    // few calls of Lambda and of CloudWatch Logs; their SDK crates would add minutes to every build.

    /// Calls a deployed function directly; `function` is the name of its folder.
    pub async fn invoke(&self, function: &str, event: &Value) -> Invoked {
        // The one environment of the sweep may be busy with its own tick.
        let answer = eventually(&format!("{function} has a free environment"), SWEEP_TIMEOUT, async || {
            let path = format!("{}/invocations", self.function_path(function));
            let answer = self
                .http
                .post(path)
                .header("authorization", owner("lambda"))
                .body(event.to_string())
                .send()
                .await
                .unwrap();
            (answer.status() != 429).then_some(answer)
        })
        .await;
        assert!(answer.status().is_success(), "invoking {function}: {}", answer.status());
        let error = answer.headers().get("x-amz-function-error").map(|kind| kind.to_str().unwrap().to_owned());
        Invoked { payload: answer.json().await.unwrap(), error }
    }

    /// One run of the sweep, now instead of within the minute.
    pub async fn sweep(&self) {
        let _alone = SWEEPING.lock().await;
        let answer = self.invoke("sweep", &json!({})).await;
        assert_eq!(answer.error, None, "the sweep failed: {}", answer.payload);
    }

    pub async fn deployed(&self, function: &str) -> Deployed {
        let answer = self
            .http
            .get(format!("{}/configuration", self.function_path(function)))
            .header("authorization", owner("lambda"))
            .send()
            .await
            .unwrap();
        let configuration: Value = answer.json().await.unwrap();
        let variables = configuration["Environment"]["Variables"].as_object().unwrap();
        Deployed {
            environment: variables
                .iter()
                .map(|(name, value)| (name.clone(), value.as_str().unwrap().to_owned()))
                .collect(),
            timeout: Duration::from_secs(configuration["Timeout"].as_u64().unwrap()),
            log_group: configuration["LoggingConfig"]["LogGroup"].as_str().unwrap().to_owned(),
        }
    }

    /// All that a function has logged, line by line.
    pub async fn log_lines(&self, function: &str) -> Vec<String> {
        let group = self.deployed(function).await.log_group;
        let mut lines = Vec::new();
        let mut next = Value::Null;
        loop {
            let mut question = json!({"logGroupName": group});
            if next.is_string() {
                question["nextToken"] = next;
            }
            let answer = self
                .http
                .post(&self.outputs.aws_endpoint)
                .header("authorization", owner("logs"))
                .header("x-amz-target", "Logs_20140328.FilterLogEvents")
                .header("content-type", "application/x-amz-json-1.1")
                .body(question.to_string())
                .send()
                .await
                .unwrap();
            assert!(answer.status().is_success(), "logs of {function}: {}", answer.status());
            let mut page: Value = answer.json().await.unwrap();
            let events = page["events"].as_array().unwrap();
            lines.extend(events.iter().map(|event| event["message"].as_str().unwrap().to_owned()));
            next = page["nextToken"].take();
            if !next.is_string() {
                return lines;
            }
        }
    }

    fn function_path(&self, function: &str) -> String {
        let name = self.outputs.functions.get(function).unwrap_or_else(|| panic!("no function {function} is deployed"));
        format!("{}/2015-03-31/functions/{name}", self.outputs.aws_endpoint)
    }
}

/// Names the account's owner to a service of the local AWS.
fn owner(service: &str) -> String {
    format!(
        "AWS4-HMAC-SHA256 Credential={KEY}/20260101/{REGION}/{service}/aws4_request, SignedHeaders=host, Signature=0"
    )
}

/// An answer is one that `openapi.yaml` describes: status, headers, body.
fn answer_is_documented(method: &Method, path: &str, answer: &RawAnswer) {
    // The gateway's own answer.
    if method == Method::OPTIONS {
        return;
    }
    let path = path.split('?').next().unwrap_or_default();
    let mut headers: BTreeMap<String, String> = BTreeMap::new();
    for (name, value) in answer.headers.iter() {
        // A field that comes twice (the gateway adds a `Vary` of its own) is one with both values.
        headers
            .entry(name.to_owned())
            .and_modify(|values| *values = format!("{values}, {value}"))
            .or_insert_with(|| value.to_owned());
    }
    let answer = contract::Answer { status: answer.status, headers: &headers, body: &answer.body };
    if let Err(drift) = CONTRACT.check_answer(method.as_str(), path, answer) {
        panic!("openapi.yaml says otherwise: {drift}: {}", String::from_utf8_lossy(answer.body));
    }
}

/// A frame is one that `asyncapi.yaml` describes.
pub fn frame_is_documented(text: &str) {
    let frame = serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"));
    if let Err(drift) = CONTRACT.check_server_frame(&frame) {
        panic!("asyncapi.yaml says otherwise: {drift}");
    }
}

fn state_directory() -> PathBuf {
    std::env::var_os("HOTCAKE_STATE").map_or_else(|| root().join(".local"), PathBuf::from)
}

/// What `tests/stack/stack.py` sets for every AWS client of the stack, for a function that runs beside it.
pub(crate) fn aws_environment() -> [(&'static str, &'static str); 4] {
    [
        ("AWS_ACCESS_KEY_ID", KEY),
        ("AWS_SECRET_ACCESS_KEY", KEY),
        ("AWS_REGION", REGION),
        ("AWS_EC2_METADATA_DISABLED", "true"),
    ]
}
