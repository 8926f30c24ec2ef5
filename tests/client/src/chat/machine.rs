//! The rules of a chat client, without a socket and without a clock: what came and what is wanted goes in, what is to be
//! done comes out. [`mod@super`] tells the rules and why they are so.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use jiff::Timestamp;

use super::session::{Body, Message, Replay, Thread};
use crate::Backoff;
use crate::frames::{
    AgentStatus, Author, ChatRole, ClientFrame, ErrorFrame, FrameErrorCode, MessageFrame, ReadFrame, SeckillResult,
    SentFrame, ServerFrame, SessionFrame, SessionStatus, StatusFrame, TypingFrame,
};

/// Time since the client began.
pub(super) type Moment = Duration;

/// A replay that has not ended, and said nothing for this long, is not waited for.
pub(super) const REPLAY_WITHIN: Duration = Duration::from_secs(5);
/// What is missing may be on its way: pushes of one session overtake each other.
pub(super) const GAP_WAIT: Duration = Duration::from_secs(1);
/// An acknowledgement is a write; one a second is enough for a reader.
pub(super) const ACK_EVERY: Duration = Duration::from_secs(1);
pub(super) const TYPING_EVERY: Duration = Duration::from_secs(3);
/// A frame that is not answered for this long is sent again.
pub(super) const SILENCE: Duration = Duration::from_secs(5);
/// A connection that does not answer `ping` for this long, nor says anything else, is lost, whatever its socket says.
pub(super) const PONG_WITHIN: Duration = Duration::from_secs(20);
/// An old connection is left after this, whether or not the new one has everything.
pub(super) const HANDOVER_WITHIN: Duration = Duration::from_secs(10);
/// Sessions that one `sync` may name.
pub(super) const MAX_SYNC_SESSIONS: usize = 32;
/// Wishes that may wait in one lane.
pub(super) const MAX_WISHES: usize = 1_000;
/// After RETRY_LATER and RATE_LIMITED, on top of what the server asks for.
const FIRST_RETRY: Duration = Duration::from_millis(250);
const LONGEST_RETRY: Duration = Duration::from_secs(5);

/// A connection, in the order they were opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct LinkId(pub(super) u64);

/// Who waits for an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct OpId(pub(super) u64);

/// What the user wants and hears the outcome of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Wish {
    Open { session_id: Option<String> },
    Text { session_id: String, content: String },
    Image { session_id: String, key: String },
    Card { session_id: String, order_no: String },
    Close { session_id: String },
    Transfer { session_id: String, to: Option<String> },
    Status(AgentStatus),
}

#[derive(Debug)]
pub(super) enum Input {
    /// A connection is there; nothing was said on it yet.
    Opened(LinkId),
    Closed(LinkId),
    Heard(LinkId, ServerFrame),
    Wish(OpId, Wish),
    Typing(String),
    /// The reader has seen what is here.
    Read(String),
    ResultAck(SeckillResult),
    /// Go away without a word, and stay away.
    Away,
    Back,
    Tick,
}

#[derive(Debug, PartialEq)]
pub(super) enum Output {
    Send(LinkId, ClientFrame),
    /// Say `auth` with a fresh token.
    Renew(LinkId),
    /// Open another connection: after a random wait, unless an old one is still there.
    Connect {
        at_once: bool,
    },
    /// Leave a connection: with a goodbye, if it is to be polite.
    Leave {
        link: LinkId,
        goodbye: bool,
    },
    Done(OpId, Outcome),
    Tell(Event),
}

/// What became of a wish.
#[derive(Debug, Clone, PartialEq)]
pub enum Outcome {
    Sent(Sent),
    Session(Box<SessionFrame>),
    Status(StatusFrame),
    /// An agent asked for a close or a transfer, heard nothing, asked again, and the session is not theirs any more: whatever
    /// made it so, it is what was wanted.
    Gone,
    Refused(ErrorFrame),
    /// More is waiting already than ever should.
    TooMany,
}

/// A message is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sent {
    pub seq: u64,
    pub at: Timestamp,
    /// An earlier try had stored it.
    pub duplicate: bool,
}

/// What happened, for whoever shows it.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// A connection was opened.
    Online,
    /// The last connection is gone.
    Offline,
    /// A new connection has taken over from an old one.
    Rotated,
    /// The next message of a session: each once, in order.
    Message(Message),
    Session(Box<SessionFrame>),
    /// The client is no member of this session any more.
    Dropped(String),
    Read(ReadFrame),
    Typing(TypingFrame),
    Status(StatusFrame),
    Result(SeckillResult),
    /// An error that belongs to no wish.
    Refused(ErrorFrame),
    /// No credential opens the door any more.
    SignedOut,
    /// A frame that the contract does not know: a defect of one side.
    Drift(String),
}

