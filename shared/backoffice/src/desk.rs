//! The customer service, as a function's environment names its tables, its sockets and its images.

use chat::uploads::{BucketUrl, Uploads};
use chat::{Desk, Postman, Service};
use kernel::time::Clock;
use platform::boot::{self, Boot};
use platform::config::{Env, FromEnv, Noted};

/// The environment of a function of the chat.
pub struct DeskConfig {
    connections_table: String,
    chat_table: String,
    ws_endpoint: String,
    image_bucket: String,
    image_url: BucketUrl,
}

impl FromEnv for DeskConfig {
    fn from_env(env: &mut Env) -> Result<Self, Noted> {
        let connections_table = env.required("CONNECTIONS_TABLE");
        let chat_table = env.required("CHAT_TABLE");
        let ws_endpoint = env.required("WS_ENDPOINT");
        let image_bucket = env.required("IMAGE_BUCKET");
        let image_url = env.required("IMAGE_URL");
        Ok(Self {
            connections_table: connections_table?,
            chat_table: chat_table?,
            ws_endpoint: ws_endpoint?,
            image_bucket: image_bucket?,
            image_url: image_url?,
        })
    }
}

impl DeskConfig {
    /// The name of the table that also knows tickets.
    pub fn connections_table(&self) -> &str {
        &self.connections_table
    }

    /// Images are signed for with the function's own credentials.
    pub fn open<C>(&self, boot: &Boot<C>) -> Result<Service, boot::Error> {
        let dynamo = aws_sdk_dynamodb::Client::new(&boot.aws);
        let management =
            aws_sdk_apigatewaymanagement::config::Builder::from(&boot.aws).endpoint_url(&self.ws_endpoint).build();
        let management = aws_sdk_apigatewaymanagement::Client::from_conf(management);
        let credentials = boot.aws.credentials_provider().ok_or("there are no credentials")?;
        let region = boot.aws.region().ok_or("the region is not known")?.to_string();
        let uploads = Uploads::new(credentials, region, self.image_bucket.clone(), self.image_url.clone());
        let postman = Postman::new(dynamo.clone(), self.connections_table.clone(), &management, Clock::System);
        Ok(Service::new(postman, Desk::new(dynamo, self.chat_table.clone()), uploads, Clock::System))
    }
}
