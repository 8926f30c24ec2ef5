//! The rules, case by case; then with everything that may happen to pushes at once; then on real sockets.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use proptest::prelude::*;

use super::machine::{
    ACK_EVERY, GAP_WAIT, HANDOVER_WITHIN, Input, LinkId, MAX_SYNC_SESSIONS, MAX_WISHES, OpId, Output, PONG_WITHIN,
    REPLAY_WITHIN, SILENCE, TYPING_EVERY, Wish,
};
use super::{Body, Event, Machine, Outcome};
use crate::frames::{
    AgentStatus, Author, ChatRole, ClientFrame, Content, ErrorFrame, FrameErrorCode, MessageFrame, ReadFrame,
    SentFrame, ServerFrame, SessionFrame, SessionStatus, StatusFrame,
};

const HEARTBEAT: Duration = Duration::from_secs(30);
const MOMENT: Duration = Duration::from_millis(1);

/// A machine with the clock in hand.
struct Bench {
    machine: Machine,
    now: Duration,
    links: u64,
    ops: u64,
}

/// What came out of one step, sorted.
#[derive(Debug, Default)]
struct Out {
    sent: Vec<(u64, ClientFrame)>,
    done: Vec<(u64, Outcome)>,
    events: Vec<Event>,
    connects: Vec<bool>,
    left: Vec<(u64, bool)>,
    renewed: Vec<u64>,
}

fn user() -> Author {
    Author { role: ChatRole::User, id: Some("u1".into()) }
}

fn agent() -> Author {
    Author { role: ChatRole::Agent, id: Some("g1".into()) }
}

impl Bench {
    fn of(me: Author) -> Self {
        Self { machine: Machine::new(me, "c".into(), HEARTBEAT, true), now: Duration::ZERO, links: 0, ops: 0 }
    }

    /// A customer who is online, with one session whose messages 1 to `have` are here and acknowledged.
    fn talking(me: Author, have: u64) -> Self {
        let mut bench = Self::of(me);
        bench.online();
        bench.pong(&[]);
        bench.hear(ServerFrame::Session(session(SessionStatus::Open, have)));
        bench.hear(replay(1..=have));
        bench.hear(ServerFrame::SyncEnd { session_id: "s1".into(), head: have });
        for by in [ChatRole::User, ChatRole::Agent] {
            bench.hear(ServerFrame::Read(ReadFrame { session_id: "s1".into(), by, last_seq: have }));
        }
        bench.wait(ACK_EVERY);
        bench
    }

    fn step(&mut self, input: Input) -> Out {
        let mut out = Out::default();
        for output in self.machine.step(self.now, input) {
            match output {
                Output::Send(LinkId(link), frame) => out.sent.push((link, frame)),
                Output::Renew(LinkId(link)) => out.renewed.push(link),
                Output::Connect { at_once } => out.connects.push(at_once),
                Output::Leave { link: LinkId(link), goodbye } => out.left.push((link, goodbye)),
                Output::Done(OpId(op), outcome) => out.done.push((op, outcome)),
                Output::Tell(event) => out.events.push(event),
            }
        }
        out
    }

    fn online(&mut self) -> Out {
        self.links += 1;
        self.step(Input::Opened(LinkId(self.links)))
    }

    fn hear(&mut self, frame: ServerFrame) -> Out {
        self.hear_on(self.links, frame)
    }

    fn hear_on(&mut self, link: u64, frame: ServerFrame) -> Out {
        self.step(Input::Heard(LinkId(link), frame))
    }

    fn pong(&mut self, heads: &[(&str, u64)]) -> Out {
        let heads = heads.iter().map(|(id, head)| ((*id).to_owned(), *head)).collect();
        self.hear(ServerFrame::Pong { heads })
    }

    fn wish(&mut self, wish: Wish) -> Out {
        self.ops += 1;
        self.step(Input::Wish(OpId(self.ops), wish))
    }

    fn text(&mut self, content: &str) -> Out {
        self.wish(Wish::Text { session_id: "s1".into(), content: content.into() })
    }

    fn wait(&mut self, time: Duration) -> Out {
        self.now += time;
        self.step(Input::Tick)
    }

    fn seqs(&self) -> Vec<u64> {
        self.machine.messages("s1").iter().map(|message| message.seq).collect()
    }
}

impl Out {
    /// The frames, without heartbeats and acknowledgements unless they are what is asked for.
    fn frames(&self) -> Vec<ClientFrame> {
        let rest = |frame: &&ClientFrame| !matches!(frame, ClientFrame::Ping | ClientFrame::Ack { .. });
        self.sent.iter().map(|(_, frame)| frame).filter(rest).cloned().collect()
    }

    fn acks(&self) -> Vec<u64> {
        let seq = |frame: &ClientFrame| match frame {
            ClientFrame::Ack { last_seq, .. } => Some(*last_seq),
            _ => None,
        };
        self.sent.iter().filter_map(|(_, frame)| seq(frame)).collect()
    }

    fn shown(&self) -> Vec<u64> {
        let seq = |event: &Event| match event {
            Event::Message(message) => Some(message.seq),
            _ => None,
        };
        self.events.iter().filter_map(seq).collect()
    }
}

fn message(seq: u64) -> MessageFrame {
    MessageFrame {
        id: format!("s1-{seq}"),
        session_id: "s1".into(),
        seq,
        // neither of the two whom the tests are about
        from: Author { role: ChatRole::Agent, id: Some("g2".into()) },
        content: Content::Text(format!("m{seq}")),
        at: "2026-06-01T02:00:00Z".parse().unwrap(),
        client_msg_id: None,
    }
}

fn from_customer(seq: u64) -> MessageFrame {
    MessageFrame { from: user(), ..message(seq) }
}

fn replay(seqs: std::ops::RangeInclusive<u64>) -> ServerFrame {
    ServerFrame::Messages { session_id: "s1".into(), items: seqs.map(message).collect() }
}

fn session(status: SessionStatus, head: u64) -> SessionFrame {
    let at = "2026-06-01T02:00:00Z".parse().unwrap();
    SessionFrame {
        session_id: "s1".into(),
        session_no: "CS20260601001".into(),
        status,
        user_id: "u1".into(),
        agent_id: (status == SessionStatus::Open).then(|| "g1".into()),
        head,
        user_seq: 0,
        admin_seq: 0,
        user_unread: 0,
        admin_unread: 0,
        queue_position: None,
        last_message: None,
        last_time: at,
        created_at: at,
        rating: None,
    }
}

