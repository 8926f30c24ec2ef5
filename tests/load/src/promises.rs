//! What is promised to a buyer and can be seen from outside.
//!
//! The audit knows whether the books are right. It cannot know what a buyer was told: that is judged here, one case at a
//! time, and each promise ends as one check with the number of cases it was judged by.

use load::ledger::Promised;

pub(crate) type Ledger = load::ledger::Ledger<Promise>;

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

impl Promised for Promise {
    const ALL: &'static [Self] = &[
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

    fn text(self) -> &'static str {
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
