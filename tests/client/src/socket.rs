//! The WebSocket: connect, speak, hear results, come back.
//!
//! A task of its own reads and writes the connection, so that a socket nobody is looking at still answers the server's
//! pings, sends its heartbeat, and stamps each frame with the moment it came. Dropping the [`Socket`] ends the task and
//! the connection without a goodbye, as a phone does that loses its network; [`Socket::close`] takes leave.

use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant};

use futures_util::{SinkExt, StreamExt};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::handshake::client::Request;
use tokio_tungstenite::tungstenite::http::{HeaderName, HeaderValue, header};
use tokio_tungstenite::tungstenite::{Error as WsError, Message, Utf8Bytes};
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream, connect_async};

use crate::backoff::{FIRST_RECONNECT, LONGEST_RECONNECT};
use crate::documents::OrderStatus;
use crate::frames::{ClientFrame, FrameErrorCode, SeckillResult, ServerFrame};
use crate::{Backoff, ClientError, Stack, Token};

/// A handshake runs a function; a cold one on a busy machine takes seconds.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(20);
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);
/// As the server's presence lease expects.
const HEARTBEAT: Duration = Duration::from_secs(30);
/// Frames that may wait to be read. A reader that falls behind makes the server wait.
const INBOX_FRAMES: usize = 256;
const OUTBOX_FRAMES: usize = 16;
/// Tries to come back after a break.
const RECONNECT_TRIES: u32 = 6;
/// After RETRY_LATER.
const FIRST_RETRY: Duration = Duration::from_millis(500);
const LONGEST_RETRY: Duration = Duration::from_secs(5);
/// How much of an unreadable frame an error repeats.
const EXCERPT_CHARS: usize = 300;

type Stream = WebSocketStream<MaybeTlsStream<TcpStream>>;

/// Who connects, and how.
#[derive(Debug, Clone)]
pub struct ConnectOptions {
    /// Without one, and without a ticket, the handshake must be refused.
    pub token: Option<Token>,
    /// In place of a token, from [`Api::chat_ticket`](crate::Api::chat_ticket): used once. It never stands in a log as a token may.
    pub ticket: Option<Token>,
    pub device: Option<String>,
    /// The highest number that is here of the user's active session, for a client that does not say `sync`.
    pub last_ack_seq: Option<u64>,
    /// `zh` or `en`.
    pub language: Option<String>,
    /// As a browser says it of its page.
    pub origin: Option<String>,
    /// How often to send `ping`. The gateway cuts a connection that is silent for ten minutes.
    pub heartbeat: Duration,
    /// Sees every frame that comes.
    pub watch: Option<fn(&str)>,
}

impl ConnectOptions {
    pub fn new(token: Token) -> Self {
        Self {
            token: Some(token),
            ticket: None,
            device: None,
            last_ack_seq: None,
            language: None,
            origin: None,
            heartbeat: HEARTBEAT,
            watch: None,
        }
    }

    /// With a ticket in place of a token.
    pub fn with_ticket(ticket: Token) -> Self {
        Self { token: None, ticket: Some(ticket.clone()), ..Self::new(ticket) }
    }

    #[must_use]
    pub fn on_device(self, device_id: &str) -> Self {
        Self { device: Some(device_id.to_owned()), ..self }
    }

    #[must_use]
    pub fn last_ack_seq(self, seq: u64) -> Self {
        Self { last_ack_seq: Some(seq), ..self }
    }

    #[must_use]
    pub fn in_language(self, language: &str) -> Self {
        Self { language: Some(language.to_owned()), ..self }
    }

    #[must_use]
    pub fn from_origin(self, origin: &str) -> Self {
        Self { origin: Some(origin.to_owned()), ..self }
    }

    #[must_use]
    pub fn heartbeat(self, heartbeat: Duration) -> Self {
        Self { heartbeat, ..self }
    }

    #[must_use]
    pub fn watched(self, watch: fn(&str)) -> Self {
        Self { watch: Some(watch), ..self }
    }
}

/// A frame and when it came.
#[derive(Debug)]
pub struct Received {
    pub frame: ServerFrame,
    pub at: Instant,
}

/// A result and when it first came. The same result may come more than once; only the first time counts. When an order
/// moves on, the result with its new state takes the place of the old one.
#[derive(Debug, Clone)]
pub struct Delivered {
    pub result: SeckillResult,
    pub at: Instant,
}