/// What must keep its order: one frame of a lane is under way at a time.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum LaneKey {
    Session(String),
    Opening,
    Status,
}

#[derive(Debug, Default)]
struct Lane {
    under_way: Option<UnderWay>,
    waiting: VecDeque<(OpId, Wish)>,
}

#[derive(Debug)]
struct UnderWay {
    op: OpId,
    wish: Wish,
    client_msg_id: Option<String>,
    /// Where it was sent last.
    link: Option<LinkId>,
    sent_at: Option<Moment>,
    resend_at: Moment,
    tries: u32,
    backoff: Backoff,
}

#[derive(Debug)]
struct Link {
    id: LinkId,
    opened_at: Moment,
    greeted: bool,
    /// The first `ping` that is not answered.
    pinged_at: Option<Moment>,
    heard_at: Moment,
    ping_at: Moment,
    /// It has answered a `ping`: every session is known.
    ponged: bool,
    /// The token has expired; a fresh one is under way.
    renewing: Option<Moment>,
    /// The server wants it replaced.
    rotate: bool,
}

/// A customer or an agent in the chat.
#[derive(Debug)]
pub struct Machine {
    me: Author,
    /// Begins each clientMsgId: no two clients may share it.
    prefix: String,
    named: u64,
    heartbeat: Duration,
    /// Acknowledge what has come in order, without being told that somebody read it.
    reads: bool,
    links: Vec<Link>,
    connecting: bool,
    away: bool,
    threads: BTreeMap<String, Thread>,
    lanes: BTreeMap<LaneKey, Lane>,
    /// The server asked to be left alone until then.
    quiet_until: Moment,
    out: Vec<Output>,
}

impl Machine {
    pub(super) fn new(me: Author, prefix: String, heartbeat: Duration, reads: bool) -> Self {
        Self {
            me,
            prefix,
            named: 0,
            heartbeat,
            reads,
            links: Vec::new(),
            connecting: true,
            away: false,
            threads: BTreeMap::new(),
            lanes: BTreeMap::new(),
            quiet_until: Moment::ZERO,
            out: Vec::new(),
        }
    }

    // ------------------------------------------------------------------------------- looking

    /// Messages of a session from the first on, without a gap.
    pub fn messages(&self, session_id: &str) -> &[Message] {
        self.threads.get(session_id).map_or(&[], |thread| &thread.messages)
    }

    /// How many messages there are here without a gap.
    pub fn have(&self, session_id: &str) -> u64 {
        self.threads.get(session_id).map_or(0, Thread::have)
    }

    /// All messages of a session that the client knows of are here, and none is asked for.
    pub fn is_complete(&self, session_id: &str) -> bool {
        self.threads.get(session_id).is_some_and(Thread::is_complete)
    }

    /// The last that was heard of a session's state.
    pub fn session(&self, session_id: &str) -> Option<&SessionFrame> {
        self.threads.get(session_id)?.state.as_ref()
    }

    /// The sessions that the client is a member of.
    pub fn sessions(&self) -> impl Iterator<Item = &str> {
        self.threads.iter().filter(|(_, thread)| thread.followed).map(|(id, _)| id.as_str())
    }

    /// Messages of the other side that this side has not acknowledged.
    pub fn unread(&self, session_id: &str) -> usize {
        self.threads.get(session_id).map_or(0, |thread| thread.unread(self.me.role))
    }

    /// What this side has acknowledged, as the server has it.
    pub fn acknowledged(&self, session_id: &str) -> u64 {
        self.threads.get(session_id).map_or(0, |thread| thread.acked)
    }

    /// What the other side has acknowledged.
    pub fn seen_by_peer(&self, session_id: &str) -> u64 {
        self.threads.get(session_id).map_or(0, |thread| thread.seen_by_peer)
    }

    /// There is a connection.
    pub fn is_online(&self) -> bool {
        !self.links.is_empty()
    }

    /// Every session is known and complete, as far as the client can know, and nothing waits to be sent.
    pub fn is_settled(&self) -> bool {
        self.links.last().is_some_and(|link| link.ponged)
            && self.threads.values().filter(|thread| thread.followed).all(Thread::is_complete)
            && self.lanes.is_empty()
    }

    /// Where to speak: the newest connection.
    pub(super) fn speaking(&self) -> Option<LinkId> {
        self.links.last().map(|link| link.id)
    }

