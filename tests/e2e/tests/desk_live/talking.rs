//! What is said: stored once, numbered without gaps, heard by everybody it concerns, and read.

use std::collections::BTreeMap;
use std::time::Duration;

use client::chat::Event;
use client::documents::Stretch;
use client::frames::{ChatRole, Content, FrameErrorCode, SessionStatus};
use client::{ChatOptions, Role};
use e2e::shop::done;
use e2e::{SOON, eventually};
use futures_util::future::join_all;
use serde_json::json;

use crate::floor::{Floor, Person, frame_event, now};
use crate::line::{seqs, text};

/// Where nobody listens.
const NOWHERE: (&str, &str) = ("WS_ENDPOINT", "http://127.0.0.1:9/prod");
/// Often enough to see by it what a push has missed, without waiting for half a minute.
const QUICK: Duration = Duration::from_secs(2);

#[tokio::test]
async fn two_customers_and_an_agent_talk_on_all_their_devices() {
    let floor = Floor::alone().await;
    let agent = floor.agent("g1").await;
    let second_screen = floor.agent_at_the_door("g1").await;
    let (anna, ben) = (floor.customer("anna").await, floor.customer("ben").await);
    let tablet = floor.person(Role::User, &anna.id, |options| options.on_device("tablet")).await;
    let (of_anna, of_ben) = (anna.is_served().await, ben.is_served().await);
    assert_ne!(of_anna, of_ben);
    agent.sees(&of_ben, "a second session", |session| session.status == SessionStatus::Open).await;

    // Four speak at once, two of them as the same customer.
    let (one, two, three, four) = tokio::join!(
        anna.text(&of_anna, "where is my kettle?"),
        tablet.text(&of_anna, "hello?"),
        agent.text(&of_anna, "let me see"),
        ben.text(&of_ben, "你好 👋"),
    );
    for sent in [&one, &two, &three, &four] {
        assert!(!sent.as_ref().unwrap().duplicate);
    }
    second_screen.text(&of_anna, "it is on its way").await.unwrap();
    let head = floor.session(&of_anna).await.seq.get();
    assert_eq!(head, 5, "the agent joined, and four words");
    for who in [&anna, &tablet, &agent, &second_screen] {
        who.has(&of_anna, head).await;
    }
    let said = anna.said(&of_anna);
    for who in [&tablet, &agent, &second_screen] {
        assert_eq!(who.said(&of_anna), said);
    }
    assert_eq!(said[3], (ChatRole::Agent, "it is on its way".to_owned()));
    agent.has(&of_ben, 2).await;
    assert_eq!(agent.said(&of_ben), [(ChatRole::User, "你好 👋".to_owned())]);
    assert_eq!((ben.sessions(), tablet.sessions()), (vec![of_ben.clone()], vec![of_anna.clone()]));

    // Read: everybody knows, on both sides. (Nobody acknowledges their own words, and the last one is the agent's.)
    let last = one.unwrap().seq.max(two.unwrap().seq);
    for who in [&anna, &tablet] {
        who.wait_for("the agent to have read it", |machine| machine.seen_by_peer(&of_anna) >= last, SOON)
            .await
            .unwrap();
    }
    for who in [&agent, &second_screen] {
        who.wait_for("anna to have read it", |machine| machine.seen_by_peer(&of_anna) == head, SOON).await.unwrap();
    }

    // Typing is for the other side, all of it.
    let mut heard = [agent.events(), second_screen.events()];
    let mut own = tablet.events();
    anna.typing(&of_anna).await.unwrap();
    for events in &mut heard {
        loop {
            let happened = tokio::time::timeout(SOON, events.recv()).await.unwrap().unwrap();
            if let Event::Typing(typing) = happened.event {
                assert_eq!(
                    (typing.session_id.as_str(), typing.from.id.as_deref()),
                    (of_anna.as_str(), Some(anna.id.as_str()))
                );
                break;
            }
        }
    }
    while let Ok(happened) = own.try_recv() {
        assert!(!matches!(happened.event, Event::Typing(_)), "one's own typing");
    }
    floor.close().await;
}