/// An open connection.
#[derive(Debug)]
pub struct Socket {
    url: String,
    options: ConnectOptions,
    outbox: mpsc::Sender<Message>,
    inbox: mpsc::Receiver<(Utf8Bytes, Instant)>,
    /// Results by order number, so that a repeated one is not new.
    delivered: HashMap<String, Delivered>,
}

/// Somebody who was connected and is not now.
#[derive(Debug)]
pub struct Away {
    url: String,
    options: ConnectOptions,
    delivered: HashMap<String, Delivered>,
}

impl Socket {
    /// Opens a connection. It is live from its first frame on; send `sync` next.
    pub async fn connect(stack: &Stack, options: ConnectOptions) -> Result<Self, ClientError> {
        Self::open(stack.ws_url.clone(), options, HashMap::new()).await
    }

    pub(crate) async fn open(
        url: String,
        options: ConnectOptions,
        delivered: HashMap<String, Delivered>,
    ) -> Result<Self, ClientError> {
        let handshake = handshake(&url, &options).map_err(|error| ClientError::Socket(Box::new(error)))?;
        let stream = tokio::time::timeout(CONNECT_TIMEOUT, connect_async(handshake))
            .await
            .map_err(|_| ClientError::TimedOut { what: "the WebSocket handshake".into(), within: CONNECT_TIMEOUT })?;
        let (stream, _) = stream.map_err(|error| match error {
            WsError::Http(answer) => ClientError::HandshakeRefused { status: answer.status().as_u16() },
            other => ClientError::Socket(Box::new(other)),
        })?;
        let (outbox, to_send) = mpsc::channel(OUTBOX_FRAMES);
        let (heard, inbox) = mpsc::channel(INBOX_FRAMES);
        tokio::spawn(carry(stream, to_send, heard, options.heartbeat));
        Ok(Self { url, options, outbox, inbox, delivered })
    }

    /// Gone without a goodbye. What was delivered stays known.
    pub fn leave(self) -> Away {
        let Self { url, options, delivered, outbox: _, inbox: _ } = self;
        Away { url, options, delivered }
    }

    /// After a break: away, and back.
    pub async fn reconnect(self) -> Result<Self, ClientError> {
        self.leave().come_back().await
    }

    // ---- speaking

    /// Asks for everything that was missed.
    pub async fn sync(&self) -> Result<(), ClientError> {
        self.send(&ClientFrame::Sync { sessions: BTreeMap::new() }).await
    }

    pub async fn ping(&self) -> Result<(), ClientError> {
        self.send(&ClientFrame::Ping).await
    }

    /// Renews the connection with a fresh token; the answer is `pong`.
    pub async fn auth(&self, token: &Token) -> Result<(), ClientError> {
        self.send(&ClientFrame::Auth { token: token.text().to_owned() }).await
    }

    /// Tells the server that the buyer has seen this result.
    pub async fn result_ack(&self, result: &SeckillResult) -> Result<(), ClientError> {
        let (order_no, order_status) = (result.order_no.clone(), result.order_status);
        self.send(&ClientFrame::ResultAck { order_no, order_status }).await
    }

    pub async fn send(&self, frame: &ClientFrame) -> Result<(), ClientError> {
        self.send_raw(frame.to_text()?).await
    }

    /// Sends a text frame if there is room for it now; `false` if there is none. For whoever must go on reading meanwhile: a
    /// server that waits to be read does not read either.
    pub(crate) fn try_send_raw(&self, text: &str) -> Result<bool, ClientError> {
        match self.outbox.try_send(Message::text(text)) {
            Ok(()) => Ok(true),
            Err(mpsc::error::TrySendError::Full(_)) => Ok(false),
            Err(mpsc::error::TrySendError::Closed(_)) => Err(ClientError::SocketClosed),
        }
    }

    /// Sends a text frame as it stands, for tests of what must be refused.
    pub async fn send_raw(&self, text: impl Into<Utf8Bytes>) -> Result<(), ClientError> {
        self.outbox.send(Message::Text(text.into())).await.map_err(|_| ClientError::SocketClosed)
    }

    /// Says goodbye and waits until the server has closed its side.
    pub async fn close(mut self) -> Result<(), ClientError> {
        self.outbox.send(Message::Close(None)).await.map_err(|_| ClientError::SocketClosed)?;
        let drained = async { while self.inbox.recv().await.is_some() {} };
        tokio::time::timeout(CLOSE_TIMEOUT, drained)
            .await
            .map_err(|_| ClientError::TimedOut { what: "the closing handshake".into(), within: CLOSE_TIMEOUT })
    }