    // ------------------------------------------------------------------------------- the rules

    pub(super) fn step(&mut self, now: Moment, input: Input) -> Vec<Output> {
        match input {
            Input::Opened(link) => self.opened(now, link),
            Input::Closed(link) => self.closed(now, link),
            Input::Heard(link, frame) => self.heard(now, link, frame),
            Input::Wish(op, wish) => self.wish(op, wish),
            Input::Typing(session_id) => self.typing(now, session_id),
            Input::Read(session_id) => {
                if let Some(thread) = self.threads.get_mut(&session_id) {
                    thread.was_read();
                }
            }
            Input::ResultAck(result) => {
                if let Some(link) = self.speaking() {
                    let SeckillResult { order_no, order_status, .. } = result;
                    self.send(link, ClientFrame::ResultAck { order_no, order_status });
                }
            }
            Input::Away => {
                self.away = true;
                self.connecting = false;
                for link in self.links.iter().map(|link| link.id).collect::<Vec<_>>() {
                    self.leave(now, link, false);
                }
            }
            Input::Back => {
                self.away = false;
                self.want_connection(false);
            }
            Input::Tick => {}
        }
        self.pump(now);
        std::mem::take(&mut self.out)
    }

    fn opened(&mut self, now: Moment, id: LinkId) {
        self.connecting = false;
        if self.away {
            self.out.push(Output::Leave { link: id, goodbye: false });
            return;
        }
        self.links.push(Link {
            id,
            opened_at: now,
            greeted: false,
            pinged_at: None,
            heard_at: now,
            ping_at: now,
            ponged: false,
            renewing: None,
            rotate: false,
        });
        // Heard of on another connection or not: a push to this one may be the only one from here on.
        for thread in self.threads.values_mut().filter(|thread| thread.followed) {
            thread.replay = Replay::Due(now);
        }
        self.tell(Event::Online);
    }

    /// A connection is gone. What was asked over it is asked again.
    fn closed(&mut self, now: Moment, id: LinkId) {
        let known = self.links.len();
        self.links.retain(|link| link.id != id);
        if self.links.len() == known {
            return;
        }
        for under_way in self.lanes.values_mut().filter_map(|lane| lane.under_way.as_mut()) {
            if under_way.link == Some(id) {
                under_way.link = None;
                under_way.resend_at = now;
            }
        }
        for thread in self.threads.values_mut() {
            if matches!(thread.replay, Replay::Under { link, .. } if link == id) {
                thread.replay = Replay::Due(now);
            }
        }
        match self.links.last() {
            None => {
                self.tell(Event::Offline);
                self.want_connection(false);
            }
            Some(link) if link.rotate => self.want_connection(false),
            Some(_) => {}
        }
    }

    fn leave(&mut self, now: Moment, link: LinkId, goodbye: bool) {
        self.out.push(Output::Leave { link, goodbye });
        self.closed(now, link);
    }

    fn want_connection(&mut self, at_once: bool) {
        if !self.connecting && !self.away {
            self.connecting = true;
            self.out.push(Output::Connect { at_once });
        }
    }

    fn heard(&mut self, now: Moment, link: LinkId, frame: ServerFrame) {
        if let Some(link) = self.links.iter_mut().find(|known| known.id == link) {
            link.heard_at = now;
        }
        match frame {
            ServerFrame::Pong { heads } => self.pong(now, link, &heads),
            ServerFrame::SeckillResult(result) | ServerFrame::OrderStatus(result) => self.tell(Event::Result(result)),
            ServerFrame::Message(message) => self.message(now, message),
            ServerFrame::Messages { session_id, items } => {
                if let Some(Thread { replay: Replay::Under { heard, link: over, .. }, .. }) =
                    self.threads.get_mut(&session_id)
                    && *over == link
                {
                    *heard = now;
                }
                for message in items {
                    self.message(now, message);
                }
            }
            ServerFrame::Sent(sent) => self.sent(now, sent),
            ServerFrame::SyncEnd { session_id, head } => self.sync_end(now, link, &session_id, head),
            ServerFrame::Read(read) => self.read(read),
            ServerFrame::Session(session) => self.session_changed(now, session),
            ServerFrame::Typing(typing) => self.tell(Event::Typing(typing)),
            ServerFrame::Rotate {} => {
                if let Some(link) = self.links.iter_mut().find(|known| known.id == link) {
                    link.rotate = true;
                }
                if self.speaking() == Some(link) {
                    self.want_connection(true);
                }
            }
            ServerFrame::Status(status) => {
                if let Some(UnderWay { wish: Wish::Status(_), op, .. }) = self.under_way(&LaneKey::Status) {
                    let op = *op;
                    self.finish(&LaneKey::Status, op, Outcome::Status(status.clone()));
                }
                self.tell(Event::Status(status));
            }
            ServerFrame::Error(error) => self.refused(now, link, error),
        }
    }

