//! One conversation, as a person would like to read it.

use std::collections::BTreeMap;

use client::chat::Body;
use client::frames::{Card, ChatRole, NoteEvent};
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};

use crate::hall::{Hall, Notice};
use crate::judge::Conversation;

/// A silence that is worth a line.
const PAUSE: SignedDuration = SignedDuration::from_secs(10);
const SPEAKER_WIDTH: usize = 8;

struct Line {
    at: Timestamp,
    /// Empty: nobody says it.
    speaker: String,
    text: String,
}

/// Times are those of the clock on the wall.
pub(crate) fn transcript(conversation: &Conversation, hall: &Hall) -> String {
    let mut lines = said(conversation);
    let log = hall.log();
    let scenes = log.scenes.iter().filter(|scene| scene.session_id == conversation.session_id);
    lines.extend(scenes.map(|scene| Line { at: scene.at, speaker: String::new(), text: scene.text.clone() }));
    // The first place is told with the scene of coming.
    let places = log.heard.iter().filter_map(|heard| match &heard.what {
        Notice::Position { session_id, position } if *session_id == conversation.session_id => {
            Some((heard.at, *position))
        }
        Notice::Position { .. } | Notice::Online | Notice::Offline | Notice::Message { .. } => None,
    });
    let text = |position| match position {
        1 => "next in the queue".to_owned(),
        position => format!("number {position} in the queue"),
    };
    lines.extend(places.skip(1).map(|(at, position)| Line {
        at: hall.wall(at),
        speaker: String::new(),
        text: text(position),
    }));
    // A stable sort: of what happened in the same millisecond, the words keep their order.
    lines.sort_by_key(|line| line.at.as_millisecond());
    print(&lines)
}

fn said(conversation: &Conversation) -> Vec<Line> {
    // The longest view is the customer's; an image's address is in it only if it was delivered, the key always.
    let mut agents: BTreeMap<&str, &str> = BTreeMap::new();
    for view in conversation.views.iter().filter(|view| view.who.is_agent) {
        agents.insert(&view.who.id, &view.who.name);
    }
    let name_of = |id: Option<&str>| id.map_or(String::new(), |id| agents.get(id).map_or(id, |name| *name).to_owned());
    conversation
        .history
        .iter()
        .map(|message| {
            let speaker = match message.from.role {
                ChatRole::User => conversation.customer.name.clone(),
                ChatRole::Agent => name_of(message.from.id.as_deref()),
                ChatRole::System => String::new(),
            };
            let text = match &message.body {
                Body::Text(text) => text.clone(),
                Body::Image { key, .. } => format!("[image {}]", key.rsplit('/').next().unwrap_or(key)),
                Body::Card { card: Some(card), .. } => format!("[order {}]", in_short(card)),
                Body::Card { order_no, card: None } => format!("[order {order_no}]"),
                Body::System(note) => match (note.event, note.agent_id.as_deref()) {
                    (NoteEvent::Joined | NoteEvent::Transferred, agent @ Some(_)) => {
                        format!("{} ({})", note.text, name_of(agent))
                    }
                    _ => note.text.clone(),
                },
            };
            Line { at: message.at, speaker, text }
        })
        .collect()
}

fn in_short(card: &Card) -> String {
    let Card { title, qty, amount, currency, status, .. } = card;
    format!(
        "{title} × {qty}, {}.{:02} {currency}, {}",
        amount / 100,
        amount % 100,
        format!("{status:?}").to_uppercase()
    )
}

fn print(lines: &[Line]) -> String {
    let zone = TimeZone::system();
    let mut printed = Vec::new();
    let mut last: Option<Timestamp> = None;
    for Line { at, speaker, text } in lines {
        if let Some(silence) = last.map(|last| at.duration_since(last)).filter(|silence| *silence >= PAUSE) {
            printed.push(format!("            {:SPEAKER_WIDTH$}  ({} s later)", "", silence.as_secs()));
        }
        last = Some(*at);
        let time = zone.to_datetime(*at).strftime("%H:%M:%S");
        printed.push(if speaker.is_empty() {
            format!("  {time}  {:>SPEAKER_WIDTH$}  {text}", "·")
        } else {
            format!("  {time}  {speaker:>SPEAKER_WIDTH$}  {text}")
        });
    }
    printed.join("\n")
}
