//! Once a minute: what is left lying in the chat is picked up.

fn main() -> std::process::ExitCode {
    platform::boot::run(async |boot| {
        let state = chat_sweep::State::start(&boot).await?;
        platform::schedule::serve(&state, chat_sweep::handle).await
    })
}