    /// Which sessions there are, and how far each has come.
    fn pong(&mut self, now: Moment, link: LinkId, heads: &BTreeMap<String, u64>) {
        let mut asked_at = None;
        if let Some(link) = self.links.iter_mut().find(|known| known.id == link) {
            asked_at = link.pinged_at.take();
            link.ponged = true;
            if link.renewing.take().is_some() {
                // What was answered with AUTH_EXPIRED was not done.
                let id = link.id;
                for under_way in self.lanes.values_mut().filter_map(|lane| lane.under_way.as_mut()) {
                    if under_way.link == Some(id) {
                        under_way.resend_at = now;
                    }
                }
                for thread in self.threads.values_mut() {
                    if matches!(thread.replay, Replay::Under { .. }) {
                        thread.replay = Replay::Due(now);
                    }
                    thread.ack_sent = None;
                }
            }
        }
        for (session_id, head) in heads {
            let thread = self.threads.entry(session_id.clone()).or_insert_with(|| Thread::new(now));
            if !thread.followed {
                thread.followed = true;
                thread.followed_since = now;
            }
            thread.heard_of(*head);
            if thread.have() < thread.head && thread.replay == Replay::Idle {
                thread.replay = Replay::Due(now);
            }
        }
        // A session that came to be after this `ping` was asked cannot be in its answer.
        let Some(asked_at) = asked_at else { return };
        let gone: Vec<String> = self
            .threads
            .iter()
            .filter(|(id, thread)| {
                thread.followed && thread.followed_since < asked_at && !heads.contains_key(id.as_str())
            })
            .map(|(id, _)| id.clone())
            .collect();
        for session_id in gone {
            self.drop_session(&session_id);
        }
    }

    fn drop_session(&mut self, session_id: &str) {
        if let Some(thread) = self.threads.get_mut(session_id).filter(|thread| thread.followed) {
            thread.followed = false;
            thread.replay = Replay::Idle;
            thread.pull_at = None;
            self.tell(Event::Dropped(session_id.to_owned()));
        }
    }

    fn message(&mut self, now: Moment, frame: MessageFrame) {
        if let Some(client_msg_id) = frame.client_msg_id.as_deref().filter(|_| frame.from == self.me) {
            // One's own, come back: it is stored, whatever became of its `sent`.
            let key = LaneKey::Session(frame.session_id.clone());
            if let Some(op) = self.under_way(&key).filter(|it| it.client_msg_id.as_deref() == Some(client_msg_id)) {
                let op = op.op;
                self.finish(&key, op, Outcome::Sent(Sent { seq: frame.seq, at: frame.at, duplicate: false }));
            }
        }
        self.take(now, frame.into());
    }

    fn take(&mut self, now: Moment, message: Message) {
        let own = self.me.role;
        let session_id = message.session_id.clone();
        let thread = self.threads.entry(session_id).or_insert_with(|| Thread::new(now));
        let is_new = thread.messages.is_empty() && thread.state.is_none();
        if is_new && thread.followed && message.seq > 1 && thread.replay == Replay::Idle {
            // Never heard of: from the beginning.
            thread.replay = Replay::Due(now);
        }
        let before = thread.take(message, own);
        let shown = thread.messages[before..].iter().cloned().map(|message| Output::Tell(Event::Message(message)));
        self.out.extend(shown);
    }

    fn sent(&mut self, now: Moment, sent: SentFrame) {
        let key = LaneKey::Session(sent.session_id.clone());
        let matching =
            self.under_way(&key).filter(|it| it.client_msg_id.is_some() && it.client_msg_id == sent.client_msg_id);
        let Some((op, wish)) = matching.map(|it| (it.op, it.wish.clone())) else {
            // Late, or of a raw frame: it still says that there is such a message.
            if let Some(thread) = self.threads.get_mut(&sent.session_id) {
                thread.heard_of(sent.seq);
            }
            return;
        };
        let body = match wish {
            Wish::Text { content, .. } => Some(Body::Text(content)),
            Wish::Image { key, .. } => Some(Body::Image { key, url: None }),
            Wish::Card { order_no, .. } => Some(Body::Card { order_no, card: None }),
            Wish::Open { .. } | Wish::Close { .. } | Wish::Transfer { .. } | Wish::Status(_) => None,
        };
        if let Some(body) = body {
            let SentFrame { client_msg_id, session_id, seq, at, .. } = sent.clone();
            self.take(now, Message { session_id, seq, from: self.me.clone(), body, at, client_msg_id });
        }
        let SentFrame { seq, at, duplicate, .. } = sent;
        self.finish(&key, op, Outcome::Sent(Sent { seq, at, duplicate }));
    }

