//! A form by which a member of a session uploads one image for it.

use std::collections::BTreeMap;

use chat::ids::SessionId;
use chat::message::ImageKey;
use chat::session::SessionStatus;
use chat::uploads::MAX_IMAGE_BYTES;
use kernel::time::Rfc3339;
use platform::http::{Problem, Request, Response, Text};
use serde::{Deserialize, Serialize};

use crate::{State, caller, session_of, session_state};

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct UploadBody {
    session_id: SessionId,
    content_type: String,
    /// In bytes.
    size: u64,
}

/// `POST /api/chat/uploads`.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct UploadDocument<'a> {
    key: &'a str,
    url: &'a str,
    fields: &'a BTreeMap<&'static str, String>,
    expires_at: Rfc3339,
}

pub(crate) async fn form(state: &State, request: &Request) -> Result<Response, Problem> {
    let (party, _) = caller(state, request)?;
    let body: UploadBody = request.json()?;
    if !(1..=MAX_IMAGE_BYTES).contains(&body.size) {
        return Err(Problem::validation(Text::of(
            format!("size is 1 to {MAX_IMAGE_BYTES} bytes."),
            format!("size 的取值范围为 1 到 {MAX_IMAGE_BYTES} 字节。"),
        )));
    }
    let key = ImageKey::random(&body.session_id, &body.content_type).ok_or_else(|| {
        Problem::validation(Text::new(
            "contentType is image/jpeg, image/png, image/webp or image/gif.",
            "contentType 只能是 image/jpeg、image/png、image/webp 或 image/gif。",
        ))
    })?;
    let key = key.map_err(|error| Problem::unavailable(&error))?;
    let session = session_of(state, &party, &body.session_id).await?;
    match session.status {
        SessionStatus::Waiting | SessionStatus::Open => {}
        SessionStatus::Closed => {
            return Err(session_state(Text::new("The conversation is closed.", "会话已结束。")));
        }
    }
    let form = state.service.uploads().form(&key, body.size, state.clock.now()).await;
    let form = form.map_err(|error| Problem::unavailable(&error))?;
    let document = UploadDocument {
        key: key.as_str(),
        url: &form.url,
        fields: &form.fields,
        expires_at: Rfc3339(form.expires_at),
    };
    Response::json(200, &document)
}
