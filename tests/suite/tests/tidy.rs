//! What no compiler checks: that template, functions, sample events and crates fit together.
//!
//! A new function is a folder, a resource, an output, alarms and a sample event; a rule of the house is an edge between
//! crates that may not be there. Each test names what is missing or too much, with the place.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test file: its helpers fail the test too"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Map, Value, json};

/// SQS delays a message by at most this.
const MAX_DELAY_SECS: u64 = 900;
/// AWS's advice for a queue that feeds a function: time for a full batch, and for the tries of a throttled one.
const VISIBILITY_PER_TIMEOUT: u64 = 6;
/// Without a batching window, a batch holds at most ten messages.
const MAX_BATCH_WITHOUT_WINDOW: u64 = 10;
/// The longest an HTTP API waits for a function.
const MAX_HTTP_WAIT_MS: u64 = 30_000;
const SWEEP_EVERY_SECS: u64 = 60;
/// A queue without dead letters loses what nobody could take for this long, so what lies in it must be known elsewhere too.
const MAX_HINT_SECS: u64 = 3_600;
/// Who may write to sockets. `chat-connect` cannot, and nobody else has a reason to.
const MAY_PUSH: [&str; 7] = ["chat-api", "chat-greet", "chat-message", "chat-sweep", "consumer", "order-due", "sweep"];

// ------------------------------------------------------------ functions, events, template

#[test]
fn every_function_has_all_that_belongs_to_one() {
    let template = Template::read();
    for folder in folders("functions") {
        let id = logical_id(&folder);
        let function = template.resource(&format!("{id}Function"));
        assert_eq!(function["Type"], "AWS::Serverless::Function", "{id}Function");
        assert_eq!(function["Metadata"]["BuildMethod"], "makefile", "{id}Function: `sam build` would not know how");
        assert_eq!(function["Properties"]["LoggingConfig"]["LogGroup"]["Ref"], format!("{id}Logs"), "{id}Function");
        assert_eq!(template.output(&format!("{id}FunctionName"))["Ref"], format!("{id}Function"));
        for (alarm, metric) in [("Errors", "Errors"), ("Throttles", "Throttles")] {
            let alarm = template.resource(&format!("{id}{alarm}Alarm"));
            assert_eq!(alarm["Properties"]["MetricName"], metric, "{id}");
            assert_eq!(alarm["Properties"]["Dimensions"][0]["Value"]["Ref"], format!("{id}Function"), "{id}");
        }
        assert!(!sample_events(&folder).is_empty(), "events/{folder}/ has no sample event");
    }
}

#[test]
fn nothing_belongs_to_a_function_that_is_not_there() {
    let template = Template::read();
    let functions = folders("functions");
    let ids: BTreeSet<String> = functions.iter().map(|folder| format!("{}Function", logical_id(folder))).collect();
    let deployed: BTreeSet<String> =
        template.of_type("AWS::Serverless::Function").map(|(name, _)| name.to_owned()).collect();
    assert_eq!(deployed, ids, "the template's functions are the folders of functions/");
    assert_eq!(folders("events"), functions, "the folders of events/ are those of functions/");
}

#[test]
fn every_sample_event_says_what_comes_of_it() {
    for folder in folders("events") {
        for event in sample_events(&folder) {
            let name = event.file_name().unwrap().to_str().unwrap();
            let parts: Vec<&str> = name.split('.').collect();
            assert!(
                matches!(parts[..], [case, expected, "json"] if !case.is_empty() && !expected.is_empty()),
                "{}: the name is <case>.<expected>.json",
                event.display()
            );
            let text = fs::read_to_string(&event).unwrap();
            serde_json::from_str::<Map<String, Value>>(&text)
                .unwrap_or_else(|error| panic!("{}: {error}", event.display()));
        }
    }
}

