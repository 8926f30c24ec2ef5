//! `openapi.yaml` and `asyncapi.yaml` say exactly what the code serves, and the sample events are what they claim to be.
//!
//! What is documented is compared with the sources ([`source`] reads them), so that neither can change alone: routes,
//! statuses, problem codes, members of documents and frames, words of enums, bounds. [`frames`] does so for the socket,
//! [`samples`] holds `events/` against both. What real answers look like is checked where there are some: the end-to-end
//! tests hand them to the same [`contract::Contract`].
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test: its helpers fail the test too")]

mod frames;
mod samples;
mod source;

use std::collections::{BTreeMap, BTreeSet};

use contract::{Contract, Operation, members, root};
use serde_json::Value;

use crate::source::{Answers, Source};

/// The functions behind the HTTP API.
const HTTP_FUNCTIONS: [&str; 6] = ["admin", "buy", "catalog", "chat-api", "orders", "pay-notify"];

/// Struct → schema, by crate.
const DOCUMENTS: [(&str, &str, &str); 55] = [
    ("functions/buy", "Body", "BuyBody"),
    ("functions/buy", "Accepted", "Accepted"),
    ("functions/orders", "ResultDocument", "Result"),
    ("functions/orders", "OrderDocument", "Order"),
    ("functions/orders", "StatusDocument", "OrderState"),
    ("functions/orders", "ListDocument", "OrderPage"),
    ("functions/orders", "PayDocument", "PreparedPayment"),
    ("functions/pay-notify", "Notice", "PaymentNotice"),
    ("functions/pay-notify", "Received", "NoticeReceived"),
    ("functions/catalog", "ListDocument", "ActivityList"),
    ("functions/catalog", "Summary", "ActivitySummary"),
    ("functions/catalog", "ActivityDocument", "Activity"),
    ("functions/catalog", "Product", "Product"),
    ("functions/catalog", "TimeDocument", "Time"),
    ("functions/admin", "SkuBody", "SkuBody"),
    ("functions/admin", "ActivityBody", "ActivityBody"),
    ("functions/admin", "ProductBody", "ProductBody"),
    ("functions/admin", "SkuDocument", "Sku"),
    ("functions/admin", "ActivityDocument", "AdminActivity"),
    ("functions/admin", "ProductDocument", "AdminProduct"),
    ("functions/admin", "StatsDocument", "Stats"),
    ("functions/admin", "StatsProduct", "StatsProduct"),
    ("functions/admin", "ChangesDocument", "ChangeList"),
    ("functions/admin", "ChangeDocument", "Change"),
    ("functions/admin", "Reconciled", "Reconciled"),
    ("functions/admin", "ReconciledProduct", "ReconciledProduct"),
    ("functions/admin", "DriftDocument", "FoundDrift"),
    ("functions/admin", "Rebuilt", "Rebuilt"),
    ("functions/admin", "RebuiltProduct", "RebuiltProduct"),
    ("functions/admin", "PaymentList", "PaymentList"),
    ("functions/admin", "PaymentDocument", "Payment"),
    ("functions/admin", "BlockBody", "BlockBody"),
    ("functions/admin", "BlockedDocument", "Blocked"),
    ("functions/admin", "BlacklistDocument", "Blacklist"),
    ("functions/admin", "Unblocked", "Unblocked"),
    ("functions/admin", "DeadLetterList", "DeadLetters"),
    ("functions/admin", "LetterDocument", "DeadLetter"),
    ("functions/admin", "Redriven", "Redriven"),
    ("functions/chat-api", "TicketDocument", "Ticket"),
    ("functions/chat-api", "ListDocument", "SessionPage"),
    ("functions/chat-api", "ListedDocument", "ChatSession"),
    ("functions/chat-api", "HistoryDocument", "MessagePage"),
    ("functions/chat-api", "RatingBody", "RateBody"),
    ("functions/chat-api", "RatingDocument", "Rating"),
    ("functions/chat-api", "UploadBody", "UploadBody"),
    ("functions/chat-api", "UploadDocument", "UploadForm"),
    ("functions/chat-api", "AgentsDocument", "AgentList"),
    ("functions/chat-api", "AgentDocument", "Agent"),
    ("functions/chat-api", "AgentBody", "AgentBody"),
    ("shared/chat", "ImageDocument", "ChatImage"),
    ("shared/chat", "Card", "ChatCard"),
    ("shared/sale", "Report", "AuditReport"),
    ("shared/sale", "Violation", "Violation"),
    ("shared/sale", "Counts", "AuditCounts"),
    ("shared/sale", "Money", "Money"),
];