    fn sync_end(&mut self, now: Moment, link: LinkId, session_id: &str, head: u64) {
        let Some(thread) = self.threads.get_mut(session_id) else { return };
        thread.heard_of(head);
        // That of an older connection ends another replay.
        if let Replay::Under { had, link: over, .. } = thread.replay
            && over == link
        {
            // A replay is cut at a bound. One that brought nothing would bring nothing again: then the gap is pulled.
            let goes_on = thread.have() < head && thread.have() > had;
            thread.replay = if goes_on { Replay::Due(now) } else { Replay::Idle };
        }
    }

    fn read(&mut self, read: ReadFrame) {
        if let Some(thread) = self.threads.get_mut(&read.session_id) {
            let seen = if read.by == self.me.role { &mut thread.acked } else { &mut thread.seen_by_peer };
            *seen = read.last_seq.max(*seen);
        }
        self.tell(Event::Read(read));
    }

    fn session_changed(&mut self, now: Moment, session: SessionFrame) {
        let mine = match self.me.role {
            ChatRole::Agent => session.status == SessionStatus::Open && session.agent_id == self.me.id,
            ChatRole::User | ChatRole::System => Some(&session.user_id) == self.me.id.as_ref(),
        };
        let known = self.threads.get(&session.session_id);
        // Each change is a message, so of two the one with the lower head is the older, however they came.
        if known.and_then(|thread| thread.state.as_ref()).is_some_and(|state| state.head > session.head) {
            return;
        }
        if known.is_none() && !mine {
            return self.tell(Event::Session(Box::new(session)));
        }
        let thread = self.threads.entry(session.session_id.clone()).or_insert_with(|| {
            let mut thread = Thread::new(now);
            thread.followed = false;
            thread
        });
        let (own, peer) = match self.me.role {
            ChatRole::Agent => (session.admin_seq, session.user_seq),
            ChatRole::User | ChatRole::System => (session.user_seq, session.admin_seq),
        };
        thread.acked = thread.acked.max(own);
        thread.seen_by_peer = thread.seen_by_peer.max(peer);
        thread.state = Some(session.clone());
        if mine {
            thread.heard_of(session.head);
            if !thread.followed {
                thread.followed = true;
                thread.followed_since = now;
                if thread.have() < thread.head && thread.replay == Replay::Idle {
                    thread.replay = Replay::Due(now);
                }
            }
        }
        self.tell(Event::Session(Box::new(session.clone())));
        if !mine {
            self.drop_session(&session.session_id);
        }
        for key in [LaneKey::Session(session.session_id.clone()), LaneKey::Opening] {
            let Some(under_way) = self.under_way(&key) else { continue };
            let answers = match under_way.wish {
                // None but the one active session can be told to a customer as not closed.
                Wish::Open { .. } => session.status != SessionStatus::Closed && mine,
                Wish::Close { .. } => session.status == SessionStatus::Closed,
                Wish::Transfer { .. } => !mine,
                Wish::Text { .. } | Wish::Image { .. } | Wish::Card { .. } | Wish::Status(_) => false,
            };
            // What was not sent yet is not answered.
            if answers && under_way.tries > 0 {
                let op = under_way.op;
                self.finish(&key, op, Outcome::Session(Box::new(session.clone())));
            }
        }
    }

    // ------------------------------------------------------------------------------- refusals

