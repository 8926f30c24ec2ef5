//! Reminders of orders: what is due to them is done.

fn main() -> std::process::ExitCode {
    platform::boot::run(async |boot| {
        let state = order_due::State::start(&boot).await?;
        platform::sqs::serve(&state, order_due::handle).await
    })
}
