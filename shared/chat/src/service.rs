//! The customer service: what comes over a socket is answered, and those whom it concerns are told.
//!
//! A frame costs one read (its sender's connection and the session it names, together), then what its own file under
//! [`frames`](crate::frames) says. What comes of it is a [`Reaction`]: answers to the sender, [`News`] for others, and what
//! has to be done [`Then`]. Everything is stored before anything is said, and nothing that is said has to arrive: whoever
//! misses it notices by the numbers, and asks.

use std::collections::HashMap;

use futures_util::future::join_all;
use futures_util::{StreamExt, stream};
use kernel::ids::{OrderNo, UserId};
use kernel::text::Language;
use kernel::time::{Clock, UnixMillis};
use std::time::Duration;
use tracing::warn;

use crate::connections::{Connection, ConnectionState, known, meta_key};
use crate::desk::Desk;
use crate::desk::agents::Agent;
use crate::desk::assign::{Claimed, Destination, Moved, Reason};
use crate::desk::life::Closed;
use crate::desk::read::{Known, Page, Sorted, known_keys};
use crate::desk::{message_key, session_key};
use crate::frames::server::MessageDocument;
use crate::frames::sync::replay;
use crate::frames::{ClientFrame, Credentials, ErrorCode, ServerFrame, Token, Wanted};
use crate::ids::{ClientMsgId, ConnectionId, Party, Seq, SessionId, Side};
use crate::message::{Body, Card, ImageKey, Message, Sender};
use crate::pace::Pace;
use crate::postman::Postman;
use crate::session::{Session, SessionStatus, Step};
use crate::store::{StoreError, get_together, pause};
use crate::uploads::{Links, Uploads};

/// Sessions given out in one go. What is left the next one takes, the sweep's at the latest.
const MAX_CLAIMS: usize = 50;
/// Sessions being told of at once.
const NEWS_AT_ONCE: usize = 16;
/// How long others are told what happened. Whoever is not reached by then, for one slow socket, notices by the numbers.
const TELL_BUDGET: Duration = Duration::from_secs(6);
/// How long a frame's sender is answered, replays included.
const ANSWER_BUDGET: Duration = Duration::from_secs(12);
/// How long whoever came by with a frame gives out what waits.
const DRAIN_MILLIS: i64 = 3_000;
/// Tries of reading what a connection missed that does not ask by itself.
const GREET_TRIES: u32 = 4;
/// Messages read in one query for a replay.
const MESSAGES_A_QUERY: u16 = 200;
/// An open session in which nobody has said anything for so long is closed.
pub const IDLE_SECS: i64 = 30 * 60;
/// One that waits is closed when nobody has taken it, and nobody has said anything in it, for so long.
pub const WAITING_SECS: i64 = 24 * 60 * 60;
/// Waiting sessions that one sweep looks at.
const WAITING_LOOKED_AT: u16 = 1_000;

/// What the chat has to ask others.
pub trait Outside {
    /// What a token says, if it is good.
    fn verify(&self, token: &Token) -> Option<Credentials>;

    /// An order of this customer, to be shown; `None`: they have none by this number.
    fn card(
        &self,
        customer: &UserId,
        order_no: &OrderNo,
    ) -> impl Future<Output = Result<Option<Card>, StoreError>> + Send;
}

/// What came over a socket.
#[derive(Debug, Clone, Copy)]
pub struct Received<'a> {
    pub connection_id: &'a ConnectionId,
    /// The frame, or why the edge could not read it.
    pub text: Result<&'a str, ErrorCode>,
    /// The gateway's name for it.
    pub message_id: &'a str,
    /// When the gateway received it.
    pub received_at: UnixMillis,
}

/// What became of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Receipt {
    Handled,
    /// One too many from this connection in too short a time.
    TooFast,
    /// The sender's connection is not known, or over. It has been closed.
    UnknownConnection,
}

/// Who sent a frame, and what was read with them.
pub(crate) struct Caller<'a> {
    pub(crate) connection: &'a Connection,
    pub(crate) party: Party,
    pub(crate) language: Language,
    pub(crate) message_id: &'a str,
    pub(crate) received_at: UnixMillis,
    about: (Option<SessionId>, Option<ClientMsgId>),
    sessions: HashMap<SessionId, Known>,
    messages: Vec<Message>,
}

