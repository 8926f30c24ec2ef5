//! Many talk at once while their connections break at random: in the end both sides have every word once, in order.
//!
//! Short among the tests; `make soak` makes it long, on a stack of its own, on which Redis forgets everything and then is silent.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use client::Role;
use client::chat::{Body, Event, Happened};
use client::documents::AgentPut;
use client::frames::AgentStatus;
use e2e::SOON;
use e2e::shop::done;
use futures_util::future::join_all;
use rand::random_range;
use tokio::sync::Notify;
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::TryRecvError;

use crate::floor::{Floor, Person};
use crate::redis;

/// Words of the first pair, before anything breaks, by which the times are told.
const QUIET_WORDS: usize = 40;
/// Everybody is back, and everything is here: on a machine that others use too.
const CALM_WITHIN: Duration = Duration::from_secs(120);
/// Longer than anybody is silent.
const MIDDLE_WITHIN: Duration = Duration::from_secs(3);
const REDIS_PAUSE: Duration = Duration::from_secs(5);

struct Size {
    sessions: usize,
    lasts: Duration,
    /// The stack is its own.
    is_long: bool,
}

impl Size {
    fn chosen() -> Self {
        let number = |name: &str| std::env::var(name).ok().map(|value| value.parse().expect("a number"));
        let secs = number("SOAK_SECS");
        Self {
            sessions: number("SOAK_SESSIONS").map_or(6, |sessions: u64| usize::try_from(sessions).unwrap()),
            lasts: Duration::from_secs(secs.unwrap_or(20)),
            is_long: secs.is_some(),
        }
    }
}

/// Somebody in the storm.
struct Talker {
    person: Person,
    session_id: String,
    events: Receiver<Happened>,
    /// What they were told is stored, and its number.
    acknowledged: BTreeMap<u64, String>,
    drops: usize,
}

impl Talker {
    fn new(person: Person, events: Receiver<Happened>, session_id: String) -> Self {
        Self { person, session_id, events, acknowledged: BTreeMap::new(), drops: 0 }
    }

    async fn say(&mut self, word: String) -> u64 {
        let sent = self.person.text(&self.session_id, &word).await.unwrap();
        let twice = self.acknowledged.insert(sent.seq, word);
        assert_eq!(twice, None, "two words have the number {}", sent.seq);
        sent.seq
    }

    /// Talks until then, while the connection breaks again and again.
    async fn endure(&mut self, until: Instant) {
        let Self { person, session_id, acknowledged, drops, .. } = self;
        let speaks = Notify::new();
        let talking = async {
            for nth in 1.. {
                if Instant::now() >= until {
                    return;
                }
                let word = format!("{} says {nth}", person.id);
                speaks.notify_waiters();
                let sent = person.text(session_id, &word).await.unwrap();
                assert_eq!(acknowledged.insert(sent.seq, word), None, "two words have the number {}", sent.seq);
                tokio::time::sleep(Duration::from_millis(random_range(500..2_500))).await;
            }
        };
        let breaking = async {
            loop {
                tokio::time::sleep(Duration::from_millis(random_range(1_000..8_000))).await;
                if Instant::now() >= until {
                    return;
                }
                if random_range(0..2) == 0 {
                    // In the middle of a word, whose answer is lost then. There may be none any more.
                    tokio::time::timeout(MIDDLE_WITHIN, speaks.notified()).await.ok();
                    tokio::time::sleep(Duration::from_millis(random_range(0..100))).await;
                }
                person.drop_connection().await.unwrap();
                *drops += 1;
                tokio::time::sleep(Duration::from_millis(random_range(0..2_000))).await;
                person.reconnect().await.unwrap();
            }
        };
        tokio::join!(talking, breaking);
    }

    /// Says the last word once more over a bare socket, as a client that was never told of its being stored.
    async fn says_again(&self, floor: &Floor, role: Role) {
        let own = self.person.messages(&self.session_id).into_iter().rev();
        let mut own = own.filter(|message| message.from.id.as_deref() == Some(&self.person.id));
        let last = own.find_map(|message| match message.body {
            Body::Text(text) => Some((message.seq, text, message.client_msg_id.expect("one's own"))),
            Body::Image { .. } | Body::Card { .. } | Body::System(_) => None,
        });
        let (seq, text, client_msg_id) = last.expect("everybody spoke");
        let mut line = floor.live(role, &self.person.id).await;
        let sent = line.text(&self.session_id, &text, &client_msg_id).await;
        assert_eq!((sent.seq, sent.duplicate), (seq, true), "{text}");
    }

    /// The numbers of what was shown of the session, in the order it was shown.
    fn shown(&mut self) -> Vec<u64> {
        let mut shown = Vec::new();
        loop {
            match self.events.try_recv() {
                Ok(Happened { event: Event::Message(message), .. }) if message.session_id == self.session_id => {
                    shown.push(message.seq);
                }
                Ok(_) => {}
                Err(TryRecvError::Empty | TryRecvError::Closed) => return shown,
                Err(error @ TryRecvError::Lagged(_)) => panic!("{error}"),
            }
        }
    }
}

