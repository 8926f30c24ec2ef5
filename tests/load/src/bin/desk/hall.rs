//! What is written down while it happens: what each client heard and when, what was acknowledged, and scenes for the reader.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use client::chat::{Body, Event, Happened, Message, Sent};
use client::frames::{Author, ChatRole, SessionStatus};
use client::{ChatClient, ClientError};
use jiff::Timestamp;
use load::error::chain;
use load::progress::Progress;
use load::text::SHOWN;
use tokio::sync::{Notify, broadcast};

use crate::judge::{Ledger, Promise};

/// Somebody: their side, their id, and what they are called here.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Who {
    pub(crate) is_agent: bool,
    pub(crate) id: String,
    pub(crate) name: String,
}

impl Who {
    pub(crate) fn author(&self) -> Author {
        let role = if self.is_agent { ChatRole::Agent } else { ChatRole::User };
        Author { role, id: Some(self.id.clone()) }
    }
}

/// What somebody says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Words {
    Text(String),
    /// Its key.
    Image(String),
    /// The number of the order.
    Card(String),
}

impl Words {
    /// As it is compared: what of a message is the same for every reader.
    pub(crate) fn essence(&self) -> String {
        match self {
            Self::Text(text) => text.clone(),
            Self::Image(key) => format!("image {key}"),
            Self::Card(order_no) => format!("card {order_no}"),
        }
    }
}

/// What of a message is the same for every reader. (The link to an image is made for each, a note is in their language.)
pub(crate) fn essence(message: &Message) -> String {
    match &message.body {
        Body::Text(text) => text.clone(),
        Body::Image { key, .. } => format!("image {key}"),
        Body::Card { order_no, .. } => format!("card {order_no}"),
        Body::System(note) => format!("{:?} {}", note.event, note.agent_id.as_deref().unwrap_or("")),
    }
}

/// A word that was answered with `sent`.
#[derive(Debug, Clone)]
pub(crate) struct Said {
    pub(crate) by: Who,
    pub(crate) session_id: String,
    pub(crate) words: Words,
    pub(crate) seq: u64,
    pub(crate) duplicate: bool,
    pub(crate) sent_at: Instant,
    pub(crate) took: Duration,
}

/// What a client noticed.
#[derive(Debug, Clone)]
pub(crate) struct Heard {
    pub(crate) by: Who,
    pub(crate) at: Instant,
    pub(crate) what: Notice,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Notice {
    Online,
    Offline,
    Message {
        session_id: String,
        seq: u64,
    },
    /// A place in the queue.
    Position {
        session_id: String,
        position: u64,
    },
}

/// Something that the messages do not tell, for the transcript.
#[derive(Debug, Clone)]
pub(crate) struct Scene {
    pub(crate) session_id: String,
    pub(crate) at: Timestamp,
    pub(crate) text: String,
}

#[derive(Debug, Default)]
pub(crate) struct Log {
    pub(crate) said: Vec<Said>,
    pub(crate) heard: Vec<Heard>,
    pub(crate) scenes: Vec<Scene>,
    /// What was judged on the spot.
    pub(crate) ledger: Ledger,
    /// Failures that have been shown already.
    told: BTreeSet<String>,
    /// Connections cut on purpose.
    pub(crate) cuts: usize,
    /// Those of them right after a word was sent.
    pub(crate) cut_at_sent: usize,
}

/// Everybody writes into it.
#[derive(Debug)]
pub(crate) struct Hall {
    progress: Arc<Progress>,
    began: Instant,
    began_at: Timestamp,
    /// A client has heard what the contract does not know: it waits for nothing any more.
    pub(crate) drift: Notify,
    log: Mutex<Log>,
}

impl Hall {
    pub(crate) fn new(progress: Arc<Progress>) -> Self {
        Self {
            progress,
            began: Instant::now(),
            began_at: Timestamp::now(),
            drift: Notify::new(),
            log: Mutex::default(),
        }
    }

