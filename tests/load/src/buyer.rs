//! One of the crowd: presses the button, perhaps a second time, and hears how it ended.

use std::time::{Duration, Instant};

use client::documents::{BuyRequest, OrderStatus, Problem, ProblemCode, ResultStatus};
use client::{Api, Away, Backoff, ClientError, Role as TokenRole, Socket, Stack, Token};
use load::progress::Phase;
use tokio::sync::Semaphore;

use crate::plan::{BadToken, Buyer, Line, Offer, Plan, Role};
use crate::promises::{Ledger, Promise};

/// What every 202 is promised.
pub(crate) const DECIDED_WITHIN: Duration = Duration::from_secs(30);
/// Looked for a little longer, to tell a late result from a lost one.
const LOOKED_FOR: Duration = Duration::from_secs(45);
/// Tries of one press: answers that say "later", and answers that never came.
const MAX_TRIES: u32 = 8;
const FIRST_WAIT: Duration = Duration::from_millis(200);
const LONGEST_WAIT: Duration = Duration::from_secs(3);
/// Somebody who takes what is left may find less again: three units are gone after three steps.
const MAX_SMALLER_WISHES: u32 = 3;
/// How long a buyer who lost the network stays away: results are decided meanwhile.
const AWAY_MS: std::ops::RangeInclusive<u64> = 1_500..=4_000;
/// Kept of one buyer's failures, for the log.
const MAX_FAILURES: usize = 3;

/// What all buyers share.
pub(crate) struct Scene<'a> {
    pub(crate) plan: &'a Plan,
    pub(crate) stack: &'a Stack,
    /// For the first press.
    pub(crate) pressing: Api,
    /// For retries and second wishes.
    pub(crate) later: Api,
    /// For polls.
    pub(crate) asking: Api,
    pub(crate) handshakes: Semaphore,
    pub(crate) answered: Phase,
    pub(crate) decided: Phase,
}

/// What one buyer saw.
#[derive(Debug)]
pub(crate) struct Story<'a> {
    pub(crate) buyer: &'a Buyer,
    pub(crate) calls: Vec<Call>,
    pub(crate) orders: Vec<Order>,
    /// The socket was dropped between a 202 and its result.
    pub(crate) left: bool,
    pub(crate) failures: Vec<ClientError>,
    pub(crate) ledger: Ledger,
    /// Stays open: the buyer also hears whether the order was paid or cancelled.
    pub(crate) socket: Option<Socket>,
}

/// One buy call.
#[derive(Debug)]
pub(crate) struct Call {
    /// `202`, a problem code, or what came instead of an answer.
    pub(crate) code: String,
    /// Absent when no answer came.
    pub(crate) took: Option<Duration>,
}

/// One 202 and what became of it.
#[derive(Debug)]
pub(crate) struct Order {
    pub(crate) order_no: String,
    pub(crate) qty: u32,
    pub(crate) end: Option<End>,
    request_id: String,
    accepted_at: Instant,
}

