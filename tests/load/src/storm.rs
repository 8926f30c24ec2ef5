//! Everybody at once.
//!
//! All buyers are futures of one task: they press the button in the order of the plan, as many at a time as the settings
//! allow, and live their lives to the end. What a buyer does after the first press goes through lanes of its own (one for
//! retries and second wishes, one for polls), or it would wait behind the whole crowd.

use std::time::{Duration, Instant};

use client::{Api, Backoff, ClientError, ConnectOptions, Socket, Stack};
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use load::calls::within;
use load::error::{DemoError, chain};
use load::progress::Progress;
use tokio::sync::Semaphore;

use crate::buyer::{self, Scene, Story};
use crate::plan::{Buyer, Plan};
use crate::promises::{Ledger, Promise};
use crate::settings::Settings;
use crate::stage::Sale;

/// Handshakes under way at once; each is a process of the local AWS.
const HANDSHAKES: usize = 8;
/// Buy calls of those who have pressed the button already, and questions for a result.
const LATER_CALLS: usize = 8;
const QUESTIONS: usize = 8;
/// Just below the ten minutes after which the gateway cuts a silent connection. A page sends one every 30 s; thousands of
/// waiting sockets that did so would take all that the local gateway has.
const HEARTBEAT: Duration = Duration::from_secs(9 * 60);
const CONNECT_TRIES: u32 = 4;
const PONG_WITHIN: Duration = Duration::from_secs(20);
/// How long a phase may take: so much, and so much more for each of the crowd. About five times what it takes.
const CONNECT_GRACE: Duration = Duration::from_secs(60);
const CONNECT_EACH: Duration = Duration::from_millis(200);
const STORM_GRACE: Duration = Duration::from_secs(120);
const STORM_EACH: Duration = Duration::from_millis(40);
/// Calls that failed are shown, but a broken stack must not fill the screen.
const SHOWN_FAILURES: usize = 10;
/// From this many buyers on, shares are exact enough to be judged.
const JUDGED_FROM: usize = 20;

/// What became of everybody.
#[derive(Debug)]
pub(crate) struct Crowd<'a> {
    pub(crate) stories: Vec<Story<'a>>,
    pub(crate) ledger: Ledger,
    /// From the start to the last result.
    pub(crate) took: Duration,
}

/// Opens the sockets of all who connect, in the order of [`Plan::connecting`], and sees that each is live.
pub(crate) async fn connect(stack: &Stack, plan: &Plan, progress: &Progress) -> Result<Vec<Socket>, DemoError> {
    let connecting: Vec<&Buyer> = plan.connecting().collect();
    let total = u32::try_from(connecting.len()).unwrap_or(u32::MAX);
    let phase = progress.phase("sockets connected", connecting.len());
    let arrive = async |buyer| {
        let socket = connect_one(stack, buyer).await;
        phase.one_done();
        socket
    };
    let all = futures_util::stream::iter(connecting).map(arrive).buffered(HANDSHAKES).collect::<Vec<_>>();
    let sockets = within(CONNECT_GRACE + CONNECT_EACH * total, "connecting", &phase, all).await?;
    phase.finish();
    sockets.into_iter().collect::<Result<_, _>>().map_err(DemoError::step("connecting a socket"))
}

async fn connect_one(stack: &Stack, buyer: &Buyer) -> Result<Socket, ClientError> {
    let options =
        ConnectOptions::new(stack.user_token(&buyer.user_id)?).on_device(&buyer.device_id).heartbeat(HEARTBEAT);
    let mut backoff = Backoff::new(Duration::from_millis(500), Duration::from_secs(4));
    let mut tries = 0;
    loop {
        tries += 1;
        match live_socket(stack, options.clone()).await {
            Err(ClientError::TimedOut { .. } | ClientError::Socket(_)) if tries < CONNECT_TRIES => {
                tokio::time::sleep(backoff.next_wait(None)).await;
            }
            done => return done,
        }
    }
}

/// The first frame makes a connection live; its `pong` says that this has happened.
async fn live_socket(stack: &Stack, options: ConnectOptions) -> Result<Socket, ClientError> {
    let mut socket = Socket::connect(stack, options).await?;
    socket.ping().await?;
    socket.next(PONG_WITHIN).await?;
    Ok(socket)
}

/// Waits for the start and lets everybody go.
pub(crate) async fn run<'a>(
    api: &Api,
    stack: &'a Stack,
    plan: &'a Plan,
    sale: &Sale,
    settings: &Settings,
    sockets: Vec<Socket>,
    progress: &Progress,
) -> Result<Crowd<'a>, DemoError> {
    tokio::time::sleep_until(sale.opens.into()).await;
    progress.say(&format!("the sale is open; {} buyers press the button", plan.buyers.len()));
    let scene = Scene {
        plan,
        stack,
        pressing: api.at_most(settings.concurrency),
        later: api.at_most(LATER_CALLS),
        asking: api.at_most(QUESTIONS),
        handshakes: Semaphore::new(HANDSHAKES),
        answered: progress.phase("buyers answered", plan.buyers.len()),
        decided: progress.phase("orders decided", 0),
    };
    let mut ledger = Ledger::default();
    if plan.buyers.len() >= JUDGED_FROM {
        let share = sockets.len() as f64 / plan.buyers.len() as f64;
        ledger.judge(Promise::EnoughConnected, share >= 0.3, None, || format!("{:.1} %", share * 100.0));
    }

    let started = Instant::now();
    let mut sockets = sockets.into_iter();
    let lives = plan.buyers.iter().map(|buyer| {
        let socket = if buyer.connects() { sockets.next() } else { None };
        buyer::live(&scene, buyer, socket)
    });
    let all = lives.collect::<FuturesUnordered<_>>().collect::<Vec<_>>();
    let total = u32::try_from(plan.buyers.len()).unwrap_or(u32::MAX);
    let mut stories = within(STORM_GRACE + STORM_EACH * total, "the sale runs", &scene.answered, all).await?;
    let took = started.elapsed();
    scene.answered.finish();
    scene.decided.finish();

    stories.sort_by_key(|story| story.buyer.index);
    for story in &stories {
        ledger.merge(&story.ledger);
    }
    let failures = || stories.iter().flat_map(|story| story.failures.iter().map(move |error| (story.buyer, error)));
    for (buyer, error) in failures().take(SHOWN_FAILURES) {
        progress.say(&format!("{}: {}", buyer.user_id, chain(error)));
    }
    if let Some(more @ 1..) = failures().count().checked_sub(SHOWN_FAILURES) {
        progress.say(&format!("... and {more} more failures like these"));
    }
    let winners = stories.iter().filter(|story| !story.orders.is_empty()).count();
    if winners >= JUDGED_FROM {
        let share = stories.iter().filter(|story| story.left).count() as f64 / winners as f64;
        ledger.judge(Promise::EnoughLeft, share >= 0.1, None, || format!("{:.1} %", share * 100.0));
    }
    Ok(Crowd { stories, ledger, took })
}
