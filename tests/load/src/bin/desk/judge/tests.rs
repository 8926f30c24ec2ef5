//! A day as it should be, and doctored in every way that a promise is about.

use client::chat::Message;
use client::documents::{Agent, AgentList};
use client::frames::{Author, Note};
use load::ledger::Check;

use super::*;
use crate::hall::Words;

fn second(secs: i64) -> Timestamp {
    Timestamp::from_second(1_780_000_000 + secs).unwrap()
}

fn who(is_agent: bool, id: &str) -> Who {
    Who { is_agent, id: id.to_owned(), name: id.to_owned() }
}

/// A conversation in the making.
struct Draft {
    session_id: String,
    customer: &'static str,
    created_at: Timestamp,
    messages: Vec<Message>,
}

impl Draft {
    fn new(customer: &'static str, created: i64) -> Self {
        Self { session_id: format!("s-{customer}"), customer, created_at: second(created), messages: Vec::new() }
    }

    fn push(mut self, secs: i64, from: Author, body: Body) -> Self {
        let (session_id, seq) = (self.session_id.clone(), self.messages.len() as u64 + 1);
        self.messages.push(Message { session_id, seq, from, body, at: second(secs), client_msg_id: None });
        self
    }

    fn note(self, secs: i64, event: NoteEvent, agent: Option<&str>) -> Self {
        let agent_id = agent.map(str::to_owned);
        let from = Author { role: ChatRole::System, id: None };
        self.push(
            secs,
            from,
            Body::System(Note { event, agent_id, by: None, text: "in the reader's language".to_owned() }),
        )
    }

    fn text(self, secs: i64, by: Who, text: &str) -> Self {
        self.push(secs, by.author(), Body::Text(text.to_owned()))
    }

    /// Everybody has all of it, an agent until they were no longer in it.
    fn done(self) -> Conversation {
        let Self { session_id, customer, created_at, messages } = self;
        let customer = who(false, customer);
        let mut views = vec![View { who: customer.clone(), messages: messages.clone() }];
        for agent in ["a1", "a2"] {
            let about = |message: &Message| match &message.body {
                Body::System(note) => note.agent_id.as_deref() == Some(agent),
                _ => message.from.id.as_deref() == Some(agent),
            };
            let Some(last) = messages.iter().rposition(about) else { continue };
            let is_last = !messages[last + 1..]
                .iter()
                .any(|message| matches!(&message.body, Body::System(note) if note.agent_id.is_some()));
            let until = if is_last { messages.len() } else { last + 1 };
            views.push(View { who: who(true, agent), messages: messages[..until].to_vec() });
        }
        let (session_no, status) = ("CS1".to_owned(), SessionStatus::Closed);
        Conversation { session_id, session_no, customer, created_at, status, history: messages, views }
    }
}

fn desk(at: u64, waiting: u64, open: &[(&str, u32)]) -> Sample {
    let agent = |(id, open): &(&str, u32)| Agent {
        agent_id: (*id).to_owned(),
        status: AgentStatus::Online,
        present: true,
        capacity: 1,
        open: *open,
        sessions: (0..*open).map(|n| format!("s{n}")).collect(),
        seen_at: None,
    };
    Sample { at: Duration::from_secs(at), desk: AgentList { agents: open.iter().map(agent).collect(), waiting } }
}

/// Two agents with room for one each, three customers; `a1` is cut off, `a2` hands one over.
fn good() -> Record {
    let (a1, a2) = (|| who(true, "a1"), || who(true, "a2"));
    let first = Draft::new("u1", 0)
        .note(10, NoteEvent::Joined, Some("a1"))
        .text(11, a1(), "hello")
        .text(12, who(false, "u1"), "a question")
        .note(120, NoteEvent::Requeued, None)
        .note(121, NoteEvent::Joined, Some("a2"))
        .text(122, a2(), "an answer")
        .note(130, NoteEvent::Closed, None)
        .done();
    let second_one = Draft::new("u2", 1)
        .note(10, NoteEvent::Joined, Some("a2"))
        .text(11, who(false, "u2"), "你好 🙂")
        .text(12, a2(), "您好")
        .note(13, NoteEvent::Transferred, Some("a1"))
        .note(20, NoteEvent::Closed, None)
        .done();
    let third = Draft::new("u3", 2)
        .note(21, NoteEvent::Joined, Some("a2"))
        .text(22, who(false, "u3"), "hi")
        .note(23, NoteEvent::Closed, None)
        .done();
    let conversations = vec![first, second_one, third];
    let said = conversations.iter().flat_map(|conversation| {
        conversation.history.iter().filter_map(|message| {
            let Body::Text(text) = &message.body else { return None };
            let by = who(message.from.role == ChatRole::Agent, message.from.id.as_deref()?);
            let words = Words::Text(text.clone());
            let (session_id, sent_at) = (message.session_id.clone(), std::time::Instant::now());
            let (seq, took) = (message.seq, Duration::ZERO);
            Some(Said { by, session_id, words, seq, duplicate: false, sent_at, took })
        })
    });
    let absence = |is_lost, at, session: &str| Absence {
        agent_id: "a1".to_owned(),
        at: second(at),
        is_lost,
        sessions: vec![session.to_owned()],
    };
    Record {
        said: said.collect(),
        samples: vec![desk(1, 1, &[("a1", 1), ("a2", 1)]), desk(2, 1, &[("a1", 0), ("a2", 1)]), desk(3, 0, &[])],
        absences: vec![absence(true, 15, "s-u1"), absence(false, 12, "s-u2")],
        conversations,
    }
}