/// Enum → schema, by crate.
const WORDS: [(&str, &str, &str); 14] = [
    ("functions/catalog", "PublicState", "ActivityState"),
    ("functions/admin", "RebuildState", "RebuildState"),
    ("functions/pay-notify", "NoticeStatus", "NoticeStatus"),
    ("shared/chat", "AgentStatus", "AgentStatus"),
    ("shared/chat", "SessionStatus", "ChatSessionStatus"),
    ("shared/sale", "Shown", "AdminActivityState"),
    ("shared/sale", "Drift", "Drift"),
    ("shared/sale", "Settled", "Settled"),
    ("shared/sale", "PaymentState", "PaymentState"),
    ("shared/sale", "Mismatch", "Mismatch"),
    ("shared/sale", "OrderStatus", "OrderStatus"),
    ("shared/sale", "BuyResult", "BuyResult"),
    ("shared/sale", "EndReason", "EndReason"),
    ("shared/sale", "Invariant", "Invariant"),
];

/// Problems that the way through the code could lead to, but that cannot come up: all edits share one function that puts a
/// refusal into words, and not every edit can be refused for every reason.
const NOT_REACHED: [(&str, &[&str]); 3] = [
    ("PUT /api/admin/skus/{skuId}", &["ENDED", "NOT_FOUND", "NOT_READY"]),
    ("PUT /api/admin/activities/{activityId}", &["INSUFFICIENT_STOCK", "NOT_FOUND", "NOT_READY"]),
    ("POST /api/admin/activities/{activityId}/{action}", &["INSUFFICIENT_STOCK", "NOT_READY"]),
];

#[test]
fn the_documents_are_well_formed_and_their_examples_are_valid() {
    let examples = Contract::read().check_examples().unwrap_or_else(|drift| panic!("{drift}"));
    assert!(examples > 20, "only {examples} examples were found");
}

#[test]
fn template_functions_and_document_have_the_same_routes() {
    let deployed = deployed_routes();
    let served: BTreeMap<String, String> = HTTP_FUNCTIONS
        .iter()
        .flat_map(|function| {
            let routes = Source::read(&format!("functions/{function}")).routes();
            routes.into_iter().map(|route| (route, (*function).to_owned()))
        })
        .collect();
    assert_eq!(served, deployed, "routes of the functions, and of template.yaml");

    let contract = Contract::read();
    let documented: BTreeSet<String> = contract.operations().iter().map(Operation::route).collect();
    assert_eq!(documented, deployed.into_keys().collect(), "operations of openapi.yaml, and routes of template.yaml");
}

#[test]
fn every_answer_of_a_route_is_documented_and_none_else() {
    let contract = Contract::read();
    let http = Source::read("shared/platform");
    let mut differences = Vec::new();
    for function in HTTP_FUNCTIONS {
        for (route, found) in Source::read(&format!("functions/{function}")).answers(&http) {
            let operation = operation(&contract, &route);
            let not_reached = NOT_REACHED.iter().find(|(of, _)| *of == route).map_or(&[][..], |(_, codes)| codes);
            let (reached, exempt): (BTreeSet<_>, BTreeSet<_>) =
                found.problems.into_iter().partition(|(_, code)| !not_reached.contains(&code.as_str()));
            let exempt: BTreeSet<&str> = exempt.iter().map(|(_, code)| code.as_str()).collect();
            assert_eq!(
                exempt,
                not_reached.iter().copied().collect(),
                "{route}: NOT_REACHED lists what nothing leads to"
            );
            let found = Answers { problems: reached, ..found };
            let documented = documented_answers(&contract, operation);
            if found != documented {
                differences.push(format!("{route}\n  in the code: {found:?}\n  documented:  {documented:?}"));
            }
        }
    }
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}

