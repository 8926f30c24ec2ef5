//! A customer: comes, waits, talks, is cut off, comes back, and goes.

use std::sync::Arc;
use std::time::Duration;

use client::chat::{Body, Machine, Message};
use client::documents::{RatePost, Stretch, UploadPost};
use client::frames::{ChatRole, FrameErrorCode, NoteEvent, SessionFrame, SessionStatus};
use client::{Api, ChatClient, ClientError};
use jiff::Timestamp;
use tokio::sync::watch;

use crate::agent::PICTURE;
use crate::cast::{self, GOODBYE, LATE_WORD, PLEASE_CLOSE, Part, STAR_LINES};
use crate::hall::{Hall, Who, Words};
use crate::judge::{LOST_WITHIN, Promise};

/// Until an agent comes: all who are before have to be served.
const SERVED_WITHIN: Duration = Duration::from_secs(900);
/// Until an answer comes. Whose agent is cut off has to wait for another one.
const ANSWER_WITHIN: Duration = LOST_WITHIN.saturating_add(Duration::from_secs(60));
/// Until the end of a session is heard of.
const CLOSED_WITHIN: Duration = Duration::from_secs(60);
/// Long enough for an answer to come meanwhile.
pub(crate) const AWAY_FOR: Duration = Duration::from_millis(2_500);
const SCORE: u32 = 5;
/// What a customer needs for a line. Without it a day of a dozen would be over before anything could go wrong.
const TYPING: Duration = Duration::from_millis(800);

#[derive(Debug)]
pub(crate) struct Customer {
    pub(crate) index: usize,
    pub(crate) who: Who,
    pub(crate) part: Part,
    pub(crate) client: Arc<ChatClient>,
    pub(crate) api: Api,
    pub(crate) session: SessionFrame,
    /// Shown to the agent, by the star.
    pub(crate) order_no: Option<String>,
}

impl Customer {
    /// From the queue to the rating. `alone`: turns true when the others are done.
    pub(crate) async fn live(&self, hall: &Hall, alone: watch::Receiver<bool>) -> Result<(), ClientError> {
        self.client
            .wait_for(
                "an agent",
                |machine| machine.session(self.id()).is_some_and(|session| session.status == SessionStatus::Open),
                SERVED_WITHIN,
            )
            .await?;
        self.answered(0).await?;
        match self.part {
            Part::Star => Box::pin(self.live_as_star(hall, alone)).await?,
            Part::Talks | Part::Leaves | Part::LosesSent | Part::ShowsImage => {
                let [first, second, third] = cast::lines(self.index);
                self.ask(hall, first).await?;
                match self.part {
                    Part::Leaves => self.ask_and_leave(hall, second).await?,
                    Part::LosesSent => self.ask_into_a_break(hall, second).await?,
                    Part::ShowsImage => {
                        self.ask(hall, second).await?;
                        self.show_picture(hall).await?;
                    }
                    Part::Talks | Part::Star => drop(self.ask(hall, second).await?),
                }
                self.ask(hall, third).await?;
            }
        }
        self.end(hall).await
    }

    async fn live_as_star(&self, hall: &Hall, mut alone: watch::Receiver<bool>) -> Result<(), ClientError> {
        self.ask(hall, STAR_LINES.hello).await?;
        if let Some(order_no) = &self.order_no {
            let sent = self.say(hall, Words::Card(order_no.clone())).await?;
            self.answered(sent).await?;
        }
        self.ask(hall, STAR_LINES.picture).await?;
        self.show_picture(hall).await?;
        self.ask_and_leave(hall, STAR_LINES.tunnel).await?;
        self.ask_into_a_break(hall, STAR_LINES.back).await?;
        // To be handed over there has to be somebody who is free.
        alone.wait_for(|alone| *alone).await.map_err(|_| ClientError::SocketClosed)?;
        let asked = self.ask(hall, STAR_LINES.transfer).await?;
        let handed_over = |machine: &Machine| {
            let mut notes = machine.messages(self.id()).iter().rev().filter(|message| message.seq > asked);
            notes.find(|message| is_arrival(message)).map(|message| message.seq)
        };
        let arrived = self.client.wait_until("the next agent", handed_over, ANSWER_WITHIN).await?;
        self.answered(arrived).await?;
        self.ask(hall, STAR_LINES.payment).await?;
        Ok(())
    }

