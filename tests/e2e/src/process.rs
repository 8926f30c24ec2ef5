//! A function as a child process.
//!
//! The deployed functions cannot be killed at a chosen step without harm to the tests beside. So a test runs the same binary
//! itself, in the environment that the deployed function has, and plays Lambda's Runtime API to it: it hands out events and
//! takes the answers. What the process does, it does to the stack: its rows, its gate, its queue.

use std::collections::HashMap;
use std::io::Read;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use rustix::process::{Pid, Signal, WaitOptions, WaitStatus, kill_process, waitpid};
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Mutex as AsyncMutex, mpsc, oneshot};
use tokio::task::JoinHandle;

use crate::local::aws_environment;
use crate::{Local, SOON, eventually};

/// The longest request of a function: an answer, well below Lambda's own bound.
const MAX_REQUEST_BYTES: usize = 8 * 1024 * 1024;
/// The crash point's switches; see `kernel::crash`.
pub const CRASH_AT: &str = "CRASH_AT";
pub const FREEZE_AT: &str = "FREEZE_AT";

/// A running function.
#[derive(Debug)]
pub struct FunctionProcess {
    pid: Pid,
    ended: Option<WaitStatus>,
    events: mpsc::UnboundedSender<Job>,
    /// Standard output and standard error.
    streams: [Stream; 2],
    runtime_api: JoinHandle<()>,
}

/// An event that is being handled.
#[derive(Debug)]
#[must_use = "a function that is not listened to may still be at work"]
pub struct Pending(oneshot::Receiver<Result<Value, Value>>);

#[derive(Debug)]
struct Job {
    event: String,
    answer: oneshot::Sender<Result<Value, Value>>,
}

