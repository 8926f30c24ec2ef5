//! The day: customers come and stand in line, agents come, everybody talks; one agent's connection breaks, one goes away and
//! comes back, one is cut off without a word.
//!
//! All are futures of one task. Customers and agents know nothing of the mishaps; those are [`mishaps`].

use std::sync::Arc;
use std::time::{Duration, Instant};

use client::chat::{Body, ChatOptions};
use client::documents::{ActivityAction, ActivityPut, BuyRequest, ProductPut, SkuPut};
use client::documents::{AgentPut, ResultStatus, Stretch};
use client::frames::{AgentStatus, NoteEvent};
use client::{Api, ChatClient, ClientError, Role, Stack};
use futures_util::StreamExt;
use futures_util::future::join_all;
use futures_util::stream::FuturesUnordered;
use jiff::{SignedDuration, Timestamp};
use load::calls::{accepted, insist, within};
use load::error::{DemoError, chain};
use load::progress::{Phase, Progress};
use tokio::sync::{Mutex, watch};

use crate::agent::Agent;
use crate::cast::{self, Part};
use crate::customer::{Customer, come_back, cut_and_return};
use crate::hall::{Hall, Who, essence};
use crate::judge::{Absence, Conversation, LOST_WITHIN, Promise, Record, Sample, View};
use crate::settings::Settings;

/// Handshakes under way at once; each is a process of the local AWS.
const HANDSHAKES: usize = 4;
/// A waiting customer hears of their place with each heartbeat. A page sends one every 30 s; nobody would see the queue move.
const HEARTBEAT: Duration = Duration::from_secs(5);
/// An earlier demo that was interrupted has left agents who are taken to be there for so long.
const FREE_WITHIN: Duration = Duration::from_secs(100);
const LOOK_AGAIN: Duration = Duration::from_secs(5);
/// Until the first customers are served.
const OPEN_WITHIN: Duration = Duration::from_secs(60);
/// The whole day, and so much more for each customer.
const DAY: Duration = Duration::from_secs(300);
const DAY_EACH: Duration = Duration::from_secs(10);
/// How often the supervisor looks.
const SUPERVISE: Duration = Duration::from_secs(1);
/// From the first words to the mishaps, and between them.
const FIRST_MISHAP: Duration = Duration::from_secs(3);
const NEXT_MISHAP: Duration = Duration::from_secs(2);
/// Until an agent has as many customers as there is room.
const FULL_WITHIN: Duration = Duration::from_secs(20);
/// How long an agent is away who says so.
const BREAK: Duration = Duration::from_secs(4);
/// How often the wait for the sweep is told of.
const TELL_OF_THE_WAIT: Duration = Duration::from_secs(15);
/// For the last words to arrive everywhere.
const SETTLED_WITHIN: Duration = Duration::from_secs(30);
/// Messages in one page of a history.
const PAGE: u32 = 100;
/// For the order that is shown in a card.
const ORDERED_WITHIN: Duration = Duration::from_secs(60);
const PRICE: i64 = 9_900;

/// Everybody and everything.
pub(crate) struct Day<'a> {
    pub(crate) api: &'a Api,
    pub(crate) stack: &'a Stack,
    pub(crate) settings: &'a Settings,
    pub(crate) progress: &'a Progress,
    pub(crate) hall: Arc<Hall>,
    /// Told apart from earlier runs on the same stack.
    pub(crate) run: String,
}

