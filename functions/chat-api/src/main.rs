//! Tickets, sessions and images of the chat over HTTP.

fn main() -> std::process::ExitCode {
    platform::boot::run(async |boot| {
        let state = chat_api::State::start(&boot).await?;
        platform::http::serve(state, chat_api::handle).await
    })
}