#[test]
fn every_problem_code_is_in_the_list_and_the_list_has_no_other() {
    let contract = Contract::read();
    let used: BTreeSet<String> = contract
        .operations()
        .iter()
        .flat_map(|operation| documented_answers(&contract, *operation).problems)
        .map(|(_, code)| code)
        .collect();
    assert_eq!(words(contract.schema("ProblemCode")), used);
    let retried =
        used.iter().filter(|code| matches!(code.as_str(), "NOT_READY" | "PAUSED" | "RATE_LIMITED" | "UNAVAILABLE"));
    assert_eq!(retried.count(), 4, "the codes that ask to come back");
}

#[test]
fn who_may_call_is_what_the_functions_ask_for() {
    let contract = Contract::read();
    for operation in contract.operations() {
        let answers = documented_answers(&contract, operation);
        let asks = answers.problems.contains(&(401, "UNAUTHENTICATED".to_owned()));
        let expected: &[&str] = match (operation.path.starts_with("/api/admin/"), asks) {
            (true, _) => &["admin"],
            // a signature instead of a token
            (false, true) if operation.path.starts_with("/api/pay/") => &["provider"],
            // either side of a chat; what one side alone may do or see is named
            (false, true) if operation.path == "/api/chat/agents" => &["agent", "admin"],
            (false, true) if operation.path.starts_with("/api/chat/") && !operation.path.ends_with("/rate") => {
                &["user", "agent"]
            }
            (false, true) => &["user"],
            (false, false) => &[],
        };
        assert_eq!(operation.security(), expected, "{}", operation.route());
    }
}

#[test]
fn path_parameters_are_those_of_the_path() {
    let contract = Contract::read();
    for operation in contract.operations() {
        let in_path: BTreeSet<String> = operation
            .path
            .split('/')
            .filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'))
            .map(str::to_owned)
            .collect();
        assert_eq!(
            operation.path_parameters(&contract).into_iter().collect::<BTreeSet<_>>(),
            in_path,
            "{}",
            operation.route()
        );
    }
}

#[test]
fn documents_have_the_members_of_the_structs_behind_them() {
    let contract = Contract::read();
    for (krate, name, schema) in DOCUMENTS {
        let expected = Source::read(krate).members(name);
        let schema = contract.schema(schema);
        assert_eq!(properties(schema), expected.all, "{krate} {name}");
        assert_eq!(required(schema), expected.required, "{krate} {name}: members that are always there");
        assert_eq!(schema["additionalProperties"], false, "{krate} {name}");
    }
    for (krate, name, schema) in WORDS {
        assert_eq!(words(contract.schema(schema)), Source::read(krate).words(name), "{krate} {name}");
    }
}

#[test]
fn no_document_of_a_function_is_left_out() {
    for function in HTTP_FUNCTIONS {
        let folder = format!("functions/{function}");
        let listed: BTreeSet<String> = DOCUMENTS
            .iter()
            .chain(&WORDS)
            .filter(|(krate, ..)| *krate == folder)
            .map(|(_, name, _)| (*name).to_owned())
            .collect();
        assert_eq!(
            Source::read(&folder).serde_types(),
            listed,
            "{folder}: list the new one in this test, and document it"
        );
    }
}

