//! Greetings of sockets that were opened a moment ago.

fn main() -> std::process::ExitCode {
    platform::boot::run(async |boot| {
        let state = chat_greet::State::start(&boot).await?;
        platform::sqs::serve(&state, chat_greet::handle).await
    })
}
