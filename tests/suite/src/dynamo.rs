//! A DynamoDB in this process, with the tables that `template.yaml` declares, behind the real SDK.

use std::collections::HashMap;
use std::fs;
use std::net::SocketAddr;

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::config::{BehaviorVersion, Config, Credentials, Region};
use aws_sdk_dynamodb::types::{
    AttributeDefinition, AttributeValue, GlobalSecondaryIndex, KeySchemaElement, Projection, TimeToLiveSpecification,
};
use dynoxide::Database;
use serde_yaml_ng::{Mapping, Value};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

/// The tables' names here.
pub const ORDERS: &str = "orders";
pub const OFFERS: &str = "offers";
pub const PAYMENTS: &str = "payments";
pub const CONNECTIONS: &str = "connections";
pub const CHAT: &str = "chat";

/// Logical id in the template → name here.
const TABLES: [(&str, &str); 5] = [
    ("OrdersTable", ORDERS),
    ("OffersTable", OFFERS),
    ("PaymentsTable", PAYMENTS),
    ("ConnectionsTable", CONNECTIONS),
    ("ChatTable", CHAT),
];

const TEMPLATE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../template.yaml");

/// A database of one test, gone with it.
pub struct Dynamo {
    pub client: Client,
    pub address: SocketAddr,
    server: JoinHandle<()>,
}

impl Dynamo {
    /// An empty database with all tables.
    pub async fn start() -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a free port");
        let address = listener.local_addr().expect("a bound socket has an address");
        let database = Database::memory().expect("an in-memory database opens");
        let server = tokio::spawn(dynoxide::server::serve_on(listener, database));
        let client = Client::from_conf(
            Config::builder()
                .behavior_version(BehaviorVersion::latest())
                .region(Region::from_static("us-east-1"))
                .credentials_provider(Credentials::new("test", "test", None, None, "test"))
                .endpoint_url(format!("http://{address}"))
                .build(),
        );
        create_tables(&client).await;
        Self { client, address, server }
    }

    /// Every row of a table, in no order.
    pub async fn rows(&self, table: &str) -> Vec<HashMap<String, AttributeValue>> {
        let pages = self.client.scan().table_name(table).consistent_read(true).into_paginator().items().send();
        pages.collect::<Result<_, _>>().await.expect("a table can be scanned")
    }
}

impl Drop for Dynamo {
    fn drop(&mut self) {
        self.server.abort();
    }
}

async fn create_tables(client: &Client) {
    let text = fs::read_to_string(TEMPLATE).expect("the template is in the repository");
    let template: Value = serde_yaml_ng::from_str(&text).expect("the template is YAML");
    for (logical_id, name) in TABLES {
        let table = &template["Resources"][logical_id];
        assert_eq!(table["Type"], "AWS::DynamoDB::Table", "{logical_id} of the template");
        create_table(client, name, &table["Properties"]).await;
    }
}

/// Creates one table from its `Properties`. What has no effect on reads and writes (recovery, encryption, tags) is left.
async fn create_table(client: &Client, name: &str, properties: &Value) {
    let attributes = list(&properties["AttributeDefinitions"]).iter().map(|attribute| {
        AttributeDefinition::builder()
            .attribute_name(text(&attribute["AttributeName"]))
            .attribute_type(text(&attribute["AttributeType"]).into())
            .build()
            .expect("a whole definition")
    });
    let indexes: Vec<_> = match &properties["GlobalSecondaryIndexes"] {
        Value::Null => Vec::new(),
        indexes => list(indexes).iter().map(global_index).collect(),
    };
    client
        .create_table()
        .table_name(name)
        .billing_mode(text(&properties["BillingMode"]).into())
        .set_attribute_definitions(Some(attributes.collect()))
        .set_key_schema(Some(key_schema(&properties["KeySchema"])))
        .set_global_secondary_indexes(Some(indexes).filter(|indexes| !indexes.is_empty()))
        .send()
        .await
        .unwrap_or_else(|error| panic!("table {name}: {error:?}"));
    if let Value::Mapping(ttl) = &properties["TimeToLiveSpecification"] {
        set_time_to_live(client, name, ttl).await;
    }
}

fn global_index(index: &Value) -> GlobalSecondaryIndex {
    let projection = Projection::builder().projection_type(text(&index["Projection"]["ProjectionType"]).into()).build();
    GlobalSecondaryIndex::builder()
        .index_name(text(&index["IndexName"]))
        .set_key_schema(Some(key_schema(&index["KeySchema"])))
        .projection(projection)
        .build()
        .expect("a whole index")
}

fn key_schema(schema: &Value) -> Vec<KeySchemaElement> {
    let element = |element: &Value| {
        KeySchemaElement::builder()
            .attribute_name(text(&element["AttributeName"]))
            .key_type(text(&element["KeyType"]).into())
            .build()
            .expect("a whole key")
    };
    list(schema).iter().map(element).collect()
}

async fn set_time_to_live(client: &Client, name: &str, ttl: &Mapping) {
    let specification = TimeToLiveSpecification::builder()
        .attribute_name(text(&ttl["AttributeName"]))
        .enabled(ttl["Enabled"].as_bool().expect("TimeToLiveSpecification has Enabled"))
        .build()
        .expect("a whole specification");
    client
        .update_time_to_live()
        .table_name(name)
        .time_to_live_specification(specification)
        .send()
        .await
        .unwrap_or_else(|error| panic!("time to live of {name}: {error:?}"));
}

fn list(value: &Value) -> &[Value] {
    value.as_sequence().unwrap_or_else(|| panic!("a list in the template, not {value:?}"))
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_else(|| panic!("a text in the template, not {value:?}"))
}