#[test]
fn every_function_has_a_trigger_that_may_call_it() {
    let template = Template::read();
    for (name, function) in template.of_type("AWS::Serverless::Function") {
        let id = name.strip_suffix("Function").unwrap();
        if function["Properties"]["Events"].is_object() {
            continue;
        }
        let target = json!({"Fn::Sub": format!("integrations/${{{id}Integration}}")});
        let routes: Vec<&str> = template
            .of_type("AWS::ApiGatewayV2::Route")
            .filter(|(_, route)| route["Properties"]["Target"] == target)
            .map(|(route, _)| route)
            .collect();
        assert!(!routes.is_empty(), "{name}: no event and no route calls it");
        let integration = template.resource(&format!("{id}Integration")).to_string();
        assert!(integration.contains(&format!("{name}.Arn")), "{id}Integration calls another function");
        assert_eq!(template.resource(&format!("{id}Permission"))["Properties"]["FunctionName"]["Ref"], name);
    }
}

#[test]
fn nobody_waits_for_less_time_than_the_other_side_takes() {
    let template = Template::read();
    for (name, integration) in template.of_type("AWS::ApiGatewayV2::Integration") {
        let Some(wait_ms) = integration["Properties"]["TimeoutInMillis"].as_u64() else {
            continue;
        };
        let function = name.replace("Integration", "Function");
        let needed_ms = template.timeout_secs(&function) * 1000;
        assert!(wait_ms > needed_ms && wait_ms <= MAX_HTTP_WAIT_MS, "{name} waits {wait_ms} ms for {needed_ms} ms");
    }
    for sweep in ["SweepFunction", "ChatSweepFunction"] {
        assert!(template.timeout_secs(sweep) < SWEEP_EVERY_SECS, "{sweep}: a tick would meet the one before");
    }
}

#[test]
fn queues_give_a_batch_its_time() {
    let template = Template::read();
    let mut sources = 0;
    for (name, function) in template.of_type("AWS::Serverless::Function") {
        let events = function["Properties"]["Events"].as_object().into_iter().flatten();
        for (_, event) in events.filter(|(_, event)| event["Type"] == "SQS") {
            sources += 1;
            let source = &event["Properties"];
            let queue = source["Queue"]["Fn::GetAtt"].as_str().unwrap().strip_suffix(".Arn").unwrap();
            let queue = &template.resource(queue)["Properties"];
            let window_secs = source["MaximumBatchingWindowInSeconds"].as_u64().unwrap_or(0);
            let needed_secs = VISIBILITY_PER_TIMEOUT * template.timeout_secs(name) + window_secs;
            let visibility_secs = queue["VisibilityTimeout"].as_u64().unwrap();
            assert!(
                visibility_secs >= needed_secs,
                "{name}: messages come back after {visibility_secs} s, {needed_secs} needed"
            );
            let batch = source["BatchSize"].as_u64().unwrap();
            assert!(batch <= MAX_BATCH_WITHOUT_WINDOW || window_secs > 0, "{name}: batches of {batch} need a window");
            assert_eq!(source["FunctionResponseTypes"], json!(["ReportBatchItemFailures"]), "{name}");
            if window_secs > 0 {
                assert_eq!(batch, u64::try_from(sale::ledger::GROUP).unwrap(), "{name}: one transaction takes a batch");
            }
            match queue["RedrivePolicy"]["maxReceiveCount"].as_u64() {
                Some(tries) => assert!(tries >= 5, "{name}: given up too early"),
                // Hints about rows: the sweep is the backstop of reminders, the first frame that of greetings, and an old
                // one is worth nothing.
                None => {
                    let kept_secs = queue["MessageRetentionPeriod"].as_u64().unwrap_or(u64::MAX);
                    assert!(kept_secs <= MAX_HINT_SECS, "{name}: its queue has neither dead letters nor a short life");
                    assert!(
                        kept_secs > visibility_secs,
                        "{name}: a message that failed once is gone before it is back"
                    );
                }
            }
        }
    }
    assert_eq!(sources, 3, "the consumer's queue, the reminders' and the greetings'");
    for (name, queue) in template.of_type("AWS::SQS::Queue") {
        let delay_secs = queue["Properties"]["DelaySeconds"].as_u64().unwrap_or(0);
        assert!(delay_secs <= MAX_DELAY_SECS, "{name} delays {delay_secs} s: SQS refuses, the local stack does not");
    }
}