/// What comes of a frame.
#[derive(Debug, Default)]
pub(crate) struct Reaction {
    /// To the sender, on the connection it came by.
    pub(crate) answers: Vec<ServerFrame>,
    news: Vec<News>,
    then: Vec<Then>,
}

/// What others have to hear.
#[derive(Debug)]
pub(crate) struct News {
    session: Session,
    what: What,
}

#[derive(Debug)]
enum What {
    /// A member's word.
    Said(Message),
    /// A change of status or agent: its message, if it made one, and the agent it was taken from.
    Changed(Option<Message>, Option<UserId>),
    Read(Side, Seq),
    Typing(Party),
}

/// What has to be done when the sender has been answered.
#[derive(Debug)]
pub(crate) enum Then {
    /// Somebody may be free, or something may wait.
    Drain,
    /// This agent's sessions have to go to others.
    Leave(Agent),
}

/// Messages of a session, in frames.
#[derive(Debug)]
pub(crate) struct Replay {
    /// At least one, if need be an empty one.
    pub(crate) messages: Vec<ServerFrame>,
    /// The last message in them.
    pub(crate) last: Option<Seq>,
}

/// What a sweep did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Swept {
    /// Sessions taken from agents who are away or lost.
    pub moved: u32,
    /// Sessions given to agents.
    pub claimed: u32,
    /// Sessions closed after a long silence.
    pub expired: u32,
}

impl News {
    pub(crate) fn said(step: Step) -> Self {
        Self { session: step.session, what: What::Said(step.message) }
    }

    /// `ex_agent`: who had it before.
    pub(crate) fn changed(step: Step, ex_agent: Option<UserId>) -> Self {
        Self { session: step.session, what: What::Changed(Some(step.message), ex_agent) }
    }

    pub(crate) fn opened(session: Session) -> Self {
        Self { session, what: What::Changed(None, None) }
    }

    pub(crate) fn read(session: Session, by: Side, last_seq: Seq) -> Self {
        Self { session, what: What::Read(by, last_seq) }
    }

    pub(crate) fn typing(session: Session, from: &Party) -> Self {
        Self { session, what: What::Typing(from.clone()) }
    }

    fn audience(&self) -> Vec<Party> {
        let mut audience = self.session.members();
        match &self.what {
            What::Said(_) | What::Read(..) => {}
            What::Changed(_, ex_agent) => {
                let ex_agent = ex_agent.clone().map(Party::agent).filter(|agent| !audience.contains(agent));
                audience.extend(ex_agent);
            }
            What::Typing(from) => audience.retain(|party| party.side != from.side),
        }
        audience
    }
}

impl Reaction {
    pub(crate) fn silence() -> Self {
        Self::default()
    }

    pub(crate) fn answer(frame: ServerFrame) -> Self {
        Self::answers([frame])
    }

    pub(crate) fn answers(frames: impl IntoIterator<Item = ServerFrame>) -> Self {
        Self { answers: frames.into_iter().collect(), ..Self::default() }
    }

    pub(crate) fn and(mut self, frames: impl IntoIterator<Item = ServerFrame>) -> Self {
        self.answers.extend(frames);
        self
    }

    pub(crate) fn and_tell(mut self, news: News) -> Self {
        self.news.push(news);
        self
    }

    pub(crate) fn and_then(mut self, then: Then) -> Self {
        self.then.push(then);
        self
    }
}

impl Caller<'_> {
    /// The session, if they are a member of it.
    pub(crate) fn known(&self, session_id: &SessionId) -> Option<&Known> {
        self.sessions.get(session_id).filter(|known| known.session.has_member(&self.party))
    }

    /// The same without its cursors.
    pub(crate) fn session(&self, session_id: &SessionId) -> Option<&Session> {
        self.known(session_id).map(|known| &known.session)
    }

    /// The session, whoever's it is: for what is decided against the row, as a word is.
    pub(crate) fn anybodys(&self, session_id: &SessionId) -> Option<&Session> {
        self.sessions.get(session_id).map(|known| &known.session)
    }

    pub(crate) fn message(&self, seq: Seq) -> Option<&Message> {
        self.messages.iter().find(|message| message.seq == seq)
    }

    pub(crate) fn refuse(&self, code: ErrorCode) -> Reaction {
        let (session_id, client_msg_id) = self.about.clone();
        Reaction::answer(ServerFrame::refused(code, session_id, client_msg_id, self.language))
    }
}