fn sent(client_msg_id: &str, seq: u64) -> ServerFrame {
    let at = "2026-06-01T02:00:00Z".parse().unwrap();
    let client_msg_id = Some(client_msg_id.to_owned());
    ServerFrame::Sent(SentFrame { client_msg_id, session_id: "s1".into(), seq, at, duplicate: false })
}

fn error(code: FrameErrorCode, session_id: Option<&str>, client_msg_id: Option<&str>) -> ErrorFrame {
    let waits = matches!(code, FrameErrorCode::RetryLater | FrameErrorCode::RateLimited);
    ErrorFrame {
        code,
        message: "m".into(),
        session_id: session_id.map(str::to_owned),
        client_msg_id: client_msg_id.map(str::to_owned),
        retry_after_ms: waits.then_some(2_000),
    }
}

fn sync(sessions: &[(&str, u64)]) -> ClientFrame {
    ClientFrame::Sync { sessions: sessions.iter().map(|(id, seq)| ((*id).to_owned(), *seq)).collect() }
}

fn text_frame(content: &str, client_msg_id: &str) -> ClientFrame {
    text_in("s1", content, client_msg_id)
}

fn text_in(session_id: &str, content: &str, client_msg_id: &str) -> ClientFrame {
    let client_msg_id = Some(client_msg_id.to_owned());
    ClientFrame::Text { session_id: session_id.into(), content: content.into(), client_msg_id }
}

// ------------------------------------------------------------------------------------ hearing

/// [C2]
#[test]
fn a_gap_is_pulled_and_nothing_behind_it_is_shown_or_acknowledged_before() {
    let mut bench = Bench::talking(user(), 4);
    let live = bench.hear(ServerFrame::Message(message(6)));
    assert_eq!((live.shown(), live.frames(), live.acks()), (vec![], vec![], vec![]));
    assert_eq!(bench.wait(GAP_WAIT - MOMENT).frames(), []);
    let pull = ClientFrame::Pull { session_id: "s1".into(), from: 5, to: 5 };
    assert_eq!(bench.wait(MOMENT).frames(), std::slice::from_ref(&pull));
    // Not answered: asked again, not at once.
    assert_eq!(bench.wait(SILENCE - MOMENT).frames(), []);
    assert_eq!(bench.wait(MOMENT).frames(), [pull]);
    let filled = bench.hear(replay(5..=5));
    assert_eq!((filled.shown(), filled.acks()), (vec![5, 6], vec![6]));
    assert_eq!(bench.wait(SILENCE).frames(), [], "nothing is missing any more");
}

#[test]
fn of_two_gaps_the_first_is_pulled_first() {
    let mut bench = Bench::talking(user(), 1);
    bench.hear(ServerFrame::Message(message(4)));
    bench.hear(ServerFrame::Message(message(7)));
    let pull = |from, to| [ClientFrame::Pull { session_id: "s1".into(), from, to }];
    assert_eq!(bench.wait(GAP_WAIT).frames(), pull(2, 3));
    assert_eq!(bench.hear(replay(2..=3)).shown(), [2, 3, 4]);
    assert_eq!(bench.wait(GAP_WAIT).frames(), pull(5, 6));
}

#[test]
fn what_overtakes_is_waited_for() {
    let mut bench = Bench::talking(user(), 4);
    bench.hear(ServerFrame::Message(message(6)));
    bench.wait(GAP_WAIT / 2);
    assert_eq!(bench.hear(ServerFrame::Message(message(5))).shown(), [5, 6]);
    assert_eq!(bench.wait(GAP_WAIT).frames(), []);
}

/// [C3]
#[test]
fn the_loss_of_the_last_push_is_noticed_at_the_next_heartbeat() {
    let mut bench = Bench::talking(user(), 4);
    assert!(bench.wait(HEARTBEAT).sent.contains(&(1, ClientFrame::Ping)));
    assert_eq!(bench.pong(&[("s1", 5)]).frames(), [sync(&[("s1", 4)])]);
    assert_eq!(bench.hear(replay(5..=5)).shown(), [5]);
    bench.hear(ServerFrame::SyncEnd { session_id: "s1".into(), head: 5 });
    assert_eq!(bench.wait(SILENCE).frames(), []);
}

/// [C26]
#[test]
fn a_long_replay_is_asked_for_again_until_it_is_complete() {
    let mut bench = Bench::of(user());
    bench.online();
    assert_eq!(bench.pong(&[("s1", 5_000)]).frames(), [sync(&[("s1", 0)])]);
    let (mut have, mut syncs) = (0, 1);
    while have < 5_000 {
        let upto = (have + 900).min(5_000);
        let mut from = have + 1;
        while from <= upto {
            assert_eq!(bench.hear(replay(from..=(from + 99).min(upto))).frames(), []);
            // Slow, but not silent: nothing is pulled meanwhile.
            bench.now += REPLAY_WITHIN / 2;
            from += 100;
        }
        have = upto;
        let end = bench.hear(ServerFrame::SyncEnd { session_id: "s1".into(), head: 5_000 });
        if have < 5_000 {
            assert_eq!(end.frames(), [sync(&[("s1", have)])]);
            syncs += 1;
        } else {
            assert_eq!(end.frames(), []);
        }
    }
    assert_eq!((bench.seqs(), syncs), ((1..=5_000).collect::<Vec<_>>(), 6));
}

#[test]
fn a_replay_that_brings_nothing_is_not_asked_for_in_a_circle() {
    let mut bench = Bench::talking(user(), 4);
    bench.wait(HEARTBEAT);
    bench.pong(&[("s1", 6)]);
    let end = bench.hear(ServerFrame::SyncEnd { session_id: "s1".into(), head: 6 });
    assert_eq!(end.frames(), []);
    assert_eq!(bench.wait(GAP_WAIT).frames(), [ClientFrame::Pull { session_id: "s1".into(), from: 5, to: 6 }]);
}

#[test]
fn while_a_replay_is_under_way_nothing_is_pulled_unless_it_falls_silent() {
    let mut bench = Bench::talking(user(), 4);
    bench.wait(HEARTBEAT);
    bench.pong(&[("s1", 7)]);
    bench.hear(ServerFrame::Message(message(8)));
    assert_eq!(bench.wait(REPLAY_WITHIN - MOMENT).frames(), []);
    bench.wait(MOMENT);
    assert_eq!(bench.wait(GAP_WAIT).frames(), [ClientFrame::Pull { session_id: "s1".into(), from: 5, to: 7 }]);
}