/// How an order ended, as its buyer was told.
#[derive(Debug, Clone, Copy)]
pub(crate) struct End {
    pub(crate) heard: Heard,
    /// Since the 202.
    pub(crate) after: Duration,
    pub(crate) status: ResultStatus,
    pub(crate) order_status: OrderStatus,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Heard {
    Pushed,
    /// On the connection opened after coming back.
    Replayed,
    Polled,
}

/// Where a buyer listens.
enum Ear {
    Connected(Socket),
    Away(Away),
    Returned(Socket),
    Deaf,
}

/// How a press ended.
enum Pressed {
    Accepted {
        order_no: String,
        replayed: bool,
    },
    Refused(Problem),
    /// No usable answer, however often.
    Nothing,
}

/// Lives one buyer's evening.
pub(crate) async fn live<'a>(scene: &Scene<'a>, buyer: &'a Buyer, socket: Option<Socket>) -> Story<'a> {
    let mut story = Story {
        buyer,
        calls: Vec::new(),
        orders: Vec::new(),
        left: false,
        failures: Vec::new(),
        ledger: Ledger::default(),
        socket: None,
    };
    match (buyer.role, scene.stack.user_token(&buyer.user_id)) {
        (Role::Forged(kind), _) => story.knock(scene, kind).await,
        (Role::Plain | Role::Retries | Role::ComesTwice | Role::Snoops, Ok(token)) => {
            story.shop(scene, token, socket).await
        }
        (Role::Plain | Role::Retries | Role::ComesTwice | Role::Snoops, Err(error)) => story.failed(error),
    }
    story
}

/// A token that must not open the door.
pub(crate) fn forge(stack: &Stack, kind: BadToken, user_id: &str) -> Result<Token, ClientError> {
    let good = stack.token(TokenRole::User, user_id);
    match kind {
        BadToken::Expired => good.expired_since(Duration::from_secs(3_600)).sign(),
        BadToken::ForeignKey => good.secret("the key of another house").sign(),
        BadToken::ForeignIssuer => good.claim("iss", "https://elsewhere.example").sign(),
        BadToken::ForeignAudience => good.claim("aud", "elsewhere").sign(),
        BadToken::Unsigned => Ok(good.unsigned()),
        BadToken::Garbage => Ok(Token::from_text("not-a-token")),
    }
}

impl Story<'_> {
    /// Comes with a bad token and has to be sent away.
    async fn knock(&mut self, scene: &Scene<'_>, kind: BadToken) {
        match forge(scene.stack, kind, &self.buyer.user_id) {
            Ok(token) => {
                let lane = scene.pressing.signed_in(token).on_device(&self.buyer.device_id);
                let request = self.request(scene, self.buyer.qty);
                let pressed = self.press(&lane, &lane, &request, &self.buyer.request_id(0)).await;
                let refusal = match &pressed {
                    Pressed::Refused(problem) => problem.code.as_str(),
                    Pressed::Accepted { .. } => "202",
                    Pressed::Nothing => "no answer",
                };
                let kept = refusal == ProblemCode::Unauthenticated.as_str();
                self.ledger.judge(Promise::BadTokenRefused, kept, None, || format!("{kind:?}: {refusal}"));
            }
            Err(error) => self.failed(error),
        }
        scene.answered.one_done();
    }

    async fn shop(&mut self, scene: &Scene<'_>, token: Token, socket: Option<Socket>) {
        let pressing = scene.pressing.signed_in(token.clone()).on_device(&self.buyer.device_id);
        let later = scene.later.signed_in(token.clone()).on_device(&self.buyer.device_id);
        let asking = scene.asking.signed_in(token);
        self.wish(scene, &pressing, &later, 0).await;
        scene.answered.one_done();

        let mut ear = socket.map_or(Ear::Deaf, Ear::Connected);
        if self.buyer.line == Line::Leaves && !self.orders.is_empty() {
            ear = self.leave(ear);
        }
        let left_at = Instant::now();
        match self.buyer.role {
            Role::Retries => self.retry(scene, &later).await,
            Role::ComesTwice => self.come_twice(scene, &later).await,
            Role::Plain | Role::Snoops | Role::Forged(_) => {}
        }
        ear = self.come_back(scene, ear, left_at).await;
        for index in 0..self.orders.len() {
            self.hear(&asking, &mut ear, index).await;
            scene.decided.one_done();
        }
        if let Ear::Connected(socket) | Ear::Returned(socket) = ear {
            self.socket = Some(socket);
        }
    }

    /// One wish to buy. Whoever asks for more than is left takes what is left, which is a new wish.
    async fn wish(&mut self, scene: &Scene<'_>, first: &Api, later: &Api, number: u32) {
        let mut qty = self.buyer.qty;
        for step in 0..=MAX_SMALLER_WISHES {
            let request_id = self.buyer.request_id(number + step);
            let request = self.request(scene, qty);
            let lane = if step == 0 { first } else { later };
            match self.press(lane, later, &request, &request_id).await {
                Pressed::Accepted { order_no, .. } => {
                    self.orders.push(Order { order_no, qty, end: None, request_id, accepted_at: Instant::now() });
                    scene.decided.one_more();
                    return;
                }
                Pressed::Refused(problem) => match (problem.code, problem.remaining) {
                    (ProblemCode::InsufficientStock, Some(left)) if (1..qty).contains(&left) => qty = left,
                    _ => return,
                },
                Pressed::Nothing => return,
            }
        }
    }

    /// Sends the winning request again, as if the answer had been lost.
    async fn retry(&mut self, scene: &Scene<'_>, lane: &Api) {
        let Some(order) = self.orders.first() else { return };
        let (order_no, request_id) = (order.order_no.clone(), order.request_id.clone());
        let request = self.request(scene, order.qty);
        let pressed = self.press(lane, lane, &request, &request_id).await;
        let kept = matches!(&pressed, Pressed::Accepted { order_no: again, replayed: true } if *again == order_no);
        self.ledger.judge(Promise::RetrySameOrder, kept, Some(&order_no), || pressed.describe());
    }

