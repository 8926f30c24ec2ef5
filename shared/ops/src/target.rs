//! Which deployment is meant, and by whose token.

use std::path::PathBuf;

use clap::Args;
use reqwest::Url;
use serde::Deserialize;

use crate::api::Api;
use crate::failure::Failure;

/// Where `make up` leaves its state, seen from the checkout.
const LOCAL_STATE: &str = ".local";
/// What the help puts these options under.
const HEADING: &str = "Deployment";

#[derive(Args)]
pub(crate) struct Target {
    /// The deployment's HTTP address (the stack's output HttpUrl); without one, the local stack is meant
    #[arg(long, global = true, help_heading = HEADING, env = "HOTCAKE_URL", hide_env_values = true)]
    url: Option<String>,
    /// An admin's token; better set than typed, since others can see what is typed
    #[arg(long, global = true, help_heading = HEADING, env = "HOTCAKE_TOKEN", hide_env_values = true)]
    token: Option<String>,
    /// The local stack, whatever HOTCAKE_URL says: its outputs.json is in HOTCAKE_STATE, or in .local
    #[arg(long, global = true, help_heading = HEADING)]
    local: bool,
}

/// What `make up` writes about the local stack. No `Debug`: it has secrets.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Outputs {
    http_url: String,
    admin_token: String,
    pub(crate) jwt: Jwt,
}

/// What tokens are signed with and made out to. No `Debug`: it has a secret.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Jwt {
    pub(crate) kid: String,
    pub(crate) secret: String,
    pub(crate) iss: String,
    pub(crate) aud: String,
    pub(crate) admin_aud: String,
}

impl Target {
    /// A caller of the deployment's admin API.
    pub(crate) fn api(&self) -> Result<Api, Failure> {
        let Some(url) = self.url() else {
            let outputs = self.outputs()?;
            return Api::new(address(&outputs.http_url)?, &outputs.admin_token);
        };
        let token = self.token.as_deref().filter(|token| !token.is_empty());
        let Some(token) = token else {
            return Err(Failure::Misused("there is an address and no token: set HOTCAKE_TOKEN".to_owned()));
        };
        Api::new(address(url)?, token)
    }

    /// The local stack was asked for by name.
    pub(crate) fn says_local(&self) -> bool {
        self.local
    }

    /// The address of a deployment that is not the local one.
    pub(crate) fn url(&self) -> Option<&str> {
        self.url.as_deref().filter(|url| !self.local && !url.is_empty())
    }

    /// What there is to know about the local stack.
    pub(crate) fn outputs(&self) -> Result<Outputs, Failure> {
        let state = std::env::var_os("HOTCAKE_STATE").map_or_else(|| PathBuf::from(LOCAL_STATE), PathBuf::from);
        let file = state.join("outputs.json");
        let text = std::fs::read(&file).map_err(|error| {
            let file = file.display();
            Failure::Misused(format!(
                "no address: set HOTCAKE_URL and HOTCAKE_TOKEN, or start the local stack (`make up`); {file}: {error}"
            ))
        })?;
        serde_json::from_slice(&text)
            .map_err(|error| Failure::Misused(format!("{} does not describe a stack: {error}", file.display())))
    }
}

/// An address that a token may be sent to.
fn address(text: &str) -> Result<Url, Failure> {
    let url: Url = text.parse().map_err(|error| Failure::Misused(format!("the address cannot be used: {error}")))?;
    if !url.username().is_empty() || url.password().is_some() || url.query().is_some() || url.fragment().is_some() {
        return Err(Failure::Misused("the address has more than host and path".to_owned()));
    }
    match url.scheme() {
        "https" => Ok(url),
        "http" if is_loopback(&url) => Ok(url),
        _ => Err(Failure::Misused("the address must begin with https://: a token goes there".to_owned())),
    }
}

/// Whether what is sent there stays on this machine.
pub(crate) fn is_loopback(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default().trim_start_matches('[').trim_end_matches(']');
    host == "localhost" || host.parse().is_ok_and(|address: std::net::IpAddr| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_goes_over_tls_or_stays_on_this_machine() {
        for good in ["https://shop.example/prod", "http://127.0.0.1:4566/x", "http://localhost:1", "http://[::1]:1"] {
            assert!(address(good).is_ok(), "{good}");
        }
        for bad in [
            "http://shop.example",
            "http://127.0.0.1.shop.example",
            "ftp://localhost",
            "shop.example",
            "https://me:secret@shop.example",
            "https://shop.example?token=x",
        ] {
            let Err(failure) = address(bad) else { panic!("{bad}") };
            assert!(!failure.to_string().contains("secret"), "{failure}");
        }
    }

    #[test]
    fn the_local_stack_is_meant_when_said_so_or_nothing_else_is() {
        let target = |url: Option<&str>, local| Target { url: url.map(str::to_owned), token: None, local };
        assert_eq!(target(Some("https://shop.example"), false).url(), Some("https://shop.example"));
        for local in [target(Some("https://shop.example"), true), target(None, false), target(Some(""), false)] {
            assert_eq!(local.url(), None);
        }
        let Err(failure) = target(Some("https://shop.example"), false).api() else { panic!("without a token") };
        assert!(failure.to_string().contains("HOTCAKE_TOKEN"), "{failure}");
    }
}