/// [C4] [C5]
#[tokio::test]
async fn a_word_that_is_sent_again_is_stored_once() {
    let floor = Floor::beside().await;
    let id = floor.id("u1");
    let mut line = floor.live(Role::User, &id).await;
    let session_id = line.open().await.session_id;
    // Stored, and its `sent` lost: the socket is gone before it comes.
    line.say(text(&session_id, "once", "m1")).await;
    eventually("it is stored", SOON, async || (floor.session(&session_id).await.seq.get() == 1).then_some(())).await;
    drop(line);

    let mut again = floor.live(Role::User, &id).await;
    let sent = again.text(&session_id, "once", "m1").await;
    assert_eq!((sent.seq, sent.duplicate, sent.client_msg_id.as_deref()), (1, true, Some("m1")));
    let third = again.text(&session_id, "once", "m1").await;
    assert_eq!(third, sent);
    let other = again.refused(text(&session_id, "twice", "m1")).await;
    assert_eq!(other.code, FrameErrorCode::ClientMsgIdReused);
    assert_eq!((other.session_id, other.client_msg_id.as_deref()), (Some(session_id.clone()), Some("m1")));
    // Without a name nothing is a repetition, and none comes back.
    let unnamed = json!({"type": "text", "sessionId": session_id, "content": "once"});
    for seq in [2, 3] {
        let sent = again.sent(unnamed.clone()).await;
        assert_eq!((sent.seq, sent.duplicate, sent.client_msg_id), (seq, false, None));
    }
    floor.close().await;
}

/// [C6]
#[tokio::test]
async fn eight_who_speak_at_once_leave_no_gap_and_no_double() {
    const SENDERS: usize = 8;
    const WORDS: usize = 50;
    let floor = Floor::alone().await;
    let mut senders = vec![floor.agent("g1").await, floor.customer("u1").await];
    let session_id = senders[1].is_served().await;
    for nth in 2..SENDERS {
        let (role, id) = if nth % 2 == 0 { (Role::Agent, floor.id("g1")) } else { (Role::User, floor.id("u1")) };
        senders.push(floor.person(role, &id, |options| options).await);
    }
    let speak = async |nth: usize| {
        let mut seqs = Vec::new();
        for word in 0..WORDS {
            seqs.push(senders[nth].text(&session_id, &format!("{nth}: {word}")).await.unwrap().seq);
        }
        seqs
    };
    let sent = join_all((0..SENDERS).map(speak)).await;

    let head = 1 + (SENDERS * WORDS) as u64;
    assert_eq!(floor.session(&session_id).await.seq.get(), head);
    // What each was told is what everybody has: each word once, in its sender's order.
    let mut told: BTreeMap<u64, String> = BTreeMap::new();
    for (nth, seqs) in sent.iter().enumerate() {
        assert!(seqs.is_sorted_by(|one, next| one < next), "the order of sender {nth}: {seqs:?}");
        told.extend(seqs.iter().zip(0..).map(|(seq, word)| (*seq, format!("{nth}: {word}"))));
    }
    assert!(told.keys().copied().eq(2..=head), "{told:?}");
    let told: Vec<String> = told.into_values().collect();
    for sender in &senders {
        sender.has(&session_id, head).await;
        let said: Vec<String> = sender.said(&session_id).into_iter().map(|(_, word)| word).collect();
        assert_eq!(said, told);
    }
    floor.close().await;
}

