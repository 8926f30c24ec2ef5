//! Who does what.
//!
//! The crowd is a cast of twenty, played over and over: any twenty buyers in a row hold the same parts, in an order that
//! the seed shuffles. So the shares hold among the first buyers as well as among all, and it is the first ones who win.

use rand::SeedableRng;
use rand::rngs::StdRng;
use rand::seq::SliceRandom;

/// What is on offer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Offer {
    /// One unit per buyer.
    Single,
    /// Up to three units per buyer, asked for in ones, twos and threes.
    Multi,
}

/// How a buyer hears of the result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Line {
    /// By push on a socket that was opened before the start.
    Socket,
    /// The socket is dropped right after the 202, before the result; the buyer comes back and has it replayed.
    Leaves,
    /// By asking.
    Polls,
}

/// What a buyer does apart from pressing the button.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    Plain,
    /// Sends the same request again, as if the answer had been lost.
    Retries,
    /// Presses the button again: a new wish, a new request id.
    ComesTwice,
    /// Tries to read a stranger's order.
    Snoops,
    /// Comes with a token that must not open the door.
    Forged(BadToken),
}

/// What is wrong with a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BadToken {
    Expired,
    ForeignKey,
    ForeignIssuer,
    ForeignAudience,
    Unsigned,
    Garbage,
}

impl BadToken {
    pub(crate) const ALL: [Self; 6] =
        [Self::Expired, Self::ForeignKey, Self::ForeignIssuer, Self::ForeignAudience, Self::Unsigned, Self::Garbage];
}

/// One of the crowd.
#[derive(Debug, Clone)]
pub(crate) struct Buyer {
    pub(crate) index: usize,
    pub(crate) user_id: String,
    pub(crate) device_id: String,
    pub(crate) offer: Offer,
    pub(crate) qty: u32,
    pub(crate) line: Line,
    pub(crate) role: Role,
}

/// The whole crowd and the names of the sale it comes for.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) seed: u64,
    /// Told apart from earlier runs on the same stack.
    pub(crate) activity_id: String,
    pub(crate) buyers: Vec<Buyer>,
}

/// A part in the cast: offer, units asked for, line, role. A forger's token is chosen when the part is given out.
type Part = (Offer, u32, Line, Role);

/// Seven in twenty connect, four of them leave; one in twenty is a forger.
const CAST: [Part; 20] = [
    (Offer::Single, 1, Line::Socket, Role::Plain),
    (Offer::Single, 1, Line::Socket, Role::Retries),
    (Offer::Single, 1, Line::Leaves, Role::Plain),
    (Offer::Single, 1, Line::Leaves, Role::ComesTwice),
    (Offer::Single, 1, Line::Leaves, Role::Plain),
    (Offer::Single, 1, Line::Polls, Role::Plain),
    (Offer::Single, 1, Line::Polls, Role::Plain),
    (Offer::Single, 1, Line::Polls, Role::Plain),
    (Offer::Single, 1, Line::Polls, Role::Plain),
    (Offer::Single, 1, Line::Polls, Role::Retries),
    (Offer::Single, 1, Line::Polls, Role::ComesTwice),
    (Offer::Single, 1, Line::Polls, Role::Snoops),
    (Offer::Single, 1, Line::Polls, Role::Forged(BadToken::Expired)),
    (Offer::Multi, 1, Line::Polls, Role::Plain),
    (Offer::Multi, 2, Line::Socket, Role::ComesTwice),
    (Offer::Multi, 3, Line::Leaves, Role::Retries),
    (Offer::Multi, 1, Line::Polls, Role::ComesTwice),
    (Offer::Multi, 1, Line::Polls, Role::Snoops),
    (Offer::Multi, 2, Line::Polls, Role::Plain),
    (Offer::Multi, 3, Line::Polls, Role::Plain),
];

impl Offer {
    pub(crate) const ALL: [Self; 2] = [Self::Single, Self::Multi];

    /// Units one buyer may have.
    pub(crate) const fn limit(self) -> u32 {
        match self {
            Self::Single => 1,
            Self::Multi => 3,
        }
    }

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Single => "single",
            Self::Multi => "multi",
        }
    }
}

impl Buyer {
    pub(crate) const fn connects(&self) -> bool {
        match self.line {
            Line::Socket | Line::Leaves => true,
            Line::Polls => false,
        }
    }

    /// Made once per wish to buy; every retry of that wish repeats it.
    pub(crate) fn request_id(&self, wish: u32) -> String {
        format!("{}:{wish}", self.user_id)
    }
}