    fn refused(&mut self, now: Moment, link: LinkId, error: ErrorFrame) {
        let asked_wait = error.retry_after_ms.map(Duration::from_millis);
        match error.code {
            FrameErrorCode::AuthExpired => return self.auth_expired(now, link),
            FrameErrorCode::RateLimited => {
                self.quiet_until = self.quiet_until.max(now + asked_wait.unwrap_or(FIRST_RETRY));
            }
            FrameErrorCode::BadFrame
            | FrameErrorCode::TooLarge
            | FrameErrorCode::NotFound
            | FrameErrorCode::SessionClosed
            | FrameErrorCode::AckOutOfRange
            | FrameErrorCode::ClientMsgIdReused
            | FrameErrorCode::AgentUnavailable
            | FrameErrorCode::RetryLater => {}
        }
        let passes = matches!(error.code, FrameErrorCode::RetryLater | FrameErrorCode::RateLimited);
        let Some(key) = self.lane_of(&error) else { return self.refused_in_passing(now, error, passes) };
        let is_agent = self.me.role == ChatRole::Agent;
        let Some(under_way) = self.lanes.get_mut(&key).and_then(|lane| lane.under_way.as_mut()) else { return };
        if passes {
            under_way.resend_at = now + under_way.backoff.next_wait(asked_wait);
            return;
        }
        let gives_away = matches!(under_way.wish, Wish::Close { .. } | Wish::Transfer { .. });
        let (op, tries) = (under_way.op, under_way.tries);
        let is_gone = error.code == FrameErrorCode::NotFound && gives_away && is_agent && tries > 1;
        self.finish(&key, op, if is_gone { Outcome::Gone } else { Outcome::Refused(error) });
    }

    /// Which wish an error is about.
    fn lane_of(&self, error: &ErrorFrame) -> Option<LaneKey> {
        let under_way = || {
            let sent = |lane: &'_ Lane| lane.under_way.as_ref().is_some_and(|it| it.tries > 0);
            self.lanes
                .iter()
                .filter(move |(_, lane)| sent(lane))
                .filter_map(|(key, lane)| Some((key, lane.under_way.as_ref()?)))
        };
        if error.client_msg_id.is_some() {
            return under_way().find(|(_, it)| it.client_msg_id == error.client_msg_id).map(|(key, _)| key.clone());
        }
        match (&error.session_id, error.code) {
            // So broken that it could not be read, so nothing of it is told: most likely what was said last.
            (None, FrameErrorCode::BadFrame | FrameErrorCode::TooLarge) => {
                under_way().max_by_key(|(_, it)| it.sent_at).map(|(key, _)| key.clone())
            }
            (None, code) => {
                // What the other side alone may say is not found; anything else of that name was about something else.
                let not_for = if self.me.role == ChatRole::Agent { LaneKey::Opening } else { LaneKey::Status };
                let fits = |key: &&LaneKey| match key {
                    LaneKey::Session(_) => false,
                    LaneKey::Opening | LaneKey::Status => code != FrameErrorCode::NotFound || **key == not_for,
                };
                under_way().map(|(key, _)| key).find(fits).cloned()
            }
            // A text and its kind are named by their clientMsgId.
            (Some(session_id), _) => under_way()
                .find(|(key, it)| match &it.wish {
                    Wish::Close { .. } | Wish::Transfer { .. } => **key == LaneKey::Session(session_id.clone()),
                    Wish::Open { session_id: wanted } => wanted.as_ref() == Some(session_id),
                    Wish::Text { .. } | Wish::Image { .. } | Wish::Card { .. } | Wish::Status(_) => false,
                })
                .map(|(key, _)| key.clone()),
        }
    }

    /// An error to a `sync`, `pull`, `ack` or `typing`, or to a frame that nobody waits for any more.
    fn refused_in_passing(&mut self, now: Moment, error: ErrorFrame, passes: bool) {
        let about = |id: &String| error.session_id.as_ref().is_none_or(|about| about == id);
        if passes && error.client_msg_id.is_none() {
            let wait =
                Backoff::new(FIRST_RETRY, LONGEST_RETRY).next_wait(error.retry_after_ms.map(Duration::from_millis));
            for (_, thread) in self.threads.iter_mut().filter(|(id, _)| about(id)) {
                if matches!(thread.replay, Replay::Under { .. }) {
                    thread.replay = Replay::Due(now + wait);
                }
                thread.pull_at = thread.pull_at.map(|at| at.min(now + wait));
                // Once more when its time comes, though it is the same number.
                thread.ack_sent = thread.ack_sent.map(|(at, _)| (at.max(now + wait.saturating_sub(ACK_EVERY)), 0));
            }
        }
        let not_mine = error.code == FrameErrorCode::NotFound && error.client_msg_id.is_none();
        if let Some(session_id) = error.session_id.clone().filter(|_| not_mine) {
            self.drop_session(&session_id);
        }
        self.tell(Event::Refused(error));
    }

    fn auth_expired(&mut self, now: Moment, link: LinkId) {
        if let Some(link) = self.links.iter_mut().find(|known| known.id == link)
            && link.renewing.is_none()
        {
            link.renewing = Some(now);
            link.pinged_at = Some(now);
            self.out.push(Output::Renew(link.id));
        }
    }

