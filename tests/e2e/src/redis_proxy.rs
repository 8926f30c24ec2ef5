//! A way to Redis that loses replies: the script ran, and nobody is told.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

/// How a client begins the command that runs a script.
const SCRIPT_COMMANDS: [&[u8]; 2] = [b"\r\nEVALSHA\r\n", b"\r\nEVAL\r\n"];

/// Forwards both ways, but cuts the connection where the reply of a script should pass, a number of times.
#[derive(Debug)]
pub struct LossyRedis {
    url: String,
    to_lose: Arc<AtomicU32>,
    server: JoinHandle<()>,
}

impl LossyRedis {
    /// Stands before the server of `url` (`redis://user:password@host:port`) and loses the next `replies` of scripts that ran.
    pub async fn before(url: &str, replies: u32) -> Self {
        let (credentials, address) = url.rsplit_once('@').unwrap_or(("redis://", url.trim_start_matches("redis://")));
        let address = address.trim_end_matches('/').to_owned();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let own = listener.local_addr().unwrap();
        let own_url = if credentials == "redis://" { format!("redis://{own}") } else { format!("{credentials}@{own}") };
        let to_lose = Arc::new(AtomicU32::new(replies));
        let server = tokio::spawn({
            let to_lose = Arc::clone(&to_lose);
            async move {
                let mut connections = tokio::task::JoinSet::new();
                while let Ok((client, _)) = listener.accept().await {
                    let server = TcpStream::connect(&address).await.unwrap();
                    connections.spawn(forward(client, server, Arc::clone(&to_lose)));
                }
            }
        });
        Self { url: own_url, to_lose, server }
    }

    pub fn url(&self) -> &str {
        &self.url
    }

    /// Replies that are still to be lost.
    pub fn left(&self) -> u32 {
        self.to_lose.load(Ordering::SeqCst)
    }
}

impl Drop for LossyRedis {
    fn drop(&mut self) {
        self.server.abort();
    }
}

/// Until one side is gone, or a reply is lost. Our commands and replies are far smaller than a segment, and one command is under
/// way at a time.
async fn forward(mut client: TcpStream, mut server: TcpStream, to_lose: Arc<AtomicU32>) {
    let (mut asked, mut replied) = (vec![0; 64 * 1024], vec![0; 64 * 1024]);
    let mut script = false;
    loop {
        tokio::select! {
            read = client.read(&mut asked) => {
                let Ok(read @ 1..) = read else { return };
                let command = &asked[..read];
                script = SCRIPT_COMMANDS.iter().any(|verb| command.windows(verb.len()).any(|window| window.eq_ignore_ascii_case(verb)));
                if server.write_all(command).await.is_err() { return }
            }
            read = server.read(&mut replied) => {
                let Ok(read @ 1..) = read else { return };
                // An error (a script that the server does not know) did nothing.
                let ran = script && replied[0] != b'-';
                let lost = ran && to_lose.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).is_ok();
                if lost || client.write_all(&replied[..read]).await.is_err() { return }
            }
        }
    }
}
