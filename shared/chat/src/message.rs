//! What is said in a session: texts, images, cards, and what the service itself notes.
//!
//! Messages are numbered within their session, 1, 2, 3, …, without gaps. A change of the session (an agent joins, it is
//! closed, …) is a message too, so whoever has all messages knows all changes, in order.

use std::borrow::Cow;

use kernel::ids::{OrderNo, UserId};
use kernel::text::{Text, shows_nothing};
use kernel::time::UnixMillis;
use serde::{Deserialize, Serialize};
use unicode_segmentation::UnicodeSegmentation;

use crate::ids::{ClientMsgId, Party, Seq, SessionId, Side};

/// The longest text, in characters (Unicode scalar values): it fits a frame in any script.
pub const MAX_TEXT_CHARS: usize = 4_000;
/// What a list of sessions shows of a message: so many characters as a reader counts them, and so many bytes at most, since one
/// character may be built of any number of combining marks. The session's row stays below 1 KB with it.
const PREVIEW_CHARACTERS: usize = 40;
const PREVIEW_BYTES: usize = 160;

/// One message, as it is stored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Message {
    pub session_id: SessionId,
    pub seq: Seq,
    pub from: Sender,
    #[serde(flatten)]
    pub body: Body,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_msg_id: Option<ClientMsgId>,
    /// Messages of each side so far, this one included. What is unread is a difference of two such counts.
    pub counts: Counts,
    pub at: UnixMillis,
}

/// Who says something.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "role", content = "id", rename_all = "lowercase")]
pub enum Sender {
    User(UserId),
    Agent(UserId),
    /// The service, noting a change of the session.
    System,
}

/// Messages of each side.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Counts {
    pub user: u64,
    pub agent: u64,
}

/// What is said.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", content = "content", rename_all = "lowercase")]
pub enum Body {
    Text(MessageText),
    Image(ImageKey),
    Card(Card),
    System(Note),
}

/// 1 to [`MAX_TEXT_CHARS`] characters, not all of them blank or invisible, none of them a control character but line breaks and tabs:
/// what is accepted here is stored, pushed and shown the same everywhere.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct MessageText(String);

/// Where an uploaded image is, in the bucket: `<session>/<random>.<extension>`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ImageKey(String);

/// Text that is no content of its kind; what it was is left out, it may be of any length.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a {0}")]
pub struct ContentError(&'static str);

/// An order, as it was when it was shown.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Card {
    pub order_no: OrderNo,
    pub title: String,
    pub qty: u32,
    /// In minor units of `currency`.
    pub amount: u64,
    pub currency: String,
    pub status: Cow<'static, str>,
}

/// A change of the session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "lowercase", rename_all_fields = "camelCase")]
pub enum Note {
    /// An agent takes it.
    Joined {
        agent_id: UserId,
    },
    /// It goes from one agent to another.
    Transferred {
        agent_id: UserId,
    },
    /// Its agent is gone and nobody is free: it waits again.
    Requeued,
    Reopened,
    Closed {
        by: Side,
    },
    /// Closed, since nobody had said anything for long.
    Expired,
}

/// The kinds of images that are taken, by the extension of their key.
const IMAGE_TYPES: [(&str, &str); 4] =
    [("jpg", "image/jpeg"), ("png", "image/png"), ("webp", "image/webp"), ("gif", "image/gif")];

impl Message {
    /// Unique everywhere, and the same however often it is delivered.
    pub fn id(&self) -> String {
        format!("{}-{}", self.session_id, self.seq)
    }
}

impl From<&Party> for Sender {
    fn from(party: &Party) -> Self {
        match party.side {
            Side::User => Self::User(party.id.clone()),
            Side::Agent => Self::Agent(party.id.clone()),
        }
    }
}

impl Sender {
    pub const fn side(&self) -> Option<Side> {
        match self {
            Self::User(_) => Some(Side::User),
            Self::Agent(_) => Some(Side::Agent),
            Self::System => None,
        }
    }
}

