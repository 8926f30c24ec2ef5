//! The payment provider's notices.

fn main() -> std::process::ExitCode {
    platform::boot::run(async |boot| {
        let state = pay_notify::State::start(&boot).await?;
        platform::http::serve(state, pay_notify::handle).await
    })
}
