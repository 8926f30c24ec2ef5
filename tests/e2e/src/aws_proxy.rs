//! A way to AWS that fails: calls of one operation lose their answer after they had their effect, or get another one instead.
//!
//! A function is led here by `AWS_ENDPOINT_URL`, or by `WS_ENDPOINT` for what it sends over sockets. All else passes as it is.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

/// The longest request: a transaction of a hundred actions is far below it.
const MAX_REQUEST_BYTES: usize = 4 * 1024 * 1024;
/// Headers that are about one connection, and not about what it carries.
const OF_THE_CONNECTION: [&str; 5] = ["host", "connection", "content-length", "transfer-encoding", "expect"];
/// Sending a frame has no `X-Amz-Target`; it is known by its path.
pub const POST_TO_CONNECTION: &str = "PostToConnection";

/// What becomes of a call.
#[derive(Debug, Clone, Copy)]
pub enum Fault {
    /// It has its effect, and nobody is told.
    LostReply,
    /// It has no effect: this status, with an error of this kind.
    Answered(u16, &'static str),
    /// A transaction is cancelled, since another one is at work on one of its items. The local AWS never says so by itself.
    Conflict,
}

/// Forwards to the local AWS, but has a fault ready for some calls of one operation.
#[derive(Debug)]
pub struct LossyAws {
    url: String,
    faults: Arc<Faults>,
    server: JoinHandle<()>,
}

#[derive(Debug)]
struct Faults {
    upstream: String,
    operation: &'static str,
    fault: Fault,
    left: AtomicU32,
    fired: AtomicU32,
}

impl LossyAws {
    /// Stands before the server of `url`; the next `times` calls of `operation` have the fault.
    pub async fn before(url: &str, operation: &'static str, fault: Fault, times: u32) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let own = format!("http://{}", listener.local_addr().unwrap());
        let (upstream, path) = split(url);
        let url = format!("{own}{path}");
        let faults = Arc::new(Faults {
            upstream: upstream.to_owned(),
            operation,
            fault,
            left: AtomicU32::new(times),
            fired: AtomicU32::new(0),
        });
        let server = tokio::spawn({
            let faults = Arc::clone(&faults);
            async move {
                let http = reqwest::Client::new();
                // Connections end with this task.
                let mut connections = tokio::task::JoinSet::new();
                while let Ok((stream, _)) = listener.accept().await {
                    stream.set_nodelay(true).unwrap();
                    connections.spawn(serve(stream, http.clone(), Arc::clone(&faults)));
                }
            }
        });
        Self { url, faults, server }
    }

    /// What to go to instead.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Calls that had the fault.
    pub fn fired(&self) -> u32 {
        self.faults.fired.load(Ordering::SeqCst)
    }
}

impl Drop for LossyAws {
    fn drop(&mut self) {
        self.server.abort();
    }
}

/// Server and path of a URL.
fn split(url: &str) -> (&str, &str) {
    let host = url.find("://").map_or(0, |at| at + 3);
    let end = url[host..].find('/').map_or(url.len(), |at| host + at);
    url.split_at(end)
}

struct Call {
    method: String,
    path: String,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
}

impl Call {
    fn operation(&self) -> Option<&str> {
        let target = self.headers.iter().find(|(name, _)| name.eq_ignore_ascii_case("x-amz-target"));
        match target {
            Some((_, target)) => target.rsplit('.').next(),
            None if self.method == "POST" && self.path.contains("connections/") => Some(POST_TO_CONNECTION),
            None => None,
        }
    }
}

/// Calls of the function, one after the other.
async fn serve(mut stream: TcpStream, http: reqwest::Client, faults: Arc<Faults>) {
    let mut unread = Vec::new();
    while let Some(call) = next_call(&mut stream, &mut unread).await {
        let hit = call.operation() == Some(faults.operation)
            && faults.left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).is_ok();
        if hit {
            faults.fired.fetch_add(1, Ordering::SeqCst);
        }
        let answer = match faults.fault {
            Fault::Answered(status, kind) if hit => error(status, kind, json!({"message": "injected"})),
            Fault::Conflict if hit => conflict(&call),
            Fault::LostReply | Fault::Answered(..) | Fault::Conflict => {
                let Some(answer) = forward(&http, &faults.upstream, call).await else { return };
                if hit {
                    return;
                }
                answer
            }
        };
        if stream.write_all(&answer).await.is_err() {
            return;
        }
    }
}

