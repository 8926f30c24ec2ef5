//! The orders queue: admitted orders become real ones.

fn main() -> std::process::ExitCode {
    platform::boot::run(async |boot| {
        let state = consumer::State::start(&boot).await?;
        platform::sqs::serve(&state, consumer::handle).await
    })
}
