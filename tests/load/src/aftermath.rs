//! After the storm: strangers are sent away, bad tokens are tried at the socket's door, and the system's own audit says
//! what it thinks of itself.

use std::time::Duration;

use client::documents::{AuditReport, ProblemCode, ResultStatus, Stats, Verdict};
use client::{Answer, Api, ClientError, ConnectOptions, Socket, Stack};
use futures_util::StreamExt;
use load::calls::accepted;
use load::error::DemoError;
use load::progress::Progress;

use crate::buyer::forge;
use crate::plan::{BadToken, Offer, Plan, Role};
use crate::promises::{Ledger, Promise};
use crate::settings::Settings;
use crate::stage::Sale;
use crate::storm::Crowd;

/// Snoops that try; each reads a stranger's order in three ways.
const MAX_SNOOPS: usize = 50;
const SNOOPS_AT_ONCE: usize = 8;
/// A buyer is told a moment before the last trace of the order is put away (the pending mark, the queue's message). The
/// audit counts every mismatch, so it looks again until that moment is over; the last look stands.
const AUDIT_LOOKS: u32 = 15;
const AUDIT_PAUSE: Duration = Duration::from_secs(2);
/// Nothing is in motion any more: every mismatch counts.
const QUIET_BOUND_SECS: u32 = 0;

#[derive(Debug)]
pub(crate) struct Aftermath {
    pub(crate) ledger: Ledger,
    pub(crate) audit: AuditReport,
    /// How often the audit looked.
    pub(crate) looks: u32,
}

pub(crate) async fn look(
    api: &Api,
    stack: &Stack,
    plan: &Plan,
    sale: &Sale,
    crowd: &Crowd<'_>,
    progress: &Progress,
) -> Result<Aftermath, DemoError> {
    let mut ledger = Ledger::default();
    snoop(api, stack, crowd, &mut ledger).await?;
    knock_at_the_socket(stack, plan, &mut ledger).await?;
    let admin = api.signed_in(stack.admin_token());
    let (audit, looks) = audit(&admin, sale, progress).await?;
    Ok(Aftermath { ledger, audit, looks })
}

/// Sold what was wanted, and booked what was told. At the end of the storm: later some units come back.
pub(crate) async fn count(
    api: &Api,
    stack: &Stack,
    plan: &Plan,
    sale: &Sale,
    settings: &Settings,
    crowd: &mut Crowd<'_>,
) -> Result<Stats, DemoError> {
    let admin = api.signed_in(stack.admin_token());
    let stats = accepted("reading the stats", async || admin.stats(&sale.activity_id).await).await?;
    // On a slow machine the first orders have run out of time by now; then only what was told can be counted.
    let all_there = sale.opens.elapsed() < sale.pay_window;
    for offer in Offer::ALL {
        let sku_id = plan.sku_id(offer);
        let committed = stats.products.iter().find(|product| product.sku_id == sku_id).map(|product| product.committed);
        let of_offer = crowd.stories.iter().filter(|story| story.buyer.offer == offer).flat_map(|story| &story.orders);
        let won = of_offer.filter(|order| order.end.is_some_and(|end| end.status == ResultStatus::Success));
        let told: i64 = won.map(|order| i64::from(order.qty)).sum();
        let sellable = i64::from(settings.stock.min(plan.demand(offer)));
        // A second wish within the limit may take more than the first ones asked for, but never more than there is.
        let sold = if all_there {
            committed.is_some_and(|committed| (sellable..=settings.stock.into()).contains(&committed))
        } else {
            told >= sellable
        };
        crowd.ledger.judge(Promise::SoldWhatWasWanted, sold, None, || {
            format!(
                "{sku_id}: committed {committed:?}, told {told} of {}, wanted {}",
                settings.stock,
                plan.demand(offer)
            )
        });
        if all_there {
            crowd.ledger.judge(Promise::WhatWasToldIsBooked, committed == Some(told), None, || {
                format!("{sku_id}: told {told}, committed {committed:?}")
            });
        }
    }
    Ok(stats)
}

/// Strangers ask for orders that are not theirs.
async fn snoop(api: &Api, stack: &Stack, crowd: &Crowd<'_>, ledger: &mut Ledger) -> Result<(), DemoError> {
    let orders: Vec<(usize, &str)> = crowd
        .stories
        .iter()
        .flat_map(|story| story.orders.iter().map(|order| (story.buyer.index, order.order_no.as_str())))
        .collect();
    let snoops =
        crowd.stories.iter().map(|story| story.buyer).filter(|buyer| buyer.role == Role::Snoops).take(MAX_SNOOPS);
    let tries = snoops.enumerate().filter_map(|(turn, snoop)| {
        let strange = orders.iter().cycle().skip(turn).take(orders.len()).find(|(owner, _)| *owner != snoop.index);
        strange.map(|(_, order_no)| (snoop, *order_no))
    });
    let answers = futures_util::stream::iter(tries)
        .map(async |(snoop, order_no)| {
            let caller = api.signed_in(stack.user_token(&snoop.user_id)?);
            let seen = [
                seen(&caller.result(order_no).await?),
                seen(&caller.order(order_no).await?),
                seen(&caller.order_state(order_no).await?),
            ];
            Ok::<_, ClientError>((order_no, seen))
        })
        .buffer_unordered(SNOOPS_AT_ONCE)
        .collect::<Vec<_>>()
        .await;
    for answer in answers {
        let (order_no, seen) = answer.map_err(DemoError::step("reading a stranger's order"))?;
        for what in seen {
            let kept = what == (404, Some(ProblemCode::NotFound));
            ledger.judge(Promise::StrangerSeesNothing, kept, Some(order_no), || format!("{what:?}"));
        }
    }
    Ok(())
}

fn seen<T>(answer: &Answer<T>) -> (u16, Option<ProblemCode>) {
    (answer.status, answer.problem().map(|problem| problem.code))
}

async fn knock_at_the_socket(stack: &Stack, plan: &Plan, ledger: &mut Ledger) -> Result<(), DemoError> {
    for kind in BadToken::ALL {
        let token = forge(stack, kind, &format!("{}-forger", plan.activity_id))?;
        let opened = Socket::connect(stack, ConnectOptions::new(token)).await;
        // AWS answers 401; the local gateway turns it into 403.
        let kept = matches!(opened, Err(ClientError::HandshakeRefused { status: 401 | 403 }));
        ledger.judge(Promise::BadTokenRefused, kept, None, || match opened {
            Ok(_) => format!("{kind:?}: connected"),
            Err(error) => format!("{kind:?}: {}", load::error::chain(&error)),
        });
    }
    Ok(())
}

async fn audit(admin: &Api, sale: &Sale, progress: &Progress) -> Result<(AuditReport, u32), DemoError> {
    let phase = progress.phase("audit looks", 1);
    let mut looks = 1;
    loop {
        let report =
            accepted("the audit", async || admin.audit(&sale.activity_id, Some(QUIET_BOUND_SECS)).await).await?;
        phase.one_done();
        // What moved was not judged.
        let settled = report.verdict == Verdict::Pass && report.counts.moving == 0;
        if settled || looks == AUDIT_LOOKS {
            phase.finish();
            return Ok((report, looks));
        }
        looks += 1;
        phase.one_more();
        tokio::time::sleep(AUDIT_PAUSE).await;
    }
}