    // ------------------------------------------------------------------------------- wishes

    fn wish(&mut self, op: OpId, wish: Wish) {
        let key = match &wish {
            Wish::Open { .. } => LaneKey::Opening,
            Wish::Status(_) => LaneKey::Status,
            Wish::Text { session_id, .. }
            | Wish::Image { session_id, .. }
            | Wish::Card { session_id, .. }
            | Wish::Close { session_id }
            | Wish::Transfer { session_id, .. } => LaneKey::Session(session_id.clone()),
        };
        let lane = self.lanes.entry(key).or_default();
        if lane.waiting.len() >= MAX_WISHES {
            self.out.push(Output::Done(op, Outcome::TooMany));
        } else {
            lane.waiting.push_back((op, wish));
        }
    }

    fn typing(&mut self, now: Moment, session_id: String) {
        let Some(link) = self.speaking() else { return };
        let last = self.threads.get(&session_id).and_then(|thread| thread.typed_at);
        if last.is_none_or(|last| now >= last + TYPING_EVERY) && now >= self.quiet_until {
            if let Some(thread) = self.threads.get_mut(&session_id) {
                thread.typed_at = Some(now);
            }
            self.send(link, ClientFrame::Typing { session_id });
        }
    }

    fn under_way(&self, key: &LaneKey) -> Option<&UnderWay> {
        self.lanes.get(key)?.under_way.as_ref()
    }

    fn finish(&mut self, key: &LaneKey, op: OpId, outcome: Outcome) {
        if let Some(lane) = self.lanes.get_mut(key) {
            lane.under_way = None;
            if lane.waiting.is_empty() {
                self.lanes.remove(key);
            }
        }
        self.out.push(Output::Done(op, outcome));
    }

    // ------------------------------------------------------------------------------- what is due

    /// Sends whatever is due now. Called after every input, so that no rule has to call another.
    fn pump(&mut self, now: Moment) {
        self.hand_over(now);
        self.give_up_dead(now);
        let Some(link) = self.links.last() else { return };
        if link.renewing.is_some() || now < self.quiet_until {
            return;
        }
        let id = link.id;
        self.send_syncs(now, id);
        self.send_ping(now, id);
        self.send_pulls(now, id);
        self.send_wishes(now, id);
        self.send_acks(now, id);
    }

    /// Make before break: the old connection is left when the new one has everything and no answer is awaited on the old.
    fn hand_over(&mut self, now: Moment) {
        let [older @ .., newest] = &self.links[..] else { return };
        let complete = newest.ponged
            && self.threads.values().filter(|thread| thread.followed).all(|thread| thread.replay == Replay::Idle);
        let is_late = now >= newest.opened_at + HANDOVER_WITHIN;
        let awaited = |id: LinkId| {
            self.lanes.values().filter_map(|lane| lane.under_way.as_ref()).any(|under_way| under_way.link == Some(id))
        };
        let done: Vec<LinkId> =
            older.iter().map(|link| link.id).filter(|id| is_late || complete && !awaited(*id)).collect();
        for link in done {
            self.leave(now, link, true);
            self.tell(Event::Rotated);
        }
    }

    fn give_up_dead(&mut self, now: Moment) {
        let signed_out = |link: &Link| link.renewing.is_some_and(|since| now >= since + SILENCE);
        let is_dead = |link: &Link| link.pinged_at.is_some_and(|since| now >= since.max(link.heard_at) + PONG_WITHIN);
        let lost: Vec<(LinkId, bool)> = self
            .links
            .iter()
            .filter(|link| signed_out(link) || is_dead(link))
            .map(|link| (link.id, signed_out(link)))
            .collect();
        for (link, signed_out) in lost {
            if signed_out {
                self.tell(Event::SignedOut);
            }
            self.leave(now, link, false);
        }
    }

    fn send_syncs(&mut self, now: Moment, id: LinkId) {
        for thread in self.threads.values_mut() {
            if matches!(thread.replay, Replay::Under { heard, .. } if now >= heard + REPLAY_WITHIN) {
                thread.replay = Replay::Idle;
            }
        }
        let mut due: Vec<(String, u64)> = Vec::new();
        for (session_id, thread) in self.threads.iter_mut().filter(|(_, thread)| thread.followed) {
            if matches!(thread.replay, Replay::Due(at) if now >= at) {
                due.push((session_id.clone(), thread.have()));
                thread.replay = Replay::Under { link: id, heard: now, had: thread.have() };
            }
        }
        for sessions in due.chunks(MAX_SYNC_SESSIONS) {
            self.send(id, ClientFrame::Sync { sessions: sessions.iter().cloned().collect() });
        }
        // The first frame makes a connection live, and `sync` brings results too.
        let greeted = self.links.last_mut().is_some_and(|link| std::mem::replace(&mut link.greeted, true));
        if !greeted && due.is_empty() {
            self.send(id, ClientFrame::Sync { sessions: BTreeMap::new() });
        }
    }