/// The sessions, the sockets and the images.
#[derive(Debug)]
pub struct Service {
    postman: Postman,
    desk: Desk,
    uploads: Uploads,
    pace: Pace,
    clock: Clock,
}

impl Service {
    pub fn new(postman: Postman, desk: Desk, uploads: Uploads, clock: Clock) -> Self {
        Self { postman, desk, uploads, pace: Pace::default(), clock }
    }

    pub fn desk(&self) -> &Desk {
        &self.desk
    }

    pub fn uploads(&self) -> &Uploads {
        &self.uploads
    }

    pub(crate) fn postman(&self) -> &Postman {
        &self.postman
    }

    pub(crate) fn now(&self) -> UnixMillis {
        self.clock.now()
    }

    // ---- what comes over a socket

    /// Handles what came over a socket, answers on it, and tells whom it concerns.
    ///
    /// The first frame of a connection makes it live before it is answered, so whatever is said from then on is pushed, and
    /// whatever was said before is found by the answer.
    ///
    /// An error means that the sender could not be looked up; they have been told to try again.
    pub async fn receive(&self, received: Received<'_>, outside: &impl Outside) -> Result<Receipt, StoreError> {
        let connection_id = received.connection_id;
        let frame = received.text.and_then(ClientFrame::parse);
        let about = frame.as_ref().map(ClientFrame::about).unwrap_or_default();
        if !self.pace.allows(connection_id, self.now()) {
            self.postman.tell_unknown(connection_id, ErrorCode::RateLimited, about).await;
            return Ok(Receipt::TooFast);
        }
        let wanted = frame.as_ref().map(ClientFrame::wanted).unwrap_or_default();
        let looked_up = match self.look_up(connection_id, &wanted).await {
            Ok(looked_up) => looked_up,
            Err(error) => {
                self.postman.tell_unknown(connection_id, ErrorCode::RetryLater, about).await;
                return Err(error);
            }
        };
        let Some((connection, sorted)) = looked_up else {
            self.postman.close(connection_id).await;
            return Ok(Receipt::UnknownConnection);
        };
        let caller = Caller {
            connection: &connection,
            party: connection.party(),
            language: connection.language,
            message_id: received.message_id,
            received_at: received.received_at,
            about,
            sessions: sorted.sessions,
            messages: sorted.messages,
        };
        let (is_first, is_sync) =
            (connection.state == ConnectionState::Connecting, matches!(frame, Ok(ClientFrame::Sync(_))));
        if is_first {
            match self.go_live(&connection).await {
                Ok(true) => {}
                Ok(false) => {
                    self.postman.close(connection_id).await;
                    return Ok(Receipt::UnknownConnection);
                }
                Err(error) => {
                    self.postman.tell_unknown(connection_id, ErrorCode::RetryLater, caller.about).await;
                    return Err(error);
                }
            }
        }
        let mut reaction = self.react(&caller, frame, outside).await.unwrap_or_else(|cause| {
            warn!(%connection_id, error = &cause as &dyn std::error::Error, "a frame could not be handled");
            caller.refuse(ErrorCode::RetryLater)
        });
        if is_first && !is_sync && !connection.is_expired(self.now()) {
            match self.missed_by(&connection).await {
                Ok(missed) => reaction.answers.extend(missed),
                // What the frame has done is done: whom it concerns is told all the same.
                Err(error) => {
                    let error = &error as &dyn std::error::Error;
                    warn!(%connection_id, error, "what a client missed is left to the next pong");
                }
            }
        }
        let Reaction { answers, news, then } = reaction;
        let answering = tokio::time::timeout(ANSWER_BUDGET, self.postman.send(&connection, &answers));
        let (answered, (), ()) =
            tokio::join!(answering, self.tell_all(news, Some(connection_id)), self.follow_up(then));
        if answered.is_err() {
            warn!(%connection_id, "a slow client is left to sync");
        }
        Ok(Receipt::Handled)
    }