impl Plan {
    /// The crowd of a run that begins now.
    pub(crate) fn draw(buyers: usize, seed: u64) -> Self {
        let activity_id = format!("demo-{}", jiff::Timestamp::now().as_second());
        let mut rng = StdRng::seed_from_u64(seed);
        let mut parts = Vec::with_capacity(buyers.next_multiple_of(CAST.len()));
        while parts.len() < buyers {
            let mut cast = CAST;
            cast.shuffle(&mut rng);
            parts.extend(cast);
        }
        let buyers = parts.into_iter().take(buyers).enumerate().map(|(index, (offer, qty, line, role))| {
            let role = match role {
                Role::Forged(_) => Role::Forged(BadToken::ALL[index / CAST.len() % BadToken::ALL.len()]),
                Role::Plain | Role::Retries | Role::ComesTwice | Role::Snoops => role,
            };
            let user_id = format!("{activity_id}-u{index}");
            let device_id = format!("{activity_id}-d{index}");
            Buyer { index, user_id, device_id, offer, qty, line, role }
        });
        Self { seed, buyers: buyers.collect(), activity_id }
    }

    pub(crate) fn sku_id(&self, offer: Offer) -> String {
        format!("{}-{}", self.activity_id, offer.name())
    }

    /// Units that buyers with a good token ask for with their first wish. An offer with no more stock than this must
    /// sell out whatever the order of arrival, since a buyer who asks for more than is left takes what is left.
    pub(crate) fn demand(&self, offer: Offer) -> u32 {
        let honest = |buyer: &&Buyer| buyer.offer == offer && !matches!(buyer.role, Role::Forged(_));
        self.buyers.iter().filter(honest).map(|buyer| buyer.qty).sum()
    }

    pub(crate) fn connecting(&self) -> impl Iterator<Item = &Buyer> {
        self.buyers.iter().filter(|buyer| buyer.connects())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn share(buyers: &[Buyer], is: impl Fn(&Buyer) -> bool) -> f64 {
        buyers.iter().filter(|buyer| is(buyer)).count() as f64 / buyers.len() as f64
    }

    #[test]
    fn any_twenty_in_a_row_from_the_start_hold_the_promised_shares() {
        let plan = Plan::draw(2_000, 7);
        assert_eq!(plan.buyers.len(), 2_000);
        for cast in plan.buyers.chunks(CAST.len()) {
            assert!(share(cast, Buyer::connects) >= 0.3);
            assert!(share(cast, |buyer| buyer.line == Line::Leaves) >= 0.15);
            for role in [Role::Retries, Role::ComesTwice, Role::Snoops] {
                assert!(share(cast, |buyer| buyer.role == role) >= 0.1, "{role:?}");
            }
            assert!(share(cast, |buyer| matches!(buyer.role, Role::Forged(_))) >= 0.05);
        }
        for kind in BadToken::ALL {
            assert!(plan.buyers.iter().any(|buyer| buyer.role == Role::Forged(kind)), "{kind:?}");
        }
    }

    #[test]
    fn both_offers_are_wanted_by_more_than_they_have() {
        for (buyers, stock) in [(200, 100), (2_000, 100), (10_000, 500)] {
            let plan = Plan::draw(buyers, 1);
            for offer in Offer::ALL {
                assert!(plan.demand(offer) >= stock, "{buyers} {offer:?} {}", plan.demand(offer));
            }
        }
    }

    #[test]
    fn nobody_asks_for_more_than_the_limit_and_all_three_sizes_come() {
        assert!(CAST.iter().all(|(offer, qty, ..)| (1..=offer.limit()).contains(qty)));
        for size in 1..=3 {
            assert!(CAST.iter().any(|(offer, qty, ..)| *offer == Offer::Multi && *qty == size));
        }
    }

    #[test]
    fn a_seed_repeats_the_crowd_and_users_are_all_different() {
        let cast = |seed| Plan::draw(50, seed).buyers.iter().map(|b| (b.offer, b.qty, b.line)).collect::<Vec<_>>();
        assert_eq!(cast(3), cast(3));
        assert_ne!(cast(3), cast(4));
        let plan = Plan::draw(45, 3);
        let users: std::collections::HashSet<_> = plan.buyers.iter().map(|buyer| &buyer.user_id).collect();
        assert_eq!(users.len(), 45);
        assert!(plan.buyers.iter().all(|buyer| buyer.user_id.len() <= 64));
    }
}