/// What half, and what all but one in a hundred, are below.
fn percentiles(mut times: Vec<Duration>) -> String {
    times.sort_unstable();
    let at = |percent: usize| times[(times.len() * percent / 100).min(times.len() - 1)].as_millis();
    format!("p50 {} ms, p99 {} ms", at(50), at(99))
}

/// The two take turns. How long each word takes to be stored, and to be shown to the other.
async fn quiet(one: &mut Talker, two: &mut Talker) -> (Vec<Duration>, Vec<Duration>) {
    let (mut stored, mut shown) = (Vec::new(), Vec::new());
    for nth in 0..QUIET_WORDS {
        let (from, to) = if nth % 2 == 0 { (&mut *one, &mut *two) } else { (&mut *two, &mut *one) };
        let mut events = to.person.events();
        let began = Instant::now();
        let seq = from.say(format!("quiet {nth}")).await;
        stored.push(began.elapsed());
        loop {
            let Happened { at, event } = tokio::time::timeout(SOON, events.recv()).await.unwrap().unwrap();
            if matches!(event, Event::Message(message) if message.seq == seq) {
                shown.push(at.saturating_duration_since(began));
                break;
            }
        }
    }
    (stored, shown)
}

#[tokio::test]
async fn whatever_breaks_both_sides_have_every_word_once_and_in_order() {
    let size = Size::chosen();
    let floor = Floor::alone().await;
    let mut pairs = Vec::new();
    for nth in 0..size.sessions {
        let name = format!("g{nth}");
        done(floor.local.admin.put_agent(&floor.id(&name), &AgentPut { capacity: 1 }).await);
        let agent = floor.agent_at_the_door(&name).await;
        let events = agent.events();
        agent.status(AgentStatus::Online).await.unwrap();
        let customer = floor.person(Role::User, &floor.id(&format!("u{nth}")), |options| options).await;
        let heard = customer.events();
        let session_id = customer.is_served().await;
        assert_eq!(agent.any_session(SOON).await.unwrap(), session_id, "the only one who is free");
        let agent = Talker::new(agent, events, session_id.clone());
        pairs.push((Talker::new(customer, heard, session_id), agent));
    }
    let (one, two) = &mut pairs[0];
    let (stored, shown) = quiet(one, two).await;

    let began = Instant::now();
    let until = began + size.lasts;
    let storm = join_all(pairs.iter_mut().map(async |(customer, agent)| {
        tokio::join!(Box::pin(customer.endure(until)), Box::pin(agent.endure(until)));
    }));
    let weather = async {
        if size.is_long {
            tokio::time::sleep(size.lasts / 3).await;
            let mut owner = redis::owner(&floor).await;
            ::redis::cmd("FLUSHALL").query_async::<()>(&mut owner).await.unwrap();
            tokio::time::sleep(size.lasts / 3).await;
            redis::pause(&mut owner, REDIS_PAUSE).await;
        }
    };
    tokio::join!(storm, weather);
    let lasted = began.elapsed();

    let (mut words, mut drops, mut resends) = (0, 0, 0);
    for (customer, agent) in &mut pairs {
        let session_id = customer.session_id.clone();
        for (role, talker) in [(Role::User, &*customer), (Role::Agent, &*agent)] {
            talker.person.settled(CALM_WITHIN).await.unwrap();
            talker.says_again(&floor, role).await;
            resends += 1;
        }
        assert_eq!(floor.with(&session_id).await.split(' ').next(), Some("open"), "nobody was moved");
        let head = floor.session(&session_id).await.seq.get();
        let mut acknowledged = customer.acknowledged.clone();
        for (seq, word) in &agent.acknowledged {
            assert_eq!(acknowledged.insert(*seq, word.clone()), None, "two words have the number {seq}");
        }
        // 1 is that the agent joined; the rest are exactly the words that were acknowledged.
        assert!(acknowledged.keys().copied().eq(2..=head), "{session_id}: {head} and {acknowledged:?}");
        for talker in [&mut *customer, &mut *agent] {
            let all = talker.person.wait_for("all words", |machine| machine.have(&session_id) >= head, CALM_WITHIN);
            all.await.unwrap();
            talker.person.settled(CALM_WITHIN).await.unwrap();
            let here: BTreeMap<u64, String> = talker
                .person
                .messages(&session_id)
                .into_iter()
                .filter_map(|message| match message.body {
                    Body::Text(text) => Some((message.seq, text)),
                    Body::Image { .. } | Body::Card { .. } | Body::System(_) => None,
                })
                .collect();
            assert_eq!(here, acknowledged, "what {} has", talker.person.id);
            let shown = talker.shown();
            assert!(shown.iter().copied().eq(1..=head), "what {} was shown: {shown:?}", talker.person.id);
            drops += talker.drops;
        }
        words += acknowledged.len();
    }
    assert!(drops > 0, "no connection broke");
    floor.audit().await;
    println!(
        "soak: {} sessions, {} clients, {} s: {words} words said, each once on both sides and in order; {drops} connections broken, \
         {resends} words said again, and known to the service. The oracle finds nothing. PASS\n\
         soak: quiet, {QUIET_WORDS} words: stored {}; shown to the other {}",
        size.sessions,
        2 * size.sessions,
        lasted.as_secs(),
        percentiles(stored),
        percentiles(shown),
    );
    floor.close().await;
}
