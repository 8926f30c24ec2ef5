//! A chat client that does everything right, for whoever writes another one.
//!
//! The service promises that each message is stored once, that the messages of a session are numbered 1, 2, 3, … without a
//! gap, and that `sent` is told only of what is stored. It does *not* promise that a push arrives, arrives once, or arrives
//! in order: sockets break, functions run side by side, and a phone in a lift hears nothing. A client turns the first into
//! what its user sees, by these rules. Each is here because leaving it out loses, doubles or reorders a message somewhere.
//!
//! # Hearing
//!
//! 1. **Apply by number.** Of each session keep the unbroken beginning (messages 1 to `have`) and, apart from it, what came
//!    ahead of its turn. Show only the first. A number that is there already is a repetition: drop it. Nothing else decides
//!    the order, neither arrival nor `at`.
//! 2. **First listen, then ask.** On every new connection send `sync` with `have` of each session you know (at most 32 in a
//!    frame), then `ping`. The first frame makes the connection live, so from there on pushes come, and the replay
//!    brings what was before. The other way round, what is said in between is lost. `sync` fills what you know; the `pong`
//!    names what you do not.
//! 3. **A replay ends with `sync_end`.** If its `head` is above what you have then, `sync` again: one replay has a bound. If
//!    it brought nothing at all, do not ask the same at once; rule 4 goes on.
//! 4. **A gap is pulled, but not hastily.** While a replay is under way it may fill the gap, so wait for `sync_end`, or until
//!    it has been silent for 5 s. Pushes overtake each other, so give a gap one more second. Then `pull` exactly what is missing.
//! 5. **Believe `heads`.** Each `pong` lists the sessions you are a member of, with the number of the last message. A session
//!    you do not know: `sync` from 0. A higher head than yours: `sync`; this is how the loss of the *last* push is noticed,
//!    which no gap would show. A session that is missing: drop it, it is not yours any more; unless you heard of it only
//!    after you sent that `ping`.
//! 6. **`session` frames may be late too.** Each change of a session is a message in it, so of two frames the one with the
//!    lower `head` is the older: ignore it. An agent drops a session that is not open with them.
//! 7. **Acknowledge the unbroken beginning only**, what was read of it, at most once a second, and nothing when all that is
//!    new are your own words. An acknowledgement covers everything below it, so one beyond a gap would mark as read what
//!    was never shown.
//!
//! # Speaking
//!
//! 8. **Name each message** with a `clientMsgId` of your own, the same on every try. It is what makes a second try safe: the
//!    answer is the `sent` of the first, with `duplicate`. Without it a message may be there twice.
//! 9. **One at a time.** Frames of one socket are processed side by side, so two texts sent at once may change places. Of
//!    `text`, `image`, `card`, `close` and `transfer`, one is under way in each session; the next follows `sent`, `session` or
//!    an `error` that stands. (Other sessions do not wait.)
//! 10. **First the same again.** After RETRY_LATER (when `retryAfterMs` and a random bit are over), after 5 s of silence, and
//!     on a new connection, send the same frame again before anything behind it. It may be stored already; the one
//!     behind it must not get before it. RATE_LIMITED: nothing at all until `retryAfterMs` are over.
//! 11. **`sent` is an arrival.** The connection that spoke gets no `message` of it, so on `sent` put your own words at that
//!     number. Your other devices get the `message`. If your own words come back in a replay, they are stored: that is as good
//!     as `sent`.
//! 12. An agent whose repeated `close` or `transfer` is NOT_FOUND has what they wanted: the first one was done, its answer lost.
//! 13. `typing` at most once in 3 s. It is not repeated, not queued, and nobody minds its loss.
//!
//! # Connections
//!
//! 14. **`ping` every 30 s.** It keeps the socket (and an agent's presence) alive and brings `heads`. No `pong` within 20 s, nor
//!     anything else: the connection is dead, whatever the socket says.
//! 15. **Come back after a random wait**, anywhere between nothing and a bound that doubles ("full jitter", [`Backoff`]):
//!     a thousand clients that lost the same server must not return at once. Then rule 2.
//! 16. **`rotate`: make before break.** A connection lives two hours at most. Open the next one beside it, do rule 2 there, speak
//!     there from now on, and leave the old one when the new one is complete and nothing sent on the old one awaits its
//!     answer. What comes on both is dropped by rule 1.
//! 17. **AUTH_EXPIRED: `auth` with a fresh token**, on the same connection. What was answered so was not done: after the `pong`,
//!     send it again. Pushes were withheld meanwhile; the `pong`'s heads say what is missing.
//! 18. **A ticket rather than a token** opens a connection ([`Api::chat_ticket`], a new one each time): it is good for one
//!     handshake within 30 s, so that it does not matter who reads the address.
//!
//! # How it is built
//!
//! `machine` holds the rules as a state machine without a socket and without a clock, one session in it is `session`;
//! both are tried with every order of arrival there. The actor task gives it sockets, time and tokens. [`ChatClient`] is the
//! handle: it says what its user wants, waits for what came of it, and looks at the machine. A page would show what the
//! machine has and redraw at each [`Event`].