/// The code reckons with the longest that a function can live: what was running then is gone.
#[test]
fn waits_in_the_code_outlast_the_functions_they_wait_for() {
    let template = Template::read();
    for (name, function) in template.of_type("AWS::Serverless::Function") {
        if function["Properties"]["Environment"]["Variables"]["REDIS_URL"].is_null() {
            continue;
        }
        let wait_secs = u64::try_from(sale::rebuild::WAIT_SECS).unwrap();
        assert!(wait_secs >= template.timeout_secs(name), "{name} may write to a gate that is loaded already");
    }
    let abandon_secs = u64::try_from(sale::sweep::ABANDON_SECS).unwrap();
    assert!(
        abandon_secs > template.timeout_secs("BuyFunction"),
        "holds are given up that buy may still make orders of"
    );
    let lowering_ms = u64::try_from(sale::gate::LOWERING_MS).unwrap();
    let admin_ms = 1000 * template.timeout_secs("AdminFunction");
    assert!(lowering_ms > admin_ms, "units are given back that admin may still take out");
}

/// A line that says `alarm = "…"` is for people: each kind has an alarm, and each function that writes some a filter.
#[test]
fn lines_that_ask_for_people_reach_them() {
    let template = Template::read();
    let mut kinds = BTreeSet::new();
    // Whoever pushes may say that it failed; and admin repairs what the sweep watches.
    let mut writers: BTreeSet<String> = MAY_PUSH.into_iter().chain(["admin"]).map(str::to_owned).collect();
    let functions = folders("functions");
    let shared = [("shared", "sale"), ("shared", "chat")];
    let crates = functions.iter().map(|folder| ("functions", folder.as_str())).chain(shared);
    for (under, folder) in crates {
        for source in sources(&root().join(under).join(folder).join("src")) {
            let lines = source.lines().filter(|line| line.contains("alarm"));
            let found: BTreeSet<String> = lines.flat_map(capitals_in_quotes).map(str::to_owned).collect();
            if under == "functions" && !found.is_empty() {
                writers.insert(folder.to_owned());
            }
            kinds.extend(found);
        }
    }
    let of_lines = |resource: &Value| resource["Properties"]["MetricName"] == "AlarmLines";
    let watched: BTreeSet<String> = template
        .of_type("AWS::CloudWatch::Alarm")
        .filter(|(_, alarm)| of_lines(alarm))
        .map(|(_, alarm)| text(&alarm["Properties"]["Dimensions"][0]["Value"]))
        .collect();
    assert!(!kinds.is_empty());
    assert_eq!(watched, kinds, "kinds with an alarm, and kinds that the sources write");
    let filtered: BTreeSet<String> = template
        .of_type("AWS::Logs::MetricFilter")
        .filter(|(_, filter)| filter["Properties"]["MetricTransformations"][0]["MetricName"] == "AlarmLines")
        .map(|(_, filter)| text(&filter["Properties"]["LogGroupName"]["Ref"]))
        .collect();
    assert_eq!(filtered, writers.iter().map(|folder| format!("{}Logs", logical_id(folder))).collect());
}

/// CloudFormation generates a secret anew when its template changes, over what was put into it since.
#[test]
fn no_parameter_is_a_part_of_a_generated_secret() {
    let template = Template::read();
    for (name, secret) in template.of_type("AWS::SecretsManager::Secret") {
        let generated = &secret["Properties"]["GenerateSecretString"];
        let on_aws = generated["Fn::If"].as_array().map_or(generated, |branches| &branches[2]);
        let text = on_aws["SecretStringTemplate"].to_string();
        assert!(!text.replace("${AWS::", "").contains("${") && !text.contains("Ref"), "{name}: {text}");
    }
}

#[test]
fn policies_name_what_they_allow() {
    let template = Template::read();
    let mut pushing = BTreeSet::new();
    for (name, function) in template.of_type("AWS::Serverless::Function") {
        for statement in statements(&function["Properties"]["Policies"]) {
            assert_eq!(statement["Effect"], "Allow", "{name}");
            for action in one_or_many(&statement["Action"]) {
                let action = action.as_str().unwrap();
                assert!(action.contains(':') && !action.contains('*'), "{name} allows {action}");
                if action == "execute-api:ManageConnections" {
                    pushing.insert(name.to_owned());
                }
            }
            for resource in one_or_many(&statement["Resource"]) {
                let wide = resource.as_str().is_some()
                    || resource["Fn::Sub"].as_str().is_some_and(|arn| {
                        // a connection's id and an image's key are the two things that cannot be known before
                        let known = arn.strip_suffix("/@connections/*").or_else(|| arn.strip_suffix("Bucket.Arn}/*"));
                        known.unwrap_or(arn).contains('*')
                    });
                assert!(!wide, "{name} allows {} on {resource}", statement["Action"]);
            }
        }
    }
    let expected = MAY_PUSH.iter().map(|folder| format!("{}Function", logical_id(folder))).collect();
    assert_eq!(pushing, expected);
}

