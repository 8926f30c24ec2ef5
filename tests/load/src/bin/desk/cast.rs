//! Who plays, and what they say.
//!
//! An agent knows the answer to each line by heart. So it does not matter who answers: whoever gets a session looks at the
//! last word of its customer, and answers if nobody has.

/// What happens to a customer, apart from talking.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    Talks,
    /// The connection breaks, and comes back while the agent has answered.
    Leaves,
    /// The connection breaks right after a word was sent, so that its `sent` is lost.
    LosesSent,
    ShowsImage,
    /// Comes last, meets all of it, and has the conversation that is printed.
    Star,
}

/// Given out in turns; the last customer is the star.
const PARTS: [Part; 4] = [Part::Talks, Part::Leaves, Part::ShowsImage, Part::LosesSent];

const AGENTS: [&str; 10] = ["mei", "tom", "ada", "wu", "eva", "jun", "leo", "ines", "kai", "zoe"];
const CUSTOMERS: [&str; 12] = ["ana", "bo", "chen", "dora", "emil", "fang", "gita", "hugo", "ivy", "jan", "kim", "lin"];
const STAR: &str = "xiaoyu";

/// A line of a customer and what is answered.
type Turn = (&'static str, &'static str);

const TALKS: [[Turn; 3]; 4] = [
    [
        ("Hi! I won a hotcake at ten sharp and cannot believe it 🎉", "Congratulations! Yes, it is yours."),
        ("When does it leave the oven?", "Within a day after it is paid."),
        ("And if I am not at home?", "Then it waits at the pick-up point for a week."),
    ],
    [
        ("你好！请问什么时候发货？", "您好！付款后 24 小时内发货。"),
        ("可以开发票吗？", "可以，在订单页面申请就行。"),
        ("太好了，谢谢 😊", "不客气！还有别的问题吗？"),
    ],
    [
        ("I paid, but my order still says UNPAID.", "Let me look… the bank told us a moment ago: it is paid."),
        ("That was quick 😀 Can I change the address?", "Until it is packed, yes. What is the new one?"),
        ("12 Elm Street, third floor.", "Done: 12 Elm Street, third floor."),
    ],
    [
        ("我想取消订单，可以退款吗？", "可以，未发货的订单会原路退款。"),
        ("大概要几天？", "一般 1 到 3 个工作日。"),
        ("Can you write that in English, too? 🙏", "Of course: one to three working days, to the card you paid with."),
    ],
];

const STAR_HELLO: Turn = ("你好！我的热蛋糕什么时候到？", "您好！请把订单发给我看看。Please show me the order.");
const STAR_PICTURE: Turn = ("Do they really look like in the picture? 👀", "Which picture? Show me, please.");
const STAR_TUNNEL: Turn = ("Wait, my train goes into a tunnel 🚇", "No hurry, I am here. 不着急。");
const STAR_BACK: Turn = ("我回来了，刚才断线了 🙈", "欢迎回来！Nothing is lost, I have every word of yours.");
const STAR_TRANSFER: Turn =
    ("Could somebody who knows about payments help me?", "Of course. I hand you over to a colleague. 我帮您转接。");
const STAR_PAYMENT: Turn = ("可以分两次付款吗？", "一个订单只能付一次款。One payment for one order, I am afraid.");

const PICTURE: &str = "I see it, thank you. Yes, just like that, with butter on top.";
const CARD: &str = "Thank you, I see the order. It is kept for you until the time to pay is over.";
/// The customer closes, or asks for it.
pub(crate) const GOODBYE: Turn = ("That is all, thank you. 谢谢，再见！", "You are welcome. 再见 👋");
pub(crate) const PLEASE_CLOSE: Turn = ("Thank you! Please close this for me.", "With pleasure. Goodbye! 👋");
const NO_IDEA: &str = "One moment, please.";
pub(crate) const LATE_WORD: &str = "Oh, and one more thing…";

/// What an agent does after an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Then {
    Waits,
    Transfers,
    Closes,
}

/// What the star says, in order.
pub(crate) struct StarLines {
    pub(crate) hello: &'static str,
    pub(crate) picture: &'static str,
    pub(crate) tunnel: &'static str,
    pub(crate) back: &'static str,
    pub(crate) transfer: &'static str,
    pub(crate) payment: &'static str,
}

pub(crate) const STAR_LINES: StarLines = StarLines {
    hello: STAR_HELLO.0,
    picture: STAR_PICTURE.0,
    tunnel: STAR_TUNNEL.0,
    back: STAR_BACK.0,
    transfer: STAR_TRANSFER.0,
    payment: STAR_PAYMENT.0,
};

/// The part of a customer among so many.
pub(crate) fn part(index: usize, customers: usize) -> Part {
    if index + 1 == customers { Part::Star } else { PARTS[index % PARTS.len()] }
}

/// Every part meets every conversation in the end.
pub(crate) fn lines(index: usize) -> [&'static str; 3] {
    TALKS[(index / PARTS.len() + index) % TALKS.len()].map(|(line, _)| line)
}

pub(crate) fn customer_name(index: usize, customers: usize) -> String {
    match (part(index, customers), index / CUSTOMERS.len()) {
        (Part::Star, _) => STAR.to_owned(),
        (_, 0) => CUSTOMERS[index].to_owned(),
        (_, round) => format!("{}{}", CUSTOMERS[index % CUSTOMERS.len()], round + 1),
    }
}

pub(crate) fn agent_name(index: usize) -> &'static str {
    AGENTS[index % AGENTS.len()]
}

/// As an agent writes it.
pub(crate) fn capital(name: &str) -> String {
    let mut letters = name.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

pub(crate) fn greeting(name: &str, is_first: bool) -> String {
    let name = capital(name);
    if is_first {
        format!("Hello, this is {name}. How can I help? 您好，我是 {name}。")
    } else {
        format!("Hello, {name} here. I have read all of this; let us go on.")
    }
}

/// What an agent answers to a text, and does then.
pub(crate) fn answer(line: &str) -> (&'static str, Then) {
    let star = [STAR_HELLO, STAR_PICTURE, STAR_TUNNEL, STAR_BACK, STAR_TRANSFER, STAR_PAYMENT];
    let mut known = TALKS.iter().flatten().chain(&star).chain([&GOODBYE, &PLEASE_CLOSE]);
    let answer = known.find(|(known, _)| *known == line).map_or(NO_IDEA, |(_, answer)| answer);
    let then = if line == STAR_TRANSFER.0 {
        Then::Transfers
    } else if line == PLEASE_CLOSE.0 {
        Then::Closes
    } else {
        Then::Waits
    };
    (answer, then)
}

pub(crate) const fn answer_to_picture() -> &'static str {
    PICTURE
}

pub(crate) const fn answer_to_card() -> &'static str {
    CARD
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_line_has_its_answer_and_every_name_is_somebodys() {
        for line in TALKS.iter().flatten().map(|(line, _)| line) {
            assert_ne!(answer(line).0, NO_IDEA, "{line}");
        }
        assert_eq!(answer(STAR_LINES.transfer).1, Then::Transfers);
        let names: BTreeSet<String> = (0..60).map(|index| customer_name(index, 60)).collect();
        assert_eq!(names.len(), 60);
        assert_eq!(customer_name(59, 60), STAR);
        assert_eq!(greeting("mei", true), "Hello, this is Mei. How can I help? 您好，我是 Mei。");
    }
}