async fn forward(http: &reqwest::Client, upstream: &str, call: Call) -> Option<Vec<u8>> {
    let method = call.method.parse().ok()?;
    let mut request = http.request(method, format!("{upstream}{}", call.path)).body(call.body);
    for (name, value) in &call.headers {
        if !OF_THE_CONNECTION.contains(&name.to_ascii_lowercase().as_str()) {
            request = request.header(name, value);
        }
    }
    let answer = request.send().await.ok()?;
    let mut head = format!("HTTP/1.1 {} _\r\n", answer.status().as_u16());
    for (name, value) in answer.headers() {
        if !OF_THE_CONNECTION.contains(&name.as_str()) {
            head += &format!("{name}: {}\r\n", value.to_str().ok()?);
        }
    }
    let body = answer.bytes().await.ok()?;
    Some(with_body(head, &body))
}

/// As AWS says it in JSON. REST services name the kind in a header.
fn error(status: u16, kind: &str, mut body: Value) -> Vec<u8> {
    body["__type"] = format!("com.amazonaws#{kind}").into();
    let head =
        format!("HTTP/1.1 {status} _\r\ncontent-type: application/x-amz-json-1.0\r\nx-amzn-errortype: {kind}\r\n");
    with_body(head, body.to_string().as_bytes())
}

/// Each action has its reason, in order; the last one is the one that met somebody.
fn conflict(call: &Call) -> Vec<u8> {
    let body: Value = serde_json::from_slice(&call.body).unwrap_or(Value::Null);
    let mut reasons = vec![json!({"Code": "None"}); body["TransactItems"].as_array().map_or(1, Vec::len)];
    if let Some(last) = reasons.last_mut() {
        *last = json!({"Code": "TransactionConflict", "Message": "Transaction is ongoing for the item"});
    }
    error(400, "TransactionCanceledException", json!({"message": "injected", "CancellationReasons": reasons}))
}

fn with_body(head: String, body: &[u8]) -> Vec<u8> {
    let mut answer = format!("{head}content-length: {}\r\n\r\n", body.len()).into_bytes();
    answer.extend_from_slice(body);
    answer
}

/// None: the function is gone, or says what no SDK says.
async fn next_call(stream: &mut TcpStream, unread: &mut Vec<u8>) -> Option<Call> {
    const END: &[u8] = b"\r\n\r\n";
    let end = loop {
        if let Some(end) = unread.windows(END.len()).position(|window| window == END) {
            break end + END.len();
        }
        more(stream, unread).await?;
    };
    let head = String::from_utf8_lossy(&unread[..end]).into_owned();
    let mut lines = head.lines();
    let mut first = lines.next()?.split(' ');
    let (method, path) = (first.next()?.to_owned(), first.next()?.to_owned());
    let headers: Vec<(String, String)> = lines
        .filter_map(|line| line.split_once(':'))
        .map(|(name, value)| (name.to_owned(), value.trim().to_owned()))
        .collect();
    let length = headers.iter().find(|(name, _)| name.eq_ignore_ascii_case("content-length"));
    let length = length.map_or(Some(0), |(_, length)| length.parse::<usize>().ok())?;
    while unread.len() < end + length {
        more(stream, unread).await?;
    }
    let body = unread[end..end + length].to_vec();
    unread.drain(..end + length);
    Some(Call { method, path, headers, body })
}

async fn more(stream: &mut TcpStream, unread: &mut Vec<u8>) -> Option<()> {
    if unread.len() > MAX_REQUEST_BYTES {
        return None;
    }
    match stream.read_buf(unread).await {
        Ok(1..) => Some(()),
        Ok(0) | Err(_) => None,
    }
}