    // ---- hearing

    /// The next frame of any type.
    pub async fn next(&mut self, within: Duration) -> Result<Received, ClientError> {
        let (text, at) = tokio::time::timeout(within, self.inbox.recv())
            .await
            .map_err(|_| ClientError::TimedOut { what: "a frame".into(), within })?
            .ok_or(ClientError::SocketClosed)?;
        self.note(&text, at)
    }

    /// The next frame, if one has come already.
    pub fn next_now(&mut self) -> Result<Option<Received>, ClientError> {
        match self.inbox.try_recv() {
            Ok((text, at)) => self.note(&text, at).map(Some),
            Err(mpsc::error::TryRecvError::Empty) => Ok(None),
            Err(mpsc::error::TryRecvError::Disconnected) => Err(ClientError::SocketClosed),
        }
    }

    /// The result of one order, now or when it comes. Results of other orders are kept until they are asked for. A server
    /// that is busy for a moment (`RETRY_LATER`) is asked to `sync` again.
    pub async fn result_of(&mut self, order_no: &str, within: Duration) -> Result<Delivered, ClientError> {
        self.heard(order_no, |_| true, within).await
    }

    /// The news that an order has come to `status`, now or when it comes.
    pub async fn order_in(
        &mut self,
        order_no: &str,
        status: OrderStatus,
        within: Duration,
    ) -> Result<Delivered, ClientError> {
        self.heard(order_no, |result| result.order_status == status, within).await
    }