/// What the process is asked to do with itself at a named step.
#[derive(Debug, Clone, Copy)]
pub enum At {
    Crash(&'static str),
    Freeze(&'static str),
}

impl FunctionProcess {
    /// Starts the function of a folder as it is deployed.
    pub async fn start(local: &Local, function: &str) -> Self {
        Self::start_with(local, function, &[]).await
    }

    /// Starts it so that it dies or stops at a step.
    pub async fn start_at(local: &Local, function: &str, at: At) -> Self {
        match at {
            At::Crash(point) => Self::start_with(local, function, &[(CRASH_AT, point)]).await,
            At::Freeze(point) => Self::start_with(local, function, &[(FREEZE_AT, point)]).await,
        }
    }

    /// Starts it with some variables changed.
    pub async fn start_with(local: &Local, function: &str, changed: &[(&str, &str)]) -> Self {
        let timeout = local.deployed(function).await.timeout;
        Self::start_for(local, function, changed, timeout).await
    }

    /// Starts it with some variables changed, and has it told that a call may take as long as `timeout`.
    #[allow(clippy::zombie_processes, reason = "waited for by its number")]
    pub async fn start_for(local: &Local, function: &str, changed: &[(&str, &str)], timeout: Duration) -> Self {
        let binary = contract::root().join("target/quick").join(function);
        assert!(binary.is_file(), "{} is not built: run `make build`", binary.display());
        let deployed = local.deployed(function).await;
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut child = Command::new(binary)
            .env_clear()
            .env("AWS_ENDPOINT_URL", &local.outputs.aws_endpoint)
            .envs(aws_environment())
            .envs(deployed.environment)
            .env("AWS_LAMBDA_RUNTIME_API", listener.local_addr().unwrap().to_string())
            .env("AWS_LAMBDA_FUNCTION_NAME", function)
            .env("AWS_LAMBDA_FUNCTION_VERSION", "$LATEST")
            .env("AWS_LAMBDA_FUNCTION_MEMORY_SIZE", "512")
            .env("AWS_LAMBDA_LOG_GROUP_NAME", deployed.log_group)
            .env("AWS_LAMBDA_LOG_STREAM_NAME", "e2e")
            .envs(changed.iter().copied())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let streams = [Stream::of(child.stdout.take().unwrap()), Stream::of(child.stderr.take().unwrap())];
        let (events, jobs) = mpsc::unbounded_channel();
        let runtime_api = tokio::spawn(serve(listener, jobs, timeout));
        // Waited for by its number from here on: `Child` cannot tell that a process is stopped.
        Self { pid: Pid::from_child(&child), ended: None, events, streams, runtime_api }
    }

    /// The process's number, for reports.
    pub fn pid(&self) -> i32 {
        self.pid.as_raw_nonzero().get()
    }

    /// Hands out an event.
    pub fn send(&self, event: &Value) -> Pending {
        let (answer, pending) = oneshot::channel();
        self.events.send(Job { event: event.to_string(), answer }).expect("the Runtime API runs");
        Pending(pending)
    }

    /// Hands out an event and waits for the answer.
    pub async fn invoke(&self, event: &Value) -> Value {
        self.answer(self.send(event)).await
    }

    /// The answer to an event.
    pub async fn answer(&self, pending: Pending) -> Value {
        self.answer_within(pending, SOON).await
    }

    /// The answer to an event that takes long.
    pub async fn answer_within(&self, pending: Pending, within: Duration) -> Value {
        match tokio::time::timeout(within, pending.0).await {
            Ok(Ok(Ok(answer))) => answer,
            other => panic!("no answer ({other:?}) from a function that said: {}", self.said()),
        }
    }

    /// Waits until the process has died of SIGKILL at `point`, and nobody else's.
    pub async fn dies_at(&mut self, point: &str) {
        let status = self.end().await;
        assert_eq!(status.terminating_signal(), Some(Signal::KILL.as_raw()), "{status:?}: {}", self.said());
        assert!(self.said().contains(&format!("{CRASH_AT} {point}")), "it died elsewhere: {}", self.said());
    }

    /// Waits until the process has died at `point` or has answered; whether it died.
    pub async fn dies_at_or_answers(&mut self, point: &str, mut pending: Pending) -> bool {
        tokio::select! {
            () = self.dies_at(point) => true,
            answer = &mut pending.0 => {
                // When it dies, nobody answers any more.
                if answer.is_err() {
                    self.dies_at(point).await;
                }
                answer.is_err()
            }
        }
    }

    /// The code of a process that ends by itself.
    pub async fn exit_code(&mut self) -> i32 {
        let status = self.end().await;
        status.exit_status().unwrap_or_else(|| panic!("{status:?}: {}", self.said()))
    }

    async fn end(&mut self) -> WaitStatus {
        let pid = self.pid;
        let status = eventually("the function ends", SOON, async || wait(pid).filter(|status| !status.stopped())).await;
        self.ended = Some(status);
        let streams = &self.streams;
        eventually("its last words are read", SOON, async || streams.iter().all(Stream::is_over).then_some(())).await;
        status
    }

    /// Waits until the process has stopped itself.
    pub async fn freezes(&self) {
        let pid = self.pid;
        let status = eventually("the function stops", SOON, async || wait(pid)).await;
        assert!(status.stopped(), "{status:?}: {}", self.said());
    }

    /// Lets a stopped process go on.
    pub fn thaw(&self) {
        kill_process(self.pid, Signal::CONT).unwrap();
    }

    /// All that it has written: the log, then the rest.
    pub fn said(&self) -> String {
        self.streams.each_ref().map(Stream::text).concat()
    }
}

impl Drop for FunctionProcess {
    fn drop(&mut self) {
        self.runtime_api.abort();
        if self.ended.is_none() && kill_process(self.pid, Signal::KILL).is_ok() {
            waitpid(Some(self.pid), WaitOptions::empty()).ok();
        }
    }
}

fn wait(pid: Pid) -> Option<WaitStatus> {
    waitpid(Some(pid), WaitOptions::NOHANG | WaitOptions::UNTRACED).unwrap().map(|(_, status)| status)
}

/// What a process writes. It is read on a thread of its own, so that the process never waits for its reader.
#[derive(Debug)]
struct Stream {
    text: Arc<Mutex<String>>,
    reader: std::thread::JoinHandle<()>,
}

impl Stream {
    fn of(mut stream: impl Read + Send + 'static) -> Self {
        let text = Arc::<Mutex<String>>::default();
        let reader = std::thread::spawn({
            let text = Arc::clone(&text);
            move || {
                let mut chunk = [0; 4096];
                while let Ok(read @ 1..) = stream.read(&mut chunk) {
                    text.lock().unwrap().push_str(&String::from_utf8_lossy(&chunk[..read]));
                }
            }
        });
        Self { text, reader }
    }

    fn text(&self) -> String {
        self.text.lock().unwrap().clone()
    }

    fn is_over(&self) -> bool {
        self.reader.is_finished()
    }
}

// ---------------------------------------------------------------- the Runtime API

/// Who waits for the answer to which request.
type Waiting = Arc<Mutex<HashMap<String, oneshot::Sender<Result<Value, Value>>>>>;

async fn serve(listener: TcpListener, jobs: mpsc::UnboundedReceiver<Job>, timeout: Duration) {
    let jobs = Arc::new(AsyncMutex::new(jobs));
    let waiting = Waiting::default();
    // Connections end with this task.
    let mut connections = tokio::task::JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        stream.set_nodelay(true).unwrap();
        connections.spawn(connection(stream, Arc::clone(&jobs), Arc::clone(&waiting), timeout));
    }
}

/// Requests of the function, one after the other: <https://docs.aws.amazon.com/lambda/latest/dg/runtimes-api.html>.
async fn connection(
    mut stream: TcpStream,
    jobs: Arc<AsyncMutex<mpsc::UnboundedReceiver<Job>>>,
    waiting: Waiting,
    timeout: Duration,
) {
    let mut unread = Vec::new();
    while let Some((path, body)) = request(&mut stream, &mut unread).await {
        let path: Vec<&str> = path.trim_start_matches("/2018-06-01/runtime/").split('/').collect();
        let reply = match path[..] {
            ["invocation", "next"] => {
                let Some(job) = jobs.lock().await.recv().await else { return };
                let id = format!("{:032x}", rand::random::<u128>());
                waiting.lock().unwrap().insert(id.clone(), job.answer);
                next_event(&id, &job.event, timeout)
            }
            ["invocation", id, kind @ ("response" | "error")] => {
                if let Some(answer) = waiting.lock().unwrap().remove(id) {
                    let body = serde_json::from_slice(&body).unwrap_or(Value::Null);
                    // Nobody may be waiting any more.
                    answer.send(if kind == "response" { Ok(body) } else { Err(body) }).ok();
                }
                accepted()
            }
            _ => accepted(),
        };
        if stream.write_all(reply.as_bytes()).await.is_err() {
            return;
        }
    }
}

fn next_event(id: &str, event: &str, timeout: Duration) -> String {
    let deadline = SystemTime::now() + timeout;
    let deadline = deadline.duration_since(SystemTime::UNIX_EPOCH).unwrap().as_millis();
    format!(
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nlambda-runtime-aws-request-id: {id}\r\n\
         lambda-runtime-deadline-ms: {deadline}\r\nlambda-runtime-invoked-function-arn: arn:aws:lambda:us-east-1:000000000000:function:e2e\r\n\
         lambda-runtime-trace-id: Root=1-00000000-000000000000000000000000\r\ncontent-length: {}\r\n\r\n{event}",
        event.len()
    )
}

fn accepted() -> String {
    let body = r#"{"status":"OK"}"#;
    format!("HTTP/1.1 202 Accepted\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}", body.len())
}

/// The next request: its path and its body. None: the function is gone.
async fn request(stream: &mut TcpStream, unread: &mut Vec<u8>) -> Option<(String, Vec<u8>)> {
    const END: &[u8] = b"\r\n\r\n";
    let end = loop {
        if let Some(end) = unread.windows(END.len()).position(|window| window == END) {
            break end + END.len();
        }
        more(stream, unread).await?;
    };
    let head = String::from_utf8_lossy(&unread[..end]).into_owned();
    let length = head.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse::<usize>().unwrap())
    });
    let end_of_body = end + length.unwrap_or(0);
    while unread.len() < end_of_body {
        more(stream, unread).await?;
    }
    let body = unread[end..end_of_body].to_vec();
    unread.drain(..end_of_body);
    Some((head.split(' ').nth(1)?.to_owned(), body))
}

async fn more(stream: &mut TcpStream, unread: &mut Vec<u8>) -> Option<()> {
    assert!(unread.len() < MAX_REQUEST_BYTES, "a request without an end");
    match stream.read_buf(unread).await {
        Ok(1..) => Some(()),
        Ok(0) | Err(_) => None,
    }
}