/// The template a developer runs is the template AWS runs. Only these places may look at whether it is local: the cache,
/// the network around it, secrets' contents, and addresses.
#[test]
fn only_plumbing_differs_between_aws_and_the_local_stack() {
    let template = Template::read();
    let switches = template.local_switches();
    assert!(switches.contains("Local") && switches.contains("OnAws"), "{switches:?}");
    let mut found = BTreeSet::new();
    for (name, resource) in template.resources() {
        let kind = resource["Type"].as_str().unwrap();
        if resource["Condition"].as_str().is_some_and(|condition| switches.contains(condition)) {
            let plumbing = kind.starts_with("AWS::EC2::")
                || kind.starts_with("AWS::ElastiCache::")
                || kind == "AWS::CloudWatch::Alarm" && resource["Properties"]["Namespace"] == "AWS/ElastiCache"
                || name == "CacheSecret";
            assert!(plumbing, "{name} ({kind}) exists on one side only");
            continue;
        }
        template.local_places(resource, &switches, &mut vec![kind.to_owned()], &mut found);
    }
    template.local_places(&template.0["Globals"], &switches, &mut vec!["Globals".to_owned()], &mut found);
    template.local_places(&template.0["Outputs"], &switches, &mut vec!["Outputs".to_owned()], &mut found);
    let allowed = [
        "AWS::SecretsManager::Secret Properties SecretString",
        "AWS::SecretsManager::Secret Properties GenerateSecretString",
        "AWS::Serverless::Function Properties VpcConfig",
        "AWS::Serverless::Function Properties Policies Statement",
        "AWS::Serverless::Function Properties Environment Variables REDIS_URL",
        "AWS::Serverless::Function Properties Environment Variables REDIS_CLUSTER",
        "AWS::Serverless::Function Properties Environment Variables CACHE_SECRET_ARN",
        "AWS::Serverless::Function Properties Environment Variables WS_ENDPOINT",
        "AWS::Serverless::Function Properties Environment Variables PAY_NOTIFY_URL",
        "AWS::Serverless::Function Properties Environment Variables IMAGE_URL",
        "Globals Function Environment Variables AWS_ENDPOINT_URL",
        "Globals Function Architectures",
        "Outputs HttpUrl Value",
        "Outputs CacheEndpoint",
    ];
    assert_eq!(found, allowed.map(str::to_owned).into(), "places that differ between AWS and the local stack");

    // the only statement that may come and go is the right to read the cache's password
    for (name, function) in template.of_type("AWS::Serverless::Function") {
        for statement in
            one_or_many(&function["Properties"]["Policies"]).iter().flat_map(|p| one_or_many(&p["Statement"]))
        {
            let Some(branches) = statement["Fn::If"].as_array() else {
                continue;
            };
            assert_eq!(branches[0], "OnAws", "{name}");
            assert_eq!(branches[1]["Resource"], json!({"Fn::GetAtt": "CacheSecret.Id"}), "{name}");
            assert_eq!(branches[2], json!({"Ref": "AWS::NoValue"}), "{name}");
        }
    }
}

// ------------------------------------------------------------------------------ crates