/// What fails when a good day is doctored.
fn broken_by(doctor: impl FnOnce(&mut Record)) -> Vec<&'static str> {
    let mut record = good();
    doctor(&mut record);
    judge(&record).checks().into_iter().filter(|check| !check.passed).map(|check| check.promise).collect()
}

fn breaks(promise: Promise, doctor: impl FnOnce(&mut Record)) {
    let broken = broken_by(doctor);
    assert!(broken.contains(&promise.text()), "{promise:?} is not noticed; noticed: {broken:?}");
}

#[test]
fn a_good_day_is_good_and_tests_what_a_record_can_show() {
    let checks: Vec<Check> = judge(&good()).checks();
    let failed: Vec<_> = checks.iter().filter(|check| !check.passed).collect();
    assert!(failed.is_empty(), "{failed:#?}");
    let tested = checks.iter().filter(|check| check.cases > 0).count();
    // The others are judged on the spot.
    assert_eq!(tested, 10, "{checks:#?}");
}

#[test]
fn a_word_that_is_lost_doubled_changed_or_made_up_is_noticed() {
    breaks(Promise::StoredOnce, |day| drop(day.conversations[0].history.remove(2)));
    breaks(Promise::StoredOnce, |day| {
        let again = day.conversations[0].history[2].clone();
        day.conversations[0].history.push(Message { seq: 8, ..again });
    });
    breaks(Promise::StoredOnce, |day| day.conversations[0].history[2].body = Body::Text("another".to_owned()));
    breaks(Promise::StoredOnce, |day| day.conversations[0].history[2].from = who(false, "u2").author());
    breaks(Promise::StoredOnce, |day| drop(day.said.remove(0)));
    breaks(Promise::StoredOnce, |day| drop(day.conversations.remove(0)));
}

#[test]
fn a_side_that_lacks_a_message_or_has_them_otherwise_is_noticed() {
    for view in 0..2 {
        breaks(Promise::BothSidesAlike, |day| drop(day.conversations[2].views[view].messages.remove(1)));
        breaks(Promise::BothSidesAlike, |day| day.conversations[2].views[view].messages.swap(0, 1));
        breaks(Promise::BothSidesAlike, |day| drop(day.conversations[2].views.remove(view)));
    }
    breaks(Promise::BothSidesAlike, |day| {
        day.conversations[0].views[0].messages.pop();
    });
    breaks(Promise::BothSidesAlike, |day| day.conversations[0].history[3].seq = 9);
    breaks(Promise::BothSidesAlike, |day| day.conversations[0].history[2].at = second(500));
    breaks(Promise::TransferKeepsWords, |day| {
        day.conversations[1].views.iter_mut().for_each(|view| view.messages.truncate(2));
    });
    // An agent who is no longer a member has what there was, and may miss the note of the end.
    assert!(
        broken_by(|day| {
            day.conversations[2].views[1].messages.pop();
        })
        .is_empty()
    );
}

#[test]
fn a_second_agent_and_one_who_speaks_out_of_turn_are_noticed() {
    let note = |day: &mut Record, at: usize, event| {
        let Body::System(note) = &mut day.conversations[0].history[at].body else { panic!("no note") };
        note.event = event;
    };
    breaks(Promise::OneAgent, |day| note(day, 3, NoteEvent::Reopened));
    breaks(Promise::OneAgent, |day| note(day, 4, NoteEvent::Transferred));
    breaks(Promise::OneAgent, |day| note(day, 0, NoteEvent::Requeued));
    for promise in [Promise::OneAgent, Promise::FormerAgentIsOut] {
        breaks(promise, |day| day.conversations[0].history[1].from = who(true, "a2").author());
    }
}

#[test]
fn who_is_passed_over_is_noticed() {
    // u3 came last and is taken ten seconds before the two others
    breaks(Promise::QueueInOrder, |day| day.conversations[2].history[0].at = second(5));
    // nobody ever took u1
    breaks(Promise::QueueInOrder, |day| {
        day.conversations[0].history.clear();
    });
    // a moment is nothing
    assert!(broken_by(|day| day.conversations[2].history[0].at = second(9)).is_empty());
}

#[test]
fn a_free_agent_beside_a_queue_and_one_with_too_much_are_noticed() {
    breaks(Promise::NobodyIdle, |day| {
        day.samples.insert(2, desk(13, 1, &[("a1", 0), ("a2", 1)]));
    });
    assert!(
        broken_by(|day| {
            // given out meanwhile, and somebody else waits
            day.samples.insert(2, desk(7, 1, &[("a1", 1), ("a2", 1)]));
            day.samples.insert(3, desk(14, 1, &[("a1", 0), ("a2", 1)]));
        })
        .is_empty()
    );
    breaks(Promise::RoomHolds, |day| day.samples.push(desk(4, 0, &[("a1", 2)])));
    breaks(Promise::RoomHolds, |day| day.samples[0].desk.agents[0].sessions.clear());
}

#[test]
fn who_is_left_alone_is_noticed() {
    breaks(Promise::EverybodyServed, |day| {
        day.conversations[2].history.pop();
    });
    breaks(Promise::EverybodyServed, |day| day.conversations[2].status = SessionStatus::Open);
    breaks(Promise::LostIsRelieved, |day| day.conversations[0].history[3].at = second(15 + 181));
    breaks(Promise::LostIsRelieved, |day| day.conversations[0].history.truncate(3));
    breaks(Promise::AwayIsRelieved, |day| day.conversations[1].history[3].at = second(12 + 16));
    breaks(Promise::AwayIsRelieved, |day| drop(day.conversations.remove(1)));
}
