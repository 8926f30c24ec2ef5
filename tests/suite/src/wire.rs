//! As much of HTTP/1.1 as AWS clients and servers speak to each other on one machine: messages with a length, one after
//! the other on a connection.

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// A request or an answer.
pub struct Message {
    pub head: String,
    pub body: Vec<u8>,
}

impl Message {
    /// An answer with a JSON body.
    pub fn answer(status: u16, body: &serde_json::Value) -> Self {
        let body = body.to_string().into_bytes();
        let length = body.len();
        let head = format!(
            "HTTP/1.1 {status} -\r\ncontent-type: application/x-amz-json-1.0\r\ncontent-length: {length}\r\n\r\n"
        );
        Self { head, body }
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        let mut lines = self.head.lines().filter_map(|line| line.split_once(':'));
        lines.find(|(line, _)| line.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim())
    }

    /// The operation that a request to an AWS service asks for.
    pub fn operation(&self) -> &str {
        let target = self.header("x-amz-target").expect("an AWS request names its operation");
        target.split_once('.').map_or(target, |(_, operation)| operation)
    }
}

/// One end of a connection.
pub struct Wire {
    stream: TcpStream,
    unread: Vec<u8>,
}

impl Wire {
    pub fn new(stream: TcpStream) -> Self {
        stream.set_nodelay(true).ok();
        Self { stream, unread: Vec::new() }
    }

    /// The next message; None when the other end hung up.
    pub async fn read(&mut self) -> Option<Message> {
        let head_len = loop {
            if let Some(at) = self.unread.windows(4).position(|four| four == b"\r\n\r\n") {
                break at + 4;
            }
            self.read_more().await?;
        };
        let head: Vec<u8> = self.unread.drain(..head_len).collect();
        let mut message = Message { head: String::from_utf8(head).expect("a head is text"), body: Vec::new() };
        let length = message.header("content-length").map_or(0, |length| length.parse().expect("a length is a number"));
        while self.unread.len() < length {
            self.read_more().await?;
        }
        message.body = self.unread.drain(..length).collect();
        Some(message)
    }

    async fn read_more(&mut self) -> Option<()> {
        match self.stream.read_buf(&mut self.unread).await {
            Ok(0) | Err(_) => None,
            Ok(_) => Some(()),
        }
    }

    /// Writes a message; None when the other end hung up.
    pub async fn write(&mut self, message: &Message) -> Option<()> {
        let mut bytes = message.head.as_bytes().to_vec();
        bytes.extend_from_slice(&message.body);
        self.stream.write_all(&bytes).await.ok()
    }
}