    async fn follow_up(&self, then: Vec<Then>) {
        let stop = self.now().plus_millis(DRAIN_MILLIS);
        for then in then {
            match then {
                Then::Drain => drop(self.drain(stop).await),
                Then::Leave(agent) => drop(self.leave(&agent, stop).await),
            }
        }
    }

    /// The sender, with what their frame is about, in one read.
    async fn look_up(
        &self,
        connection_id: &ConnectionId,
        wanted: &Wanted<'_>,
    ) -> Result<Option<(Connection, Sorted)>, StoreError> {
        let connections = self.postman.connections().table();
        let mut keys: Vec<_> = if wanted.cursors {
            wanted.sessions.iter().flat_map(|session_id| known_keys(session_id)).collect()
        } else {
            wanted.sessions.iter().map(|session_id| session_key(session_id)).collect()
        };
        keys.extend(wanted.message.map(|(session_id, seq)| message_key(session_id, seq)));
        let wanted = [(connections, vec![meta_key(connection_id)]), (&self.desk.table, keys)];
        let mut read = get_together(&self.desk.table.client, wanted).await?;
        let connection = read.remove(&connections.name).unwrap_or_default().pop();
        let Some(connection) = known(connection, self.now())? else { return Ok(None) };
        let rows = read.remove(&self.desk.table.name).unwrap_or_default();
        Ok(Some((connection, Sorted::from_rows(rows)?)))
    }

    /// `false`: it has ended meanwhile.
    async fn go_live(&self, connection: &Connection) -> Result<bool, StoreError> {
        let Some(displaced) = self.postman.connections().go_live(connection).await? else { return Ok(false) };
        // Nobody would tell them anything any more.
        join_all(displaced.iter().map(|older| self.postman.close(&older.connection_id))).await;
        Ok(true)
    }

    async fn react(
        &self,
        caller: &Caller<'_>,
        frame: Result<ClientFrame, ErrorCode>,
        outside: &impl Outside,
    ) -> Result<Reaction, StoreError> {
        let expired = caller.connection.is_expired(self.now());
        match frame {
            Ok(ClientFrame::Auth(auth)) => auth.handle(self, caller, outside).await,
            Ok(_) | Err(_) if expired => Ok(caller.refuse(ErrorCode::AuthExpired)),
            Err(code) => Ok(caller.refuse(code)),
            Ok(ClientFrame::Sync(sync)) => sync.handle(self, caller).await,
            Ok(ClientFrame::Ping(ping)) => ping.handle(self, caller).await,
            Ok(ClientFrame::ResultAck(ack)) => ack.handle(self, caller).await,
            Ok(ClientFrame::Open(open)) => open.handle(self, caller).await,
            Ok(ClientFrame::Text(say)) => say.handle(self, caller).await,
            Ok(ClientFrame::Image(say)) => say.handle(self, caller).await,
            Ok(ClientFrame::Card(say)) => say.handle(self, caller, outside).await,
            Ok(ClientFrame::Ack(ack)) => ack.handle(self, caller).await,
            Ok(ClientFrame::Pull(pull)) => pull.handle(self, caller).await,
            Ok(ClientFrame::Typing(typing)) => Ok(typing.handle(caller)),
            Ok(ClientFrame::Status(status)) => status.handle(self, caller).await,
            Ok(ClientFrame::Transfer(transfer)) => transfer.handle(self, caller).await,
            Ok(ClientFrame::Close(close)) => close.handle(self, caller).await,
        }
    }

