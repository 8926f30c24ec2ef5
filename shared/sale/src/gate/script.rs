//! The scripts, and how one is run.

use std::sync::LazyLock;

use redis::aio::ConnectionLike;
use redis::{Cmd, ErrorKind, RedisError, ServerErrorKind, ToRedisArgs};

/// A script and the name the server knows it by.
pub(super) struct Script {
    text: &'static str,
    sha: String,
}

macro_rules! scripts {
    ($($name:ident = $file:literal;)*) => {
        $(pub(super) static $name: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!(concat!("lua/", $file))));)*
    };
}

scripts! {
    ADMIT = "admit.lua";
    CONFIRM = "confirm.lua";
    RELEASE = "release.lua";
    SELL = "sell.lua";
    TAKE = "take.lua";
    SYNC = "sync.lua";
    LOWER = "lower.lua";
    UNLOWER = "unlower.lua";
    COOL_DOWN = "cool_down.lua";
    LOAD_BEGIN = "load_begin.lua";
    LOAD_CHUNK = "load_chunk.lua";
    LOAD_FINISH = "load_finish.lua";
}

/// [`ADMIT`] without the line by which the server refuses it outright when its memory is full: so a retry still meets its
/// hold, and whoever would be refused anyway still learns why. The script's first write fails instead.
pub(super) static ADMIT_WHEN_FULL: LazyLock<Script> = LazyLock::new(|| {
    let (_, text) = ADMIT.text.split_once('\n').unwrap_or(("", ADMIT.text));
    Script::new(text)
});

impl Script {
    fn new(text: &'static str) -> Self {
        Self { text, sha: redis::Script::new(text).get_hash().to_owned() }
    }

    /// Runs the script in one round trip, or in two when the server does not know it yet (or any more: its cache may be
    /// flushed at any time). The second one brings the text along.
    pub(super) async fn run<C, A>(&self, connection: &C, keys: &[&str], args: &[A]) -> Result<String, RedisError>
    where
        C: ConnectionLike + Clone,
        A: ToRedisArgs,
    {
        let mut connection = connection.clone();
        match command("EVALSHA", &self.sha, keys, args).query_async(&mut connection).await {
            Err(error) if error.kind() == ErrorKind::Server(ServerErrorKind::NoScript) => {
                command("EVAL", self.text, keys, args).query_async(&mut connection).await
            }
            answer => answer,
        }
    }
}

fn command<A: ToRedisArgs>(verb: &str, script: &str, keys: &[&str], args: &[A]) -> Cmd {
    let mut command = redis::cmd(verb);
    command.arg(script).arg(keys.len()).arg(keys).arg(args);
    command
}