    /// Presses the button again, which is a new wish, and must be stopped at the limit and not before.
    async fn come_twice(&mut self, scene: &Scene<'_>, lane: &Api) {
        let had: u32 = self.orders.iter().map(|order| order.qty).sum();
        let first = self.orders.first().map(|order| order.order_no.clone());
        // Apart from the numbers of the first wish and its smaller ones.
        let number = MAX_SMALLER_WISHES + 1;
        let over = had + self.buyer.qty > self.buyer.offer.limit();
        if had == 0 || !over {
            self.wish(scene, lane, lane, number).await;
            let now: u32 = self.orders.iter().map(|order| order.qty).sum();
            let kept = now <= self.buyer.offer.limit();
            self.ledger.judge(Promise::LimitHolds, kept, first.as_deref(), || format!("{now} units for one user"));
            return;
        }
        let request = self.request(scene, self.buyer.qty);
        let pressed = self.press(lane, lane, &request, &self.buyer.request_id(number)).await;
        let right = match self.buyer.offer {
            Offer::Single => ProblemCode::AlreadyBought,
            Offer::Multi => ProblemCode::LimitExceeded,
        };
        let kept = matches!(&pressed, Pressed::Refused(problem) if problem.code == right);
        self.ledger.judge(Promise::LimitHolds, kept, first.as_deref(), || pressed.describe());
    }

    /// Drops the socket, unless the result was faster.
    fn leave(&mut self, ear: Ear) -> Ear {
        match ear {
            Ear::Connected(mut socket) => {
                let order_no = self.orders.first().map_or("", |order| order.order_no.as_str());
                match socket.result_so_far(order_no) {
                    Ok(Some(_)) => Ear::Connected(socket),
                    Ok(None) => {
                        self.left = true;
                        Ear::Away(socket.leave())
                    }
                    Err(error) => {
                        self.failed(error);
                        Ear::Away(socket.leave())
                    }
                }
            }
            other @ (Ear::Away(_) | Ear::Returned(_) | Ear::Deaf) => other,
        }
    }

    async fn come_back(&mut self, scene: &Scene<'_>, ear: Ear, left_at: Instant) -> Ear {
        let Ear::Away(away) = ear else { return ear };
        let until = left_at + Duration::from_millis(rand::random_range(AWAY_MS));
        tokio::time::sleep_until(until.into()).await;
        let _one_of_few = scene.handshakes.acquire().await;
        match away.come_back().await {
            Ok(socket) => Ear::Returned(socket),
            Err(error) => {
                self.failed(error);
                Ear::Deaf
            }
        }
    }

    /// Follows one order to its end: by the socket if there is one, else (or if that fails) by asking.
    async fn hear(&mut self, lane: &Api, ear: &mut Ear, index: usize) {
        let (order_no, accepted_at) = (self.orders[index].order_no.clone(), self.orders[index].accepted_at);
        let told = match ear {
            Ear::Connected(socket) => Some((Promise::ConnectedIsPushed, Heard::Pushed, socket)),
            Ear::Returned(socket) => Some((Promise::ReturnedIsReplayed, Heard::Replayed, socket)),
            Ear::Away(_) | Ear::Deaf => None,
        };
        let mut end = None;
        if let Some((promise, heard, socket)) = told {
            // The push is late only when the result is: both are measured from the 202.
            let left = DECIDED_WITHIN.saturating_sub(accepted_at.elapsed());
            let heard_it = socket.result_of(&order_no, left).await;
            self.ledger.judge(promise, heard_it.is_ok(), Some(&order_no), || match &heard_it {
                Ok(_) => String::new(),
                Err(error) => load::error::chain(error),
            });
            match heard_it {
                Ok(delivered) => {
                    let after = delivered.at.saturating_duration_since(accepted_at);
                    let result = &delivered.result;
                    end = Some(End { heard, after, status: result.status, order_status: result.order_status });
                    if let Err(error) = socket.result_ack(result).await {
                        self.failed(error);
                    }
                }
                Err(error) => self.failed(error),
            }
        }
        if end.is_none() {
            match lane.follow(&order_no, LOOKED_FOR.saturating_sub(accepted_at.elapsed())).await {
                Ok(followed) => {
                    let result = followed.result;
                    let after = accepted_at.elapsed();
                    end = Some(End {
                        heard: Heard::Polled,
                        after,
                        status: result.status,
                        order_status: result.order_status,
                    });
                }
                Err(error) => self.failed(error),
            }
        }
        let kept = end.is_some_and(|end| end.status != ResultStatus::Pending && end.after <= DECIDED_WITHIN);
        self.ledger.judge(Promise::EveryOrderDecided, kept, Some(&order_no), || match end {
            Some(end) => format!("{:?} after {:.1} s", end.status, end.after.as_secs_f64()),
            None => format!("not decided after {LOOKED_FOR:?}"),
        });
        self.orders[index].end = end;
    }

