use platform::config::{Env, FromEnv, Noted};
struct C {
    auth: platform::auth::AuthConfig,
    redis: platform::redis::RedisConfig,
}
impl FromEnv for C {
    fn from_env(env: &mut Env<'_>) -> Result<Self, Noted> {
        let (a, r) = (FromEnv::from_env(env), FromEnv::from_env(env));
        Ok(Self { auth: a?, redis: r? })
    }
}
fn main() -> std::process::ExitCode {
    platform::boot::run(async |boot: platform::boot::Boot<C>| {
        let (verifier, redis) = tokio::try_join!(boot.verifier(&boot.config.auth), boot.redis(&boot.config.redis))?;
        let state = (verifier, redis);
        platform::http::serve(&state, handle).await
    })
}
async fn handle(
    state: &(platform::auth::Verifier, platform::redis::RedisConnection),
    request: platform::http::Request,
) -> Result<platform::http::Response, platform::http::Problem> {
    let now = kernel::time::Clock::System.now();
    match request.route() {
        "GET /me" => {
            let p = request.authenticate(&state.0, now, platform::auth::Role::User)?;
            platform::http::Response::json(200, &p.id)
        }
        "GET /redis" => {
            let mut c = state.1.clone();
            let n: i64 = redis::cmd("INCR")
                .arg("n")
                .query_async(&mut c)
                .await
                .map_err(|e| platform::http::Problem::unavailable(&e))?;
            platform::http::Response::json(200, &n)
        }
        "GET /panic" => panic!("defect"),
        _ => Err(platform::http::Problem::not_found()),
    }
}