#[test]
fn sessions_come_and_go_with_the_heads() {
    let mut bench = Bench::of(agent());
    // The first frame makes the connection live, though there is nothing to ask for.
    assert_eq!(bench.online().sent, [(1, sync(&[])), (1, ClientFrame::Ping)]);
    assert_eq!(bench.pong(&[("s1", 2), ("s2", 0)]).frames(), [sync(&[("s1", 0)])]);
    assert_eq!(bench.machine.sessions().collect::<Vec<_>>(), ["s1", "s2"]);
    // s1 is gone; s3 came to be after the question and cannot be in the answer.
    bench.wait(HEARTBEAT);
    bench.now += MOMENT;
    bench.hear(ServerFrame::Session(SessionFrame { session_id: "s3".into(), ..session(SessionStatus::Open, 0) }));
    let out = bench.pong(&[("s2", 0)]);
    assert_eq!(out.events, [Event::Dropped("s1".into())]);
    assert_eq!(bench.machine.sessions().collect::<Vec<_>>(), ["s2", "s3"]);
    // It comes back: only what is new is asked for.
    bench.hear(replay(1..=2));
    bench.wait(HEARTBEAT);
    assert_eq!(bench.pong(&[("s1", 3), ("s2", 0), ("s3", 0)]).frames(), [sync(&[("s1", 2)])]);
}

#[test]
fn an_agent_drops_what_is_not_open_with_them() {
    let others = [
        SessionFrame { agent_id: Some("g2".into()), ..session(SessionStatus::Open, 5) },
        session(SessionStatus::Waiting, 5),
        session(SessionStatus::Closed, 5),
    ];
    for other in others {
        let mut bench = Bench::talking(agent(), 4);
        let out = bench.hear(ServerFrame::Session(other.clone()));
        assert!(out.events.contains(&Event::Dropped("s1".into())), "{other:?}");
        assert_eq!(bench.seqs().len(), 4, "what was heard stays");
        // A customer has all of them.
        let mut bench = Bench::talking(user(), 4);
        bench.hear(ServerFrame::Session(other));
        assert_eq!(bench.machine.sessions().collect::<Vec<_>>(), ["s1"]);
    }
}

#[test]
fn a_state_that_was_overtaken_is_ignored() {
    let mut bench = Bench::talking(user(), 4);
    bench.hear(ServerFrame::Session(session(SessionStatus::Closed, 5)));
    assert_eq!(bench.hear(ServerFrame::Session(session(SessionStatus::Open, 4))).events, []);
    assert_eq!(bench.machine.session("s1").unwrap().status, SessionStatus::Closed);
}

