//! Functions that die half-way, and who goes on: the client's repetition, the next heartbeat, or the sweep. [C33]
//!
//! Each of these steps is one transaction, so what a dead function leaves undone is only that somebody is told, or that the
//! next step is taken.

use std::time::Duration;

use client::frames::{FrameErrorCode, SessionStatus};
use client::{ChatOptions, Role};
use e2e::process::At;
use e2e::{FunctionProcess, SOON};
use serde_json::{Value, json};

use crate::floor::{Floor, Person, frame_event, now};
use crate::line::text;

/// Whoever was not told notices by the next heartbeat.
const QUICK: Duration = Duration::from_secs(2);

impl Floor {
    /// Runs a function of its own on a frame of somebody's one connection, that dies at `point`.
    async fn dies_at(&self, point: &'static str, role: Role, id: &str, frame: &Value) {
        let connection_id = self.connection_of(role, id).await;
        let mut function = FunctionProcess::start_at(&self.local, "chat-message", At::Crash(point)).await;
        let _unanswered = function.send(&frame_event(&connection_id, frame, now()));
        function.dies_at(point).await;
    }

    async fn attentive(&self, role: Role, name: &str) -> Person {
        self.person(role, &self.id(name), |options: ChatOptions| options.heartbeat(QUICK)).await
    }
}

#[tokio::test]
async fn killed_after_a_word_was_stored_the_same_word_again_is_that_word() {
    let floor = Floor::alone().await;
    let agent = floor.agent("g1").await;
    let id = floor.id("u1");
    let mut line = floor.live(Role::User, &id).await;
    let session_id = line.open().await.session_id;
    line.session("an agent", |it| it.status == SessionStatus::Open).await;
    let word = text(&session_id, "once", "m1");
    floor.dies_at("chat.send.after", Role::User, &id, &word).await;
    assert_eq!(floor.session(&session_id).await.seq.get(), 2, "stored, and nobody told");

    let sent = line.sent(word).await;
    assert_eq!((sent.seq, sent.duplicate), (2, true));
    assert_eq!(line.text(&session_id, "twice", "m2").await.seq, 3);
    agent.has(&session_id, 3).await;
    let said: Vec<String> = agent.said(&session_id).into_iter().map(|(_, word)| word).collect();
    assert_eq!(said, ["once", "twice"]);
    floor.close().await;
}

#[tokio::test]
async fn killed_after_a_session_was_opened_the_sweep_finds_it_an_agent() {
    let floor = Floor::alone().await;
    let agent = floor.agent("g1").await;
    let id = floor.id("u1");
    let mut line = floor.live(Role::User, &id).await;
    floor.dies_at("chat.open.after", Role::User, &id, &json!({"type": "open"})).await;
    // Asked again, it is the one that is there.
    let session = line.open().await;
    let listed = e2e::shop::done(floor.api(Role::User, &id).chat_sessions(None, None).await).items;
    assert_eq!((listed.len(), &listed[0].session_id), (1, &session.session_id));
    floor.sweep().await;
    floor.comes_to(&session.session_id, "open g1").await;
    line.session("an agent", |it| it.agent_id.as_ref() == Some(&agent.id)).await;
    agent.has(&session.session_id, 1).await;
    floor.close().await;
}

#[tokio::test]
async fn killed_after_a_session_was_given_to_an_agent_both_notice() {
    let floor = Floor::alone().await;
    let agent = floor.attentive(Role::Agent, "g1").await;
    let customer = floor.attentive(Role::User, "u1").await;
    let session_id = customer.open().await.unwrap().session_id;
    let online = json!({"type": "status", "status": "online"});
    floor.dies_at("chat.claim.after", Role::Agent, &agent.id, &online).await;
    assert_eq!(floor.with(&session_id).await, "open g1");
    for who in [&agent, &customer] {
        who.sees(&session_id, "that it is served", |it| it.agent_id.as_ref() == Some(&agent.id)).await;
        who.has(&session_id, 1).await;
    }
    assert_eq!(agent.text(&session_id, "hello").await.unwrap().seq, 2);
    customer.has(&session_id, 2).await;
    floor.close().await;
}

#[tokio::test]
async fn killed_while_an_agent_goes_away_the_sweep_moves_what_is_left() {
    let floor = Floor::alone().await;
    let leaver = floor.attentive(Role::Agent, "g1").await;
    leaver.status(client::frames::AgentStatus::Online).await.unwrap();
    let customers = [floor.attentive(Role::User, "u1").await, floor.attentive(Role::User, "u2").await];
    let sessions = [customers[0].is_served().await, customers[1].is_served().await];
    leaver.status(client::frames::AgentStatus::Busy).await.unwrap();
    let other = floor.attentive(Role::Agent, "g2").await;
    other.status(client::frames::AgentStatus::Online).await.unwrap();

    let away = json!({"type": "status", "status": "away"});
    floor.dies_at("chat.move.after", Role::Agent, &leaver.id, &away).await;
    floor.sweep().await;
    for (customer, session_id) in customers.iter().zip(&sessions) {
        floor.comes_to(session_id, "open g2").await;
        customer.sees(session_id, "the other agent", |it| it.agent_id.as_ref() == Some(&other.id)).await;
    }
    other.wait_for("both", |machine| machine.sessions().count() == 2, SOON).await.unwrap();
    leaver.wait_for("an empty desk", |machine| machine.sessions().count() == 0, SOON).await.unwrap();
    floor.close().await;
}

#[tokio::test]
async fn killed_after_a_session_was_closed_it_is_closed_and_the_next_is_served() {
    let floor = Floor::alone().await;
    let capacity = client::documents::AgentPut { capacity: 1 };
    e2e::shop::done(floor.local.admin.put_agent(&floor.id("g1"), &capacity).await);
    let agent = floor.attentive(Role::Agent, "g1").await;
    agent.status(client::frames::AgentStatus::Online).await.unwrap();
    let (customer, next) = (floor.attentive(Role::User, "u1").await, floor.attentive(Role::User, "u2").await);
    let session_id = customer.is_served().await;
    let waiting = next.open().await.unwrap().session_id;

    let close = json!({"type": "close", "sessionId": session_id});
    floor.dies_at("chat.close.after", Role::Agent, &agent.id, &close).await;
    assert_eq!(floor.with(&session_id).await, "closed");
    customer.sees(&session_id, "the end", |it| it.status == SessionStatus::Closed).await;
    agent.wait_for("it to be gone", |machine| !machine.sessions().any(|id| id == session_id), SOON).await.unwrap();
    // Asked again, it is not theirs any more, which is what they wanted.
    let mut line = floor.live(Role::Agent, &agent.id).await;
    assert_eq!(line.code(close).await, FrameErrorCode::NotFound);
    floor.sweep().await;
    floor.comes_to(&waiting, "open g1").await;
    agent.sees(&waiting, "the next", |it| it.status == SessionStatus::Open).await;
    floor.close().await;
}