    fn send_ping(&mut self, now: Moment, id: LinkId) {
        let heartbeat = self.heartbeat;
        let Some(link) = self.links.last_mut().filter(|link| now >= link.ping_at) else { return };
        link.pinged_at.get_or_insert(now);
        link.ping_at = now + heartbeat;
        self.send(id, ClientFrame::Ping);
    }

    fn send_pulls(&mut self, now: Moment, id: LinkId) {
        let mut pulls = Vec::new();
        for (session_id, thread) in self.threads.iter_mut().filter(|(_, thread)| thread.followed) {
            let Some((from, to)) = thread.gap().filter(|_| thread.replay == Replay::Idle) else {
                thread.pull_at = None;
                continue;
            };
            let at = *thread.pull_at.get_or_insert(now + GAP_WAIT);
            if now >= at {
                thread.pull_at = Some(now + SILENCE);
                pulls.push(ClientFrame::Pull { session_id: session_id.clone(), from, to });
            }
        }
        for pull in pulls {
            self.send(id, pull);
        }
    }

    fn send_wishes(&mut self, now: Moment, id: LinkId) {
        let mut frames = Vec::new();
        for lane in self.lanes.values_mut() {
            if lane.under_way.is_none()
                && let Some((op, wish)) = lane.waiting.pop_front()
            {
                let is_message = matches!(wish, Wish::Text { .. } | Wish::Image { .. } | Wish::Card { .. });
                let client_msg_id = is_message.then(|| {
                    self.named += 1;
                    format!("{}-{}", self.prefix, self.named)
                });
                let backoff = Backoff::new(FIRST_RETRY, LONGEST_RETRY);
                lane.under_way = Some(UnderWay {
                    op,
                    wish,
                    client_msg_id,
                    link: None,
                    sent_at: None,
                    resend_at: now,
                    tries: 0,
                    backoff,
                });
            }
            if let Some(under_way) = lane.under_way.as_mut().filter(|it| now >= it.resend_at) {
                under_way.link = Some(id);
                under_way.sent_at = Some(now);
                under_way.resend_at = now + SILENCE;
                under_way.tries += 1;
                frames.push(under_way.frame());
            }
        }
        for frame in frames {
            self.send(id, frame);
        }
    }

    fn send_acks(&mut self, now: Moment, id: LinkId) {
        let reads = self.reads;
        let mut acks = Vec::new();
        for (session_id, thread) in self.threads.iter_mut().filter(|(_, thread)| thread.followed) {
            if reads {
                thread.was_read();
            }
            let Some(last_seq) = thread.to_acknowledge() else { continue };
            let due =
                thread.ack_sent.is_none_or(|(at, seq)| now >= at + if seq == last_seq { SILENCE } else { ACK_EVERY });
            if due {
                thread.ack_sent = Some((now, last_seq));
                acks.push(ClientFrame::Ack { session_id: session_id.clone(), last_seq });
            }
        }
        for ack in acks {
            self.send(id, ack);
        }
    }

    fn send(&mut self, link: LinkId, frame: ClientFrame) {
        self.out.push(Output::Send(link, frame));
    }

    fn tell(&mut self, event: Event) {
        self.out.push(Output::Tell(event));
    }
}

impl UnderWay {
    /// The same on every try.
    fn frame(&self) -> ClientFrame {
        let client_msg_id = self.client_msg_id.clone();
        match self.wish.clone() {
            Wish::Open { session_id } => ClientFrame::Open { session_id },
            Wish::Text { session_id, content } => ClientFrame::Text { session_id, content, client_msg_id },
            Wish::Image { session_id, key } => ClientFrame::Image { session_id, content: key, client_msg_id },
            Wish::Card { session_id, order_no } => ClientFrame::Card { session_id, content: order_no, client_msg_id },
            Wish::Close { session_id } => ClientFrame::Close { session_id },
            Wish::Transfer { session_id, to } => ClientFrame::Transfer { session_id, to },
            Wish::Status(status) => ClientFrame::Status { status },
        }
    }
}
