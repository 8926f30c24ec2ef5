//! Who serves whom: in the order of waiting, up to capacity, and never nobody while somebody is free.

use std::time::Duration;

use chat::desk::agents::LEASE_SECS;
use client::documents::AgentPut;
use client::frames::{AgentStatus, FrameErrorCode, ServerFrame, SessionStatus};
use client::{ClientError, Role};
use e2e::shop::done;
use e2e::{SOON, eventually};
use futures_util::future::join_all;
use serde_json::json;

use crate::floor::{Floor, Person, frame_event, now};
use crate::line::text;

/// How often somebody who waits asks for their place.
const QUICK: Duration = Duration::from_secs(1);

impl Floor {
    /// An admin says how many sessions an agent may have at once.
    async fn capacity(&self, name: &str, capacity: u32) -> client::documents::Agent {
        done(self.local.admin.put_agent(&self.id(name), &AgentPut { capacity }).await)
    }

    /// A customer who asks for their place every second.
    async fn patient(&self, name: &str) -> Person {
        self.person(Role::User, &self.id(name), |options| options.heartbeat(QUICK)).await
    }
}

/// Sessions of customers, opened one after the other.
async fn opened(customers: &[Person]) -> Vec<String> {
    let mut sessions = Vec::new();
    for customer in customers {
        sessions.push(customer.open().await.unwrap().session_id);
    }
    sessions
}

fn refused(answer: Result<impl std::fmt::Debug, ClientError>) -> FrameErrorCode {
    match answer {
        Err(ClientError::FrameRefused(error)) => error.code,
        other => panic!("{other:?} instead of a refusal"),
    }
}

/// [C14] [C38]
#[tokio::test]
async fn who_has_waited_longest_is_served_first_and_places_move_up() {
    let floor = Floor::alone().await;
    floor.capacity("g1", 2).await;
    let customers = join_all(["u1", "u2", "u3", "u4"].map(|name| floor.patient(name))).await;
    let sessions = opened(&customers).await;
    for (place, (customer, session_id)) in (1..).zip(customers.iter().zip(&sessions)) {
        customer.sees(session_id, "a place", |session| session.queue_position == Some(place)).await;
    }
    let agent = floor.agent("g1").await;
    for nth in [0, 1] {
        floor.comes_to(&sessions[nth], "open g1").await;
        let served = customers[nth].sees(&sessions[nth], "an agent", |it| it.status == SessionStatus::Open).await;
        assert_eq!((served.agent_id.as_ref(), served.queue_position), (Some(&agent.id), None));
    }
    for (nth, place) in [(2, 1), (3, 2)] {
        customers[nth].sees(&sessions[nth], "a better place", |it| it.queue_position == Some(place)).await;
    }
    assert_eq!(floor.with(&sessions[2]).await, "waiting");

    // One leaves the agent free and comes back for another one: the one who has waited longer is first.
    agent.close(&sessions[0]).await.unwrap();
    let again = customers[0].open().await.unwrap();
    assert_ne!(again.session_id, sessions[0]);
    floor.comes_to(&sessions[2], "open g1").await;
    assert_eq!(floor.with(&again.session_id).await, "waiting");
    customers[0].sees(&again.session_id, "the last place", |it| it.queue_position == Some(2)).await;

    // Somebody who waits may speak, and may stop waiting.
    customers[3].text(&sessions[3], "anybody there?").await.unwrap();
    let closed = customers[3].close(&sessions[3]).await.unwrap().unwrap();
    assert_eq!(closed.status, SessionStatus::Closed);
    customers[0].sees(&again.session_id, "the first place", |it| it.queue_position == Some(1)).await;

    // With room for more, the agent is given more at once.
    let document = floor.capacity("g1", 3).await;
    assert_eq!((document.capacity, document.open, document.status), (3, 3, AgentStatus::Online));
    floor.comes_to(&again.session_id, "open g1").await;
    agent.sees(&again.session_id, "the third", |it| it.status == SessionStatus::Open).await;
    // With less, what they have stays with them.
    assert_eq!(floor.capacity("g1", 1).await.open, 3);
    let list = done(agent.api.chat_agents().await);
    let own = list.agents.iter().find(|known| known.agent_id == agent.id).unwrap();
    assert_eq!((own.capacity, own.open, own.present, list.waiting), (1, 3, true, 0));
    floor.close().await;
}

