//! What stays of a conversation: lists and pages over HTTP, images and cards, ratings, long replays.

use chat::desk::send::{Draft, Name};
use chat::ids::Party;
use chat::message::{Body as Word, MessageText};
use client::Role;
use client::chat::Body;
use client::documents::{ProblemCode, RatePost, Stretch, UploadPost};
use client::frames::{FrameErrorCode, NoteEvent, ServerFrame, SessionStatus};
use client::{ClientError, Secret};
use e2e::local::frame_is_documented;
use e2e::shop::done;
use e2e::{Offer, SOON, Shop, eventually, refusal};
use serde_json::json;

use crate::floor::{Floor, now};
use crate::line::{seqs, text};

/// As much as a frame may hold.
const MAX_FRAME_BYTES: usize = 30 * 1024;

#[tokio::test]
async fn the_history_is_read_in_pages_and_the_list_has_the_newest_first() {
    let floor = Floor::beside().await;
    let id = floor.id("u1");
    let mut line = floor.live(Role::User, &id).await;
    let first = line.open().await.session_id;
    for word in 1..=7 {
        line.text(&first, &format!("word {word}"), &format!("m{word}")).await;
    }
    let api = floor.api(Role::User, &id);
    let page = async |stretch, limit| {
        let page = done(api.chat_messages(&first, stretch, limit).await);
        assert_eq!(page.head, 7);
        page.items.iter().map(|item| item.seq).collect::<Vec<_>>()
    };
    assert_eq!(page(Stretch::Newest, None).await, [1, 2, 3, 4, 5, 6, 7]);
    assert_eq!(page(Stretch::Newest, Some(3)).await, [5, 6, 7]);
    assert_eq!(page(Stretch::Before(5), Some(3)).await, [2, 3, 4]);
    assert_eq!(page(Stretch::Before(2), Some(3)).await, [1]);
    assert_eq!(page(Stretch::Before(1), None).await, [0; 0]);
    assert_eq!(page(Stretch::After(0), Some(2)).await, [1, 2]);
    assert_eq!(page(Stretch::After(5), None).await, [6, 7]);
    assert_eq!(page(Stretch::After(7), None).await, [0; 0]);
    for limit in [0, 101] {
        refusal(api.chat_messages(&first, Stretch::Newest, Some(limit)).await.unwrap(), ProblemCode::Validation);
    }
    let both = format!("/api/chat/sessions/{first}/messages?before=3&after=1");
    let request = client::RawRequest { method: client::Method::GET, path: &both, headers: &[], body: None };
    assert_eq!(api.raw(request).await.unwrap().status, 400);
    // The sender's own name for it comes back to them.
    let history = done(api.chat_messages(&first, Stretch::After(6), None).await);
    assert_eq!(history.items[0].client_msg_id.as_deref(), Some("m7"));

    line.say(json!({"type": "close", "sessionId": first})).await;
    line.session("the end", |it| it.status == SessionStatus::Closed).await;
    line.say(json!({"type": "open"})).await;
    let second = line.session("another one", |it| it.session_id != first).await.session_id;
    let page = done(api.chat_sessions(Some(1), None).await);
    assert_eq!((page.items.len(), &page.items[0].session_id), (1, &second));
    assert!(page.items[0].queue_position.is_some_and(|place| place > 0));
    let next = done(api.chat_sessions(Some(1), page.cursor.as_deref()).await);
    assert_eq!((next.items.len(), &next.items[0].session_id, next.items[0].head), (1, &first, 8));
    assert_eq!(next.items[0].status, SessionStatus::Closed);
    let all = done(api.chat_sessions(None, None).await);
    assert_eq!((all.items.len(), all.cursor), (2, None));
    refusal(api.chat_sessions(None, Some("nonsense")).await.unwrap(), ProblemCode::Validation);
    // Numbers for people count up within a day.
    assert!(all.items[0].session_no > all.items[1].session_no, "{all:?}");
    floor.close().await;
}

#[tokio::test]
async fn a_conversation_is_rated_when_it_is_over_and_by_its_customer() {
    let floor = Floor::beside().await;
    let customer = floor.customer("u1").await;
    let session_id = customer.open().await.unwrap().session_id;
    let rating = |score, comment: Option<&str>| RatePost { score, comment: comment.map(str::to_owned) };
    let early = customer.api.rate(&session_id, &rating(5, None)).await.unwrap();
    refusal(early, ProblemCode::SessionState);
    customer.close(&session_id).await.unwrap();
    let given = done(customer.api.rate(&session_id, &rating(2, Some("慢"))).await);
    assert_eq!(
        (given.session_id.as_str(), given.score, given.comment.as_deref()),
        (session_id.as_str(), 2, Some("慢"))
    );
    let changed = done(customer.api.rate(&session_id, &rating(5, None)).await);
    assert_eq!((changed.score, changed.comment), (5, None));
    for bad in [rating(0, None), rating(6, None), rating(5, Some(&"x".repeat(501)))] {
        refusal(customer.api.rate(&session_id, &bad).await.unwrap(), ProblemCode::Validation);
    }
    // An upload for it comes too late.
    let upload = UploadPost { session_id: session_id.clone(), content_type: "image/png".to_owned(), size: 1 };
    refusal(customer.api.chat_upload(&upload).await.unwrap(), ProblemCode::SessionState);
    floor.close().await;
}