/// [C7] [C8] [C9]
#[tokio::test]
async fn an_acknowledgement_only_moves_forwards_and_lowers_the_readers_own_unread() {
    let floor = Floor::alone().await;
    let agent = floor.person(Role::Agent, &floor.id("g1"), ChatOptions::reading_by_hand).await;
    agent.status(client::frames::AgentStatus::Online).await.unwrap();
    let id = floor.id("u1");
    let mut line = floor.live(Role::User, &id).await;
    let session_id = line.open().await.session_id;
    line.session("an agent", |session| session.status == SessionStatus::Open).await;
    for word in 2..=9 {
        agent.text(&session_id, &format!("word {word}")).await.unwrap();
    }
    let unread = async || {
        let page = done(floor.api(Role::User, &id).chat_sessions(None, None).await);
        (page.items[0].user_unread, page.items[0].admin_unread, page.items[0].user_seq)
    };
    assert_eq!(unread().await, (8, 0, 0));
    let read = async |line: &mut crate::line::Line, last_seq: u64| {
        line.say(json!({"type": "ack", "sessionId": session_id, "lastSeq": last_seq})).await;
        line.until("read", |frame| match frame {
            client::frames::ServerFrame::Read(read) => Some(read.last_seq),
            client::frames::ServerFrame::Error(error) => panic!("{error:?}"),
            _ => None,
        })
        .await
    };
    assert_eq!(read(&mut line, 9).await, 9);
    assert_eq!(read(&mut line, 7).await, 9);
    assert_eq!(unread().await, (0, 0, 9));
    agent.wait_for("the news", |machine| machine.seen_by_peer(&session_id) == 9, SOON).await.unwrap();
    let beyond = json!({"type": "ack", "sessionId": session_id, "lastSeq": 9_999});
    assert_eq!(line.code(beyond).await, FrameErrorCode::AckOutOfRange);
    assert_eq!(unread().await, (0, 0, 9));

    // Two words arrive while the ninth is acknowledged once more, and the customer's own is no business of theirs.
    let (_, ten, eleven) =
        tokio::join!(read(&mut line, 9), agent.text(&session_id, "ten"), agent.text(&session_id, "eleven"),);
    assert_eq!((ten.unwrap().seq, eleven.unwrap().seq), (10, 11));
    line.text(&session_id, "mine", "m1").await;
    assert_eq!(unread().await, (2, 1, 9));
    agent.has(&session_id, 12).await;
    agent.read(&session_id).await.unwrap();
    eventually("the agent has read it", SOON, async || (unread().await == (2, 0, 9)).then_some(())).await;
    floor.close().await;
}

/// [C1]
#[tokio::test]
async fn what_is_said_before_the_first_frame_comes_by_replay_once() {
    let floor = Floor::beside().await;
    let id = floor.id("u1");
    let mut phone = floor.live(Role::User, &id).await;
    let session_id = phone.open().await.session_id;
    let mut late = floor.line(Role::User, &id, |options| options).await;
    phone.text(&session_id, "one", "m1").await;
    assert_eq!(late.sync(&session_id, 0).await, 1);
    phone.text(&session_id, "two", "m2").await;
    late.until("the push", |frame| matches!(frame, client::frames::ServerFrame::Message(_)).then_some(())).await;
    late.pong().await;
    assert_eq!(seqs(&late.replayed()), [1]);
    // It may have been greeted before it spoke, on a slow machine: then the first one came as a push too.
    let pushed = seqs(&late.pushed());
    assert!(pushed == [2] || pushed == [1, 2], "{pushed:?}");
    floor.close().await;
}