impl Counts {
    pub const fn of(self, side: Side) -> u64 {
        match side {
            Side::User => self.user,
            Side::Agent => self.agent,
        }
    }

    #[must_use]
    pub fn with(mut self, sender: &Sender) -> Self {
        match sender {
            Sender::User(_) => self.user += 1,
            Sender::Agent(_) => self.agent += 1,
            Sender::System => {}
        }
        self
    }
}

impl Body {
    /// One line of it, for a list of sessions.
    pub fn preview(&self) -> Text {
        match self {
            Self::Text(MessageText(text)) => {
                let text = cut(text);
                Text::of(text.clone(), text)
            }
            Self::Image(_) => Text::new("[image]", "[图片]"),
            Self::Card(card) => {
                let title = cut(&card.title);
                Text::of(format!("[order] {title}"), format!("[订单] {title}"))
            }
            Self::System(note) => note.text(),
        }
    }
}

/// The beginning of a text, never breaking what a reader sees as one character.
fn cut(text: &str) -> String {
    let mut cut = String::new();
    for (nth, character) in text.graphemes(true).enumerate() {
        if nth == PREVIEW_CHARACTERS || cut.len() + character.len() > PREVIEW_BYTES {
            cut.push('…');
            break;
        }
        // A list shows one line.
        cut.push_str(if character.chars().all(char::is_whitespace) { " " } else { character });
    }
    cut
}

impl Note {
    /// For readers of either side.
    pub fn text(&self) -> Text {
        match self {
            Self::Joined { .. } => Text::new("An agent has joined.", "客服已接入。"),
            Self::Transferred { .. } => Text::new("Another agent has taken over.", "已转接其他客服。"),
            Self::Requeued => Text::new("Waiting for the next free agent.", "正在等待空闲客服。"),
            Self::Reopened => Text::new("The conversation was reopened.", "会话已重新打开。"),
            Self::Closed { by: Side::User } => {
                Text::new("The customer has closed the conversation.", "用户已结束会话。")
            }
            Self::Closed { by: Side::Agent } => Text::new("The agent has closed the conversation.", "客服已结束会话。"),
            Self::Expired => {
                Text::new("The conversation was closed after a long silence.", "会话长时间无消息，已自动结束。")
            }
        }
    }
}

/// A control character that is no line break and no tab.
pub(crate) fn is_broken(char: char) -> bool {
    char.is_control() && !matches!(char, '\n' | '\t' | '\r')
}

impl MessageText {
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for MessageText {
    type Error = ContentError;

    fn try_from(text: String) -> Result<Self, ContentError> {
        if shows_nothing(&text) || text.chars().any(is_broken) || text.chars().count() > MAX_TEXT_CHARS {
            return Err(ContentError("text"));
        }
        Ok(Self(text))
    }
}

impl From<MessageText> for String {
    fn from(text: MessageText) -> String {
        text.0
    }
}

impl ImageKey {
    /// A new key for an image of this type; `None` for a type that is not taken.
    pub fn random(session_id: &SessionId, content_type: &str) -> Option<Result<Self, getrandom::Error>> {
        let (extension, _) = IMAGE_TYPES.iter().find(|(_, taken)| *taken == content_type)?;
        Some(kernel::ids::random_hex().map(|name| Self(format!("{session_id}/{name}.{extension}"))))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether it was made for this session: an image is shown only where it was uploaded.
    pub fn is_of(&self, session_id: &SessionId) -> bool {
        self.0.split_once('/').is_some_and(|(session, _)| session == session_id.as_str())
    }

    pub fn content_type(&self) -> &'static str {
        let extension = self.0.rsplit_once('.').map_or("", |(_, extension)| extension);
        let known = IMAGE_TYPES.iter().find(|(taken, _)| *taken == extension);
        known.map_or("application/octet-stream", |(_, content_type)| content_type)
    }
}

impl TryFrom<String> for ImageKey {
    type Error = ContentError;