/// [C15]
#[tokio::test]
async fn ten_at_once_are_served_by_two_agents_of_four_and_two_wait() {
    let floor = Floor::alone().await;
    let names = ["g1", "g2"];
    for name in names {
        floor.capacity(name, 4).await;
    }
    let agents = [floor.agent("g1").await, floor.agent("g2").await];
    let customers: Vec<Person> = join_all((0..10).map(async |nth| floor.patient(&format!("u{nth}")).await)).await;
    let sessions = join_all(customers.iter().map(async |customer| customer.open().await.unwrap().session_id)).await;
    let count = async || {
        let list = done(floor.local.admin.chat_agents().await).agents;
        agents.each_ref().map(|agent| list.iter().find(|known| known.agent_id == agent.id).unwrap().open)
    };
    eventually("all are placed", 2 * SOON, async || (count().await == [4, 4]).then_some(())).await;
    let mut places = Vec::new();
    for (customer, session_id) in customers.iter().zip(&sessions) {
        if floor.with(session_id).await == "waiting" {
            let waits =
                customer.sees(session_id, "a place", |it| it.queue_position.is_some_and(|place| place < 3)).await;
            places.push(waits.queue_position.unwrap());
        } else {
            customer.sees(session_id, "an agent", |it| it.status == SessionStatus::Open).await;
        }
    }
    places.sort_unstable();
    assert_eq!(places, [1, 2]);
    for agent in &agents {
        agent.wait_for("four sessions", |machine| machine.sessions().count() == 4, SOON).await.unwrap();
        assert_eq!(agent.open_sessions().await.len(), 4);
    }
    floor.close().await;
}

/// [C16] [C34]
#[tokio::test]
async fn two_agents_at_once_are_not_given_one_session_and_two_openings_make_one() {
    let floor = Floor::alone().await;
    let id = floor.id("u1");
    let (mut phone, mut tablet) = (floor.live(Role::User, &id).await, floor.live(Role::User, &id).await);
    let (one, two) = tokio::join!(phone.open(), tablet.open());
    assert_eq!(one.session_id, two.session_id);
    let listed = done(floor.api(Role::User, &id).chat_sessions(None, None).await).items;
    assert_eq!(listed.len(), 1);

    let agents = [floor.agent_at_the_door("g1").await, floor.agent_at_the_door("g2").await];
    let (first, second) = tokio::join!(agents[0].status(AgentStatus::Online), agents[1].status(AgentStatus::Online));
    assert_eq!((first.unwrap().status, second.unwrap().status), (AgentStatus::Online, AgentStatus::Online));
    let with = eventually("one has it", SOON, async || {
        Some(floor.with(&one.session_id).await).filter(|with| with.starts_with("open"))
    })
    .await;
    let (winner, other) = if with == "open g1" { (&agents[0], &agents[1]) } else { (&agents[1], &agents[0]) };
    winner.sees(&one.session_id, "the session", |it| it.status == SessionStatus::Open).await;
    assert_eq!(winner.open_sessions().await, [one.session_id.as_str()]);
    assert!(other.open_sessions().await.is_empty() && other.sessions().is_empty());
    // And who has not won is no member.
    assert_eq!(refused(other.text(&one.session_id, "mine").await), FrameErrorCode::NotFound);
    floor.close().await;
}

/// [C17]
#[tokio::test]
async fn a_transfer_takes_the_session_and_its_history_along() {
    let floor = Floor::alone().await;
    let (one, two) = (floor.agent("g1").await, floor.agent_at_the_door("g2").await);
    let customer = floor.customer("u1").await;
    let session_id = customer.is_served().await;
    customer.text(&session_id, "where is my order?").await.unwrap();
    one.text(&session_id, "I ask a colleague").await.unwrap();

    // Not there, not known, oneself: it stays where it is.
    for nobody in [two.id.as_str(), "nobody", one.id.as_str()] {
        let answer = one.transfer(&session_id, Some(nobody)).await;
        assert_eq!(refused(answer), FrameErrorCode::AgentUnavailable, "{nobody}");
    }
    two.status(AgentStatus::Busy).await.unwrap();
    assert_eq!(refused(one.transfer(&session_id, Some(&two.id)).await), FrameErrorCode::AgentUnavailable);
    assert_eq!(floor.with(&session_id).await, "open g1");
    assert_eq!(refused(customer.transfer(&session_id, None).await), FrameErrorCode::NotFound);

    two.status(AgentStatus::Online).await.unwrap();
    let given = one.transfer(&session_id, Some(&two.id)).await.unwrap().expect("the first try");
    assert_eq!(given.agent_id.as_ref(), Some(&two.id));
    two.sees(&session_id, "the session", |it| it.agent_id.as_ref() == Some(&two.id)).await;
    customer.sees(&session_id, "the other agent", |it| it.agent_id.as_ref() == Some(&two.id)).await;
    two.has(&session_id, 4).await;
    assert_eq!(two.said(&session_id), customer.said(&session_id));
    // The first agent's late words are refused, whatever they are.
    let mut late = floor.live(Role::Agent, &one.id).await;
    for frame in [
        text(&session_id, "one more thing", "late"),
        json!({"type": "ack", "sessionId": session_id, "lastSeq": 3}),
        json!({"type": "pull", "sessionId": session_id, "from": 1, "to": 3}),
        json!({"type": "sync", "sessions": {&session_id: 0}}),
        json!({"type": "transfer", "sessionId": session_id}),
        json!({"type": "close", "sessionId": session_id}),
    ] {
        assert_eq!(late.code(frame.clone()).await, FrameErrorCode::NotFound, "{frame}");
    }
    one.wait_for("it to be gone", |machine| machine.sessions().count() == 0, SOON).await.unwrap();
    assert_eq!(customer.text(&session_id, "thank you").await.unwrap().seq, 5);
    two.has(&session_id, 5).await;
    assert_eq!(two.text(&session_id, "you are welcome").await.unwrap().seq, 6);

    // To nobody in particular: the best of the others; and when there is none, it waits at its old place.
    let given = two.transfer(&session_id, None).await.unwrap().expect("the first try");
    assert_eq!(given.agent_id.as_ref(), Some(&one.id));
    two.status(AgentStatus::Away).await.unwrap();
    one.sees(&session_id, "the session", |it| it.agent_id.as_ref() == Some(&one.id)).await;
    let since = floor.session(&session_id).await.waiting_since;
    // Its agent is free for it as soon as it waits, so they do not want any more.
    one.status(AgentStatus::Busy).await.unwrap();
    let given = one.transfer(&session_id, None).await.unwrap().expect("the first try");
    assert_eq!((given.status, given.agent_id, given.queue_position), (SessionStatus::Waiting, None, Some(1)));
    assert_eq!(floor.session(&session_id).await.waiting_since, since);
    floor.close().await;
}