/// [C2] [C3]
#[tokio::test]
async fn lost_pushes_are_noticed_by_the_next_one_or_by_the_heartbeat() {
    let floor = Floor::alone().await;
    let agent = floor.person(Role::Agent, &floor.id("g1"), |options| options.heartbeat(QUICK)).await;
    agent.status(client::frames::AgentStatus::Online).await.unwrap();
    let customer = floor.person(Role::User, &floor.id("u1"), |options| options.heartbeat(QUICK)).await;
    let session_id = customer.is_served().await;
    let deaf = floor.function(&[NOWHERE]).await;
    let connection_id = floor.connection_of(Role::Agent, &agent.id).await;
    let mut shown = customer.events();
    let lost = async |content: &str, name: &str| {
        let event = frame_event(&connection_id, &text(&session_id, content, name), now());
        assert_eq!(deaf.answer_within(deaf.send(&event), SOON).await["statusCode"], 200);
    };
    // Nobody is told of the second and the third; the fourth tells that they are missing.
    lost("two", "m2").await;
    lost("three", "m3").await;
    agent.text(&session_id, "four").await.unwrap();
    customer.has(&session_id, 4).await;
    // Nobody is told of the fifth, and nothing comes after it.
    lost("five", "m5").await;
    customer.has(&session_id, 5).await;
    agent.has(&session_id, 5).await;

    let said: Vec<String> = customer.said(&session_id).into_iter().map(|(_, word)| word).collect();
    assert_eq!(said, ["two", "three", "four", "five"]);
    assert_eq!(customer.said(&session_id), agent.said(&session_id));
    let mut in_order = Vec::new();
    while let Ok(happened) = shown.try_recv() {
        if let Event::Message(message) = happened.event {
            in_order.push(message.seq);
        }
    }
    assert_eq!(in_order, [2, 3, 4, 5], "shown once, in order");
    customer.wait_for("the acknowledgement", |machine| machine.acknowledged(&session_id) == 5, SOON).await.unwrap();
    floor.close().await;
}

/// [C22]
#[tokio::test]
async fn what_is_shown_is_what_was_sent_or_it_is_refused() {
    const FAMILY: &str = "👩‍👩‍👧‍👦";
    let floor = Floor::alone().await;
    let agent = floor.agent("g1").await;
    let customer = floor.customer("u1").await;
    let session_id = customer.is_served().await;
    let contents = [
        FAMILY.repeat(60),
        "e\u{301}\u{323}".repeat(100),
        " two\r\nlines\tand a tab ".to_owned(),
        "字".repeat(4_000),
        "\u{202e}right to left\u{202c} <b>&amp;</b> \\\"".to_owned(),
    ];
    for content in &contents {
        customer.text(&session_id, content).await.unwrap();
    }
    let head = 1 + contents.len() as u64;
    agent.has(&session_id, head).await;
    let pushed: Vec<String> = agent.said(&session_id).into_iter().map(|(_, word)| word).collect();
    assert_eq!(pushed, contents);
    let other: Person = floor.customer("u1").await;
    other.has(&session_id, head).await;
    assert_eq!(other.said(&session_id), agent.said(&session_id), "the replay");
    let history = done(agent.api.chat_messages(&session_id, Stretch::Newest, None).await);
    let read: Vec<_> = history.items.into_iter().filter_map(|item| match item.content {
        Content::Text(text) => Some(text),
        Content::Image(_) | Content::Card(_) | Content::System(_) => None,
    });
    assert_eq!(read.collect::<Vec<_>>(), contents);

    customer.text(&session_id, &FAMILY.repeat(60)).await.unwrap();
    let state = &done(customer.api.chat_sessions(None, None).await).items[0];
    let preview = state.last_message.clone().unwrap();
    let kept = preview.trim_end_matches('…');
    assert!(!kept.is_empty() && kept.len() % FAMILY.len() == 0 && FAMILY.repeat(60).starts_with(kept), "{preview}");

    let mut line = floor.live(Role::User, &customer.id).await;
    for content in ["", " \n ", "a\0b", "bell \u{7}", "\u{1b}[31mred", &"x".repeat(4_001)] {
        assert_eq!(line.code(text(&session_id, content, "bad")).await, FrameErrorCode::BadFrame, "{content:?}");
    }
    assert_eq!(floor.session(&session_id).await.seq.get(), head + 1);
    // The name was not used up.
    assert_eq!(line.text(&session_id, "good", "bad").await.seq, head + 2);
    floor.close().await;
}
