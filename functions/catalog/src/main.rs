//! What anybody may read: activities, and what time it is.

fn main() -> std::process::ExitCode {
    platform::boot::run(async |boot| {
        let state = catalog::State::start(&boot).await?;
        platform::http::serve(state, catalog::handle).await
    })
}