    pub(crate) fn id(&self) -> &str {
        &self.session.session_id
    }

    async fn say(&self, hall: &Hall, words: Words) -> Result<u64, ClientError> {
        self.types().await?;
        Ok(hall.say(&self.who, &self.client, self.id(), words).await?.seq)
    }

    /// Nobody answers within the same millisecond.
    async fn types(&self) -> Result<(), ClientError> {
        self.client.typing(self.id()).await?;
        tokio::time::sleep(TYPING).await;
        Ok(())
    }

    /// Waits for a word of an agent after a number.
    async fn answered(&self, seq: u64) -> Result<(), ClientError> {
        let is_there = |machine: &Machine| {
            let messages = machine.messages(self.id());
            messages.iter().any(|message| message.seq > seq && message.from.role == ChatRole::Agent)
        };
        self.client.wait_for("an answer", is_there, ANSWER_WITHIN).await
    }

    /// Asks, and waits for the answer. The number of the question.
    async fn ask(&self, hall: &Hall, line: &str) -> Result<u64, ClientError> {
        let asked = self.say(hall, Words::Text(line.to_owned())).await?;
        self.answered(asked).await?;
        Ok(asked)
    }

    /// The connection breaks after a question, and the answer is there afterwards.
    async fn ask_and_leave(&self, hall: &Hall, line: &str) -> Result<(), ClientError> {
        let sent = self.say(hall, Words::Text(line.to_owned())).await?;
        hall.scene(self.id(), format!("{}'s connection breaks, without a goodbye", self.who.name));
        let had = self.client.messages(self.id()).len();
        cut_and_return(hall, &self.who, &self.client, &self.api).await?;
        let missed = self.client.messages(self.id()).len() - had;
        hall.scene(self.id(), format!("{} is back; said meanwhile and here now: {missed}", self.who.name));
        self.answered(sent).await
    }

    /// The connection breaks between a word and its `sent`.
    async fn ask_into_a_break(&self, hall: &Hall, line: &str) -> Result<(), ClientError> {
        self.types().await?;
        let speaks = hall.say(&self.who, &self.client, self.id(), Words::Text(line.to_owned()));
        // The word goes first: wishes and breaks come to the client through one queue.
        let breaks = cut_and_return(hall, &self.who, &self.client, &self.api);
        let (sent, back_at) = tokio::join!(speaks, breaks);
        let (sent, back_at) = (sent?, back_at?);
        let own = self.client.messages(self.id());
        let own = own.iter().filter(|message| matches!(&message.body, Body::Text(text) if text == line));
        let copies = own.count();
        hall.log().cut_at_sent += 1;
        hall.judge(Promise::LostSentIsThere, copies == 1, self.id(), || format!("{copies} times: {line}"));
        let how = if sent.duplicate {
            "it was stored, and the service knew it"
        } else if sent.at < back_at {
            "it was stored, and came with the replay"
        } else {
            "it was lost, and is stored now"
        };
        let name = &self.who.name;
        hall.scene(
            self.id(),
            format!("{name} is back: the connection broke before `sent`, the word is sent again ({how})"),
        );
        self.answered(sent.seq).await
    }

