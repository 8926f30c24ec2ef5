//! The rows of the customer service, as they are: what its oracle judges by.

use std::collections::HashMap;

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::config::{BehaviorVersion, Credentials, Region};
use aws_sdk_dynamodb::types::AttributeValue;
use client::Stack;
use load::error::DemoError;

/// The local AWS asks for no more than that there are some, and takes these for the account's owner.
const KEY: &str = "test";
const REGION: &str = "us-east-1";
/// Pages of a megabyte: far more than a local stack ever has.
const MAX_PAGES: usize = 1_000;
/// The last acknowledgements and the end of the last step are written a moment after everybody is told.
const LOOKS: u32 = 5;
const PAUSE: std::time::Duration = std::time::Duration::from_secs(2);

/// What is not as it must be, and how often was looked. A row in motion is looked at again; the last look stands.
pub(crate) async fn audit(stack: &Stack) -> Result<(Vec<String>, u32), DemoError> {
    let table = &stack.tables.chat;
    let failed = |source: Box<dyn std::error::Error + Send + Sync>| DemoError::Rows { table: table.clone(), source };
    let client = Client::from_conf(
        aws_sdk_dynamodb::Config::builder()
            .behavior_version(BehaviorVersion::latest())
            .region(Region::from_static(REGION))
            .endpoint_url(&stack.aws_endpoint)
            .credentials_provider(Credentials::new(KEY, KEY, None, None, "local"))
            .build(),
    );
    let mut looks = 1;
    loop {
        let rows = all(&client, table).await.map_err(|error| failed(error.into()))?;
        let violations = chat::audit::violations(rows).map_err(|error| failed(error.into()))?;
        if violations.is_empty() || looks == LOOKS {
            return Ok((violations, looks));
        }
        looks += 1;
        tokio::time::sleep(PAUSE).await;
    }
}

async fn all(client: &Client, table: &str) -> Result<Vec<HashMap<String, AttributeValue>>, aws_sdk_dynamodb::Error> {
    let mut rows = Vec::new();
    let mut from = None;
    for _ in 0..MAX_PAGES {
        let call = client.scan().table_name(table).consistent_read(true).set_exclusive_start_key(from);
        let page = call.send().await?;
        rows.extend(page.items.unwrap_or_default());
        from = page.last_evaluated_key;
        if from.is_none() {
            break;
        }
    }
    Ok(rows)
}
