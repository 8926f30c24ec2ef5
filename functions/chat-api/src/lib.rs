//! The chat over HTTP: tickets for the socket, sessions with their history, ratings, images, agents.
//!
//! A session is open to its members only: its customer always, an agent while it is open with them. To everybody else it is
//! not there.

mod agents;
mod sessions;
mod uploads;

use backoffice::{ChangeLog, DeskConfig};
use chat::ids::{Party, SessionId};
use chat::session::Session;
use chat::tickets::{Holder, Tickets};
use chat::{Service, StoreError};
use kernel::time::{Clock, Rfc3339};
use platform::auth::{AuthConfig, Principal, Role, Verifier};
use platform::boot::{self, Boot};
use platform::config::{Env, FromEnv, Noted};
use platform::http::{Problem, Request, Response, Text};
use sale::store::Offers;
use serde::{Deserialize, Serialize};

pub struct Config {
    desk: DeskConfig,
    offers_table: String,
    auth: AuthConfig,
}

impl FromEnv for Config {
    fn from_env(env: &mut Env) -> Result<Self, Noted> {
        let desk = DeskConfig::from_env(env);
        let offers_table = env.required("OFFERS_TABLE");
        let auth = AuthConfig::from_env(env);
        Ok(Self { desk: desk?, offers_table: offers_table?, auth: auth? })
    }
}

pub struct State {
    pub service: Service,
    pub tickets: Tickets,
    /// What admins change here stands beside what they change in sales.
    pub changes: ChangeLog,
    pub verifier: Verifier,
    pub clock: Clock,
}

impl State {
    pub async fn start(boot: &Boot<Config>) -> Result<Self, boot::Error> {
        let Config { desk, offers_table, auth } = &boot.config;
        let dynamo = aws_sdk_dynamodb::Client::new(&boot.aws);
        Ok(Self {
            service: desk.open(boot)?,
            tickets: Tickets::new(dynamo.clone(), desk.connections_table().to_owned()),
            changes: ChangeLog::new(Offers::new(dynamo, offers_table.clone())),
            verifier: boot.verifier(auth).await?,
            clock: Clock::System,
        })
    }
}

pub async fn handle(state: &State, request: Request) -> Result<Response, Problem> {
    match request.route() {
        "POST /api/chat/ticket" => ticket(state, &request).await,
        "GET /api/chat/sessions" => sessions::list(state, &request).await,
        "GET /api/chat/sessions/{sessionId}/messages" => sessions::messages(state, &request).await,
        "POST /api/chat/sessions/{sessionId}/rate" => sessions::rate(state, &request).await,
        "POST /api/chat/uploads" => uploads::form(state, &request).await,
        "GET /api/chat/agents" => agents::everybody(state, &request).await,
        "PUT /api/admin/agents/{agentId}" => agents::set_capacity(state, &request).await,
        _ => Err(Problem::not_found()),
    }
}

/// `POST /api/chat/ticket`.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct TicketDocument<'a> {
    ticket: &'a str,
    expires_at: Rfc3339,
}

async fn ticket(state: &State, request: &Request) -> Result<Response, Problem> {
    let (party, principal) = caller(state, request)?;
    no_body(request)?;
    let holder = Holder { party, expires_at: principal.expires_at };
    let (ticket, expires_at) = state.tickets.issue(&holder, state.clock.now()).await.map_err(failed)?;
    Response::json(200, &TicketDocument { ticket: ticket.expose(), expires_at: Rfc3339(expires_at) })
}

/// A customer or an agent.
fn caller(state: &State, request: &Request) -> Result<(Party, Principal), Problem> {
    let principal = request.authenticate_one_of(&state.verifier, state.clock.now(), &[Role::User, Role::Agent])?;
    let party = match principal.role {
        Role::User => Party::user(principal.id.clone()),
        Role::Agent => Party::agent(principal.id.clone()),
        Role::Admin => return Err(Problem::forbidden()),
    };
    Ok((party, principal))
}

/// The session, if `party` is a member of it.
async fn session_of(state: &State, party: &Party, session_id: &SessionId) -> Result<Session, Problem> {
    match state.service.desk().session(session_id).await.map_err(failed)? {
        Some(session) if session.has_member(party) => Ok(session),
        Some(_) | None => Err(Problem::not_found()),
    }
}

/// The session that a path names. What cannot be one is not there either.
fn session_id(request: &Request) -> Result<SessionId, Problem> {
    request.path("sessionId").map_err(|_| Problem::not_found())
}

/// What is asked for needs no more than who asks.
fn no_body(request: &Request) -> Result<(), Problem> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Nothing {}
    if request.body()?.is_empty() { Ok(()) } else { request.json::<Nothing>().map(|Nothing {}| ()) }
}

fn session_state(detail: Text) -> Problem {
    Problem::new(409, "SESSION_STATE", detail)
}

fn failed(error: StoreError) -> Problem {
    match &error {
        StoreError::Unavailable { .. } | StoreError::Contended { .. } | StoreError::Randomness(_) => {
            Problem::unavailable(&error)
        }
        StoreError::Corrupt(_) | StoreError::Missing | StoreError::Frame(_) => Problem::internal(&error),
    }
}