    async fn show_picture(&self, hall: &Hall) -> Result<(), ClientError> {
        let upload = UploadPost {
            session_id: self.id().to_owned(),
            content_type: "image/png".to_owned(),
            size: PICTURE.len() as u64,
        };
        let answer = self.api.chat_upload(&upload).await?;
        let form = answer.outcome.map_err(|problem| ClientError::NotOurs {
            status: problem.status,
            path: "/api/chat/uploads".to_owned(),
            body: problem.detail,
        })?;
        let taken = self.api.post_form(&form, PICTURE).await?;
        if taken.status != 204 {
            let body = String::from_utf8_lossy(&taken.body).into_owned();
            return Err(ClientError::NotOurs { status: taken.status, path: "the upload form".to_owned(), body });
        }
        let sent = self.say(hall, Words::Image(form.key)).await?;
        self.answered(sent).await
    }

    /// Closes it, or has it closed; says one word too many; rates.
    async fn end(&self, hall: &Hall) -> Result<(), ClientError> {
        let closes = self.index.is_multiple_of(2) || self.part == Part::Star;
        if closes {
            self.ask(hall, GOODBYE.0).await?;
            self.client.close(self.id()).await?;
        } else {
            self.say(hall, Words::Text(PLEASE_CLOSE.0.to_owned())).await?;
        }
        let is_closed = |machine: &Machine| {
            machine.session(self.id()).is_some_and(|session| session.status == SessionStatus::Closed)
        };
        self.client.wait_for("the end", is_closed, CLOSED_WITHIN).await?;
        let said = self.client.text(self.id(), LATE_WORD).await;
        let refused =
            matches!(&said, Err(ClientError::FrameRefused(error)) if error.code == FrameErrorCode::SessionClosed);
        hall.judge(Promise::ClosedIsClosed, refused, self.id(), || format!("{said:?}"));
        let verdict = if refused { "refused, SESSION_CLOSED" } else { "taken" };
        hall.scene(self.id(), format!("{} has one more thing to say, too late: {verdict}", self.who.name));

        let rating = RatePost { score: SCORE, comment: Some("热乎的服务 👍".to_owned()) };
        let answer = self.api.rate(self.id(), &rating).await?;
        let kept = answer.outcome.as_ref().is_ok_and(|kept| {
            kept.session_id == self.id() && kept.score == rating.score && kept.comment == rating.comment
        });
        hall.judge(Promise::RatingIsKept, kept, self.id(), || format!("{:?}", answer.outcome));
        hall.scene(self.id(), format!("{} rates it {SCORE} of 5: 热乎的服务 👍", self.who.name));
        Ok(())
    }
}

/// Cuts the connection without a goodbye, stays away for a moment, comes back, and has everything. When the way back began.
pub(crate) async fn cut_and_return(
    hall: &Hall,
    who: &Who,
    client: &ChatClient,
    api: &Api,
) -> Result<Timestamp, ClientError> {
    hall.log().cuts += 1;
    client.drop_connection().await?;
    tokio::time::sleep(AWAY_FOR).await;
    let back_at = Timestamp::now();
    come_back(hall, who, client, api).await?;
    Ok(back_at)
}

/// An agent has come, from the queue or from another one.
fn is_arrival(message: &Message) -> bool {
    match &message.body {
        Body::System(note) => matches!(note.event, NoteEvent::Joined | NoteEvent::Transferred),
        Body::Text(_) | Body::Image { .. } | Body::Card { .. } => false,
    }
}

/// Comes back, and has all that the service had before that.
pub(crate) async fn come_back(hall: &Hall, who: &Who, client: &ChatClient, api: &Api) -> Result<(), ClientError> {
    let mut heads = Vec::new();
    for session_id in client.sessions() {
        // What has gone to others meanwhile is none of theirs any more.
        if let Ok(page) = api.chat_messages(&session_id, Stretch::Newest, Some(1)).await?.outcome {
            heads.push((session_id, page.head));
        }
    }
    client.reconnect().await?;
    for (session_id, head) in heads {
        let is_still_theirs = client.sessions().contains(&session_id);
        let has = client.messages(&session_id).len() as u64;
        hall.judge(Promise::ReturnedHasAll, has >= head || !is_still_theirs, &session_id, || {
            format!("{} has {has} of {head}", who.name)
        });
    }
    Ok(())
}
