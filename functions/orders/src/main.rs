//! A shopper's own orders.

fn main() -> std::process::ExitCode {
    platform::boot::run(async |boot| {
        let state = orders::State::start(&boot).await?;
        platform::http::serve(state, orders::handle).await
    })
}
