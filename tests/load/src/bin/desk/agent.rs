//! An agent: greets whom they are given, answers what nobody has answered, and does what was asked for.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use client::chat::{Body, Machine};
use client::frames::{ChatRole, FrameErrorCode, SessionStatus};
use client::{ChatClient, ClientError};
use tokio::sync::Mutex;

use crate::cast::{self, Then};
use crate::hall::{Hall, Who, Words};
use crate::judge::Promise;

/// How long one look for work may take; meanwhile nobody can stop the agent's hands.
const LOOK: Duration = Duration::from_millis(500);
/// What an agent needs for an answer: they have written it before.
const TYPING: Duration = Duration::from_millis(300);
/// After something went wrong.
const BREATH: Duration = Duration::from_secs(1);
/// What the picture must be like.
pub(crate) const PICTURE: &[u8] = include_bytes!("hotcakes.png");

#[derive(Debug)]
pub(crate) struct Agent {
    pub(crate) who: Who,
    pub(crate) client: Arc<ChatClient>,
    /// Held while the agent does something, or has to do nothing.
    pub(crate) hands: Mutex<()>,
}

/// Something to do.
#[derive(Debug, Clone)]
enum Work {
    Greet { session_id: String, is_first: bool },
    Answer { session_id: String, body: Body },
}

impl Agent {
    /// Serves until the day is over.
    pub(crate) async fn serve(&self, hall: &Hall, pictures: &reqwest::Client) {
        let mut greeted = BTreeSet::new();
        loop {
            let hands = self.hands.lock().await;
            let work = self.client.wait_until("work", |machine| self.next_work(machine, &greeted), LOOK).await;
            let done = match work {
                Ok(Work::Greet { session_id, is_first }) => {
                    greeted.insert(session_id.clone());
                    let words = Words::Text(cast::greeting(&self.who.name, is_first));
                    hall.say(&self.who, &self.client, &session_id, words).await.map(drop)
                }
                Ok(Work::Answer { session_id, body }) => self.answer(hall, pictures, &session_id, &body).await,
                Err(ClientError::TimedOut { .. }) => Ok(()),
                Err(error) => Err(error),
            };
            if let Err(error) = done
                && !has_gone_to_others(&error)
            {
                hall.failed(&self.who, &error);
                tokio::time::sleep(BREATH).await;
            }
            drop(hands);
        }
    }

    /// Sessions that are complete here: first whom nobody has greeted, then whose last word is the customer's.
    fn next_work(&self, machine: &Machine, greeted: &BTreeSet<String>) -> Option<Work> {
        let mine = |id: &&str| {
            machine.session(id).is_some_and(|session| {
                session.status == SessionStatus::Open && session.agent_id.as_deref() == Some(self.who.id.as_str())
            }) && machine.is_complete(id)
        };
        let sessions: Vec<&str> = machine.sessions().filter(mine).collect();
        let new = sessions.iter().find(|id| !greeted.contains(**id));
        if let Some(session_id) = new {
            let by_agent = |message: &client::chat::Message| message.from.role == ChatRole::Agent;
            let is_first = !machine.messages(session_id).iter().any(by_agent);
            return Some(Work::Greet { session_id: (*session_id).to_owned(), is_first });
        }
        sessions.into_iter().find_map(|session_id| {
            let words =
                machine.messages(session_id).iter().rev().find(|message| message.from.role != ChatRole::System)?;
            let by_customer = words.from.role == ChatRole::User;
            by_customer.then(|| Work::Answer { session_id: session_id.to_owned(), body: words.body.clone() })
        })
    }

    async fn answer(
        &self,
        hall: &Hall,
        pictures: &reqwest::Client,
        session_id: &str,
        body: &Body,
    ) -> Result<(), ClientError> {
        let (answer, then) = match body {
            Body::Text(line) => cast::answer(line),
            Body::Image { url, .. } => {
                self.look_at(hall, pictures, session_id, url.as_deref()).await;
                (cast::answer_to_picture(), Then::Waits)
            }
            Body::Card { order_no, card } => {
                let shown = card.as_ref().is_some_and(|card| card.order_no == *order_no && card.qty == 1);
                hall.judge(Promise::CardIsShown, shown, session_id, || format!("{card:?}"));
                (cast::answer_to_card(), Then::Waits)
            }
            // Nobody answers the service.
            Body::System(_) => return Ok(()),
        };
        self.client.typing(session_id).await?;
        tokio::time::sleep(TYPING).await;
        hall.say(&self.who, &self.client, session_id, Words::Text(answer.to_owned())).await?;
        match then {
            Then::Waits => Ok(()),
            Then::Closes => self.client.close(session_id).await.map(drop),
            Then::Transfers => {
                self.client.transfer(session_id, None).await?;
                self.try_a_late_word(hall, session_id).await;
                Ok(())
            }
        }
    }

    /// A link in a message leads to what was sent.
    async fn look_at(&self, hall: &Hall, pictures: &reqwest::Client, session_id: &str, url: Option<&str>) {
        let seen = async {
            let answer = pictures.get(url.unwrap_or_default()).send().await?.error_for_status()?;
            answer.bytes().await
        };
        let seen = seen.await;
        let same = seen.as_ref().is_ok_and(|bytes| bytes[..] == *PICTURE);
        hall.judge(Promise::ImageIsShown, same, session_id, || match seen {
            Ok(bytes) => format!("{} other bytes", bytes.len()),
            Err(error) => error.to_string(),
        });
    }

    /// What an agent may not say any more is refused. If it is not, the queue may have given them the session again in this
    /// very moment: whether it has, the history says, and the record is judged by it.
    pub(crate) async fn try_a_late_word(&self, hall: &Hall, session_id: &str) {
        if self.client.sessions().iter().any(|known| known == session_id) {
            return;
        }
        let said = hall.say(&self.who, &self.client, session_id, Words::Text(cast::LATE_WORD.to_owned())).await;
        if let Err(error) = said {
            let refused = matches!(&error, ClientError::FrameRefused(error) if error.code == FrameErrorCode::NotFound);
            hall.judge(Promise::FormerAgentIsOut, refused, session_id, || format!("{}: {error}", self.who.name));
        }
    }
}

/// The session went to somebody else, or was closed, while this agent was busy with it. Whoever has it now goes on.
fn has_gone_to_others(error: &ClientError) -> bool {
    let gone = [FrameErrorCode::NotFound, FrameErrorCode::SessionClosed];
    matches!(error, ClientError::FrameRefused(error) if gone.contains(&error.code))
}
