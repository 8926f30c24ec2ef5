//! An image goes into the bucket by a form and comes out by a link, both signed by functions under their own roles.

use chat::Desk;
use chat::desk::life::Opened;
use chat::desk::send::{Draft, Name, Sent};
use chat::ids::Party;
use chat::message::{Body, ImageKey};
use chat::session::Session;
use client::{Method, RawAnswer, RawRequest, Role};
use e2e::Local;
use kernel::time::{Clock, UnixMillis};
use serde_json::{Value, json};

const BOUNDARY: &str = "a-boundary-that-no-image-holds";
/// Enough of a PNG for this test.
const IMAGE: &[u8] = b"\x89PNG\r\n\x1a\n an image";

/// A customer with a session, and whoever uploads.
struct Customer {
    local: Local,
    party: Party,
    session: Session,
    http: reqwest::Client,
}

fn now() -> UnixMillis {
    Clock::System.now()
}

impl Customer {
    async fn new() -> Self {
        let local = Local::up().await;
        let party = Party::user(format!("i{:x}", rand::random::<u64>()).parse().unwrap());
        let session = match desk(&local).open(&party.id, now()).await.unwrap() {
            Opened::New(session) => session,
            other => panic!("{other:?}"),
        };
        Self { local, party, session, http: reqwest::Client::new() }
    }

    async fn call(&self, method: Method, path: &str, body: Option<Value>) -> RawAnswer {
        let token = self.local.outputs.token(Role::User, self.party.id.as_str()).sign().unwrap();
        let body = body.map(|body| body.to_string().into_bytes());
        let api = self.local.api.signed_in(token);
        api.raw(RawRequest { method, path, headers: &[("accept-language", "en")], body }).await.unwrap()
    }

    /// The form for a PNG of `size` bytes: where it goes, and its fields.
    async fn form(&self, size: usize) -> (String, Vec<(String, String)>) {
        let body = json!({"sessionId": self.session.session_id, "contentType": "image/png", "size": size});
        let answer = self.call(Method::POST, "/api/chat/uploads", Some(body)).await;
        assert_eq!(answer.status, 200, "{}", String::from_utf8_lossy(&answer.body));
        let form: Value = serde_json::from_slice(&answer.body).unwrap();
        let fields = form["fields"].as_object().unwrap().iter();
        let fields = fields.map(|(name, value)| (name.clone(), value.as_str().unwrap().to_owned())).collect();
        (form["url"].as_str().unwrap().to_owned(), fields)
    }

    async fn post(&self, url: &str, fields: &[(String, String)], file: &[u8]) -> (u16, String) {
        let mut body = Vec::new();
        for (name, value) in fields {
            body.extend(
                format!("--{BOUNDARY}\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n{value}\r\n")
                    .into_bytes(),
            );
        }
        body.extend(
            format!("--{BOUNDARY}\r\nContent-Disposition: form-data; name=\"file\"; filename=\"x\"\r\n\r\n")
                .into_bytes(),
        );
        body.extend(file);
        body.extend(format!("\r\n--{BOUNDARY}--\r\n").into_bytes());
        let content_type = format!("multipart/form-data; boundary={BOUNDARY}");
        let answer = self.http.post(url).header("content-type", content_type).body(body).send().await.unwrap();
        (answer.status().as_u16(), answer.text().await.unwrap())
    }

    /// What a reader of the history sees of the last image.
    async fn shown(&self) -> Value {
        let path = format!("/api/chat/sessions/{}/messages?limit=1", self.session.session_id);
        let answer = self.call(Method::GET, &path, None).await;
        let history: Value = serde_json::from_slice(&answer.body).unwrap();
        history["items"][0]["content"].clone()
    }
}

fn desk(local: &Local) -> Desk {
    Desk::new(aws_sdk_dynamodb::Client::new(&local.aws), local.outputs.tables.chat.clone())
}

fn key_of(fields: &[(String, String)]) -> ImageKey {
    let (_, key) = fields.iter().find(|(name, _)| name == "key").unwrap();
    ImageKey::try_from(key.clone()).unwrap()
}

#[tokio::test]
async fn an_image_is_uploaded_by_its_form_and_read_by_a_link_of_the_history() {
    let customer = Customer::new().await;
    let (url, fields) = customer.form(IMAGE.len()).await;
    assert_eq!(customer.post(&url, &fields, IMAGE).await.0, 204);

    let key = key_of(&fields);
    let name = Name::Gateway("m1".to_owned());
    let draft = Draft::new(Body::Image(key.clone()), key.as_str(), name);
    let sent = desk(&customer.local).send(customer.session.clone(), &customer.party, &draft, now()).await.unwrap();
    assert!(matches!(sent, Sent::Stored(_)), "{sent:?}");

    let shown = customer.shown().await;
    assert_eq!((&shown["key"], &shown["contentType"]), (&json!(key.as_str()), &json!("image/png")));
    let link = shown["url"].as_str().unwrap();
    let image = customer.http.get(link).send().await.unwrap();
    assert_eq!((image.status().as_u16(), image.headers()["content-type"].as_bytes()), (200, &b"image/png"[..]));
    assert_eq!(image.bytes().await.unwrap(), IMAGE);

    // The link is for this image, as it was signed; without it the bucket shows nothing.
    let (address, query) = link.split_once('?').unwrap();
    let another = format!("{}?{query}", address.replace(".png", ".gif"));
    for bad in [another, link.replace("X-Amz-Expires=3600", "X-Amz-Expires=36000"), address.to_owned()] {
        assert_eq!(customer.http.get(&bad).send().await.unwrap().status().as_u16(), 403, "{bad}");
    }
}

#[tokio::test]
async fn a_form_takes_nothing_but_what_it_was_made_for() {
    let customer = Customer::new().await;
    let (url, good) = customer.form(IMAGE.len()).await;
    let with = |name: &str, value: &str| {
        let mut fields: Vec<_> = good.iter().filter(|(other, _)| other != name).cloned().collect();
        fields.push((name.to_owned(), value.to_owned()));
        fields
    };
    let larger = [IMAGE, b"!"].concat();
    let (status, why) = customer.post(&url, &good, &larger).await;
    assert!(status == 400 && why.contains("EntityTooLarge"), "{status} {why}");
    let (status, why) = customer.post(&url, &good, b"").await;
    assert!(status == 400 && why.contains("EntityTooSmall"), "{status} {why}");
    let other_key = key_of(&good).as_str().replace(".png", ".gif");
    for (what, fields) in [
        ("another type", with("Content-Type", "text/html")),
        ("another key", with("key", &other_key)),
        ("another signature", with("x-amz-signature", &"0".repeat(64))),
        ("more than it names", with("acl", "public-read")),
    ] {
        let (status, why) = customer.post(&url, &fields, IMAGE).await;
        assert_eq!(status, 403, "{what}: {why}");
    }
    assert_eq!(customer.post(&url, &good, IMAGE).await.0, 204, "none of it used the form up");
}
