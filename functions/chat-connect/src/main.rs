fn main() -> std::process::ExitCode {
    platform::boot::run(async |boot| {
        let state = chat_connect::State::start(&boot).await?;
        platform::ws::serve(&state, chat_connect::handle).await
    })
}
