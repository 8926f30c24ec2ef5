fn main() -> std::process::ExitCode {
    platform::boot::run(async |boot| {
        let state = chat_message::State::start(&boot).await?;
        platform::ws::serve(&state, chat_message::handle).await
    })
}