/// [C27]
#[tokio::test]
async fn who_goes_away_leaves_their_sessions_to_the_least_busy_or_to_the_head_of_the_queue() {
    let floor = Floor::alone().await;
    let customers = join_all(["u1", "u2", "u3"].map(|name| floor.patient(name))).await;
    let one = floor.agent("g1").await;
    let mut sessions = Vec::new();
    for customer in &customers {
        sessions.push(customer.is_served().await);
    }
    // The second agent is behind with an answer, the third one is not.
    let two = floor.person(Role::Agent, &floor.id("g2"), client::ChatOptions::reading_by_hand).await;
    one.status(AgentStatus::Busy).await.unwrap();
    two.status(AgentStatus::Online).await.unwrap();
    let loud = floor.customer("u4").await;
    let loud_session = loud.is_served().await;
    assert_eq!(floor.with(&loud_session).await, "open g2");
    for word in ["hello", "hello?", "HELLO"] {
        loud.text(&loud_session, word).await.unwrap();
    }
    let three = floor.agent("g3").await;
    floor.capacity("g3", 2).await;

    one.status(AgentStatus::Away).await.unwrap();
    let others = async || {
        let mut others = Vec::new();
        for session_id in &sessions {
            others.push(floor.with(session_id).await);
        }
        others.sort();
        others
    };
    eventually("all have moved", SOON, async || (others().await == ["open g2", "open g3", "open g3"]).then_some(()))
        .await;
    one.wait_for("an empty desk", |machine| machine.sessions().count() == 0, SOON).await.unwrap();
    three.wait_for("two sessions", |machine| machine.sessions().count() == 2, SOON).await.unwrap();
    for (customer, session_id) in customers.iter().zip(&sessions) {
        customer.sees(session_id, "another agent", |it| it.agent_id.as_ref().is_some_and(|id| *id != one.id)).await;
    }

    // Nobody is left but for one who came later and waits: those who were served before are before them.
    floor.capacity("g2", 0).await;
    let late = floor.patient("u5").await;
    let late_session = late.open().await.unwrap().session_id;
    assert_eq!(floor.with(&late_session).await, "waiting");
    three.status(AgentStatus::Away).await.unwrap();
    late.sees(&late_session, "the third place", |it| it.queue_position == Some(3)).await;
    floor.audit().await;
    floor.capacity("g1", 2).await;
    one.status(AgentStatus::Online).await.unwrap();
    one.wait_for("two sessions", |machine| machine.sessions().count() == 2, SOON).await.unwrap();
    late.sees(&late_session, "the first place", |it| it.queue_position == Some(1)).await;
    floor.close().await;
}