    fn request(&self, scene: &Scene<'_>, qty: u32) -> BuyRequest {
        BuyRequest::new(&scene.plan.activity_id, &scene.plan.sku_id(self.buyer.offer), qty)
    }

    /// Sends one request until it is decided. The id stays the same, so it does not matter what became of an answer that
    /// did not come.
    async fn press(&mut self, first: &Api, later: &Api, request: &BuyRequest, request_id: &str) -> Pressed {
        let mut backoff = Backoff::new(FIRST_WAIT, LONGEST_WAIT);
        let mut lane = first;
        for _ in 0..MAX_TRIES {
            let asked_wait = match lane.buy(request, Some(request_id)).await {
                Ok(answer) => {
                    let asked_wait = answer.asked_wait();
                    let replayed = answer.headers.is_replay();
                    let code = answer.problem().map(|problem| problem.code);
                    self.expect(answer.problem());
                    let code = code.map_or("202", ProblemCode::as_str);
                    self.calls.push(Call { code: code.to_owned(), took: Some(answer.took) });
                    match answer.outcome {
                        Ok(accepted) => return Pressed::Accepted { order_no: accepted.order_no, replayed },
                        Err(problem) if problem.code.may_pass_later() || problem.code == ProblemCode::NotStarted => {
                            asked_wait
                        }
                        Err(problem) => return Pressed::Refused(problem),
                    }
                }
                Err(error) => {
                    let code = match &error {
                        ClientError::NotOurs { status, .. } => format!("gateway {status}"),
                        ClientError::Drift { .. } => "off contract".to_owned(),
                        _ => "no answer".to_owned(),
                    };
                    // The gateway may throttle by itself. What did not come is no answer: whether one comes is judged below.
                    match &error {
                        ClientError::NotOurs { status: 429, .. } | ClientError::NoAnswer { .. } => {}
                        _ => self.ledger.judge(Promise::NothingUnexpected, false, None, || load::error::chain(&error)),
                    }
                    self.calls.push(Call { code, took: None });
                    self.failed(error);
                    None
                }
            };
            tokio::time::sleep(backoff.next_wait(asked_wait)).await;
            lane = later;
        }
        let last = self.calls.last().map(|call| call.code.clone()).unwrap_or_default();
        self.ledger.judge(Promise::NothingUnexpected, false, None, || {
            format!("{last} after {MAX_TRIES} tries of {request_id}")
        });
        Pressed::Nothing
    }

    /// An honest wish is granted, refused for one of these reasons, or asked to come again; a bad token is sent away.
    fn expect(&mut self, refusal: Option<&Problem>) {
        let kept = match (refusal.map(|problem| problem.code), self.buyer.role) {
            (code, Role::Forged(_)) => code == Some(ProblemCode::Unauthenticated),
            (None, _) => true,
            (Some(code), _) => matches!(
                code,
                ProblemCode::AlreadyBought
                    | ProblemCode::LimitExceeded
                    | ProblemCode::StockEmpty
                    | ProblemCode::InsufficientStock
                    | ProblemCode::RateLimited
                    | ProblemCode::NotStarted
                    | ProblemCode::NotReady
                    | ProblemCode::Unavailable
            ),
        };
        self.ledger.judge(Promise::NothingUnexpected, kept, None, || match refusal {
            Some(problem) => format!("{} {} {}", problem.status, problem.code, problem.request_id),
            None => "202".to_owned(),
        });
    }

    fn failed(&mut self, error: ClientError) {
        if self.failures.len() < MAX_FAILURES {
            self.failures.push(error);
        }
    }
}

impl Pressed {
    fn describe(&self) -> String {
        match self {
            Self::Accepted { order_no, replayed } => format!("202 {order_no}, replayed: {replayed}"),
            Self::Refused(problem) => format!("{} {}", problem.status, problem.code),
            Self::Nothing => "no answer".to_owned(),
        }
    }
}