#[tokio::test]
async fn an_image_goes_from_a_customer_through_the_store_to_the_agent() {
    // Enough of a PNG for this test.
    const IMAGE: &[u8] = b"\x89PNG\r\n\x1a\n an image";
    let floor = Floor::alone().await;
    let agent = floor.agent("g1").await;
    let customer = floor.customer("u1").await;
    let session_id = customer.is_served().await;
    let upload = |content_type: &str, size| UploadPost {
        session_id: session_id.clone(),
        content_type: content_type.to_owned(),
        size,
    };
    let form = done(customer.api.chat_upload(&upload("image/png", IMAGE.len() as u64)).await);
    assert!(form.key.starts_with(&format!("{session_id}/")) && form.key.ends_with(".png"), "{}", form.key);
    // The store takes no more than was asked for, and nothing else.
    let larger = [IMAGE, b"!"].concat();
    assert_eq!(customer.api.post_form(&form, &larger).await.unwrap().status, 400);
    let mut page = form.clone();
    page.fields.insert("Content-Type".to_owned(), Secret::new("text/html"));
    assert_eq!(customer.api.post_form(&page, IMAGE).await.unwrap().status, 403);
    assert_eq!(customer.api.post_form(&form, IMAGE).await.unwrap().status, 204);
    for (content_type, size) in
        [("image/png", 0), ("image/png", 5 * 1024 * 1024 + 1), ("image/svg+xml", 10), ("text/html", 10)]
    {
        refusal(customer.api.chat_upload(&upload(content_type, size)).await.unwrap(), ProblemCode::Validation);
    }

    let sent = customer.image(&session_id, &form.key).await.unwrap();
    agent.has(&session_id, sent.seq).await;
    let shown = agent.messages(&session_id).pop().unwrap();
    let Body::Image { key, url: Some(url) } = shown.body else { panic!("{shown:?}") };
    assert_eq!(key, form.key);
    let image = reqwest::get(&url).await.unwrap();
    assert_eq!((image.status().as_u16(), image.headers()["content-type"].as_bytes()), (200, &b"image/png"[..]));
    assert_eq!(&image.bytes().await.unwrap()[..], IMAGE);
    // The history has a link too. A key of another session shows nothing here.
    let history = done(agent.api.chat_messages(&session_id, Stretch::Newest, Some(1)).await);
    let client::frames::Content::Image(of_history) = &history.items[0].content else { panic!("{history:?}") };
    assert_eq!((of_history.key.as_str(), of_history.content_type.as_str()), (form.key.as_str(), "image/png"));
    assert_eq!(reqwest::get(&of_history.url).await.unwrap().status().as_u16(), 200);
    let other = floor.customer("u2").await;
    let other_session = other.is_served().await;
    match other.image(&other_session, &form.key).await {
        Err(ClientError::FrameRefused(error)) => assert_eq!(error.code, FrameErrorCode::NotFound),
        taken => panic!("{taken:?}"),
    }
    floor.close().await;
}

#[tokio::test]
async fn a_card_shows_an_order_of_the_sessions_customer_and_nobody_elses() {
    let floor = Floor::alone().await;
    let shop = Shop::open(Offer::default()).await;
    let (buyer, stranger) = (shop.buyer("u1"), shop.buyer("u2"));
    let order_no = buyer.accepted(2, "k1").await;
    buyer.wins(&order_no).await;
    let theirs = stranger.accepted(1, "k1").await;
    stranger.wins(&theirs).await;

    // A socket that says nothing is told of the purchase all the same.
    let mut silent = floor.line(Role::User, &buyer.id, |options| options).await;
    let result = silent.until("the result", |frame| match frame {
        ServerFrame::SeckillResult(result) => Some(result.order_no.clone()),
        _ => None,
    });
    assert_eq!(result.await, order_no);

    let agent = floor.agent("g1").await;
    let customer = floor.person(Role::User, &buyer.id, |options| options).await;
    let session_id = customer.is_served().await;
    let card = customer.card(&session_id, &order_no).await.unwrap();
    agent.has(&session_id, card.seq).await;
    let shown = agent.messages(&session_id).pop().unwrap();
    let Body::Card { card: Some(card), .. } = shown.body else { panic!("{shown:?}") };
    assert_eq!((card.order_no.as_str(), card.qty, card.amount), (order_no.as_str(), 2, 2 * e2e::shop::PRICE));
    assert_eq!((card.currency.as_str(), card.status), (e2e::shop::CURRENCY, client::documents::OrderStatus::Unpaid));
    assert!(card.title.starts_with("Kettle"), "{}", card.title);
    // The agent may show the customer's order, and neither may show somebody else's, or none at all.
    let by_agent = agent.card(&session_id, &order_no).await.unwrap();
    assert_eq!(by_agent.seq, 3);
    for who in [&customer, &agent] {
        for order_no in [theirs.as_str(), "SKAAAAAAAAAAAAAAAAAAAAAAAAAA"] {
            match who.card(&session_id, order_no).await {
                Err(ClientError::FrameRefused(error)) => assert_eq!(error.code, FrameErrorCode::NotFound),
                taken => panic!("{taken:?}"),
            }
        }
    }
    // It is shown as it was: the order goes on meanwhile, and a repetition of the same word is the same word.
    done(buyer.api.cancel(&order_no).await);
    let mut again = floor.live(Role::User, &buyer.id).await;
    let mine = customer.messages(&session_id)[1].client_msg_id.clone();
    let repeated = json!({"type": "card", "sessionId": session_id, "content": order_no, "clientMsgId": mine});
    let sent = again.sent(repeated).await;
    assert_eq!((sent.seq, sent.duplicate), (2, true));
    eventually("the order is cancelled", SOON, async || {
        let order = done(buyer.api.order(&order_no).await);
        (order.status == client::documents::OrderStatus::Cancelled).then_some(())
    })
    .await;
    assert_eq!(floor.session(&session_id).await.seq.get(), 3);
    floor.close().await;
}