    pub(crate) fn log(&self) -> MutexGuard<'_, Log> {
        // A log stays a log, whoever panicked while writing.
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Since the doors opened.
    pub(crate) fn elapsed(&self) -> Duration {
        self.began.elapsed()
    }

    /// An instant of this process by the clock on the wall.
    pub(crate) fn wall(&self, at: Instant) -> Timestamp {
        self.began_at + at.saturating_duration_since(self.began)
    }

    pub(crate) fn scene(&self, session_id: &str, text: impl Into<String>) {
        let scene = Scene { session_id: session_id.to_owned(), at: Timestamp::now(), text: text.into() };
        self.log().scenes.push(scene);
    }

    pub(crate) fn judge(&self, promise: Promise, kept: bool, about: &str, detail: impl FnOnce() -> String) {
        self.log().ledger.judge(promise, kept, Some(about), detail);
    }

    /// Something went otherwise than anybody meant it to.
    pub(crate) fn failed(&self, who: &Who, error: &ClientError) {
        // What is wrong may be wrong again and again.
        let text = format!("  {}: {}", who.name, chain(error));
        let is_new = {
            let told = &mut self.log().told;
            told.len() < SHOWN && told.insert(text.clone())
        };
        if is_new {
            self.progress.say(&text);
        }
        self.judge(Promise::NothingUnexpected, false, &who.name, || chain(error));
    }

    /// Writes down what a client notices, until it is gone.
    pub(crate) async fn listen(&self, by: Who, mut events: broadcast::Receiver<Happened>) {
        let mut last_position: BTreeMap<String, u64> = BTreeMap::new();
        loop {
            let Happened { at, event } = match events.recv().await {
                Ok(happened) => happened,
                // Thousands behind: then latencies are of fewer messages.
                Err(broadcast::error::RecvError::Lagged(_)) => continue,
                Err(broadcast::error::RecvError::Closed) => return,
            };
            let what = match event {
                Event::Online => Notice::Online,
                Event::Offline => Notice::Offline,
                Event::Message(message) => Notice::Message { session_id: message.session_id, seq: message.seq },
                Event::Session(session) => {
                    let waits = session.status == SessionStatus::Waiting;
                    let Some(position) = session.queue_position.filter(|_| waits) else {
                        last_position.remove(&session.session_id);
                        continue;
                    };
                    if last_position.insert(session.session_id.clone(), position) == Some(position) {
                        continue;
                    }
                    Notice::Position { session_id: session.session_id, position }
                }
                Event::Drift(what) => {
                    self.judge(Promise::NothingUnexpected, false, &by.name, || what);
                    self.drift.notify_one();
                    continue;
                }
                Event::SignedOut => {
                    self.judge(Promise::NothingUnexpected, false, &by.name, || "signed out".to_owned());
                    continue;
                }
                Event::Rotated
                | Event::Dropped(_)
                | Event::Read(_)
                | Event::Typing(_)
                | Event::Status(_)
                | Event::Result(_)
                // Of no wish: an acknowledgement or a `sync` of a session that has gone to somebody else meanwhile.
                | Event::Refused(_) => continue,
            };
            self.log().heard.push(Heard { by: by.clone(), at, what });
        }
    }

    /// Says something and waits for `sent`.
    pub(crate) async fn say(
        &self,
        by: &Who,
        client: &ChatClient,
        session_id: &str,
        words: Words,
    ) -> Result<Sent, ClientError> {
        let sent_at = Instant::now();
        let sent = match &words {
            Words::Text(text) => client.text(session_id, text).await?,
            Words::Image(key) => client.image(session_id, key).await?,
            Words::Card(order_no) => client.card(session_id, order_no).await?,
        };
        let (by, session_id, took) = (by.clone(), session_id.to_owned(), sent_at.elapsed());
        let Sent { seq, duplicate, .. } = sent;
        self.log().said.push(Said { by, session_id, words, seq, duplicate, sent_at, took });
        Ok(sent)
    }
}