mod actor;
mod machine;
mod session;
#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::{broadcast, mpsc, oneshot, watch};

use crate::frames::{AgentStatus, Author, ChatRole, SeckillResult, SessionFrame, StatusFrame};
use crate::socket::ConnectOptions;
use crate::{Api, ClientError, Role, Stack, Token};
use actor::{Actor, Command};

pub use machine::{Event, Machine, Outcome, Sent};
pub use session::{Body, Message};

/// How long the handle waits for what came of a wish: a few tries.
const ANSWER_WITHIN: Duration = Duration::from_secs(60);
/// Wishes on their way to the actor.
const COMMANDS: usize = 256;
/// Events that a listener may be behind.
const EVENTS: usize = 4_096;
/// As the server's presence expects.
const HEARTBEAT: Duration = Duration::from_secs(30);

/// Makes a fresh token. Called at every connection and when one has expired.
pub type Tokens = Arc<dyn Fn() -> Result<Token, ClientError> + Send + Sync>;

/// Who talks, and how they connect.
#[derive(Clone)]
pub struct ChatOptions {
    ws_url: String,
    me: Author,
    tokens: Tokens,
    /// Asked for tickets; without it the token opens the socket.
    ticket_office: Option<Api>,
    socket: ConnectOptions,
    heartbeat: Duration,
    reads: bool,
}

impl ChatOptions {
    /// A customer or an agent of this stack, with its own tokens, each good for an hour.
    pub fn new(stack: &Stack, role: Role, id: &str) -> Self {
        let (stack, subject) = (stack.clone(), id.to_owned());
        let ws_url = stack.ws_url.clone();
        Self::with_tokens(ws_url, role, id, Arc::new(move || stack.token(role, &subject).sign()))
    }

    pub fn with_tokens(ws_url: String, role: Role, id: &str, tokens: Tokens) -> Self {
        let role = if role == Role::Agent { ChatRole::Agent } else { ChatRole::User };
        Self {
            ws_url,
            me: Author { role, id: Some(id.to_owned()) },
            tokens,
            ticket_office: None,
            // Replaced by a fresh one before it is used.
            socket: ConnectOptions::new(Token::from_text("")),
            heartbeat: HEARTBEAT,
            reads: true,
        }
    }

    /// Opens each socket with a ticket.
    #[must_use]
    pub fn with_tickets(self, api: &Api) -> Self {
        Self { ticket_office: Some(api.clone()), ..self }
    }

    #[must_use]
    pub fn on_device(self, device_id: &str) -> Self {
        Self { socket: self.socket.on_device(device_id), ..self }
    }

    #[must_use]
    pub fn in_language(self, language: &str) -> Self {
        Self { socket: self.socket.in_language(language), ..self }
    }

    #[must_use]
    pub fn watched(self, watch: fn(&str)) -> Self {
        Self { socket: self.socket.watched(watch), ..self }
    }

    #[must_use]
    pub fn heartbeat(self, heartbeat: Duration) -> Self {
        Self { heartbeat, ..self }
    }

    /// Acknowledges what [`ChatClient::read`] says, and nothing by itself.
    #[must_use]
    pub fn reading_by_hand(self) -> Self {
        Self { reads: false, ..self }
    }
}

impl fmt::Debug for ChatOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChatOptions").field("ws_url", &self.ws_url).field("me", &self.me).finish_non_exhaustive()
    }
}

/// An event and when it came about.
#[derive(Debug, Clone)]
pub struct Happened {
    pub at: Instant,
    pub event: Event,
}

/// What the handle and the actor both see.
#[derive(Debug)]
struct Shared {
    machine: Mutex<Machine>,
    events: broadcast::Sender<Happened>,
    /// Moves with every step of the machine.
    changed: watch::Sender<u64>,
    /// The first frame that the contract does not know. Waiting on is no use then.
    drift: Mutex<Option<(String, String)>>,
}