    /// A connection that was opened a while ago and may have said nothing since: it is made live, and told what it missed.
    ///
    /// `false`: it has spoken, or is over.
    pub async fn greet(&self, connection_id: &ConnectionId) -> Result<bool, StoreError> {
        let Some((connection, _)) = self.look_up(connection_id, &Wanted::default()).await? else { return Ok(false) };
        if connection.state == ConnectionState::Live || !self.go_live(&connection).await? {
            return Ok(false);
        }
        if connection.is_expired(self.now()) {
            return Ok(true);
        }
        // It is live now, so whoever is called again finds nothing to do: what can be tried again is tried here.
        let mut attempt = 0;
        let missed = loop {
            let missed = async {
                let mut missed = self.results(&connection).await?;
                missed.extend(self.missed_by(&connection).await?);
                Ok(missed)
            };
            match missed.await {
                Ok(missed) => break missed,
                Err(error) if attempt == GREET_TRIES => return Err(error),
                Err(_) => pause(attempt).await,
            }
            attempt += 1;
        };
        self.postman.send(&connection, &missed).await;
        Ok(true)
    }

    /// What a connection that said at its beginning how much it has, and has not asked for the rest, is told.
    async fn missed_by(&self, connection: &Connection) -> Result<Vec<ServerFrame>, StoreError> {
        let (Some(last), Side::User) = (connection.last_ack_seq, connection.side) else { return Ok(Vec::new()) };
        let Some(session_id) = self.desk.pointer(&connection.user_id).await?.active else { return Ok(Vec::new()) };
        let sessions = self.desk.known([&session_id]).await?;
        let caller = Caller {
            connection,
            party: connection.party(),
            language: connection.language,
            message_id: "",
            received_at: self.now(),
            about: (None, None),
            sessions: sessions.into_iter().map(|known| (known.session.session_id.clone(), known)).collect(),
            messages: Vec::new(),
        };
        replay(self, &caller, &session_id, last, crate::frames::sync::MAX_FRAMES).await
    }

    // ---- what frames are answered with

    /// What became of a customer's orders and was not acknowledged.
    pub(crate) async fn results(&self, connection: &Connection) -> Result<Vec<ServerFrame>, StoreError> {
        match connection.side {
            Side::Agent => Ok(Vec::new()),
            Side::User => {
                let results = self.postman.results().unacknowledged(&connection.user_id, self.now()).await?;
                Ok(results.iter().map(|result| ServerFrame::result(result, connection.language)).collect())
            }
        }
    }

    /// A session as it is now; nothing, if it is not there.
    pub(crate) async fn session_frame(
        &self,
        session_id: &SessionId,
        language: Language,
    ) -> Result<Option<ServerFrame>, StoreError> {
        let Some(known) = self.desk.known([session_id]).await?.pop() else { return Ok(None) };
        let position = self.position(&known.session).await?;
        Ok(Some(ServerFrame::session(&known, position, language)))
    }

    /// The place in the queue of a session that waits.
    pub async fn position(&self, session: &Session) -> Result<Option<u32>, StoreError> {
        match session.status {
            SessionStatus::Waiting => self.desk.position(session).await.map(Some),
            SessionStatus::Open | SessionStatus::Closed => Ok(None),
        }
    }

    /// Messages `from` to `to`, in at most `max_frames` frames; what does not fit is left out at the end.
    pub(crate) async fn replay(
        &self,
        caller: &Caller<'_>,
        session: &Session,
        from: Seq,
        to: Seq,
        max_frames: usize,
    ) -> Result<Replay, StoreError> {
        let (mut frames, mut next, mut last) = (Vec::new(), from, None);
        while frames.len() < max_frames {
            let messages = self.desk.messages(&session.session_id, Page::From(next), MESSAGES_A_QUERY).await?;
            let read = messages.len();
            let messages: Vec<_> = messages.into_iter().take_while(|message| message.seq <= to).collect();
            let Some(end) = messages.last().map(|message| message.seq) else { break };
            let documents = self.documents(&messages, caller.party.side, caller.language).await;
            let in_frames = ServerFrame::messages(&session.session_id, documents);
            let mut in_frames = in_frames?;
            in_frames.truncate(max_frames - frames.len());
            last = in_frames.iter().rev().find_map(last_in).or(last);
            frames.extend(in_frames);
            // A query that read fewer than it may have read all, unless it met DynamoDB's own bound: then it is asked again.
            if messages.len() < read || end >= to || (read < usize::from(MESSAGES_A_QUERY) && end >= session.seq) {
                break;
            }
            next = end.next();
        }
        if frames.is_empty() {
            frames.push(ServerFrame::Messages { session_id: session.session_id.clone(), items: Vec::new() });
        }
        Ok(Replay { messages: frames, last })
    }