/// functions → backoffice → platform, sale, chat → kernel. Nobody else, and nothing depends on a function.
#[test]
fn crates_depend_in_one_direction() {
    let dependencies = workspace_dependencies();
    let functions = folders("functions");
    for (krate, uses) in &dependencies {
        let allowed: BTreeSet<&str> = match krate.as_str() {
            "kernel" => [].into(),
            "sale" | "chat" | "platform" => ["kernel"].into(),
            // where what the sale says and the sockets meet
            "backoffice" => ["kernel", "platform", "sale", "chat"].into(),
            function if functions.contains(function) => ["kernel", "platform", "sale", "chat", "backoffice"].into(),
            // what drives the system from outside knows its wire format and nothing else
            "client" | "contract" | "ops" => [].into(),
            // beside it the oracle over the rows of the chat, which has no route
            "load" => ["client", "chat"].into(),
            "suite" | "e2e" | "chaos" => continue,
            unknown => panic!("{unknown}: say in this test what it may depend on"),
        };
        let forbidden: Vec<&String> = uses.iter().filter(|used| !allowed.contains(used.as_str())).collect();
        assert!(forbidden.is_empty(), "{krate} may not depend on {forbidden:?}");
    }
    assert_eq!(
        folders("shared"),
        ["backoffice", "chat", "kernel", "ops", "platform", "sale"].map(str::to_owned).into()
    );
}

/// Every crate of the workspace with the workspace crates it uses outside its tests.
fn workspace_dependencies() -> BTreeMap<String, BTreeSet<String>> {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--no-deps", "--offline", "--format-version", "1"])
        .current_dir(root())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout).unwrap();
    let packages = metadata["packages"].as_array().unwrap();
    packages
        .iter()
        .map(|package| {
            let uses = package["dependencies"].as_array().unwrap().iter();
            // a path and no registry: one of ours
            let ours = uses.filter(|dependency| dependency["path"].is_string() && dependency["kind"] != "dev");
            (text(&package["name"]), ours.map(|dependency| text(&dependency["name"])).collect())
        })
        .collect()
}

// -------------------------------------------------------------------------- the template

/// `template.yaml`, its short forms (`!Ref x`) written out (`{"Ref": "x"}`).
struct Template(Value);

impl Template {
    fn read() -> Self {
        let text = fs::read_to_string(root().join("template.yaml")).unwrap();
        Self(written_out(serde_yaml_ng::from_str(&text).unwrap()))
    }

    fn resources(&self) -> impl Iterator<Item = (&str, &Value)> {
        self.0["Resources"].as_object().unwrap().iter().map(|(name, resource)| (name.as_str(), resource))
    }

    fn of_type(&self, kind: &str) -> impl Iterator<Item = (&str, &Value)> {
        self.resources().filter(move |(_, resource)| resource["Type"] == kind)
    }

    fn resource(&self, name: &str) -> &Value {
        self.0["Resources"].get(name).unwrap_or_else(|| panic!("template.yaml has no {name}"))
    }

    fn output(&self, name: &str) -> &Value {
        &self.0["Outputs"].get(name).unwrap_or_else(|| panic!("template.yaml has no output {name}"))["Value"]
    }

    fn timeout_secs(&self, function: &str) -> u64 {
        let own = &self.resource(function)["Properties"]["Timeout"];
        own.as_u64().unwrap_or_else(|| self.0["Globals"]["Function"]["Timeout"].as_u64().unwrap())
    }

    /// Every condition that hangs on the parameter `LocalGateway`, by itself or through another condition.
    fn local_switches(&self) -> BTreeSet<String> {
        let conditions = self.0["Conditions"].as_object().unwrap();
        let mut switches = BTreeSet::new();
        loop {
            let known = switches.len();
            for (name, condition) in conditions {
                let mut names = BTreeSet::new();
                mentioned(condition, "Ref", &mut names);
                let by_parameter = names.iter().any(|name| name.starts_with("Local"));
                names.clear();
                mentioned(condition, "Condition", &mut names);
                if by_parameter || names.iter().any(|name| switches.contains(name)) {
                    switches.insert(name.clone());
                }
            }
            if switches.len() == known {
                return switches;
            }
        }
    }

    /// Where `value` asks whether it is local, or uses a parameter that only the local stack sets.
    fn local_places(
        &self,
        value: &Value,
        switches: &BTreeSet<String>,
        path: &mut Vec<String>,
        found: &mut BTreeSet<String>,
    ) {
        match value {
            Value::Object(members) => {
                let asks = members.get("Fn::If").is_some_and(|branches| switches.contains(&text(&branches[0])));
                let uses = members.get("Ref").is_some_and(|name| text(name).starts_with("Local"))
                    || members.get("Fn::Sub").is_some_and(|sub| text(sub).contains("${Local"));
                let exists = members.get("Condition").is_some_and(|condition| switches.contains(&text(condition)));
                if asks || uses || exists {
                    found.insert(path.join(" "));
                    return;
                }
                for (name, member) in members {
                    path.push(name.clone());
                    self.local_places(member, switches, path, found);
                    path.pop();
                }
            }
            Value::Array(items) => items.iter().for_each(|item| self.local_places(item, switches, path, found)),
            Value::String(_) | Value::Number(_) | Value::Bool(_) | Value::Null => {}
        }
    }
}

