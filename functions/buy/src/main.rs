//! `POST /api/seckill/buy`.

fn main() -> std::process::ExitCode {
    platform::boot::run(async |boot| {
        let state = buy::State::start(&boot).await?;
        platform::http::serve(state, buy::handle).await
    })
}