#[test]
fn bounds_are_those_of_the_code() {
    let contract = Contract::read();
    let schema = |name: &str| contract.schema(name);
    let bound = |name: &str, pointer: &str| {
        schema(name).pointer(pointer).and_then(Value::as_i64).unwrap_or_else(|| panic!("{name}{pointer} is no number"))
    };
    let admin = Source::read("functions/admin");
    let orders = Source::read("functions/orders");
    let (max_id, max_request_id) = (kernel::ids::MAX_ID_LEN, kernel::ids::MAX_REQUEST_ID_LEN);
    assert_eq!(schema("Id")["pattern"], format!("^[A-Za-z0-9_-]{{1,{max_id}}}$"));
    assert_eq!(schema("OrderNo")["pattern"], format!("^[A-Za-z0-9_-]{{1,{max_id}}}$"));
    assert_eq!(schema("RequestId")["pattern"], format!("^[A-Za-z0-9_.:-]{{1,{max_request_id}}}$"));
    let dearest = kernel::money::MAX_PRICE * u64::from(kernel::ids::MAX_QUANTITY);
    let cases: [(&str, &str, i64); 31] = [
        ("Quantity", "/maximum", kernel::ids::MAX_QUANTITY.into()),
        ("Price", "/maximum", kernel::money::MAX_PRICE.try_into().unwrap()),
        ("Amount", "/maximum", dearest.try_into().unwrap()),
        ("Units", "/maximum", sale::offer::MAX_TOTAL),
        ("Title", "/maxLength", sale::lifecycle::MAX_TITLE_CHARS.try_into().unwrap()),
        ("Activity", "/properties/products/maxItems", sale::offer::MAX_PRODUCTS.try_into().unwrap()),
        ("AdminActivity", "/properties/products/maxItems", sale::offer::MAX_PRODUCTS.try_into().unwrap()),
        ("Stats", "/properties/products/maxItems", sale::offer::MAX_PRODUCTS.try_into().unwrap()),
        ("Reconciled", "/properties/products/maxItems", sale::offer::MAX_PRODUCTS.try_into().unwrap()),
        ("Rebuilt", "/properties/products/maxItems", sale::offer::MAX_PRODUCTS.try_into().unwrap()),
        ("ReconciledProduct", "/properties/drifts/maxItems", admin.constant("MAX_DRIFTS")),
        ("PaymentList", "/properties/items/maxItems", admin.constant("PAGE")),
        ("RateBody", "/properties/comment/maxLength", chat::desk::life::MAX_COMMENT_CHARS.try_into().unwrap()),
        ("AgentBody", "/properties/capacity/maximum", chat::desk::agents::MAX_CAPACITY.into()),
        ("UploadBody", "/properties/size/maximum", chat::uploads::MAX_IMAGE_BYTES.try_into().unwrap()),
        ("SessionPage", "/properties/items/maxItems", Source::read("functions/chat-api").constant("MAX_PAGE")),
        ("ChangeList", "/properties/items/maxItems", admin.constant("PAGE")),
        ("Blacklist", "/properties/items/maxItems", admin.constant("PAGE")),
        ("DeadLetter", "/properties/body/maxLength", admin.constant("MAX_LETTER_CHARS")),
        ("BlockBody", "/properties/reason/maxLength", sale::blacklist::MAX_REASON_CHARS.try_into().unwrap()),
        ("Blocked", "/properties/reason/maxLength", sale::blacklist::MAX_REASON_CHARS.try_into().unwrap()),
        ("ActivityBody", "/properties/payWindowSecs/maximum", sale::lifecycle::MAX_PAY_WINDOW_SECS.into()),
        ("ActivityBody", "/properties/userIntervalMs/maximum", sale::lifecycle::MAX_INTERVAL_MS.into()),
        ("ActivityBody", "/properties/deviceIpIntervalMs/maximum", sale::lifecycle::MAX_INTERVAL_MS.into()),
        ("ProductBody", "/properties/limitPerUser/maximum", sale::lifecycle::MAX_LIMIT_PER_USER.into()),
        ("ActivityBody", "/properties/payWindowSecs/default", admin.constant("PAY_WINDOW_SECS")),
        ("ActivityBody", "/properties/userIntervalMs/default", admin.constant("USER_INTERVAL_MS")),
        ("ActivityBody", "/properties/deviceIpIntervalMs/default", admin.constant("DEVICE_IP_INTERVAL_MS")),
        ("ProductBody", "/properties/image/maxLength", admin.constant("MAX_IMAGE_LEN")),
        ("OrderPage", "/properties/items/maxItems", orders.constant("MAX_PAGE")),
        ("Violation", "/properties/orderNos/maxItems", Source::read("shared/sale").constant("MAX_NAMED")),
    ];
    for (name, pointer, expected) in cases {
        assert_eq!(bound(name, pointer), expected, "{name}{pointer}");
    }
    let document = contract.http();
    for (path, parameter, pointer, expected) in [
        ("/api/orders", "limit", "maximum", orders.constant("MAX_PAGE")),
        ("/api/orders", "limit", "default", orders.constant("PAGE")),
        ("/api/admin/activities/{activityId}/audit", "boundSecs", "maximum", sale::audit::MAX_BOUND_SECS.into()),
        ("/api/admin/activities/{activityId}/audit", "boundSecs", "default", sale::audit::BOUND_SECS.into()),
    ] {
        let parameters = document["paths"][path]["get"]["parameters"].as_array().unwrap();
        let found = parameters.iter().find(|listed| listed["name"] == parameter).unwrap();
        assert_eq!(found["schema"][pointer], expected, "{parameter} {pointer}");
    }
}

