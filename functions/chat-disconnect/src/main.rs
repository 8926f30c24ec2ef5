fn main() -> std::process::ExitCode {
    platform::boot::run(async |boot| {
        let state = chat_disconnect::State::start(&boot).await?;
        platform::ws::serve(&state, chat_disconnect::handle).await
    })
}
