//! Once a minute: whatever was left lying is picked up.

fn main() -> std::process::ExitCode {
    platform::boot::run(async |boot| {
        let state = sweep::State::start(&boot).await?;
        platform::schedule::serve(&state, sweep::handle).await
    })
}