/// All texts that stand under `key`, at any depth.
fn mentioned(value: &Value, key: &str, names: &mut BTreeSet<String>) {
    match value {
        Value::Object(members) => {
            for (name, member) in members {
                match member {
                    Value::String(text) if name == key => drop(names.insert(text.clone())),
                    other => mentioned(other, key, names),
                }
            }
        }
        Value::Array(items) => items.iter().for_each(|item| mentioned(item, key, names)),
        Value::String(_) | Value::Number(_) | Value::Bool(_) | Value::Null => {}
    }
}

fn written_out(value: serde_yaml_ng::Value) -> Value {
    use serde_yaml_ng::Value as Yaml;
    match value {
        Yaml::Null => Value::Null,
        Yaml::Bool(flag) => Value::Bool(flag),
        Yaml::Number(number) => serde_json::to_value(number).unwrap(),
        Yaml::String(text) => Value::String(text),
        Yaml::Sequence(items) => Value::Array(items.into_iter().map(written_out).collect()),
        Yaml::Mapping(members) => Value::Object(
            members
                .into_iter()
                .map(|(name, member)| (name.as_str().unwrap().to_owned(), written_out(member)))
                .collect(),
        ),
        Yaml::Tagged(tagged) => {
            let tag = tagged.tag.to_string();
            let name = match tag.trim_start_matches('!') {
                plain @ ("Ref" | "Condition") => plain.to_owned(),
                function => format!("Fn::{function}"),
            };
            Value::Object(Map::from_iter([(name, written_out(tagged.value))]))
        }
    }
}

/// The statements of a function's policies, those behind a condition too.
fn statements(policies: &Value) -> Vec<&Value> {
    one_or_many(policies)
        .into_iter()
        .flat_map(|policy| {
            assert!(policy["Statement"].is_array(), "a policy with its statements, not a ready-made one: {policy}");
            one_or_many(&policy["Statement"])
        })
        .map(|statement| statement["Fn::If"].get(1).unwrap_or(statement))
        .collect()
}

fn one_or_many(value: &Value) -> Vec<&Value> {
    match value {
        Value::Array(items) => items.iter().collect(),
        one => vec![one],
    }
}

// -------------------------------------------------------------------------- the checkout

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap().to_owned()
}

fn folders(under: &str) -> BTreeSet<String> {
    let entries = fs::read_dir(root().join(under)).unwrap_or_else(|error| panic!("{under}/: {error}"));
    let directories = entries.map(Result::unwrap).filter(|entry| entry.file_type().unwrap().is_dir());
    directories.map(|entry| entry.file_name().into_string().unwrap()).collect()
}

fn sample_events(folder: &str) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(root().join("events").join(folder)) else {
        return Vec::new();
    };
    entries.map(|entry| entry.unwrap().path()).collect()
}

/// The texts of a crate's sources.
fn sources(folder: &Path) -> Vec<String> {
    let mut texts = Vec::new();
    for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
        if entry.file_type().unwrap().is_dir() {
            texts.extend(sources(&entry.path()));
        } else if entry.path().extension().is_some_and(|extension| extension == "rs") {
            texts.push(fs::read_to_string(entry.path()).unwrap());
        }
    }
    texts
}

/// What stands in quotation marks, in capitals.
fn capitals_in_quotes(line: &str) -> impl Iterator<Item = &str> {
    let quoted = line.split('"').skip(1).step_by(2);
    quoted.filter(|word| !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_uppercase() || byte == b'_'))
}

/// `chat-connect` → `ChatConnect`, the stem of its resources' names.
fn logical_id(folder: &str) -> String {
    folder
        .split('-')
        .map(|part| {
            let (first, rest) = part.split_at(1);
            first.to_uppercase() + rest
        })
        .collect()
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}