impl Shared {
    fn machine(&self) -> MutexGuard<'_, Machine> {
        self.machine.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn drift(&self) -> MutexGuard<'_, Option<(String, String)>> {
        self.drift.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Somebody in the chat. Dropping it is leaving without a goodbye.
#[derive(Debug)]
pub struct ChatClient {
    commands: mpsc::Sender<Command>,
    shared: Arc<Shared>,
}

impl ChatClient {
    /// Opens the first connection. Later ones are the client's own affair; this one fails loudly.
    pub async fn connect(options: ChatOptions) -> Result<Self, ClientError> {
        let prefix = format!("c{:016x}", rand::random::<u64>());
        let machine = Machine::new(options.me.clone(), prefix, options.heartbeat, options.reads);
        let shared = Arc::new(Shared {
            machine: Mutex::new(machine),
            events: broadcast::channel(EVENTS).0,
            changed: watch::channel(0).0,
            drift: Mutex::new(None),
        });
        let first = actor::dial(&options).await?;
        let (commands, heard) = mpsc::channel(COMMANDS);
        tokio::spawn(Actor::new(options, Arc::clone(&shared)).run(first, heard));
        Ok(Self { commands, shared })
    }

    // ---- speaking

    /// A customer's session: the active one, or a new one.
    pub async fn open(&self) -> Result<SessionFrame, ClientError> {
        self.session_after(machine::Wish::Open { session_id: None }).await.map(|session| *session)
    }

    /// A customer comes back to a closed session. If another one is active, it is that.
    pub async fn reopen(&self, session_id: &str) -> Result<SessionFrame, ClientError> {
        let session_id = Some(session_id.to_owned());
        self.session_after(machine::Wish::Open { session_id }).await.map(|session| *session)
    }

    pub async fn text(&self, session_id: &str, content: &str) -> Result<Sent, ClientError> {
        self.sent(machine::Wish::Text { session_id: session_id.to_owned(), content: content.to_owned() }).await
    }

    /// `key`: of an upload.
    pub async fn image(&self, session_id: &str, key: &str) -> Result<Sent, ClientError> {
        self.sent(machine::Wish::Image { session_id: session_id.to_owned(), key: key.to_owned() }).await
    }

    /// Shows an order of the session's customer.
    pub async fn card(&self, session_id: &str, order_no: &str) -> Result<Sent, ClientError> {
        self.sent(machine::Wish::Card { session_id: session_id.to_owned(), order_no: order_no.to_owned() }).await
    }

    /// `None`: it was closed, or is somebody else's, and this agent's first try may have been what did it.
    pub async fn close(&self, session_id: &str) -> Result<Option<SessionFrame>, ClientError> {
        self.given_away(machine::Wish::Close { session_id: session_id.to_owned() }).await
    }

    /// An agent gives a session to another one, or to whoever is best. `None` as with [`ChatClient::close`].
    pub async fn transfer(&self, session_id: &str, to: Option<&str>) -> Result<Option<SessionFrame>, ClientError> {
        let wish = machine::Wish::Transfer { session_id: session_id.to_owned(), to: to.map(str::to_owned) };
        self.given_away(wish).await
    }

    /// An agent's own state.
    pub async fn status(&self, status: AgentStatus) -> Result<StatusFrame, ClientError> {
        match self.outcome(machine::Wish::Status(status)).await? {
            Outcome::Status(status) => Ok(status),
            other => Err(unexpected(other)),
        }
    }

    pub async fn typing(&self, session_id: &str) -> Result<(), ClientError> {
        self.command(Command::Typing(session_id.to_owned())).await
    }

    /// The reader has seen what is here. Needed with [`ChatOptions::reading_by_hand`] only.
    pub async fn read(&self, session_id: &str) -> Result<(), ClientError> {
        self.command(Command::Read(session_id.to_owned())).await
    }

    pub async fn result_ack(&self, result: &SeckillResult) -> Result<(), ClientError> {
        self.command(Command::ResultAck(result.clone())).await
    }

    /// Sends a frame as it stands on the newest connection, past all rules, for tests of what must be refused. What is
    /// answered comes as an event.
    pub async fn raw(&self, text: &str) -> Result<(), ClientError> {
        self.command(Command::Raw(text.to_owned())).await
    }

    // ---- connections

    /// Cuts all connections without a goodbye and stays away, until [`ChatClient::reconnect`]. Wishes are kept.
    pub async fn drop_connection(&self) -> Result<(), ClientError> {
        self.command(Command::Away).await?;
        self.wait_for("the connection to be cut", |machine| !machine.is_online(), ANSWER_WITHIN).await
    }

    /// Comes back after a random wait, and waits until everything is here.
    pub async fn reconnect(&self) -> Result<(), ClientError> {
        self.command(Command::Back).await?;
        self.settled(ANSWER_WITHIN).await
    }

