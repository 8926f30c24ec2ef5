//! C30: every order in which the steps of two senders can be taken, for three ways to number messages. Two of them are the
//! obvious ones, and lose messages. The third is the rule of `Desk::send`, whose code the other tests try: eight senders at once
//! (`sending`), and the desk against its model (`model`).

use std::collections::BTreeMap;

/// The rows of one session.
#[derive(Debug, Clone, Default)]
struct Rows {
    head: u64,
    messages: BTreeMap<u64, &'static str>,
}

/// A sender in the middle of sending.
#[derive(Debug, Clone)]
struct Sender {
    word: &'static str,
    read: Option<u64>,
    done: bool,
    /// Steps it may take before it is killed.
    lives: u32,
}

/// Takes one step; `true`: it says that it was sent.
type Step = fn(&mut Sender, &mut Rows);

/// `max(seq) + 1`, then put.
fn highest_then_put(sender: &mut Sender, rows: &mut Rows) {
    match sender.read {
        None => sender.read = Some(rows.messages.keys().max().copied().unwrap_or(0)),
        Some(highest) => {
            rows.messages.insert(highest + 1, sender.word);
            sender.done = true;
        }
    }
}

/// `ADD head 1`, then put.
fn add_then_put(sender: &mut Sender, rows: &mut Rows) {
    match sender.read {
        None => {
            rows.head += 1;
            sender.read = Some(rows.head);
        }
        Some(seq) => {
            rows.messages.insert(seq, sender.word);
            sender.done = true;
        }
    }
}

/// Read the head, then head and message in one transaction on condition that the head is as it was read.
fn conditional_together(sender: &mut Sender, rows: &mut Rows) {
    match sender.read {
        None => sender.read = Some(rows.head),
        Some(read) if rows.head == read && !rows.messages.contains_key(&(read + 1)) => {
            rows.head = read + 1;
            rows.messages.insert(read + 1, sender.word);
            sender.done = true;
        }
        // Refused, with the row as it is now.
        Some(_) => sender.read = Some(rows.head),
    }
}

/// What went wrong in some order of steps. A reader who has everything up to a number never looks below it again, so a
/// message that appears under a number that was skipped is lost to them.
fn explore(step: Step, lives: &[u32]) -> Vec<String> {
    let senders: Vec<Sender> = ["a", "b"]
        .into_iter()
        .zip(lives)
        .map(|(word, lives)| Sender { word, read: None, done: false, lives: *lives })
        .collect();
    let mut found = Vec::new();
    walk(&senders, &Rows::default(), 0, step, &mut found);
    found.sort();
    found.dedup();
    found
}

fn walk(senders: &[Sender], rows: &Rows, seen_up_to: u64, step: Step, found: &mut Vec<String>) {
    let mut moved = false;
    for nth in 0..senders.len() {
        if senders[nth].done || senders[nth].lives == 0 {
            continue;
        }
        moved = true;
        let (mut senders, mut rows_then) = (senders.to_vec(), rows.clone());
        senders[nth].lives -= 1;
        step(&mut senders[nth], &mut rows_then);
        if rows_then.messages.iter().any(|(seq, word)| rows.messages.get(seq).is_some_and(|before| before != word)) {
            found.push("a message took the place of another".to_owned());
        }
        let below = rows_then.messages.keys().find(|seq| **seq <= seen_up_to && !rows.messages.contains_key(*seq));
        if let Some(seq) = below {
            found.push(format!("message {seq} came after a later one had been shown"));
        }
        let shown = rows_then.messages.keys().max().copied().unwrap_or(0);
        walk(&senders, &rows_then, shown, step, found);
    }
    if !moved {
        let sent = senders.iter().filter(|sender| sender.done).count();
        if rows.messages.len() < sent {
            found.push("a message that was sent is not there".to_owned());
        }
        if !rows.messages.keys().copied().eq(1..=rows.messages.len() as u64) {
            found.push("the numbers have a gap".to_owned());
        }
    }
}

#[test]
fn the_highest_number_and_one_loses_messages() {
    let found = explore(highest_then_put, &[8, 8]);
    assert!(found.contains(&"a message that was sent is not there".to_owned()), "{found:?}");
}

#[test]
fn counting_first_and_storing_second_leaves_gaps_and_messages_nobody_sees() {
    let found = explore(add_then_put, &[8, 8]);
    assert!(found.iter().any(|what| what.contains("came after a later one")), "{found:?}");
    // One sender dies between the two.
    let found = explore(add_then_put, &[1, 8]);
    assert!(found.contains(&"the numbers have a gap".to_owned()), "{found:?}");
}

#[test]
fn both_in_one_conditional_transaction_loses_nothing() {
    for lives in [[8, 8], [1, 8], [2, 8], [3, 8]] {
        assert_eq!(explore(conditional_together, &lives), [""; 0], "{lives:?}");
    }
}