    /// Messages for a reader, with links to their images.
    pub async fn documents(&self, messages: &[Message], reader: Side, language: Language) -> Vec<MessageDocument> {
        let links = self.links(messages).await;
        messages.iter().map(|message| MessageDocument::new(message, reader, language, &links)).collect()
    }

    async fn links(&self, messages: &[Message]) -> Links {
        let keys: Vec<&ImageKey> = messages
            .iter()
            .filter_map(|message| match &message.body {
                Body::Image(key) => Some(key),
                Body::Text(_) | Body::Card(_) | Body::System(_) => None,
            })
            .collect();
        if keys.is_empty() { Links::default() } else { self.uploads.links(keys, self.now()).await }
    }

    // ---- telling others

    async fn tell_all(&self, news: Vec<News>, sender: Option<&ConnectionId>) {
        stream::iter(news).for_each_concurrent(NEWS_AT_ONCE, |news| self.tell(news, sender)).await;
    }

    /// Pushes news to everybody it concerns; never an error. `sender`: the connection that has been answered already.
    async fn tell(&self, news: News, sender: Option<&ConnectionId>) {
        let session_id = news.session.session_id.clone();
        if tokio::time::timeout(TELL_BUDGET, self.push_news(news, sender)).await.is_err() {
            warn!(%session_id, "some are left to sync: a socket is slow");
        }
    }

    async fn push_news(&self, news: News, sender: Option<&ConnectionId>) {
        // Read now, so that what is pushed last is what was stored last.
        let state = match &news.what {
            What::Changed(..) => self.state(&news.session).await,
            What::Said(_) | What::Read(..) | What::Typing(_) => None,
        };
        let links = match &news.what {
            What::Said(message) => self.links(std::slice::from_ref(message)).await,
            What::Changed(..) | What::Read(..) | What::Typing(_) => Links::default(),
        };
        let session_id = &news.session.session_id;
        let frames = |connection: &Connection| {
            let (reader, language) = (connection.side, connection.language);
            let is_sender = Some(&connection.connection_id) == sender;
            let message =
                |message| ServerFrame::Message(Box::new(MessageDocument::new(message, reader, language, &links)));
            match &news.what {
                What::Said(_) | What::Read(..) | What::Typing(_) if is_sender => Vec::new(),
                What::Said(said) => vec![message(said)],
                What::Changed(noted, ex_agent) => {
                    // Who lost it to somebody hears that it is gone, and nothing of what is said in it from then on.
                    let is_ex = reader == Side::Agent && Some(&connection.user_id) == ex_agent.as_ref();
                    let noted = noted.iter().filter(|_| !is_ex || news.session.status == SessionStatus::Closed);
                    let state = state.iter().filter(|_| !is_sender);
                    let state =
                        state.map(|(known, position)| ServerFrame::session(known, *position, connection.language));
                    noted.map(message).chain(state).collect()
                }
                What::Read(by, last_seq) => {
                    vec![ServerFrame::Read { session_id: session_id.clone(), by: *by, last_seq: *last_seq }]
                }
                What::Typing(from) => {
                    vec![ServerFrame::Typing { session_id: session_id.clone(), from: Sender::from(from) }]
                }
            }
        };
        let audience = news.audience();
        join_all(audience.iter().map(|party| self.postman.push(party, &frames))).await;
    }

    async fn state(&self, session: &Session) -> Option<(Known, Option<u32>)> {
        let state = async {
            let Some(known) = self.desk.known([&session.session_id]).await?.pop() else { return Ok(None) };
            let position = self.position(&known.session).await?;
            Ok::<_, StoreError>(Some((known, position)))
        };
        state.await.unwrap_or_else(|error| {
            let session_id = &session.session_id;
            warn!(%session_id, error = &error as &dyn std::error::Error, "the state of a session is left to sync");
            None
        })
    }

    // ---- assignment