    /// Takes leave.
    pub async fn goodbye(self) -> Result<(), ClientError> {
        let (done, left) = oneshot::channel();
        self.command(Command::Goodbye(done)).await?;
        left.await.map_err(|_| ClientError::SocketClosed)
    }

    // ---- looking

    /// All messages of a session that are here in order, from the first on.
    pub fn messages(&self, session_id: &str) -> Vec<Message> {
        self.shared.machine().messages(session_id).to_vec()
    }

    /// The last that was heard of a session's state.
    pub fn session(&self, session_id: &str) -> Option<SessionFrame> {
        self.shared.machine().session(session_id).cloned()
    }

    /// The sessions that the client is a member of.
    pub fn sessions(&self) -> Vec<String> {
        self.shared.machine().sessions().map(str::to_owned).collect()
    }

    /// Messages of the other side that this one has not acknowledged.
    pub fn unread(&self, session_id: &str) -> usize {
        self.shared.machine().unread(session_id)
    }

    /// What happens from now on.
    pub fn events(&self) -> broadcast::Receiver<Happened> {
        self.shared.events.subscribe()
    }

    /// Waits until something is true of what is here.
    pub async fn wait_for(
        &self,
        what: &str,
        mut is_true: impl FnMut(&Machine) -> bool,
        within: Duration,
    ) -> Result<(), ClientError> {
        self.wait_until(what, |machine| is_true(machine).then_some(()), within).await
    }

    /// Waits until there is something.
    pub async fn wait_until<T>(
        &self,
        what: &str,
        mut look: impl FnMut(&Machine) -> Option<T>,
        within: Duration,
    ) -> Result<T, ClientError> {
        let mut changed = self.shared.changed.subscribe();
        let found = async {
            loop {
                if let Some((frame, reason)) = self.shared.drift().clone() {
                    return Err(ClientError::FrameDrift { frame, reason });
                }
                if let Some(found) = look(&self.shared.machine()) {
                    return Ok(found);
                }
                changed.changed().await.map_err(|_| ClientError::SocketClosed)?;
            }
        };
        tokio::time::timeout(within, found)
            .await
            .map_err(|_| ClientError::TimedOut { what: what.to_owned(), within })?
    }

    /// Waits until every session is complete and nothing is on its way out.
    pub async fn settled(&self, within: Duration) -> Result<(), ClientError> {
        self.wait_for("everything to be here", Machine::is_settled, within).await
    }

    /// Waits for a session of one's own: an agent, until they are given one.
    pub async fn any_session(&self, within: Duration) -> Result<String, ClientError> {
        self.wait_until("a session", |machine| machine.sessions().next().map(str::to_owned), within).await
    }

    // ---- inside

    async fn sent(&self, wish: machine::Wish) -> Result<Sent, ClientError> {
        match self.outcome(wish).await? {
            Outcome::Sent(sent) => Ok(sent),
            other => Err(unexpected(other)),
        }
    }

    async fn session_after(&self, wish: machine::Wish) -> Result<Box<SessionFrame>, ClientError> {
        match self.outcome(wish).await? {
            Outcome::Session(session) => Ok(session),
            other => Err(unexpected(other)),
        }
    }

    async fn given_away(&self, wish: machine::Wish) -> Result<Option<SessionFrame>, ClientError> {
        match self.outcome(wish).await? {
            Outcome::Session(session) => Ok(Some(*session)),
            Outcome::Gone => Ok(None),
            other => Err(unexpected(other)),
        }
    }

    async fn outcome(&self, wish: machine::Wish) -> Result<Outcome, ClientError> {
        let what = format!("an answer to {wish:?}");
        let (tell, told) = oneshot::channel();
        self.command(Command::Wish(wish, tell)).await?;
        let outcome = tokio::time::timeout(ANSWER_WITHIN, told).await;
        let timed_out = |_| ClientError::TimedOut { what, within: ANSWER_WITHIN };
        outcome.map_err(timed_out)?.map_err(|_| ClientError::SocketClosed)
    }

    async fn command(&self, command: Command) -> Result<(), ClientError> {
        self.commands.send(command).await.map_err(|_| ClientError::SocketClosed)
    }
}

/// A refusal, or an answer to another kind of wish.
fn unexpected(outcome: Outcome) -> ClientError {
    match outcome {
        Outcome::Refused(error) => ClientError::FrameRefused(error),
        Outcome::TooMany => ClientError::TooManyWishes,
        Outcome::Sent(_) | Outcome::Session(_) | Outcome::Status(_) | Outcome::Gone => {
            ClientError::FrameDrift { frame: format!("{outcome:?}"), reason: "not the answer to what was asked".into() }
        }
    }
}
