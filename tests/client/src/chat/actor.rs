//! Gives the machine what it has not: sockets, a clock, tokens.

use std::collections::{HashMap, VecDeque};
use std::future::{Future, pending};
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::select_all;
use tokio::sync::{mpsc, oneshot};
use tokio::time::MissedTickBehavior;

use super::machine::{Input, LinkId, OpId, Output, Wish};
use super::{ChatOptions, Event, Happened, Outcome, Shared};
use crate::backoff::{FIRST_RECONNECT, LONGEST_RECONNECT};
use crate::frames::{ClientFrame, SeckillResult};
use crate::socket::{ConnectOptions, Received, Socket};
use crate::{Backoff, ClientError};

/// How often the machine looks at the clock.
const TICK: Duration = Duration::from_millis(100);
/// Handshakes refused in a row after which the credentials are taken for bad. Tickets are single-use and may be lost, so
/// one refusal says little.
const MAX_REFUSALS: u32 = 5;
/// A socket is listened to for as long as it lives; this only bounds one wait.
const LISTEN: Duration = Duration::from_secs(3_600);
/// The machine sends `ping` itself, since it must know when.
const NO_HEARTBEAT: Duration = Duration::from_secs(30 * 24 * 3_600);
/// Frames that may wait for room in a socket. More: the connection is as good as dead.
const MAX_BACKLOG: usize = 4_096;

#[derive(Debug)]
pub(super) enum Command {
    Wish(Wish, oneshot::Sender<Outcome>),
    Typing(String),
    Read(String),
    ResultAck(SeckillResult),
    Raw(String),
    Away,
    Back,
    Goodbye(oneshot::Sender<()>),
}

struct Link {
    id: LinkId,
    socket: Socket,
    /// What the socket had no room for.
    backlog: VecDeque<String>,
}

type Dialing = Pin<Box<dyn Future<Output = Result<Socket, ClientError>> + Send>>;

pub(super) struct Actor {
    options: ChatOptions,
    shared: Arc<Shared>,
    began: Instant,
    links: Vec<Link>,
    opened: u64,
    asked: u64,
    dialing: Option<Dialing>,
    backoff: Backoff,
    refusals: u32,
    waiting: HashMap<OpId, oneshot::Sender<Outcome>>,
}

/// Opens a connection with fresh credentials.
pub(super) async fn dial(options: &ChatOptions) -> Result<Socket, ClientError> {
    let token = (options.tokens)()?;
    let opening = match &options.ticket_office {
        None => ConnectOptions { token: Some(token), ..options.socket.clone() },
        Some(office) => {
            let answer = office.signed_in(token).chat_ticket().await?;
            let ticket = answer.outcome.map_err(|problem| ClientError::NotOurs {
                status: problem.status,
                path: "/api/chat/ticket".into(),
                body: problem.detail,
            })?;
            let ticket = crate::Token::from_text(ticket.ticket.reveal());
            ConnectOptions { token: None, ticket: Some(ticket), ..options.socket.clone() }
        }
    };
    Socket::open(options.ws_url.clone(), opening.heartbeat(NO_HEARTBEAT), HashMap::new()).await
}

impl Actor {
    pub(super) fn new(options: ChatOptions, shared: Arc<Shared>) -> Self {
        Self {
            options,
            shared,
            began: Instant::now(),
            links: Vec::new(),
            opened: 0,
            asked: 0,
            dialing: None,
            backoff: Backoff::new(FIRST_RECONNECT, LONGEST_RECONNECT),
            refusals: 0,
            waiting: HashMap::new(),
        }
    }