    /// Gives what waits to those who are free, until nothing waits, nobody is free, or it is `stop`; each time those whom it
    /// concerns are told while the next is given out. Never an error: the sweep drains too.
    pub async fn drain(&self, stop: UnixMillis) -> u32 {
        let mut claimed = 0;
        stream::unfold((), |()| async {
            if self.now() >= stop {
                return None;
            }
            match self.desk.claim_next(self.now()).await {
                Ok(Claimed::Claimed(step)) => Some((News::changed(*step, None), ())),
                Ok(Claimed::Rest) => None,
                Err(error) => {
                    warn!(error = &error as &dyn std::error::Error, "what waits is left to the sweep");
                    None
                }
            }
        })
        .take(MAX_CLAIMS)
        .inspect(|_| claimed += 1)
        .for_each_concurrent(NEWS_AT_ONCE, |news| self.tell(news, None))
        .await;
        claimed
    }

    /// An absent agent's sessions go to others, or back to the queue. Never an error: the sweep empties them too.
    pub async fn leave(&self, agent: &Agent, stop: UnixMillis) -> u32 {
        let mut news = Vec::new();
        for session_id in &agent.sessions {
            if self.now() >= stop {
                break;
            }
            let moved =
                self.desk.move_on(session_id, &agent.agent_id, &Destination::Anybody, Reason::Absence, self.now());
            match moved.await {
                Ok(Moved::Moved(step)) => news.push(News::changed(*step, Some(agent.agent_id.clone()))),
                Ok(Moved::NotTheirs | Moved::NobodyThere) => {}
                Err(error) => {
                    warn!(%session_id, error = &error as &dyn std::error::Error, "a session is left to the sweep");
                }
            }
        }
        let moved = u32::try_from(news.len()).unwrap_or(u32::MAX);
        self.tell_all(news, None).await;
        self.drain(stop).await;
        moved
    }

    /// What nobody came by to do: agents who are away or lost are emptied, what waits is given out, what has been silent for
    /// long is closed. Each step may be repeated, and ends at `stop`.
    pub async fn sweep(&self, stop: UnixMillis) -> Result<Swept, StoreError> {
        let mut swept = Swept::default();
        for agent in self.desk.absent(self.now()).await? {
            if self.now() >= stop {
                return Ok(swept);
            }
            swept.moved += self.leave(&agent, stop).await;
        }
        swept.claimed = self.drain(stop).await;
        swept.expired = self.expire(stop).await?;
        Ok(swept)
    }

    async fn expire(&self, stop: UnixMillis) -> Result<u32, StoreError> {
        let agents = self.desk.agents().await?;
        let waiting = self.desk.waiting(WAITING_LOOKED_AT).await?;
        let open = agents.iter().flat_map(|agent| &agent.sessions);
        let sessions = self.desk.sessions(open.chain(&waiting)).await?;
        let is_idle = |session: &Session, now: UnixMillis| match session.status {
            SessionStatus::Open => session.last_time.plus_secs(IDLE_SECS) <= now,
            SessionStatus::Waiting => session.last_time.max(session.waiting_since).plus_secs(WAITING_SECS) <= now,
            SessionStatus::Closed => false,
        };
        let mut expired = 0;
        for session in sessions.into_iter().filter(|session| is_idle(session, self.now())) {
            if self.now() >= stop {
                break;
            }
            let now = self.now();
            let session_id = session.session_id.clone();
            match self.desk.close(session, None, |session| is_idle(session, now), now).await {
                Ok(Closed::Now(step)) => {
                    expired += 1;
                    let agent = step.session.last_agent_id.clone();
                    self.tell(News::changed(*step, agent), None).await;
                }
                Ok(Closed::Otherwise(_)) => {}
                // The next sweep finds it; others should not wait for that.
                Err(error) => {
                    warn!(%session_id, error = &error as &dyn std::error::Error, "a silent session stays open for now");
                }
            }
        }
        // Whoever had them has room now.
        if expired > 0 {
            self.drain(stop).await;
        }
        Ok(expired)
    }
}

fn last_in(frame: &ServerFrame) -> Option<Seq> {
    match frame {
        ServerFrame::Messages { items, .. } => items.last().map(|item| item.seq),
        _ => None,
    }
}
