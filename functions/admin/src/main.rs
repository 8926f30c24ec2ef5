//! What the shop's people do.

fn main() -> std::process::ExitCode {
    platform::boot::run(async |boot| {
        let state = admin::State::start(&boot).await?;
        platform::http::serve(state, admin::handle).await
    })
}