// ---------------------------------------------------------------------------------- the documents

fn operation<'a>(contract: &'a Contract, route: &str) -> Operation<'a> {
    let operations = contract.operations();
    operations
        .into_iter()
        .find(|operation| operation.route() == route)
        .unwrap_or_else(|| panic!("openapi.yaml has no {route}"))
}

fn documented_answers<'a>(contract: &'a Contract, operation: Operation<'a>) -> Answers {
    let mut answers = Answers::default();
    for status in operation.statuses() {
        let codes = operation.codes(contract, status);
        if codes.is_empty() {
            answers.successes.insert(status);
        }
        answers.problems.extend(codes.into_iter().map(|code| (status, code)));
    }
    answers
}

fn properties(schema: &Value) -> BTreeSet<String> {
    members(&schema["properties"]).map(|(name, _)| name.to_owned()).collect()
}

fn required(schema: &Value) -> BTreeSet<String> {
    texts(&schema["required"])
}

fn words(schema: &Value) -> BTreeSet<String> {
    texts(&schema["enum"])
}

fn texts(list: &Value) -> BTreeSet<String> {
    list.as_array().into_iter().flatten().map(|text| text.as_str().unwrap().to_owned()).collect()
}

/// `PayNotify` → `pay-notify`.
fn folder(function: &str) -> String {
    let capitals = function.char_indices().flat_map(|(at, letter)| {
        let hyphen = (at > 0 && letter.is_ascii_uppercase()).then_some('-');
        hyphen.into_iter().chain([letter.to_ascii_lowercase()])
    });
    capitals.collect()
}

/// Route → function folder, from `template.yaml`: a route names its integration, and that is named after its function
/// (`tidy` checks that it calls it).
fn deployed_routes() -> BTreeMap<String, String> {
    let text = std::fs::read_to_string(root().join("template.yaml")).unwrap();
    let template: serde_yaml_ng::Value = serde_yaml_ng::from_str(&text).unwrap();
    let resources = template["Resources"].as_mapping().unwrap().values();
    let routes =
        resources.filter(|resource| resource["Type"] == "AWS::ApiGatewayV2::Route").map(|route| &route["Properties"]);
    routes
        .filter_map(|route| {
            let key = route["RouteKey"].as_str().unwrap();
            let serde_yaml_ng::Value::Tagged(target) = &route["Target"] else { panic!("{key} has no target") };
            let target = target.value.as_str().unwrap();
            let function =
                target.strip_prefix("integrations/${").and_then(|target| target.strip_suffix("Integration}")).unwrap();
            // the socket's routes begin with a dollar sign
            key.contains(' ').then(|| (key.to_owned(), folder(function)))
        })
        .collect()
}
