//! Sessions as their members see them: the list, the history, the rating.

use std::cmp::Reverse;
use std::collections::HashMap;

use chat::desk::life::{Comment, Rating, Score};
use chat::desk::read::{Known, Page, Place};
use chat::frames::server::{MessageDocument, SessionDocument};
use chat::ids::{Party, Seq, SessionId, Side};
use chat::session::SessionStatus;
use kernel::time::Rfc3339;
use platform::auth::Role;
use platform::http::{Problem, Request, Response, Text};
use serde::{Deserialize, Serialize};

use crate::{State, caller, failed, session_id, session_of, session_state};

/// Sessions on a page, unless the caller asks for fewer or more; the same of messages; and the most of both.
const SESSIONS: u8 = 20;
const MESSAGES: u8 = 50;
const MAX_PAGE: u8 = 100;

/// `GET /api/chat/sessions`.
#[derive(Serialize)]
struct ListDocument {
    items: Vec<ListedDocument>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cursor: Option<String>,
}

#[derive(Serialize)]
struct ListedDocument {
    #[serde(flatten)]
    session: SessionDocument,
    /// For its customer, since it was closed.
    #[serde(skip_serializing_if = "Option::is_none")]
    rating: Option<RatingDocument>,
}

pub(crate) async fn list(state: &State, request: &Request) -> Result<Response, Problem> {
    let (party, _) = caller(state, request)?;
    let limit = limit(request, SESSIONS)?;
    let after = request.query::<Place>("cursor")?;
    let (known, place) = match party.side {
        Side::User => state.service.desk().sessions_of(&party.id, limit, after.as_ref()).await.map_err(failed)?,
        Side::Agent => (served(state, &party).await?, None),
    };
    let mut ratings = match party.side {
        Side::User => {
            let closed = known.iter().filter(|known| known.session.status == SessionStatus::Closed);
            state.service.desk().ratings(closed.map(|known| &known.session.session_id)).await.map_err(failed)?
        }
        Side::Agent => HashMap::new(),
    };
    let mut items = Vec::with_capacity(known.len());
    for known in &known {
        // Only what waits has a place, and of one user that is one at most.
        let position = state.service.position(&known.session).await.map_err(failed)?;
        let (id, closed_at) = (&known.session.session_id, known.session.last_time);
        // One from before it was opened again is not about what is closed now.
        let rating = ratings.remove(id).filter(|rating| rating.rated_at >= closed_at);
        items.push(ListedDocument {
            session: SessionDocument::new(known, position, request.language()),
            rating: rating.map(|rating| RatingDocument::new(id, rating)),
        });
    }
    Response::json(200, &ListDocument { items, cursor: place.as_ref().map(Place::encode) })
}

/// What is open with an agent, the last spoken in first. An agent has as many as their capacity, so there is one page.
async fn served(state: &State, party: &Party) -> Result<Vec<Known>, Problem> {
    let Some(agent) = state.service.desk().agent(&party.id).await.map_err(failed)? else { return Ok(Vec::new()) };
    let mut known = state.service.desk().known(&agent.sessions).await.map_err(failed)?;
    // Read after the agent: one may have gone to somebody else in between.
    known.retain(|known| known.session.has_member(party));
    known.sort_by_key(|known| Reverse((known.session.last_time, known.session.session_id.clone())));
    Ok(known)
}

/// `GET /api/chat/sessions/{sessionId}/messages`.
#[derive(Serialize)]
struct HistoryDocument {
    items: Vec<MessageDocument>,
    head: Seq,
}

pub(crate) async fn messages(state: &State, request: &Request) -> Result<Response, Problem> {
    let (party, _) = caller(state, request)?;
    let limit = limit(request, MESSAGES)?;
    let (before, after) = (request.query::<u64>("before")?, request.query::<u64>("after")?);
    if before.is_some() && after.is_some() {
        return Err(Problem::validation(Text::new(
            "before and after exclude each other.",
            "before 与 after 不能同时使用。",
        )));
    }
    let session = session_of(state, &party, &session_id(request)?).await?;
    let head = session.seq;
    let page = match (before, after) {
        (None, Some(after)) if after >= head.get() => None,
        (None, Some(after)) => Some(Page::From(Seq::new(after).next())),
        (Some(before), _) => before.checked_sub(1).map(|last| Page::UpTo(Seq::new(last).min(head))),
        (None, None) => Some(Page::UpTo(head)),
    };
    let mut messages = match page {
        Some(page) => state.service.desk().messages(&session.session_id, page, limit.into()).await.map_err(failed)?,
        None => Vec::new(),
    };
    // What was said since the session was read would be above its head.
    messages.retain(|message| message.seq <= head);
    messages.sort_by_key(|message| message.seq);
    let items = state.service.documents(&messages, party.side, request.language()).await;
    Response::json(200, &HistoryDocument { items, head })
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RatingBody {
    score: Score,
    comment: Option<Comment>,
}

/// `POST /api/chat/sessions/{sessionId}/rate`.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct RatingDocument {
    session_id: SessionId,
    score: Score,
    #[serde(skip_serializing_if = "Option::is_none")]
    comment: Option<Comment>,
    rated_at: Rfc3339,
}

impl RatingDocument {
    fn new(of: &SessionId, Rating { score, comment, rated_at }: Rating) -> Self {
        Self { session_id: of.clone(), score, comment, rated_at: Rfc3339(rated_at) }
    }
}

pub(crate) async fn rate(state: &State, request: &Request) -> Result<Response, Problem> {
    let now = state.clock.now();
    let principal = request.authenticate(&state.verifier, now, Role::User)?;
    let RatingBody { score, comment } = request.json()?;
    let session = session_of(state, &Party::user(principal.id), &session_id(request)?).await?;
    let rating = Rating { score, comment, rated_at: now };
    if !state.service.desk().rate(&session, &rating).await.map_err(failed)? {
        return Err(session_state(Text::new("A conversation is rated when it is closed.", "会话结束后才能评价。")));
    }
    // Who rates is told apart by nobody: the session and its agent are what it is about.
    tracing::info!(
        sessionNo = session.session_no,
        agentId = session.last_agent_id.as_ref().map(kernel::ids::UserId::as_str),
        score = u8::from(rating.score),
        "rated"
    );
    Response::json(200, &RatingDocument::new(&session.session_id, rating))
}

fn limit(request: &Request, default: u8) -> Result<u8, Problem> {
    let limit = request.query::<u8>("limit")?.unwrap_or(default);
    if (1..=MAX_PAGE).contains(&limit) {
        return Ok(limit);
    }
    Err(Problem::validation(Text::of(
        format!("limit is 1 to {MAX_PAGE}."),
        format!("limit 的取值范围为 1 到 {MAX_PAGE}。"),
    )))
}