#[test]
fn many_sessions_are_asked_for_in_several_frames() {
    let mut bench = Bench::of(agent());
    bench.online();
    let heads: BTreeMap<String, u64> = (0..70).map(|n| (format!("s{n}"), 1)).collect();
    let frames = bench.hear(ServerFrame::Pong { heads }).frames();
    let sizes: Vec<usize> = frames
        .iter()
        .map(|frame| match frame {
            ClientFrame::Sync { sessions } => sessions.len(),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(sizes, [MAX_SYNC_SESSIONS, MAX_SYNC_SESSIONS, 6]);
}

// ----------------------------------------------------------------------------- acknowledging

#[test]
fn acknowledgements_are_of_what_others_said_and_at_most_one_a_second() {
    let mut bench = Bench::talking(user(), 4);
    let mut acks = Vec::new();
    for seq in 5..=24 {
        acks.extend(bench.hear(ServerFrame::Message(message(seq))).acks());
        acks.extend(bench.wait(ACK_EVERY / 10).acks());
    }
    assert_eq!(acks, [5, 14, 24], "in two seconds");
    assert_eq!(bench.wait(ACK_EVERY).acks(), [0; 0]);
    // Not answered: said again. Answered: not any more.
    assert_eq!(bench.wait(SILENCE).acks(), [24]);
    bench.hear(ServerFrame::Read(ReadFrame { session_id: "s1".into(), by: ChatRole::User, last_seq: 24 }));
    assert_eq!(bench.wait(SILENCE).acks(), [0; 0]);
    // One's own words alone are nothing to acknowledge.
    bench.text("hi");
    bench.hear(sent("c-1", 25));
    assert_eq!((bench.wait(SILENCE).acks(), bench.machine.unread("s1")), (vec![], 0));
}

#[test]
fn who_reads_by_hand_acknowledges_what_was_read_then() {
    let mut bench = Bench::talking(user(), 4);
    bench.machine = Machine::new(user(), "c".into(), HEARTBEAT, false);
    bench.online();
    bench.pong(&[("s1", 4)]);
    bench.hear(replay(1..=4));
    assert_eq!((bench.wait(SILENCE).acks(), bench.machine.unread("s1")), (vec![], 4));
    assert_eq!(bench.step(Input::Read("s1".into())).acks(), [4]);
    bench.hear(ServerFrame::Message(message(5)));
    bench.hear(ServerFrame::Read(ReadFrame { session_id: "s1".into(), by: ChatRole::User, last_seq: 4 }));
    assert_eq!((bench.wait(SILENCE).acks(), bench.machine.unread("s1")), (vec![], 1));
}

#[test]
fn typing_is_told_at_most_once_in_three_seconds() {
    let mut bench = Bench::talking(user(), 1);
    let mut told = 0;
    for _ in 0..60 {
        told += bench.step(Input::Typing("s1".into())).frames().len();
        bench.now += TYPING_EVERY / 30;
    }
    assert_eq!(told, 2, "in six seconds");
}

// ------------------------------------------------------------------------------------ speaking

#[test]
fn one_message_is_under_way_and_sent_counts_as_its_arrival() {
    let mut bench = Bench::talking(user(), 4);
    assert_eq!(bench.text("one").frames(), [text_frame("one", "c-1")]);
    assert_eq!(bench.text("two").frames(), []);
    // Another session does not wait.
    let other = bench.wish(Wish::Text { session_id: "s2".into(), content: "x".into() });
    assert_eq!(other.frames().len(), 1);
    let out = bench.hear(sent("c-1", 5));
    assert!(matches!(out.done[..], [(1, Outcome::Sent(ref sent))] if sent.seq == 5), "{out:?}");
    assert_eq!((out.shown(), out.frames()), (vec![5], vec![text_frame("two", "c-3")]));
    let shown = bench.machine.messages("s1").last().unwrap();
    assert_eq!((&shown.body, &shown.from), (&Body::Text("one".into()), &user()));
    // A message of the other side before one's own: both in their place.
    assert_eq!(bench.hear(sent("c-3", 7)).shown(), [0; 0]);
    assert_eq!(bench.hear(ServerFrame::Message(message(6))).shown(), [6, 7]);
}

/// [C4], the client's side.
#[test]
fn silence_and_a_lost_connection_repeat_the_same_frame_before_the_next() {
    let mut bench = Bench::talking(user(), 4);
    bench.text("one");
    bench.text("two");
    assert_eq!(bench.wait(SILENCE - MOMENT).frames(), []);
    assert_eq!(bench.wait(MOMENT).frames(), [text_frame("one", "c-1")]);
    // The connection breaks; on the next one first the sync, then the same again, and only then the next.
    let cut = bench.step(Input::Closed(LinkId(1)));
    assert_eq!((cut.events, cut.connects), (vec![Event::Offline], vec![false]));
    bench.now += Duration::from_secs(31);
    assert_eq!(bench.online().frames(), [sync(&[("s1", 4)]), text_frame("one", "c-1")]);
    let again = ServerFrame::Sent(SentFrame {
        client_msg_id: Some("c-1".into()),
        session_id: "s1".into(),
        seq: 5,
        at: "2026-06-01T02:00:00Z".parse().unwrap(),
        duplicate: true,
    });
    let out = bench.hear(again);
    assert!(matches!(out.done[..], [(1, Outcome::Sent(ref sent))] if sent.duplicate && sent.seq == 5), "{out:?}");
    assert_eq!(out.frames(), [text_frame("two", "c-2")]);
}

#[test]
fn ones_own_words_in_a_replay_are_as_good_as_sent() {
    let mut bench = Bench::talking(user(), 4);
    bench.text("one");
    bench.step(Input::Closed(LinkId(1)));
    bench.online();
    let own = MessageFrame { client_msg_id: Some("c-1".into()), ..from_customer(5) };
    let out = bench.hear(ServerFrame::Messages { session_id: "s1".into(), items: vec![own] });
    assert!(matches!(out.done[..], [(1, Outcome::Sent(ref sent))] if sent.seq == 5), "{out:?}");
    // The answer to the repetition changes nothing.
    let late = bench.hear(sent("c-1", 5));
    assert_eq!((late.shown(), late.done, bench.seqs()), (vec![], vec![], vec![1, 2, 3, 4, 5]));
}

#[test]
fn after_retry_later_the_same_goes_first() {
    let mut bench = Bench::talking(user(), 4);
    bench.text("one");
    bench.text("two");
    let refused = bench.hear(ServerFrame::Error(error(FrameErrorCode::RetryLater, Some("s1"), Some("c-1"))));
    assert_eq!((refused.done.len(), refused.frames()), (0, vec![]));
    assert_eq!(bench.wait(Duration::from_millis(1_999)).frames(), []);
    // What was asked for, and a random bit.
    assert_eq!(bench.wait(Duration::from_millis(251)).frames(), [text_frame("one", "c-1")]);
    assert_eq!(bench.hear(sent("c-1", 5)).frames(), [text_frame("two", "c-2")]);
}

#[test]
fn rate_limited_means_nothing_at_all_for_that_long() {
    let mut bench = Bench::talking(user(), 4);
    bench.text("one");
    bench.hear(ServerFrame::Error(error(FrameErrorCode::RateLimited, Some("s1"), Some("c-1"))));
    bench.hear(ServerFrame::Message(message(5)));
    bench.hear(ServerFrame::Message(message(7)));
    bench.wish(Wish::Text { session_id: "s2".into(), content: "x".into() });
    assert!(bench.wait(Duration::from_millis(1_999)).sent.is_empty());
    let frames = bench.wait(Duration::from_millis(300)).frames();
    assert_eq!(frames, [text_frame("one", "c-1"), text_in("s2", "x", "c-2")]);
    assert_eq!(bench.wait(GAP_WAIT).frames(), [ClientFrame::Pull { session_id: "s1".into(), from: 6, to: 6 }]);
}

#[test]
fn an_error_that_stands_makes_way_for_the_next() {
    for code in [
        FrameErrorCode::SessionClosed,
        FrameErrorCode::NotFound,
        FrameErrorCode::ClientMsgIdReused,
        FrameErrorCode::BadFrame,
        FrameErrorCode::TooLarge,
    ] {
        let mut bench = Bench::talking(user(), 4);
        bench.text("one");
        bench.text("two");
        // One that could not be read is answered without names.
        let readable = !matches!(code, FrameErrorCode::BadFrame | FrameErrorCode::TooLarge);
        let refusal = error(code, readable.then_some("s1"), readable.then_some("c-1"));
        let out = bench.hear(ServerFrame::Error(refusal.clone()));
        assert_eq!(out.done, [(1, Outcome::Refused(refusal))]);
        assert_eq!(out.frames(), [text_frame("two", "c-2")]);
    }
}

#[test]
fn close_follows_the_last_text_and_is_answered_by_the_state() {
    let mut bench = Bench::talking(user(), 4);
    bench.text("bye");
    assert_eq!(bench.wish(Wish::Close { session_id: "s1".into() }).frames(), []);
    // Closed by the other side just now: that is no answer to what was not asked yet.
    assert_eq!(bench.hear(ServerFrame::Session(session(SessionStatus::Open, 4))).done, []);
    assert_eq!(bench.hear(sent("c-1", 5)).frames(), [ClientFrame::Close { session_id: "s1".into() }]);
    let closed = session(SessionStatus::Closed, 6);
    let out = bench.hear(ServerFrame::Session(closed.clone()));
    assert_eq!(out.done, [(2, Outcome::Session(Box::new(closed)))]);
}

#[test]
fn an_agent_who_asks_twice_and_has_it_no_more_has_what_they_wanted() {
    for wish in
        [Wish::Close { session_id: "s1".into() }, Wish::Transfer { session_id: "s1".into(), to: Some("g2".into()) }]
    {
        let refusal = || ServerFrame::Error(error(FrameErrorCode::NotFound, Some("s1"), None));
        let mut bench = Bench::talking(agent(), 4);
        bench.wish(wish.clone());
        assert!(matches!(bench.hear(refusal()).done[..], [(1, Outcome::Refused(_))]), "asked once");
        let mut bench = Bench::talking(agent(), 4);
        bench.wish(wish);
        assert_eq!(bench.wait(SILENCE).frames().len(), 1);
        assert_eq!(bench.hear(refusal()).done, [(1, Outcome::Gone)]);
    }
}

#[test]
fn a_transfer_is_answered_by_another_agent_or_by_the_queue() {
    for answer in [
        SessionFrame { agent_id: Some("g2".into()), ..session(SessionStatus::Open, 5) },
        SessionFrame { queue_position: Some(1), ..session(SessionStatus::Waiting, 5) },
    ] {
        let mut bench = Bench::talking(agent(), 4);
        bench.wish(Wish::Transfer { session_id: "s1".into(), to: None });
        let out = bench.hear(ServerFrame::Session(answer.clone()));
        assert_eq!(out.done, [(1, Outcome::Session(Box::new(answer)))]);
    }
    let mut bench = Bench::talking(agent(), 4);
    bench.wish(Wish::Transfer { session_id: "s1".into(), to: Some("g9".into()) });
    let busy = error(FrameErrorCode::AgentUnavailable, Some("s1"), None);
    assert_eq!(bench.hear(ServerFrame::Error(busy.clone())).done, [(1, Outcome::Refused(busy))]);
    assert_eq!(bench.machine.sessions().collect::<Vec<_>>(), ["s1"]);
}

#[test]
fn open_and_status_are_answered_by_their_own_frames() {
    let mut bench = Bench::of(user());
    bench.online();
    assert_eq!(bench.wish(Wish::Open { session_id: None }).frames(), [ClientFrame::Open { session_id: None }]);
    // That of the session that was closed last is none.
    let old = SessionFrame { session_id: "s0".into(), ..session(SessionStatus::Closed, 9) };
    assert_eq!(bench.hear(ServerFrame::Session(old)).done, []);
    let waiting = SessionFrame { queue_position: Some(3), ..session(SessionStatus::Waiting, 0) };
    let out = bench.hear(ServerFrame::Session(waiting.clone()));
    assert_eq!(out.done, [(1, Outcome::Session(Box::new(waiting)))]);

    let mut bench = Bench::of(agent());
    bench.online();
    bench.wish(Wish::Status(AgentStatus::Away));
    assert_eq!(bench.wait(SILENCE).frames(), [ClientFrame::Status { status: AgentStatus::Away }], "asked again");
    let echo = StatusFrame { status: AgentStatus::Away, at: "2026-06-01T02:00:00Z".parse().unwrap() };
    assert_eq!(bench.hear(ServerFrame::Status(echo.clone())).done, [(1, Outcome::Status(echo))]);
    bench.wish(Wish::Open { session_id: None });
    let refusal = error(FrameErrorCode::NotFound, None, None);
    assert_eq!(bench.hear(ServerFrame::Error(refusal.clone())).done, [(2, Outcome::Refused(refusal))]);
}

#[test]
fn somebody_elses_session_is_refused_and_followed_by_nothing() {
    let mut bench = Bench::of(user());
    bench.online();
    bench.wish(Wish::Text { session_id: "x".into(), content: "hi".into() });
    let refusal = error(FrameErrorCode::NotFound, Some("x"), Some("c-1"));
    let out = bench.hear(ServerFrame::Error(refusal.clone()));
    assert_eq!(out.done, [(1, Outcome::Refused(refusal))]);
    assert_eq!((bench.machine.sessions().count(), bench.wait(SILENCE).frames()), (0, vec![]));
}

#[test]
fn an_image_of_ones_own_gets_its_address_when_it_is_delivered() {
    let mut bench = Bench::talking(user(), 1);
    bench.wish(Wish::Image { session_id: "s1".into(), key: "s1/a.png".into() });
    bench.hear(sent("c-1", 2));
    let body = |bench: &Bench| bench.machine.messages("s1")[1].body.clone();
    assert_eq!(body(&bench), Body::Image { key: "s1/a.png".into(), url: None });
    let image = crate::frames::Image {
        key: "s1/a.png".into(),
        url: Some("https://images/s1/a.png".into()),
        content_type: "image/png".into(),
    };
    let whole = MessageFrame { content: Content::Image(image), ..from_customer(2) };
    assert_eq!(bench.hear(ServerFrame::Message(whole)).shown(), [0; 0]);
    assert_eq!(body(&bench), Body::Image { key: "s1/a.png".into(), url: Some("https://images/s1/a.png".into()) });
}

#[test]
fn what_waits_is_bounded() {
    let mut bench = Bench::of(user());
    for _ in 0..MAX_WISHES {
        assert_eq!(bench.text("x").done, []);
    }
    assert_eq!(bench.text("x").done, [(MAX_WISHES as u64 + 1, Outcome::TooMany)]);
}

// ---------------------------------------------------------------------------------- connections

#[test]
fn a_connection_that_does_not_answer_is_left_and_replaced() {
    let mut bench = Bench::talking(user(), 1);
    bench.wait(HEARTBEAT);
    assert_eq!(bench.wait(PONG_WITHIN - MOMENT).left, []);
    let out = bench.wait(MOMENT);
    assert_eq!((out.left, out.connects, out.events), (vec![(1, false)], vec![false], vec![Event::Offline]));
}

/// [C25], the client's side.
#[test]
fn rotate_makes_before_it_breaks_and_shows_nothing_twice() {
    let mut bench = Bench::talking(user(), 4);
    bench.text("one");
    assert_eq!(bench.hear(ServerFrame::Rotate {}).connects, [true]);
    assert_eq!(bench.hear(ServerFrame::Rotate {}).connects, [false; 0], "it is on its way");
    let opened = bench.online();
    assert_eq!(opened.sent, [(2, sync(&[("s1", 4)])), (2, ClientFrame::Ping)], "not yet the text: it is awaited on 1");
    // Both hear everything.
    let mut shown = Vec::new();
    for link in [1, 2, 2, 1] {
        shown.extend(bench.hear_on(link, ServerFrame::Message(message(6))).shown());
        shown.extend(bench.hear_on(link, ServerFrame::Message(message(5))).shown());
    }
    assert_eq!(shown, [5, 6]);
    // An end on the old connection is none of the new one's.
    bench.hear_on(1, ServerFrame::SyncEnd { session_id: "s1".into(), head: 6 });
    bench.pong(&[("s1", 6)]);
    assert_eq!(bench.wait(MOMENT).left, []);
    bench.hear(ServerFrame::SyncEnd { session_id: "s1".into(), head: 6 });
    assert_eq!(bench.wait(MOMENT).left, [], "the text is awaited on it");
    let out = bench.hear_on(1, sent("c-1", 7));
    assert_eq!((out.shown(), out.left), (vec![7], vec![(1, true)]));
    assert!(out.events.contains(&Event::Rotated) && !out.events.contains(&Event::Offline));
    assert_eq!(bench.text("two").sent, [(2, text_frame("two", "c-2"))]);
    assert_eq!(bench.seqs(), (1..=7).collect::<Vec<_>>());
}

#[test]
fn an_old_connection_that_breaks_first_leaves_its_text_to_the_new_one() {
    let mut bench = Bench::talking(user(), 4);
    bench.text("one");
    bench.hear(ServerFrame::Rotate {});
    bench.online();
    let out = bench.step(Input::Closed(LinkId(1)));
    assert_eq!((out.frames(), out.connects), (vec![text_frame("one", "c-1")], vec![]));
}

#[test]
fn a_new_connection_that_does_not_get_ready_takes_over_all_the_same() {
    let mut bench = Bench::talking(user(), 4);
    bench.text("one");
    bench.hear(ServerFrame::Rotate {});
    bench.online();
    let out = bench.wait(SILENCE);
    assert_eq!((out.frames(), out.left), (vec![text_frame("one", "c-1")], vec![]), "over the new one");
    assert_eq!(bench.wait(HANDOVER_WITHIN - SILENCE - MOMENT).left, []);
    assert_eq!(bench.wait(MOMENT).left, [(1, true)]);
    // And one that breaks at once is tried again while the old one serves.
    let mut bench = Bench::talking(user(), 4);
    bench.hear(ServerFrame::Rotate {});
    bench.online();
    let out = bench.step(Input::Closed(LinkId(2)));
    assert_eq!((out.connects, out.events), (vec![false], vec![]));
}

/// [C23], the client's side.
#[test]
fn an_expired_token_is_renewed_in_place_and_the_frame_repeated() {
    let mut bench = Bench::talking(user(), 4);
    bench.text("one");
    let expired = || ServerFrame::Error(error(FrameErrorCode::AuthExpired, None, None));
    assert_eq!(bench.hear(expired()).renewed, [1]);
    assert_eq!(bench.hear(expired()).renewed, [0; 0], "one at a time");
    assert_eq!(bench.text("two").frames(), [], "nothing is said meanwhile");
    let out = bench.pong(&[("s1", 5)]);
    assert_eq!(
        out.frames(),
        [sync(&[("s1", 4)]), text_frame("one", "c-1")],
        "what was withheld, and what was not done"
    );
    // A token that is no good either.
    bench.hear(expired());
    let out = bench.wait(SILENCE);
    assert_eq!((out.left, out.connects), (vec![(1, false)], vec![false]));
    assert!(out.events.contains(&Event::SignedOut));
}

#[test]
fn who_is_away_stays_away_and_keeps_what_was_wished() {
    let mut bench = Bench::talking(user(), 4);
    let out = bench.step(Input::Away);
    assert_eq!((out.left, out.connects), (vec![(1, false)], vec![]));
    assert_eq!(bench.text("one").frames(), []);
    assert_eq!(bench.wait(HEARTBEAT).connects, [false; 0]);
    assert_eq!(bench.step(Input::Back).connects, [false]);
    assert_eq!(bench.online().frames(), [sync(&[("s1", 4)]), text_frame("one", "c-1")]);
}

// ------------------------------------------------------------------------ all that may happen

/// What happens to pushes, and what the client does meanwhile.
#[derive(Debug, Clone)]
enum Act {
    /// The push of this message comes, on whatever connection there is.
    Push(u64),
    /// The oldest question that is open is answered, or its answer is lost.
    Answer(bool),
    /// So many tenths of a second pass.
    Pass(u64),
    Cut,
    Reconnect,
    Rotate,
    Say,
}

fn acts(head: u64) -> impl Strategy<Value = Vec<Act>> {
    let act = prop_oneof![
        8 => (1..=head).prop_map(Act::Push),
        3 => any::<bool>().prop_map(Act::Answer),
        3 => (1_u64..80).prop_map(Act::Pass),
        1 => Just(Act::Cut),
        2 => Just(Act::Reconnect),
        1 => Just(Act::Rotate),
        2 => Just(Act::Say),
    ];
    prop::collection::vec(act, 0..120)
}

/// A server of one session that knows all messages and answers faithfully, when it answers.
struct Played {
    bench: Bench,
    stored: Vec<MessageFrame>,
    /// Open connections, and whether one more is wanted.
    open: BTreeSet<u64>,
    wanted: bool,
    asked: Vec<(u64, ClientFrame)>,
    shown: Vec<u64>,
    acks: Vec<u64>,
    done: usize,
}

impl Played {
    fn note(&mut self, out: Out) {
        self.shown.extend(out.shown());
        self.acks.extend(out.acks());
        self.done += out.done.len();
        self.wanted |= !out.connects.is_empty();
        for (link, _) in &out.left {
            self.open.remove(link);
        }
        self.asked.extend(out.sent);
    }

    fn connect(&mut self) {
        if self.wanted {
            self.wanted = false;
            let out = self.bench.online();
            self.open.insert(self.bench.links);
            self.note(out);
        }
    }

    fn head(&self) -> u64 {
        self.stored.len() as u64
    }

    /// At most seven messages for one question, so that a replay has a bound here too.
    fn between(&self, from: u64, to: u64) -> Vec<MessageFrame> {
        self.stored.iter().filter(|message| (from..=to).contains(&message.seq)).take(7).cloned().collect()
    }

    fn answer(&mut self, arrives: bool) {
        if self.asked.is_empty() {
            return;
        }
        let (link, frame) = self.asked.remove(0);
        let session_id = "s1".to_owned();
        let head = self.head();
        let answers = match frame {
            ClientFrame::Sync { sessions } => match sessions.get("s1") {
                Some(had) => vec![
                    ServerFrame::Messages { session_id: session_id.clone(), items: self.between(had + 1, head) },
                    ServerFrame::SyncEnd { session_id, head },
                ],
                None => vec![],
            },
            ClientFrame::Pull { from, to, .. } => {
                vec![ServerFrame::Messages { session_id, items: self.between(from, to) }]
            }
            ClientFrame::Ping => vec![ServerFrame::Pong { heads: BTreeMap::from([(session_id, head)]) }],
            ClientFrame::Ack { last_seq, .. } => {
                assert!(last_seq <= head, "acknowledged {last_seq} of {head}");
                vec![ServerFrame::Read(ReadFrame { session_id, by: ChatRole::User, last_seq })]
            }
            ClientFrame::Text { client_msg_id, content, .. } => {
                let known = self.stored.iter().find(|message| message.client_msg_id == client_msg_id);
                let seq = known.map_or(head + 1, |message| message.seq);
                if known.is_none() {
                    let content = Content::Text(content);
                    let client_msg_id = client_msg_id.clone();
                    self.stored.push(MessageFrame { content, client_msg_id, ..from_customer(seq) });
                }
                vec![sent(client_msg_id.as_deref().unwrap(), seq)]
            }
            other => panic!("{other:?}"),
        };
        if arrives && self.open.contains(&link) {
            for answer in answers {
                let out = self.bench.hear_on(link, answer);
                self.note(out);
            }
        }
    }

    fn act(&mut self, act: &Act) {
        match *act {
            Act::Push(seq) => {
                if let (Some(link), Some(message)) =
                    (self.open.first().copied(), self.stored.get(usize::try_from(seq - 1).unwrap()).cloned())
                {
                    let out = self.bench.hear_on(link, ServerFrame::Message(message));
                    self.note(out);
                }
            }
            Act::Answer(arrives) => self.answer(arrives),
            Act::Pass(tenths) => {
                let out = self.bench.wait(Duration::from_millis(100 * tenths));
                self.note(out);
            }
            Act::Cut => {
                if let Some(link) = self.open.pop_last() {
                    let out = self.bench.step(Input::Closed(LinkId(link)));
                    self.note(out);
                }
            }
            Act::Reconnect => self.connect(),
            Act::Rotate => {
                if let Some(link) = self.open.last().copied() {
                    let out = self.bench.hear_on(link, ServerFrame::Rotate {});
                    self.note(out);
                }
            }
            Act::Say => {
                let out = self.bench.text("mine");
                self.note(out);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    /// Pushes lost, doubled and out of order, answers lost, connections cut and rotated: in the end everything is there,
    /// each message was shown once, in order, and each of one's own is stored once, in the order it was said.
    #[test]
    fn whatever_happens_every_message_is_shown_once_and_in_order(acts in acts(30)) {
        let mut played = Played {
            bench: Bench::of(user()),
            stored: (1..=30).map(message).collect(),
            open: BTreeSet::new(),
            wanted: true,
            asked: Vec::new(),
            shown: Vec::new(),
            acks: Vec::new(),
            done: 0,
        };
        played.connect();
        for act in &acts {
            played.act(act);
            let have = played.bench.machine.have("s1");
            prop_assert!(played.acks.iter().all(|ack| *ack <= have), "{:?} acknowledged of {have}", played.acks);
        }
        // The weather clears.
        for _ in 0..400 {
            played.connect();
            while !played.asked.is_empty() {
                played.answer(true);
            }
            let complete = played.bench.machine.have("s1") == played.head();
            if complete && played.bench.machine.is_settled() {
                break;
            }
            played.act(&Act::Pass(10));
        }
        let head = played.head();
        let all: Vec<u64> = (1..=head).collect();
        prop_assert_eq!(&played.bench.seqs(), &all);
        prop_assert_eq!(&played.shown, &all);
        let said = acts.iter().filter(|act| matches!(act, Act::Say)).count();
        prop_assert_eq!((played.done, head), (said, 30 + said as u64));
        let mine: Vec<u64> = played.stored.iter()
            .filter_map(|message| message.client_msg_id.as_deref()?.strip_prefix("c-")?.parse().ok())
            .collect();
        prop_assert!(mine.is_sorted(), "{:?}", mine);
    }
}

// ---------------------------------------------------------------------------- on real sockets

mod sockets {
    use std::sync::{Arc, Mutex};
    use std::time::Duration;

    use futures_util::{SinkExt, StreamExt};
    use serde_json::{Value, json};
    use tokio::net::{TcpListener, TcpStream};
    use tokio::sync::mpsc;
    use tokio_tungstenite::accept_async;
    use tokio_tungstenite::tungstenite::Message as Frame;

    use crate::chat::{Body, ChatClient, ChatOptions, Event};
    use crate::{ClientError, Role, Token};

    const WITHIN: Duration = Duration::from_secs(10);
    const AT: &str = "2026-06-01T02:00:00Z";

    /// A server of one session, which answers as the contract says.
    #[derive(Default)]
    struct House {
        stored: Vec<Value>,
        connections: Vec<mpsc::UnboundedSender<Frame>>,
        /// What was said on each connection.
        heard: Vec<Vec<String>>,
        /// Connections that were left with a goodbye.
        goodbyes: Vec<usize>,
        /// The next frames are answered so.
        refuse: Vec<&'static str>,
    }

    type Shared = Arc<Mutex<House>>;

    fn item(seq: usize, role: &str, content: &str) -> Value {
        let id = if role == "user" { "u1" } else { "g1" };
        json!({"id": format!("s1-{seq}"), "sessionId": "s1", "seq": seq, "from": {"role": role, "id": id},
            "kind": "text", "content": content, "at": AT})
    }

    fn with_type(kind: &str, mut frame: Value) -> Value {
        frame["type"] = kind.into();
        frame
    }

    impl House {
        fn head(&self) -> usize {
            self.stored.len()
        }

        fn session(&self) -> Value {
            json!({"type": "session", "sessionId": "s1", "sessionNo": "CS20260601001", "status": "open", "userId": "u1",
                "agentId": "g1", "head": self.head(), "userSeq": 0, "adminSeq": 0, "userUnread": 0, "adminUnread": 0,
                "lastTime": AT, "createdAt": AT})
        }

        fn say(&mut self, role: &str, content: &str) -> Value {
            let message = item(self.head() + 1, role, content);
            self.stored.push(message.clone());
            with_type("message", message)
        }

        fn answers(&mut self, frame: &Value) -> Vec<Value> {
            if !self.refuse.is_empty() {
                let code = self.refuse.remove(0);
                return vec![json!({"type": "error", "code": code, "message": "m"})];
            }
            match frame["type"].as_str().unwrap() {
                "ping" | "auth" => {
                    let heads = if self.head() == 0 { json!({}) } else { json!({"s1": self.head()}) };
                    vec![json!({"type": "pong", "heads": heads})]
                }
                "open" => {
                    if self.head() == 0 {
                        self.say("agent", "welcome");
                    }
                    vec![self.session()]
                }
                "sync" => match frame["sessions"]["s1"].as_u64() {
                    Some(had) => {
                        let items = &self.stored[usize::try_from(had).unwrap()..];
                        vec![
                            self.session(),
                            json!({"type": "messages", "sessionId": "s1", "items": items}),
                            json!({"type": "sync_end", "sessionId": "s1", "head": self.head()}),
                        ]
                    }
                    None => vec![],
                },
                "text" => {
                    self.say("user", frame["content"].as_str().unwrap());
                    let name = &frame["clientMsgId"];
                    vec![json!({"type": "sent", "clientMsgId": name, "sessionId": "s1", "seq": self.head(), "at": AT})]
                }
                "ack" => vec![json!({"type": "read", "sessionId": "s1", "by": "user", "lastSeq": frame["lastSeq"]})],
                _ => vec![],
            }
        }
    }

    async fn serve() -> (String, Shared) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("ws://{}/prod", listener.local_addr().unwrap());
        let house = Shared::default();
        let shared = Arc::clone(&house);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(attend(stream, Arc::clone(&shared)));
            }
        });
        (url, house)
    }

    async fn attend(stream: TcpStream, house: Shared) {
        let mut stream = accept_async(stream).await.unwrap();
        let (push, mut pushed) = mpsc::unbounded_channel();
        let nth = {
            let mut house = house.lock().unwrap();
            house.connections.push(push);
            house.heard.push(Vec::new());
            house.heard.len() - 1
        };
        loop {
            tokio::select! {
                Some(frame) = pushed.recv() => stream.send(frame).await.unwrap(),
                heard = stream.next() => match heard {
                    Some(Ok(Frame::Text(text))) => {
                        let answers = {
                            let mut house = house.lock().unwrap();
                            house.heard[nth].push(text.to_string());
                            house.answers(&serde_json::from_str(&text).unwrap())
                        };
                        for answer in answers {
                            stream.send(Frame::text(answer.to_string())).await.unwrap();
                        }
                    }
                    Some(Ok(Frame::Close(_))) => house.lock().unwrap().goodbyes.push(nth),
                    Some(Ok(_)) => {}
                    Some(Err(_)) | None => return,
                },
            }
        }
    }

    fn push(house: &Shared, nth: usize, frame: &Value) {
        house.lock().unwrap().connections[nth].send(Frame::text(frame.to_string())).unwrap();
    }

    async fn customer(url: &str) -> ChatClient {
        let named = Arc::new(Mutex::new(0));
        let tokens = Arc::new(move || {
            let mut nth = named.lock().unwrap();
            *nth += 1;
            Ok(Token::from_text(format!("t{nth}")))
        });
        ChatClient::connect(ChatOptions::with_tokens(url.to_owned(), Role::User, "u1", tokens)).await.unwrap()
    }

    /// Online, welcomed, and with nothing more to say of itself before the next heartbeat.
    async fn talking(url: &str) -> ChatClient {
        let client = customer(url).await;
        client.open().await.unwrap();
        client.settled(WITHIN).await.unwrap();
        client.wait_for("the acknowledgement", |machine| machine.acknowledged("s1") == 1, WITHIN).await.unwrap();
        client
    }

    fn said(client: &ChatClient) -> Vec<String> {
        let messages = client.messages("s1");
        assert!(messages.iter().zip(1..).all(|(message, seq)| message.seq == seq), "{messages:?}");
        let text = |body| match body {
            Body::Text(text) => text,
            other => panic!("{other:?}"),
        };
        messages.into_iter().map(|message| text(message.body)).collect()
    }

    #[tokio::test]
    async fn a_customer_talks_is_cut_off_and_misses_nothing() {
        let (url, house) = serve().await;
        let client = customer(&url).await;
        let mut events = client.events();
        let session = client.open().await.unwrap();
        assert_eq!(session.session_id, "s1");
        let (one, two) = tokio::join!(client.text("s1", "one"), client.text("s1", "two"));
        assert_eq!((one.unwrap().seq, two.unwrap().seq), (2, 3));
        client.settled(WITHIN).await.unwrap();
        assert_eq!(said(&client), ["welcome", "one", "two"]);

        client.drop_connection().await.unwrap();
        house.lock().unwrap().say("agent", "are you there?");
        client.reconnect().await.unwrap();
        assert_eq!(said(&client), ["welcome", "one", "two", "are you there?"]);
        client.wait_for("the acknowledgement", |machine| machine.acknowledged("s1") == 4, WITHIN).await.unwrap();
        assert_eq!(client.unread("s1"), 0);
        client.goodbye().await.unwrap();
        assert_eq!(house.lock().unwrap().goodbyes, [1], "the first connection was cut without one");

        let mut shown = Vec::new();
        while let Ok(happened) = events.try_recv() {
            if let Event::Message(message) = happened.event {
                shown.push(message.seq);
            }
        }
        assert_eq!(shown, [1, 2, 3, 4]);
    }

    #[tokio::test]
    async fn rotating_leaves_the_old_connection_after_the_new_one_is_complete() {
        let (url, house) = serve().await;
        let client = talking(&url).await;
        let mut events = client.events();
        push(&house, 0, &json!({"type": "rotate"}));
        let both = house.lock().unwrap().say("agent", "both hear this");
        push(&house, 0, &both);
        loop {
            let happened = tokio::time::timeout(WITHIN, events.recv()).await.unwrap().unwrap();
            assert_ne!(happened.event, Event::Offline);
            if happened.event == Event::Rotated {
                break;
            }
        }
        push(&house, 1, &both);
        assert_eq!(client.text("s1", "still here").await.unwrap().seq, 3);
        assert_eq!(said(&client), ["welcome", "both hear this", "still here"]);
        let house = house.lock().unwrap();
        assert_eq!(house.heard.len(), 2);
        assert!(house.heard[1][0].starts_with(r#"{"type":"sync","sessions":{"s1":"#), "{:?}", house.heard[1]);
    }

    #[tokio::test]
    async fn a_server_that_cuts_is_come_back_to_and_an_expired_token_renewed() {
        let (url, house) = serve().await;
        let client = talking(&url).await;
        house.lock().unwrap().refuse = vec!["AUTH_EXPIRED"];
        assert_eq!(client.text("s1", "one").await.unwrap().seq, 2);
        assert!(house.lock().unwrap().heard[0].contains(&r#"{"type":"auth","token":"t2"}"#.to_owned()));

        house.lock().unwrap().connections[0].send(Frame::Close(None)).unwrap();
        client.wait_for("the cut to be noticed", |machine| !machine.is_online(), WITHIN).await.unwrap();
        client.settled(WITHIN).await.unwrap();
        assert_eq!(client.text("s1", "two").await.unwrap().seq, 3);
    }

    #[tokio::test]
    async fn refusals_come_to_who_asked_and_a_frame_of_another_shape_to_everybody() {
        let (url, house) = serve().await;
        let client = talking(&url).await;
        house.lock().unwrap().refuse = vec!["BAD_FRAME"];
        let refused = client.text("s1", "\0").await.unwrap_err();
        assert!(matches!(refused, ClientError::FrameRefused(_)), "{refused}");
        push(&house, 0, &json!({"type": "pong"}));
        let drift = client.wait_for("what never comes", |_| false, WITHIN).await.unwrap_err();
        assert!(matches!(drift, ClientError::FrameDrift { .. }), "{drift}");
    }
}