    fn try_from(key: String) -> Result<Self, ContentError> {
        let well_formed = || {
            let (session, name) = key.split_once('/')?;
            let (name, extension) = name.split_once('.')?;
            let named = name.len() == 32 && name.bytes().all(|byte| byte.is_ascii_hexdigit());
            let taken = IMAGE_TYPES.iter().any(|(taken, _)| *taken == extension);
            (named && taken && session.parse::<SessionId>().is_ok()).then_some(())
        };
        if well_formed().is_none() {
            return Err(ContentError("key of an image"));
        }
        Ok(Self(key))
    }
}

impl From<ImageKey> for String {
    fn from(key: ImageKey) -> String {
        key.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> Result<MessageText, ContentError> {
        text.to_owned().try_into()
    }

    #[test]
    fn a_text_is_what_a_reader_can_read() {
        for good in
            ["你好", " hi\n\tthere\r\n", "👩‍👩‍👧", "e\u{301}", "\u{202e}x", "❤\u{fe0f}", &"字".repeat(MAX_TEXT_CHARS)]
        {
            assert_eq!(text(good).map(String::from), Ok(good.to_owned()));
        }
        for bad in [
            "",
            " \n",
            "\u{feff}",
            "\u{200b}\u{2028}\u{202e}",
            "\u{ad}",
            "\u{2800} \u{3164}",
            "\u{fe0f}\u{e0041}",
            "a\0b",
            "\u{7}",
            "\u{1b}[2J",
            "\u{85}",
            &"字".repeat(MAX_TEXT_CHARS + 1),
        ] {
            assert!(text(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn a_preview_never_breaks_a_character() {
        let family = "👩‍👩‍👧";
        let cut_at = |text: &str| cut(text).trim_end_matches('…').to_owned();
        assert_eq!(cut("short"), "short");
        let names = "é".repeat(60);
        assert_eq!(cut_at(&names), "é".repeat(PREVIEW_CHARACTERS));
        // Bytes are the tighter bound here, and it falls between two families.
        let families = cut_at(&family.repeat(30));
        assert!(families.len() <= PREVIEW_BYTES && families.len() % family.len() == 0, "{}", families.len());
        // One character of any length is left out rather than broken.
        assert_eq!(cut_at(&format!("a{}", "\u{301}".repeat(400))), "");
        assert_eq!(cut("one\ntwo\r\nthree"), "one two three");
    }

    #[test]
    fn an_image_is_of_its_session() {
        let session: SessionId = "s1".parse().unwrap();
        let key = ImageKey::random(&session, "image/png").unwrap().unwrap();
        assert!(key.is_of(&session) && !key.is_of(&"s2".parse().unwrap()));
        assert_eq!(key.content_type(), "image/png");
        assert_eq!(ImageKey::try_from(key.as_str().to_owned()), Ok(key));
        assert!(ImageKey::random(&session, "image/svg+xml").is_none());
        let name = "0".repeat(32);
        for bad in ["", "s1", &format!("s1/{name}"), &format!("s1/{name}.exe"), &format!("../{name}.png")] {
            assert!(ImageKey::try_from(bad.to_owned()).is_err(), "{bad}");
        }
        assert!(ImageKey::try_from(format!("s1/../{name}.png")).is_err());
    }

    #[test]
    fn messages_are_stored_flat() {
        let message = Message {
            session_id: "s1".parse().unwrap(),
            seq: Seq::new(7),
            from: Sender::System,
            body: Body::System(Note::Joined { agent_id: "g1".parse().unwrap() }),
            client_msg_id: None,
            counts: Counts { user: 3, agent: 2 },
            at: UnixMillis::new(1),
        };
        let json = serde_json::to_value(&message).unwrap();
        assert_eq!(
            json,
            serde_json::json!({"sessionId": "s1", "seq": 7, "from": {"role": "system"}, "kind": "system",
                "content": {"event": "joined", "agentId": "g1"}, "counts": {"user": 3, "agent": 2}, "at": 1})
        );
        assert_eq!(serde_json::from_value::<Message>(json).unwrap(), message);
    }
}