/// [C26]
#[tokio::test]
async fn a_client_that_is_far_behind_gets_all_in_order_in_frames_that_fit() {
    const WORDS: u64 = 400;
    fn fits(frame: &str) {
        frame_is_documented(frame);
        assert!(frame.len() <= MAX_FRAME_BYTES, "{} bytes", frame.len());
    }
    let floor = Floor::beside().await;
    let id = floor.id("u1");
    let mut line = floor.live(Role::User, &id).await;
    let session_id = line.open().await.session_id;
    let (party, mut session) = (Party::user(id.parse().unwrap()), floor.session(&session_id).await);
    let long = "字".repeat(1_000);
    for nth in 1..=WORDS {
        let content = format!("{nth} {long}");
        let word = Word::Text(MessageText::try_from(content.clone()).unwrap());
        let draft = Draft::new(word, &content, Name::Gateway(format!("m{nth}")));
        match floor.desk.send(session, &party, &draft, now()).await.unwrap() {
            chat::desk::send::Sent::Stored(step) => session = step.session,
            other => panic!("{other:?}"),
        }
    }
    let mut behind = floor.line(Role::User, &id, |options| options.watched(fits)).await;
    let (mut have, mut syncs) = (0, 0);
    while have < WORDS {
        behind.heard.clear();
        assert_eq!(behind.sync(&session_id, have).await, WORDS);
        let replayed = seqs(&behind.replayed());
        assert!(replayed.iter().copied().eq(have + 1..=have + replayed.len() as u64), "after {have}: {replayed:?}");
        assert!(!replayed.is_empty());
        have += replayed.len() as u64;
        syncs += 1;
    }
    assert!(syncs > 1, "more than one sync holds");
    // Who is a message behind is told of that one.
    behind.heard.clear();
    behind.sync(&session_id, WORDS - 1).await;
    assert_eq!(seqs(&behind.replayed()), [WORDS]);
    behind.heard.clear();
    behind.sync(&session_id, WORDS).await;
    assert_eq!(behind.replayed().len(), 0);
    // The reference client asks until it has everything.
    let other = floor.customer("u1").await;
    other.has(&session_id, WORDS).await;
    assert_eq!(behind.text(&session_id, "at last", "last").await.seq, WORDS + 1);
    other.has(&session_id, WORDS + 1).await;
    floor.close().await;
}

/// Every change of a session is a message, told in the reader's language.
#[tokio::test]
async fn changes_are_noted_in_the_language_of_whoever_reads_them() {
    let floor = Floor::alone().await;
    let agent = floor.person(Role::Agent, &floor.id("g1"), |options| options.in_language("en")).await;
    agent.status(client::frames::AgentStatus::Online).await.unwrap();
    let customer = floor.person(Role::User, &floor.id("u1"), |options| options.in_language("zh")).await;
    let session_id = customer.is_served().await;
    customer.close(&session_id).await.unwrap();
    let notes = async |who: &crate::floor::Person| {
        who.has(&session_id, 2).await;
        let notes = who.messages(&session_id).into_iter().map(|message| match message.body {
            Body::System(note) => (note.event, note.agent_id, note.text),
            other => panic!("{other:?}"),
        });
        notes.collect::<Vec<_>>()
    };
    let (english, chinese) = (notes(&agent).await, notes(&customer).await);
    for (one, other) in english.iter().zip(&chinese) {
        assert_eq!((one.0, &one.1), (other.0, &other.1));
        assert!(one.2.is_ascii() && !other.2.is_ascii(), "{one:?} {other:?}");
    }
    assert_eq!(english[0].0, NoteEvent::Joined);
    assert_eq!(english[0].1.as_ref(), Some(&agent.id));
    assert_eq!(english[1].0, NoteEvent::Closed);
    let mut line = floor.live(Role::Agent, &agent.id).await;
    assert_eq!(line.code(text(&session_id, "bye", "m1")).await, FrameErrorCode::SessionClosed);
    floor.close().await;
}