    async fn heard(
        &mut self,
        order_no: &str,
        is_it: impl Fn(&SeckillResult) -> bool,
        within: Duration,
    ) -> Result<Delivered, ClientError> {
        let deadline = Instant::now() + within;
        let mut backoff = Backoff::new(FIRST_RETRY, LONGEST_RETRY);
        loop {
            if let Some(delivered) = self.delivered.get(order_no).filter(|delivered| is_it(&delivered.result)) {
                return Ok(delivered.clone());
            }
            let left = deadline.saturating_duration_since(Instant::now());
            match self.next(left).await {
                Ok(Received { frame: ServerFrame::Error(error), .. }) => {
                    if error.code != FrameErrorCode::RetryLater {
                        return Err(ClientError::FrameRefused(error));
                    }
                    let wait = backoff.next_wait(error.retry_after_ms.map(Duration::from_millis));
                    tokio::time::sleep(wait.min(left)).await;
                    self.sync().await?;
                }
                // A result that is asked for has been noted; the chat is not listened to here.
                Ok(_) => {}
                Err(ClientError::TimedOut { .. }) => {
                    return Err(ClientError::TimedOut { what: format!("the result of {order_no}"), within });
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// The result of one order, if it has come already.
    pub fn result_so_far(&mut self, order_no: &str) -> Result<Option<Delivered>, ClientError> {
        while self.next_now()?.is_some() {}
        Ok(self.delivered.get(order_no).cloned())
    }

    /// Reads a frame, remembering a result.
    fn note(&mut self, text: &str, at: Instant) -> Result<Received, ClientError> {
        if let Some(watch) = self.options.watch {
            watch(text);
        }
        let frame: ServerFrame = serde_json::from_str(text).map_err(|error| ClientError::FrameDrift {
            frame: text.chars().take(EXCERPT_CHARS).collect(),
            reason: error.to_string(),
        })?;
        if let ServerFrame::SeckillResult(result) | ServerFrame::OrderStatus(result) = &frame {
            let known = self.delivered.get(&result.order_no).map(|delivered| delivered.result.order_status);
            if known != Some(result.order_status) {
                self.delivered.insert(result.order_no.clone(), Delivered { result: result.clone(), at });
            }
        }
        Ok(Received { frame, at })
    }
}

impl Away {
    /// Opens a new connection after a random wait, with growing ones between tries, and sends `sync`.
    pub async fn come_back(self) -> Result<Socket, ClientError> {
        let mut backoff = Backoff::new(FIRST_RECONNECT, LONGEST_RECONNECT);
        let mut tries = 0;
        loop {
            tokio::time::sleep(backoff.next_wait(None)).await;
            tries += 1;
            match Socket::open(self.url.clone(), self.options.clone(), self.delivered.clone()).await {
                Ok(socket) => {
                    socket.sync().await?;
                    return Ok(socket);
                }
                // A refusal stands; a broken or slow connection may pass.
                Err(refused @ ClientError::HandshakeRefused { .. }) => return Err(refused),
                Err(error) if tries == RECONNECT_TRIES => return Err(error),
                Err(_) => {}
            }
        }
    }
}

/// The request that opens a connection.
fn handshake(url: &str, options: &ConnectOptions) -> Result<Request, WsError> {
    let mut request = with_query(url, options).into_client_request()?;
    let own: [(HeaderName, &Option<String>); 2] =
        [(header::ACCEPT_LANGUAGE, &options.language), (header::ORIGIN, &options.origin)];
    for (name, value) in own {
        if let Some(value) = value {
            let value = HeaderValue::from_str(value).map_err(|error| WsError::HttpFormat(error.into()))?;
            request.headers_mut().insert(name, value);
        }
    }
    Ok(request)
}

/// Base64url tokens and identifiers need no escaping; a test that wants to send anything else escapes it itself.
fn with_query(url: &str, options: &ConnectOptions) -> String {
    let ticket = options.ticket.as_ref().map(|ticket| format!("ticket={}", ticket.text()));
    let token = options.token.as_ref().map(|token| format!("token={}", token.text()));
    let device = options.device.as_ref().map(|device| format!("device={device}"));
    let seen = options.last_ack_seq.map(|seq| format!("last_ack_seq={seq}"));
    let query: Vec<String> = ticket.into_iter().chain(token).chain(device).chain(seen).collect();
    if query.is_empty() { url.to_owned() } else { format!("{url}?{}", query.join("&")) }
}

/// Carries frames until one side is gone. Errors end it like a close: the reader then finds the inbox closed.
async fn carry(
    mut stream: Stream,
    mut to_send: mpsc::Receiver<Message>,
    heard: mpsc::Sender<(Utf8Bytes, Instant)>,
    heartbeat: Duration,
) {
    let ping = r#"{"type":"ping"}"#;
    let mut beat = tokio::time::interval_at(tokio::time::Instant::now() + heartbeat, heartbeat);
    loop {
        let sent = tokio::select! {
            message = to_send.recv() => match message {
                Some(message) => stream.send(message).await,
                None => return,
            },
            _ = beat.tick() => stream.send(Message::text(ping)).await,
            incoming = stream.next() => match incoming {
                Some(Ok(Message::Text(text))) => {
                    if heard.send((text, Instant::now())).await.is_err() {
                        return;
                    }
                    Ok(())
                }
                // The library answers pings itself; binary frames are not part of the contract.
                Some(Ok(Message::Ping(_) | Message::Pong(_) | Message::Binary(_) | Message::Close(_) | Message::Frame(_))) => Ok(()),
                Some(Err(_)) | None => return,
            },
        };
        if sent.is_err() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::net::TcpListener;
    use tokio_tungstenite::accept_async;

    const WITHIN: Duration = Duration::from_secs(5);

    fn options() -> ConnectOptions {
        ConnectOptions::new(Token::from_text("t")).on_device("d1")
    }

    fn result(order_no: &str, order_status: &str) -> Message {
        Message::text(format!(
            r#"{{"type":"seckill_result","orderNo":"{order_no}","status":"success","orderStatus":"{order_status}","message":"ok"}}"#
        ))
    }

    /// A server whose n-th connection sends the n-th list of frames once it has heard a frame, then waits for the end.
    async fn serve(connections: Vec<Vec<Message>>) -> (String, tokio::task::JoinHandle<Vec<String>>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("ws://{}/prod", listener.local_addr().unwrap());
        let server = tokio::spawn(async move {
            let mut heard = Vec::new();
            for frames in connections {
                let mut stream = accept_async(listener.accept().await.unwrap().0).await.unwrap();
                heard.push(stream.next().await.unwrap().unwrap().into_text().unwrap().to_string());
                for frame in frames {
                    stream.send(frame).await.unwrap();
                }
                while let Some(Ok(message)) = stream.next().await {
                    if let Message::Text(text) = message {
                        heard.push(text.to_string());
                    }
                }
            }
            heard
        });
        (url, server)
    }

    #[tokio::test]
    async fn a_repeated_result_keeps_its_first_arrival_and_a_new_state_replaces_it() {
        let frames =
            vec![result("SK1", "UNPAID"), result("SK2", "UNPAID"), result("SK1", "UNPAID"), result("SK1", "CANCELLED")];
        let (url, _server) = serve(vec![frames]).await;
        let mut socket = Socket::open(url, options(), HashMap::new()).await.unwrap();
        socket.sync().await.unwrap();
        let first = socket.result_of("SK1", WITHIN).await.unwrap();
        socket.result_of("SK2", WITHIN).await.unwrap();
        let again = socket.next(WITHIN).await.unwrap();
        assert!(again.at > first.at);
        assert_eq!(socket.result_of("SK1", WITHIN).await.unwrap().at, first.at);
        socket.next(WITHIN).await.unwrap();
        assert_eq!(socket.result_of("SK1", WITHIN).await.unwrap().result.order_status, OrderStatus::Cancelled);
    }

    #[tokio::test]
    async fn coming_back_syncs_and_acknowledging_names_what_was_seen() {
        let (url, server) = serve(vec![vec![], vec![result("SK1", "UNPAID")]]).await;
        let mut socket = Socket::open(url, options(), HashMap::new()).await.unwrap();
        socket.ping().await.unwrap();
        assert!(matches!(socket.result_of("SK1", Duration::from_millis(50)).await, Err(ClientError::TimedOut { .. })));
        let mut socket = socket.reconnect().await.unwrap();
        let delivered = socket.result_of("SK1", WITHIN).await.unwrap();
        socket.result_ack(&delivered.result).await.unwrap();
        socket.close().await.unwrap();
        assert_eq!(
            server.await.unwrap(),
            [
                r#"{"type":"ping"}"#,
                r#"{"type":"sync","sessions":{}}"#,
                r#"{"type":"result_ack","orderNo":"SK1","orderStatus":"UNPAID"}"#
            ]
        );
    }

    #[tokio::test]
    async fn a_busy_server_is_asked_again_and_a_refusal_stands() {
        let error =
            |code| Message::text(format!(r#"{{"type":"error","code":"{code}","message":"m","retryAfterMs":1}}"#));
        let (url, server) = serve(vec![vec![error("RETRY_LATER")], vec![error("AUTH_EXPIRED")]]).await;
        for refused in [false, true] {
            let mut socket = Socket::open(url.clone(), options(), HashMap::new()).await.unwrap();
            socket.sync().await.unwrap();
            let nothing = socket.result_of("SK1", Duration::from_secs(1)).await.unwrap_err();
            assert_eq!(matches!(nothing, ClientError::FrameRefused(_)), refused, "{nothing}");
            drop(socket);
        }
        let sync = r#"{"type":"sync","sessions":{}}"#;
        assert_eq!(server.await.unwrap(), [sync, sync, sync]);
    }

    #[tokio::test]
    async fn a_silent_socket_sends_its_heartbeat() {
        let (url, server) = serve(vec![vec![]]).await;
        let socket = Socket::open(url, options().heartbeat(Duration::from_millis(20)), HashMap::new()).await.unwrap();
        tokio::time::sleep(Duration::from_millis(120)).await;
        drop(socket);
        assert!(server.await.unwrap().len() >= 2);
    }

    #[tokio::test]
    async fn a_frame_of_another_shape_is_an_error() {
        let (url, _server) = serve(vec![vec![Message::text(r#"{"type":"pong"}"#)]]).await;
        let mut socket = Socket::open(url, options(), HashMap::new()).await.unwrap();
        socket.ping().await.unwrap();
        assert!(matches!(socket.next(WITHIN).await, Err(ClientError::FrameDrift { .. })));
    }

    #[test]
    fn the_query_carries_what_is_known() {
        assert_eq!(with_query("ws://h/prod", &options()), "ws://h/prod?token=t&device=d1");
        let nobody = ConnectOptions { token: None, ..options() };
        assert_eq!(with_query("ws://h/prod", &nobody), "ws://h/prod?device=d1");
        let ticket = ConnectOptions::with_ticket(Token::from_text("k")).last_ack_seq(7);
        assert_eq!(with_query("ws://h/prod", &ticket), "ws://h/prod?ticket=k&last_ack_seq=7");
        let page = handshake("ws://h/prod", &ticket.from_origin("https://shop.example").in_language("zh")).unwrap();
        assert_eq!(page.headers()["origin"], "https://shop.example");
        assert_eq!(page.headers()["accept-language"], "zh");
    }
}