    pub(super) async fn run(mut self, first: Socket, mut commands: mpsc::Receiver<Command>) {
        self.connected(first);
        let mut tick = tokio::time::interval(TICK);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                command = commands.recv() => match command {
                    Some(Command::Goodbye(done)) => {
                        for link in self.links.drain(..) {
                            // The other side may be gone already, which is as well.
                            link.socket.close().await.ok();
                        }
                        done.send(()).ok();
                        return;
                    }
                    Some(command) => self.command(command),
                    None => return,
                },
                (index, heard) = listen(&mut self.links) => self.heard(index, heard),
                dialed = dialed(&mut self.dialing) => {
                    self.dialing = None;
                    match dialed {
                        Ok(socket) => self.connected(socket),
                        Err(error) => self.not_connected(&error),
                    }
                }
                _ = tick.tick() => self.step(Instant::now(), Input::Tick),
            }
            self.flush();
        }
    }

    fn command(&mut self, command: Command) {
        let now = Instant::now();
        match command {
            Command::Wish(wish, tell) => {
                self.asked += 1;
                let op = OpId(self.asked);
                self.waiting.insert(op, tell);
                self.step(now, Input::Wish(op, wish));
            }
            Command::Typing(session_id) => self.step(now, Input::Typing(session_id)),
            Command::Read(session_id) => self.step(now, Input::Read(session_id)),
            Command::ResultAck(result) => self.step(now, Input::ResultAck(result)),
            Command::Raw(text) => {
                let speaking = self.shared.machine().speaking();
                if let Some(link) = self.links.iter_mut().find(|link| Some(link.id) == speaking) {
                    link.backlog.push_back(text);
                }
            }
            Command::Away => {
                self.dialing = None;
                self.step(now, Input::Away);
            }
            Command::Back => self.step(now, Input::Back),
            // Where the loop ends.
            Command::Goodbye(_) => {}
        }
    }

    fn connected(&mut self, socket: Socket) {
        self.opened += 1;
        let id = LinkId(self.opened);
        self.backoff = Backoff::new(FIRST_RECONNECT, LONGEST_RECONNECT);
        self.refusals = 0;
        self.links.push(Link { id, socket, backlog: VecDeque::new() });
        self.step(Instant::now(), Input::Opened(id));
    }

    fn not_connected(&mut self, error: &ClientError) {
        let refused = matches!(error, ClientError::HandshakeRefused { .. } | ClientError::NotOurs { status: 401, .. });
        self.refusals = if refused { self.refusals + 1 } else { 0 };
        if self.refusals >= MAX_REFUSALS {
            self.refusals = 0;
            self.tell(Instant::now(), Event::SignedOut);
            self.step(Instant::now(), Input::Away);
        } else {
            let wait = self.backoff.next_wait(None);
            self.dial(wait);
        }
    }

    fn dial(&mut self, wait: Duration) {
        let options = self.options.clone();
        self.dialing = Some(Box::pin(async move {
            tokio::time::sleep(wait).await;
            dial(&options).await
        }));
    }

    fn heard(&mut self, index: usize, heard: Result<Received, ClientError>) {
        let id = self.links[index].id;
        match heard {
            Ok(Received { frame, at }) => self.step(at, Input::Heard(id, frame)),
            Err(ClientError::TimedOut { .. }) => {}
            Err(ClientError::FrameDrift { frame, reason }) => {
                self.tell(Instant::now(), Event::Drift(format!("{reason}: {frame}")));
                self.shared.drift().get_or_insert((frame, reason));
                self.step(Instant::now(), Input::Tick);
            }
            Err(_) => {
                self.links.remove(index);
                self.step(Instant::now(), Input::Closed(id));
            }
        }
    }

    /// One step of the machine, and what follows from it.
    fn step(&mut self, at: Instant, input: Input) {
        let now = at.saturating_duration_since(self.began);
        let outputs = self.shared.machine().step(now, input);
        for output in outputs {
            match output {
                Output::Send(link, frame) => self.queue(link, &frame),
                Output::Renew(link) => match (self.options.tokens)() {
                    Ok(token) => self.queue(link, &ClientFrame::Auth { token: token.text().to_owned() }),
                    // The machine gives the connection up when nothing comes of it.
                    Err(_) => self.tell(at, Event::SignedOut),
                },
                Output::Connect { at_once } => {
                    let wait = if at_once { Duration::ZERO } else { self.backoff.next_wait(None) };
                    self.dial(wait);
                }
                Output::Leave { link, goodbye } => {
                    if let Some(index) = self.links.iter().position(|known| known.id == link) {
                        let Link { socket, .. } = self.links.remove(index);
                        if goodbye {
                            tokio::spawn(socket.close());
                        }
                    }
                }
                Output::Done(op, outcome) => {
                    if let Some(tell) = self.waiting.remove(&op) {
                        // Whoever asked may have stopped waiting.
                        tell.send(outcome).ok();
                    }
                }
                Output::Tell(event) => self.tell(at, event),
            }
        }
        self.shared.changed.send_modify(|steps| *steps = steps.wrapping_add(1));
    }

    fn tell(&self, at: Instant, event: Event) {
        // There may be nobody listening.
        self.shared.events.send(Happened { at, event }).ok();
    }

    fn queue(&mut self, link: LinkId, frame: &ClientFrame) {
        if let Some(link) = self.links.iter_mut().find(|known| known.id == link)
            && let Ok(text) = frame.to_text()
        {
            link.backlog.push_back(text);
        }
    }

    /// Hands over what the sockets have room for; the rest goes with the next tick. (Waiting for room here, nothing would be
    /// read, and a server that is not read does not read either.)
    fn flush(&mut self) {
        let mut lost = Vec::new();
        for link in &mut self.links {
            while let Some(text) = link.backlog.front() {
                match link.socket.try_send_raw(text) {
                    Ok(true) => drop(link.backlog.pop_front()),
                    Ok(false) if link.backlog.len() <= MAX_BACKLOG => break,
                    Ok(false) | Err(_) => {
                        lost.push(link.id);
                        break;
                    }
                }
            }
        }
        for id in lost {
            self.links.retain(|link| link.id != id);
            self.step(Instant::now(), Input::Closed(id));
        }
    }
}

/// The next frame of any connection.
async fn listen(links: &mut [Link]) -> (usize, Result<Received, ClientError>) {
    if links.is_empty() {
        return pending().await;
    }
    let listening = links.iter_mut().map(|link| Box::pin(link.socket.next(LISTEN)));
    let (heard, index, _) = select_all(listening).await;
    (index, heard)
}

async fn dialed(dialing: &mut Option<Dialing>) -> Result<Socket, ClientError> {
    match dialing {
        Some(dialing) => dialing.await,
        None => pending().await,
    }
}
