//! A bare socket, for what is about the frames themselves: it keeps no rules.

use std::time::{Duration, Instant};

use client::frames::{ErrorFrame, FrameErrorCode, MessageFrame, SentFrame, ServerFrame, SessionFrame};
use client::{ClientError, Socket};
use e2e::SOON;
use serde_json::{Value, json};

#[derive(Debug)]
pub(crate) struct Line {
    pub(crate) socket: Socket,
    /// Everything that came, in order.
    pub(crate) heard: Vec<ServerFrame>,
}

impl Line {
    pub(crate) const fn new(socket: Socket) -> Self {
        Self { socket, heard: Vec::new() }
    }

    pub(crate) async fn say(&self, frame: Value) {
        self.socket.send_raw(frame.to_string()).await.unwrap();
    }

    pub(crate) async fn next(&mut self, within: Duration) -> Result<ServerFrame, ClientError> {
        let frame = self.socket.next(within).await?.frame;
        self.heard.push(frame.clone());
        Ok(frame)
    }

    /// Listens until something comes.
    pub(crate) async fn until<T>(&mut self, what: &str, mut pick: impl FnMut(&ServerFrame) -> Option<T>) -> T {
        let deadline = Instant::now() + SOON;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            match self.next(left).await {
                Ok(frame) => {
                    if let Some(found) = pick(&frame) {
                        return found;
                    }
                }
                Err(error) => panic!("{what}: {error}, after {:#?}", self.heard),
            }
        }
    }

    /// A heartbeat and its answer. Frames of one socket are handled one after the other here, so whatever an earlier frame was
    /// answered with has come before.
    pub(crate) async fn pong(&mut self) -> std::collections::BTreeMap<String, u64> {
        self.say(json!({"type": "ping"})).await;
        self.until("a pong", |frame| match frame {
            ServerFrame::Pong { heads } => Some(heads.clone()),
            _ => None,
        })
        .await
    }

    /// Says something that is refused: how.
    pub(crate) async fn refused(&mut self, frame: Value) -> ErrorFrame {
        self.refused_raw(&frame.to_string()).await
    }

    pub(crate) async fn refused_raw(&mut self, frame: &str) -> ErrorFrame {
        self.socket.send_raw(frame.to_owned()).await.unwrap();
        let error = self
            .until("an error", |frame| match frame {
                ServerFrame::Error(error) => Some(error.clone()),
                ServerFrame::Sent(sent) => panic!("{sent:?} instead of an error"),
                _ => None,
            })
            .await;
        assert!(!error.message.is_empty());
        error
    }

    pub(crate) async fn code(&mut self, frame: Value) -> FrameErrorCode {
        self.refused(frame).await.code
    }

    /// A customer's session.
    pub(crate) async fn open(&mut self) -> SessionFrame {
        self.say(json!({"type": "open"})).await;
        self.session("a session", |_| true).await
    }

    /// Listens until the state of a session is so.
    pub(crate) async fn session(&mut self, what: &str, is_so: impl Fn(&SessionFrame) -> bool) -> SessionFrame {
        self.until(what, |frame| match frame {
            ServerFrame::Session(session) if is_so(session) => Some(session.clone()),
            ServerFrame::Error(error) => panic!("{error:?} instead of {what}"),
            _ => None,
        })
        .await
    }

    /// Says a frame that is answered with `sent`.
    pub(crate) async fn sent(&mut self, frame: Value) -> SentFrame {
        self.say(frame).await;
        self.until("sent", |frame| match frame {
            ServerFrame::Sent(sent) => Some(sent.clone()),
            ServerFrame::Error(error) => panic!("{error:?} instead of sent"),
            _ => None,
        })
        .await
    }

    pub(crate) async fn text(&mut self, session_id: &str, content: &str, name: &str) -> SentFrame {
        self.sent(text(session_id, content, name)).await
    }

    /// Asks for what is missing after `had`, and listens to the end of the replay: its head.
    pub(crate) async fn sync(&mut self, session_id: &str, had: u64) -> u64 {
        self.say(json!({"type": "sync", "sessions": {session_id: had}})).await;
        self.until("the end of the replay", |frame| match frame {
            ServerFrame::SyncEnd { head, .. } => Some(*head),
            _ => None,
        })
        .await
    }

    /// Messages that came by themselves.
    pub(crate) fn pushed(&self) -> Vec<&MessageFrame> {
        let pushed = self.heard.iter().filter_map(|frame| match frame {
            ServerFrame::Message(message) => Some(message),
            _ => None,
        });
        pushed.collect()
    }

    /// Messages that came in replays.
    pub(crate) fn replayed(&self) -> Vec<&MessageFrame> {
        let items = self.heard.iter().filter_map(|frame| match frame {
            ServerFrame::Messages { items, .. } => Some(items),
            _ => None,
        });
        items.flatten().collect()
    }
}

pub(crate) fn text(session_id: &str, content: &str, name: &str) -> Value {
    json!({"type": "text", "sessionId": session_id, "content": content, "clientMsgId": name})
}

pub(crate) fn seqs(messages: &[&MessageFrame]) -> Vec<u64> {
    messages.iter().map(|message| message.seq).collect()
}