/// [C13]
#[tokio::test]
async fn a_lost_agents_sessions_go_on_with_somebody_else() {
    let floor = Floor::alone().await;
    let lost = floor.agent("g1").await;
    let customer = floor.customer("u1").await;
    let session_id = customer.is_served().await;
    lost.text(&session_id, "one moment").await.unwrap();
    // Gone without a goodbye. Within the lease that is no reason for anything.
    lost.drop_connection().await.unwrap();
    floor.sweep().await;
    assert_eq!(floor.with(&session_id).await, "open g1");
    assert_eq!(customer.text(&session_id, "hello?").await.unwrap().seq, 3);

    floor.age(&lost.id, LEASE_SECS + 5).await;
    floor.sweep().await;
    floor.comes_to(&session_id, "waiting").await;
    let waits = customer.sees(&session_id, "a place", |it| it.status == SessionStatus::Waiting).await;
    assert_eq!(waits.agent_id, None);
    assert_eq!(customer.text(&session_id, "is nobody there?").await.unwrap().seq, 5);

    let other = floor.agent("g2").await;
    other.has(&session_id, 6).await;
    assert_eq!(other.text(&session_id, "now I am").await.unwrap().seq, 7);
    customer.has(&session_id, 7).await;
    assert_eq!(other.said(&session_id), customer.said(&session_id));

    // Back again, the first one has nothing, and is given the next.
    lost.reconnect().await.unwrap();
    lost.wait_for("it to be gone", |machine| machine.sessions().count() == 0, SOON).await.unwrap();
    assert_eq!(refused(lost.text(&session_id, "sorry").await), FrameErrorCode::NotFound);
    let next = floor.customer("u2").await;
    let next_session = next.is_served().await;
    assert_eq!(floor.with(&next_session).await, "open g1");
    floor.close().await;
}

/// [C35]
#[tokio::test]
async fn statuses_that_arrive_in_reverse_are_taken_in_the_order_they_were_said() {
    let floor = Floor::alone().await;
    let id = floor.id("g1");
    let mut line = floor.live(Role::Agent, &id).await;
    line.say(json!({"type": "status", "status": "online"})).await;
    let status = |frame: &ServerFrame| match frame {
        ServerFrame::Status(status) => Some((status.status, status.at)),
        _ => None,
    };
    line.until("the echo", status).await;
    let customer = floor.customer("u1").await;
    let session_id = customer.is_served().await;

    let connection_id = floor.connection_of(Role::Agent, &id).await;
    let function = floor.function(&[]).await;
    let said_away = now();
    let said_online = said_away.plus_millis(1);
    let event = |status: &str, at| frame_event(&connection_id, &json!({"type": "status", "status": status}), at);
    function.invoke(&event("online", said_online)).await;
    let (newer, at) = line.until("the echo", status).await;
    assert_eq!((newer, at.as_millisecond()), (AgentStatus::Online, said_online.get()));
    function.invoke(&event("away", said_away)).await;
    let (still, at) = line.until("the echo", status).await;
    assert_eq!((still, at.as_millisecond()), (AgentStatus::Online, said_online.get()), "told how it is");
    floor.sweep().await;
    assert_eq!(floor.with(&session_id).await, "open g1");
    floor.close().await;
}

/// [C18]
#[tokio::test]
async fn in_a_closed_session_nothing_is_said_until_its_customer_opens_it_again() {
    let floor = Floor::alone().await;
    let agent = floor.agent("g1").await;
    let customer = floor.customer("u1").await;
    let session_id = customer.is_served().await;
    agent.text(&session_id, "goodbye").await.unwrap();
    let closed = agent.close(&session_id).await.unwrap().expect("the first try");
    assert_eq!((closed.status, closed.agent_id, closed.head), (SessionStatus::Closed, None, 3));
    customer.sees(&session_id, "the end", |it| it.status == SessionStatus::Closed).await;
    for who in [&customer, &agent] {
        assert_eq!(refused(who.text(&session_id, "one more").await), FrameErrorCode::SessionClosed);
        assert_eq!(
            refused(who.image(&session_id, &format!("{session_id}/0123456789abcdef0123456789abcdef.png")).await),
            FrameErrorCode::SessionClosed
        );
    }
    assert_eq!(refused(agent.close(&session_id).await), FrameErrorCode::NotFound);
    let again = customer.close(&session_id).await.unwrap().unwrap();
    assert_eq!((again.status, again.head), (SessionStatus::Closed, 3), "closed as it was");
    assert_eq!(floor.session(&session_id).await.seq.get(), 3);

    let reopened = customer.reopen(&session_id).await.unwrap();
    assert_eq!(reopened.session_id, session_id);
    floor.comes_to(&session_id, "open g1").await;
    assert_eq!(customer.text(&session_id, "one more").await.unwrap().seq, 6, "reopened, joined, and the word");
    agent.has(&session_id, 6).await;
    // With an active one, opening an old one is that one.
    agent.close(&session_id).await.unwrap();
    customer.sees(&session_id, "the end", |it| it.status == SessionStatus::Closed).await;
    let other = customer.is_served().await;
    assert_ne!(other, session_id);
    assert_eq!(customer.reopen(&session_id).await.unwrap().session_id, other);
    floor.close().await;
}
