//! What is promised to a buyer and can be seen from outside.
//!
//! The audit knows whether the books are right. It cannot know what a buyer was told: that is judged here, one case at a
//! time, and each promise ends as one check with the number of cases it was judged by.

use std::collections::BTreeMap;

use serde::Serialize;

/// The promises, in the order in which they are reported.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Promise {
    ClosedBeforeStart,
    EveryOrderDecided,
    ConnectedIsPushed,
    ReturnedIsReplayed,
    RetrySameOrder,
    LimitHolds,
    BadTokenRefused,
    StrangerSeesNothing,
    NothingUnexpected,
    EnoughConnected,
    EnoughLeft,
    SoldWhatWasWanted,
    WhatWasToldIsBooked,
    NoticesAreTaken,
    FailedTryChangesNothing,
    ConnectedHearsTheEnd,
    PaidIsPaid,
    CancelledIsCancelled,
    LateMoneyGoesBack,
    SaleIsSettled,
    MoneyAgrees,
}

impl Promise {
    pub(crate) const ALL: [Self; 21] = [
        Self::ClosedBeforeStart,
        Self::EveryOrderDecided,
        Self::ConnectedIsPushed,
        Self::ReturnedIsReplayed,
        Self::RetrySameOrder,
        Self::LimitHolds,
        Self::BadTokenRefused,
        Self::StrangerSeesNothing,
        Self::NothingUnexpected,
        Self::EnoughConnected,
        Self::EnoughLeft,
        Self::SoldWhatWasWanted,
        Self::WhatWasToldIsBooked,
        Self::NoticesAreTaken,
        Self::FailedTryChangesNothing,
        Self::ConnectedHearsTheEnd,
        Self::PaidIsPaid,
        Self::CancelledIsCancelled,
        Self::LateMoneyGoesBack,
        Self::SaleIsSettled,
        Self::MoneyAgrees,
    ];

    pub(crate) const fn text(self) -> &'static str {
        match self {
            Self::ClosedBeforeStart => "before the start the answer is NOT_STARTED",
            Self::EveryOrderDecided => "every 202 became success or fail within 30 s",
            Self::ConnectedIsPushed => "every connected winner got the push",
            Self::ReturnedIsReplayed => "every winner who dropped the socket got the result after coming back",
            Self::RetrySameOrder => "the same request id led to the same order, marked as a replay",
            Self::LimitHolds => "a second wish was refused at the limit, and only there",
            Self::BadTokenRefused => "a bad token opened neither the routes (401) nor the socket",
            Self::StrangerSeesNothing => "somebody else's order does not exist (404)",
            Self::NothingUnexpected => "no other answer than those of the contract",
            Self::EnoughConnected => "at least 30 % of the buyers were connected",
            Self::EnoughLeft => "at least 10 % of the winners dropped the socket before their result",
            Self::SoldWhatWasWanted => "at the end of the storm committed units = stock, or all that was asked for",
            Self::WhatWasToldIsBooked => "units told as success = units committed",
            Self::NoticesAreTaken => "every notice of a payment was taken, repeated ones too",
            Self::FailedTryChangesNothing => "a try to pay that failed left the order to be paid",
            Self::ConnectedHearsTheEnd => "every connected winner was told that the order is paid or cancelled",
            Self::PaidIsPaid => "every order that was paid in time is PAID",
            Self::CancelledIsCancelled => "every order that was cancelled, or not paid in time, is CANCELLED",
            Self::LateMoneyGoesBack => "every payment for a cancelled order was paid back",
            Self::SaleIsSettled => "the sale was settled once nothing of it was undecided",
            Self::MoneyAgrees => "the shop's books and the payment provider's ledger agree",
        }
    }
}

/// A promise that was not kept.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Breach {
    pub(crate) detail: String,
    pub(crate) order_no: Option<String>,
}

/// Cases seen so far.
#[derive(Debug, Default)]
pub(crate) struct Ledger(BTreeMap<Promise, (usize, Vec<Breach>)>);

/// One promise over the whole run.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Check {
    pub(crate) promise: &'static str,
    pub(crate) passed: bool,
    /// How often it was put to the test. A promise that no case tested is not broken either.
    pub(crate) cases: usize,
    pub(crate) breaches: Vec<Breach>,
}

impl Ledger {
    /// Judges one case; `detail` is asked for only when the promise was broken.
    pub(crate) fn judge(
        &mut self,
        promise: Promise,
        kept: bool,
        order_no: Option<&str>,
        detail: impl FnOnce() -> String,
    ) {
        let (cases, breaches) = self.0.entry(promise).or_default();
        *cases += 1;
        if !kept {
            breaches.push(Breach { detail: detail(), order_no: order_no.map(str::to_owned) });
        }
    }

    pub(crate) fn merge(&mut self, other: &Self) {
        for (promise, (cases, breaches)) in &other.0 {
            let entry = self.0.entry(*promise).or_default();
            entry.0 += cases;
            entry.1.extend(breaches.iter().cloned());
        }
    }

    pub(crate) fn checks(&self) -> Vec<Check> {
        let check = |promise: Promise| {
            let (cases, breaches) = self.0.get(&promise).cloned().unwrap_or_default();
            Check { promise: promise.text(), passed: breaches.is_empty(), cases, breaches }
        };
        Promise::ALL.into_iter().map(check).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_broken_case_fails_its_check_and_no_other() {
        let mut ledger = Ledger::default();
        ledger.judge(Promise::ConnectedIsPushed, true, None, String::new);
        let mut other = Ledger::default();
        other.judge(Promise::ConnectedIsPushed, false, Some("SK1"), || "no push".to_owned());
        ledger.merge(&other);
        let checks = ledger.checks();
        assert_eq!(checks.len(), Promise::ALL.len());
        let failed: Vec<_> = checks.iter().filter(|check| !check.passed).collect();
        assert_eq!(failed.len(), 1);
        assert_eq!((failed[0].promise, failed[0].cases), (Promise::ConnectedIsPushed.text(), 2));
        assert_eq!(failed[0].breaches[0].order_no.as_deref(), Some("SK1"));
    }
}