impl Day<'_> {
    /// From the opening to a record of all that happened.
    pub(crate) async fn run(&self) -> Result<Record, DemoError> {
        self.desk_is_free().await?;
        let agents = self.agents().await?;
        let customers = self.customers().await?;
        self.agents_come(&agents, &customers).await?;
        let (mut samples, mut absences) = (Vec::new(), Vec::new());

        let over = self.progress.phase("conversations over", customers.len());
        let pictures = reqwest::Client::new();
        let serving = join_all(agents.iter().map(|agent| agent.serve(&self.hall, &pictures)));
        let talking = async {
            let talks = Box::pin(self.talk(&customers, &agents, &over));
            let mishaps = Box::pin(self.mishaps(&agents, &customers, &mut absences));
            tokio::join!(talks, mishaps);
        };
        let bound = DAY + DAY_EACH * u32::try_from(customers.len()).unwrap_or(u32::MAX);
        let talked = within(bound, "people talk", &over, async {
            tokio::select! {
                () = talking => {}
                // They go on until the day is over.
                _ = serving => {}
                () = self.supervise(&mut samples) => {}
                () = self.hall.drift.notified() => self.progress.say("a client heard what the contract does not know; the day ends"),
            }
        });
        // A day without an end is judged too: then it says what is missing.
        if let Err(error) = talked.await {
            self.progress.say(&chain(&error));
            self.where_everybody_is(&agents, &customers);
        }
        over.finish();

        for agent in &agents {
            if let Err(error) = agent.client.status(AgentStatus::Away).await {
                self.hall.failed(&agent.who, &error);
            }
        }
        let conversations = self.collect(&customers, &agents).await?;
        let said = self.hall.log().said.clone();
        Ok(Record { said, conversations, samples, absences })
    }

    // ---- before

    /// Whoever serves or waits here would be part of it.
    async fn desk_is_free(&self) -> Result<(), DemoError> {
        let admin = self.api.signed_in(self.stack.admin_token());
        let began = Instant::now();
        let mut told = false;
        loop {
            let desk = accepted("looking at the desk", async || admin.chat_agents().await).await?;
            let on_duty = |agent: &&client::documents::Agent| agent.present && agent.status != AgentStatus::Away;
            let busy: Vec<&str> = desk.agents.iter().filter(on_duty).map(|agent| agent.agent_id.as_str()).collect();
            if busy.is_empty() && desk.waiting == 0 {
                return Ok(());
            }
            let why = format!("{} sessions wait, on duty are {busy:?}; `make down` clears it", desk.waiting);
            if began.elapsed() > FREE_WITHIN || busy.is_empty() {
                return Err(DemoError::Occupied { why });
            }
            if !told {
                self.progress.say(&format!("somebody is at the desk, and is waited for ({why})"));
                told = true;
            }
            tokio::time::sleep(LOOK_AGAIN).await;
        }
    }

    async fn agents(&self) -> Result<Vec<Agent>, DemoError> {
        let admin = self.api.signed_in(self.stack.admin_token());
        let capacity = u32::try_from(self.settings.capacity()).unwrap_or(u32::MAX);
        let mut agents = Vec::new();
        for index in 0..self.settings.agents {
            let name = cast::agent_name(index).to_owned();
            let who = Who { is_agent: true, id: format!("{}-{name}", self.run), name };
            accepted("an agent's room", async || admin.put_agent(&who.id, &AgentPut { capacity }).await).await?;
            let options = ChatOptions::new(self.stack, Role::Agent, &who.id).in_language("en").with_tickets(self.api);
            let client = self.connect(options, &who).await.map_err(DemoError::step("an agent connects"))?;
            agents.push(Agent { who, client, hands: Mutex::new(()) });
        }
        Ok(agents)
    }

    /// They connect as they like, and stand in line one behind the other.
    async fn customers(&self) -> Result<Vec<Customer>, DemoError> {
        let total = self.settings.customers;
        let phase = self.progress.phase("customers in line", total);
        let connect = |index| async move {
            let name = cast::customer_name(index, total);
            let who = Who { is_agent: false, id: format!("{}-{name}", self.run), name };
            let language = if index % 3 == 1 { "zh" } else { "en" };
            let options = ChatOptions::new(self.stack, Role::User, &who.id)
                .in_language(language)
                .with_tickets(self.api)
                .heartbeat(HEARTBEAT);
            let client = self.connect(options, &who).await.map_err(DemoError::step("a customer connects"))?;
            Ok::<_, DemoError>((index, who, client))
        };
        let connected: Vec<_> =
            futures_util::stream::iter((0..total).map(connect)).buffered(HANDSHAKES).collect().await;
        let order_no = self.order(&cast::customer_name(total - 1, total)).await?;
        let mut customers = Vec::new();
        for connected in connected {
            let (index, who, client) = connected?;
            let token = self.stack.user_token(&who.id).map_err(DemoError::step("a token"))?;
            let session = client.open().await.map_err(DemoError::step("opening a session"))?;
            let place = index as u64 + 1;
            let told = session.queue_position;
            self.hall.judge(Promise::PlaceIsTold, told == Some(place), &who.name, || format!("{place}, told {told:?}"));
            self.hall.scene(&session.session_id, format!("{} comes, and is number {place} in the queue", who.name));
            let part = cast::part(index, total);
            let order_no = order_no.clone().filter(|_| part == Part::Star);
            customers.push(Customer { index, who, part, client, api: self.api.signed_in(token), session, order_no });
            phase.one_done();
        }
        phase.finish();
        Ok(customers)
    }

    async fn connect(&self, options: ChatOptions, who: &Who) -> Result<Arc<ChatClient>, ClientError> {
        let client = Arc::new(ChatClient::connect(options).await?);
        let (hall, events, who) = (Arc::clone(&self.hall), client.events(), who.clone());
        // Ends with the client.
        tokio::spawn(async move { hall.listen(who, events).await });
        Ok(client)
    }

    /// The star has bought something, to be shown in a card.
    async fn order(&self, customer: &str) -> Result<Option<String>, DemoError> {
        let admin = self.api.signed_in(self.stack.admin_token());
        let (activity_id, sku_id) = (&self.run, format!("{}-cake", self.run));
        let now = Timestamp::now();
        let now = Timestamp::from_millisecond(now.as_millisecond()).unwrap_or(now);
        let sku = SkuPut { title: "Hotcake".to_owned(), stock: 1 };
        accepted("putting a SKU", async || admin.put_sku(&sku_id, &sku).await).await?;
        let activity = ActivityPut {
            name: "A hotcake to talk about".to_owned(),
            starts_at: now,
            ends_at: now + SignedDuration::from_hours(1),
            pay_window_secs: 900,
            user_interval_ms: 0,
            device_ip_interval_ms: 0,
        };
        accepted("putting an activity", async || admin.put_activity(activity_id, &activity).await).await?;
        let product = ProductPut {
            title: "Hotcake, with butter".to_owned(),
            price: PRICE,
            currency: "CNY".to_owned(),
            total: 1,
            limit_per_user: 1,
        };
        accepted("putting a product", async || admin.put_product(activity_id, &sku_id, &product).await).await?;
        accepted("preheating", async || admin.activity_action(activity_id, ActivityAction::Preheat).await).await?;
        let user_id = format!("{}-{customer}", self.run);
        let token = self.stack.user_token(&user_id).map_err(DemoError::step("a token"))?;
        let buyer = self.api.signed_in(token).on_device(&user_id);
        let request = BuyRequest::new(activity_id, &sku_id, 1);
        let bought = accepted("buying", async || buyer.buy(&request, Some(&user_id)).await).await?;
        let followed = buyer.follow(&bought.order_no, ORDERED_WITHIN).await.map_err(DemoError::step("the order"))?;
        let won = followed.result.status == ResultStatus::Success;
        Ok(won.then_some(bought.order_no))
    }

    async fn agents_come(&self, agents: &[Agent], customers: &[Customer]) -> Result<(), DemoError> {
        let served = self.progress.phase("served at once", self.settings.room());
        for agent in agents {
            agent.client.status(AgentStatus::Online).await.map_err(DemoError::step("an agent comes"))?;
        }
        for customer in customers.iter().take(self.settings.room()) {
            let has_agent = |machine: &client::chat::Machine| {
                machine.session(customer.id()).is_some_and(|session| session.agent_id.is_some())
            };
            let first = customer.client.wait_for("the first agents", has_agent, OPEN_WITHIN);
            first.await.map_err(DemoError::step("the desk opens"))?;
            served.one_done();
        }
        served.finish();
        Ok(())
    }

    // ---- the day

    async fn talk(&self, customers: &[Customer], agents: &[Agent], over: &Phase) {
        let (tell, alone) = watch::channel(false);
        let mut lives: FuturesUnordered<_> = customers
            .iter()
            .map(|customer| {
                let alone = alone.clone();
                async move { (customer, customer.live(&self.hall, alone).await) }
            })
            .collect();
        let lost = agents.last();
        while let Some((customer, lived)) = lives.next().await {
            let kept = lived.is_ok();
            match lived {
                Ok(()) => self.hall.judge(Promise::NothingUnexpected, kept, &customer.who.name, String::new),
                Err(error) => self.hall.failed(&customer.who, &error),
            }
            over.one_done();
            // Two agents are enough for the star: one who hands over, one who takes over. With two in all, the one who is
            // cut off has to be back.
            let left = lives.len();
            let held_up = lost.filter(|_| agents.len() > 2).map_or(0, |agent| self.customers_of(agent, customers));
            if left <= 1 + held_up {
                tell.send_replace(true);
            }
        }
    }

    /// How many customers have this agent, as far as they know.
    fn customers_of(&self, agent: &Agent, customers: &[Customer]) -> usize {
        let with = |customer: &&Customer| {
            customer
                .client
                .session(customer.id())
                .is_some_and(|session| session.agent_id.as_ref() == Some(&agent.who.id))
        };
        customers.iter().filter(with).count()
    }

    /// A mishap that meets nobody is none. An agent with room would be given others while they are gone.
    async fn full(&self, agent: &Agent) {
        let capacity = self.settings.capacity();
        let is_full = |machine: &client::chat::Machine| machine.sessions().count() >= capacity;
        // Later on they may never be again; then it is those they have.
        agent.client.wait_for("a full agent", is_full, FULL_WITHIN).await.ok();
    }

    /// What goes wrong. Each is told of, and judged from the record.
    async fn mishaps(&self, agents: &[Agent], customers: &[Customer], absences: &mut Vec<Absence>) {
        let (Some(breaks), Some(lost)) = (agents.first(), agents.last()) else { return };
        let away = &agents[1 % (agents.len() - 1)];
        tokio::time::sleep(FIRST_MISHAP).await;

        self.full(lost).await;
        // Nothing is on its way out: what is written while one is away is no word of theirs.
        let hands = lost.hands.lock().await;
        let absence = self.absence(lost, true);
        self.progress.say(&format!(
            "{} is cut off without a word; customers left alone: {}. Nobody knows until the lease of 90 s is over and the \
             next sweep, one a minute, gives them to others. The day goes on meanwhile",
            lost.who.name,
            absence.sessions.len()
        ));
        self.hall.log().cuts += 1;
        if let Err(error) = lost.client.drop_connection().await {
            self.hall.failed(&lost.who, &error);
        }
        let cut = Instant::now();

        tokio::time::sleep(NEXT_MISHAP).await;
        self.progress.say(&format!("{}'s connection breaks, and comes back", breaks.who.name));
        let api = self.as_agent(breaks);
        if let Err(error) = cut_and_return(&self.hall, &breaks.who, &breaks.client, &api).await {
            self.hall.failed(&breaks.who, &error);
        }

        tokio::time::sleep(NEXT_MISHAP).await;
        self.full(away).await;
        absences.push(self.absence(away, false));
        let customers_of = away.client.sessions().len();
        self.progress.say(&format!(
            "{} goes away for a moment; customers given to others or back to their place: {customers_of}",
            away.who.name
        ));
        for (status, then) in [(AgentStatus::Away, BREAK), (AgentStatus::Online, Duration::ZERO)] {
            if let Err(error) = away.client.status(status).await {
                self.hall.failed(&away.who, &error);
            }
            tokio::time::sleep(then).await;
        }

        let sessions = absence.sessions.clone();
        absences.push(absence);
        self.sessions_are_taken_from(lost, &sessions, customers, cut).await;
        self.lost_comes_back(lost, &sessions).await;
        drop(hands);
    }

    fn absence(&self, agent: &Agent, is_lost: bool) -> Absence {
        let (agent_id, sessions) = (agent.who.id.clone(), agent.client.sessions());
        for session_id in &sessions {
            let how = if is_lost { "is cut off without a word" } else { "goes away" };
            self.hall.scene(session_id, format!("{} {how}", agent.who.name));
        }
        Absence { agent_id, at: Timestamp::now(), is_lost, sessions }
    }

    /// Waits, for as long as it may take at most; whether it was in time is judged later, from the record.
    async fn sessions_are_taken_from(&self, lost: &Agent, sessions: &[String], customers: &[Customer], cut: Instant) {
        let theirs = || customers.iter().filter(|customer| sessions.iter().any(|id| id == customer.id()));
        let is_left = |customer: &&Customer| {
            let messages = customer.client.messages(customer.id());
            let last = messages.iter().rev().find_map(|message| match &message.body {
                Body::System(note) => Some((note.event, note.agent_id.clone())),
                Body::Text(_) | Body::Image { .. } | Body::Card { .. } => None,
            });
            last.is_some_and(|(event, agent)| {
                matches!(event, NoteEvent::Joined | NoteEvent::Transferred) && agent.as_ref() == Some(&lost.who.id)
            })
        };
        let mut told = Instant::now();
        while cut.elapsed() < LOST_WITHIN {
            let left = theirs().filter(is_left).count();
            if left == 0 {
                break;
            }
            if told.elapsed() >= TELL_OF_THE_WAIT {
                told = Instant::now();
                let secs = cut.elapsed().as_secs();
                self.progress
                    .say(&format!("  customers of {} who still wait, {secs} s after the cut: {left}", lost.who.name));
            }
            tokio::time::sleep(SUPERVISE).await;
        }
        let secs = cut.elapsed().as_secs();
        self.progress.say(&format!("{}'s customers have been taken over, {secs} s after the cut", lost.who.name));
    }

    /// Finds that the sessions are gone, and can say nothing in them; then serves again.
    async fn lost_comes_back(&self, lost: &Agent, sessions: &[String]) {
        let api = self.as_agent(lost);
        if let Err(error) = come_back(&self.hall, &lost.who, &lost.client, &api).await {
            return self.hall.failed(&lost.who, &error);
        }
        for session_id in sessions {
            lost.try_a_late_word(&self.hall, session_id).await;
        }
        if let Err(error) = lost.client.status(AgentStatus::Online).await {
            self.hall.failed(&lost.who, &error);
        }
        self.progress.say(&format!("{} is back, and serves again", lost.who.name));
    }

    fn as_agent(&self, agent: &Agent) -> Api {
        match self.stack.token(Role::Agent, &agent.who.id).sign() {
            Ok(token) => self.api.signed_in(token),
            // Then the calls are refused, and that is told.
            Err(_) => self.api.clone(),
        }
    }

    /// Looks at the desk again and again, as a supervisor's page does.
    async fn supervise(&self, samples: &mut Vec<Sample>) {
        let admin = self.api.signed_in(self.stack.admin_token());
        loop {
            // One look that fails is one look less.
            if let Ok(answer) = insist("the desk", async || admin.chat_agents().await).await
                && let Ok(mut desk) = answer.outcome
            {
                desk.agents.retain(|agent| agent.agent_id.starts_with(&self.run));
                samples.push(Sample { at: self.hall.elapsed(), desk });
            }
            tokio::time::sleep(SUPERVISE).await;
        }
    }

    // ---- after

    /// For whoever has to find out why a day did not end.
    fn where_everybody_is(&self, agents: &[Agent], customers: &[Customer]) {
        let of_agents = agents.iter().map(|agent| (&agent.who, &agent.client));
        let of_customers = customers.iter().map(|customer| (&customer.who, &customer.client));
        for (who, client) in of_agents.chain(of_customers) {
            for id in client.sessions() {
                let Some(state) = client.session(&id) else { continue };
                let has = client.messages(&id);
                let last = has.last().map(essence).unwrap_or_default();
                let agent = state.agent_id.unwrap_or_default();
                self.progress.say(&format!(
                    "  {:8} {} {:?} {agent}, has {} of {}, the last: {last}",
                    who.name,
                    state.session_no,
                    state.status,
                    has.len(),
                    state.head
                ));
            }
        }
    }

    /// Everybody's view of every conversation, and the service's.
    async fn collect(&self, customers: &[Customer], agents: &[Agent]) -> Result<Vec<Conversation>, DemoError> {
        let mut conversations = Vec::new();
        let settled = customers.iter().map(|customer| customer.client.settled(SETTLED_WITHIN));
        for (customer, settled) in customers.iter().zip(join_all(settled).await) {
            if let Err(error) = settled {
                self.hall.failed(&customer.who, &error);
            }
            let id = customer.id();
            let mut history: Vec<client::chat::Message> = Vec::new();
            loop {
                let after = Stretch::After(history.last().map_or(0, |message| message.seq));
                let read = async || customer.api.chat_messages(id, after, Some(PAGE)).await;
                let page = accepted("reading a history", read).await?;
                let is_last = page.items.is_empty();
                history.extend(page.items.into_iter().map(Into::into));
                if is_last || history.last().is_some_and(|message| message.seq >= page.head) {
                    break;
                }
            }
            let read = async || customer.api.chat_sessions(None, None).await;
            let mine = accepted("reading one's sessions", read).await?.items;
            let state = mine.into_iter().find(|session| session.session_id == id).unwrap_or(customer.session.clone());
            let of_customer = (&customer.who, &customer.client);
            let of_agents = agents.iter().map(|agent| (&agent.who, &agent.client));
            let views = std::iter::once(of_customer).chain(of_agents);
            let views = views.map(|(who, client)| View { who: who.clone(), messages: client.messages(id) });
            conversations.push(Conversation {
                session_id: id.to_owned(),
                session_no: state.session_no,
                customer: customer.who.clone(),
                created_at: state.created_at,
                status: state.status,
                history,
                views: views.filter(|view| !view.messages.is_empty()).collect(),
            });
            if let Some(order_no) = &customer.order_no {
                // A kindness: the shop does it by itself when the time to pay is over.
                customer.api.cancel(order_no).await.ok();
            }
        }
        Ok(conversations)
    }
}
