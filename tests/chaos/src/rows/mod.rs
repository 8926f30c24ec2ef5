//! The fault matrix.

mod aws;
mod clock;
mod frozen;
mod gate;
mod killed;
mod queue;
mod races;

use crate::row::{Row, Running};

fn row(name: &'static str, fault: &'static str, does: fn() -> Running) -> Row {
    Row { name, fault, does }
}

/// What everybody on the stack would notice.
pub(crate) fn alone() -> Vec<Row> {
    vec![
        row("script.flush", "the script cache is flushed, again and again", || Box::pin(gate::script_flush())),
        row("readonly", "Redis is a replica of nothing for a while", || Box::pin(gate::readonly())),
        row("oom", "Redis has no memory for a while", || Box::pin(gate::oom())),
        row("maxclients", "Redis lets nobody in for a while", || Box::pin(gate::maxclients())),
        row("hang", "Redis does not answer for 700 ms, again and again", || Box::pin(gate::hang())),
        row("redrive.after_send", "killed when a dead letter was sent again", || Box::pin(killed::redrive())),
        row("flushall", "FLUSHALL in the middle of a sale", || Box::pin(gate::flushed())),
        row("restart", "Redis is killed in the middle of a sale, and an empty one takes its place", || {
            Box::pin(gate::restarted())
        }),
    ]
}

/// What one sale has for itself.
pub(crate) fn together() -> Vec<Row> {
    vec![
        row("rebuild.after_row", "killed when a making of the gate is noted", || {
            Box::pin(killed::rebuild("rebuild.after_row"))
        }),
        row("rebuild.after_begin", "killed when the gate is closed to be made", || {
            Box::pin(killed::rebuild("rebuild.after_begin"))
        }),
        row("rebuild.after_chunk", "killed when the orders are loaded", || {
            Box::pin(killed::rebuild("rebuild.after_chunk"))
        }),
        row("rebuild.after_load", "killed when the gate is open again", || {
            Box::pin(killed::rebuild("rebuild.after_load"))
        }),
        row("release.rebuild", "units come back while the gate is made anew", || Box::pin(races::release_rebuild())),
        row("buy.after_script", "killed with a place taken and no row", || Box::pin(killed::buy("buy.after_script"))),
        row("buy.after_row", "killed with a row and no message", || Box::pin(killed::buy("buy.after_row"))),
        row("buy.after_queue", "killed with the message sent and no answer", || {
            Box::pin(killed::buy("buy.after_queue"))
        }),
        row("frozen.buy", "frozen for 30 s with a place taken and no row", || Box::pin(frozen::buy())),
        row("frozen.consumer", "frozen for 30 s with a batch committed", || Box::pin(frozen::consumer())),
        row("consumer.after_transaction", "killed with a batch committed and nobody told", || {
            Box::pin(killed::consumer("consumer.after_transaction"))
        }),
        row("consumer.after_push", "killed with the buyers told and the gate not", || {
            Box::pin(killed::consumer("consumer.after_push"))
        }),
        row("sweep.after_abandon", "killed with an order given up and its unit not", || Box::pin(killed::abandon())),
        row("sweep.sweep", "two sweeps at once, neither with a lease", || Box::pin(races::sweep_sweep())),
        row("lost.writes", "the last writes of Redis are lost", || Box::pin(gate::last_writes_lost())),
        row("lost.replies", "scripts run and nobody is told", || Box::pin(gate::lost_replies())),
        row("pay.after_transaction", "killed with the money recorded and nobody told", || Box::pin(killed::pay())),
        row(
            "cancel.after_transaction",
            "killed with an order cancelled and nobody told",
            || Box::pin(killed::cancel()),
        ),
        row("due.after_transaction", "killed with an unpaid order cancelled", || {
            Box::pin(killed::due("due.after_transaction"))
        }),
        row("due.after_gate", "killed with the gate told of a paid order", || Box::pin(killed::due("due.after_gate"))),
        row("due.after_push", "killed with the buyer told of a paid order", || Box::pin(killed::due("due.after_push"))),
        row("due.after_publish", "killed with the warehouse told of a paid order", || {
            Box::pin(killed::due("due.after_publish"))
        }),
        row("refund.after_provider", "killed with the money back and nothing noted", || Box::pin(killed::refund())),
        row("settle.after_row", "killed with a sale settled in the rows", || {
            Box::pin(killed::settle("settle.after_row"))
        }),
        row("settle.after_gate", "killed with a sale settled and not put away", || {
            Box::pin(killed::settle("settle.after_gate"))
        }),
        row("lifecycle.after_row.pause", "killed with a pause written and the gate open", || Box::pin(killed::pause())),
        row("lifecycle.after_row.end", "killed with an end written and the gate open", || Box::pin(killed::end())),
        row("lifecycle.after_row.raise", "killed with units added in the row only", || Box::pin(killed::raise())),
        row("lifecycle.after_lower", "killed with units out at the gate and not in the row", || {
            Box::pin(killed::lower())
        }),
        row("sqs.duplicates", "messages three times more and in other orders", || Box::pin(queue::duplicates())),
        row("sqs.malformed", "the i-th message of a batch cannot be read", || Box::pin(queue::malformed())),
        row("put.reply", "the reply to PutItem is lost", || Box::pin(aws::put_reply_lost())),
        row("put.throttled", "DynamoDB throttles PutItem", || Box::pin(aws::put_throttled())),
        row("send.reply", "the reply to SendMessage is lost", || Box::pin(aws::send_reply_lost())),
        row("commit.reply", "the reply to a group commit is lost", || Box::pin(aws::commit_reply_lost())),
        row("commit.throttled", "DynamoDB throttles group commits", || Box::pin(aws::commit_throttled())),
        row("commit.conflict", "group commits meet another transaction", || Box::pin(aws::commit_conflict())),
        row("post.410", "a socket is gone", || Box::pin(aws::post_gone())),
        row("post.429", "sockets are throttled", || Box::pin(aws::post_throttled())),
        row("post.500", "the gateway of the sockets fails", || Box::pin(aws::post_failed())),
        row("cancel.pay", "cancelled and paid at once", || Box::pin(races::cancel_pay())),
        row("end.buy", "ended while buyers buy", || Box::pin(races::end_buy())),
        row("lower.buy", "units taken out while buyers buy and a sale is resumed that runs", || {
            Box::pin(races::lower_buy())
        }),
        row("clock.ahead", "the clocks of functions are ten minutes ahead", || Box::pin(clock::ahead())),
        row("clock.behind", "the clocks of functions are ten minutes behind", || Box::pin(clock::behind())),
    ]
}
