//! Whose pages may call.
//!
//! A browser says on every handshake which page it comes from, and a page cannot change that. CORS, which keeps strange pages
//! away from the HTTP API, knows nothing of WebSockets: whoever serves those has to look for itself. What is no browser says
//! nothing, and is let in: it needs credentials like everybody else.

use std::str::FromStr;

/// The most origins that may be listed.
const MAX_ORIGINS: usize = 100;

/// The value of `ALLOWED_ORIGINS`: origins (`https://shop.example`) separated by commas, or `*` for any. `https://*` is every
/// origin of that scheme, as the gateway has it in its own list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Origins(Vec<Allowed>);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Allowed {
    Any,
    /// `https://`
    Scheme(String),
    One(String),
}

/// Not a list of origins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("must be * or origins like https://shop.example, separated by commas, {MAX_ORIGINS} at most")]
pub struct OriginsError;

impl FromStr for Origins {
    type Err = OriginsError;

    fn from_str(text: &str) -> Result<Self, OriginsError> {
        let origins = text.split(',').map(|origin| allowed(origin.trim())).collect::<Result<Vec<_>, _>>()?;
        if origins.len() > MAX_ORIGINS { Err(OriginsError) } else { Ok(Self(origins)) }
    }
}

fn allowed(origin: &str) -> Result<Allowed, OriginsError> {
    if origin == "*" {
        return Ok(Allowed::Any);
    }
    let (scheme, host) = origin.split_once("://").ok_or(OriginsError)?;
    // An origin has no path: with one, even a slash, it would never be met.
    let is_host = |byte: u8| byte.is_ascii_graphic() && !matches!(byte, b'/' | b'*' | b'?' | b'#' | b'@');
    match host {
        _ if scheme.is_empty() => Err(OriginsError),
        "*" => Ok(Allowed::Scheme(format!("{scheme}://"))),
        host if !host.is_empty() && host.bytes().all(is_host) => Ok(Allowed::One(origin.to_owned())),
        _ => Err(OriginsError),
    }
}

impl Origins {
    /// Whether a call with this `Origin` header, or without one, may go on.
    pub fn allow(&self, origin: Option<&str>) -> bool {
        origin.is_none_or(|origin| self.0.iter().any(|allowed| allowed.names(origin)))
    }
}

impl Allowed {
    fn names(&self, origin: &str) -> bool {
        match self {
            Self::Any => true,
            Self::Scheme(scheme) => origin.get(..scheme.len()).is_some_and(|start| start.eq_ignore_ascii_case(scheme)),
            Self::One(one) => one.eq_ignore_ascii_case(origin),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_pages_that_are_listed_are_let_in() {
        let listed: Origins = "https://shop.example, http://localhost:3000".parse().unwrap();
        for good in [None, Some("https://shop.example"), Some("https://SHOP.example"), Some("http://localhost:3000")] {
            assert!(listed.allow(good), "{good:?}");
        }
        for bad in [
            "",
            "null",
            "https://shop.example.evil.example",
            "https://shop.example/",
            "http://shop.example",
            "https://shop.example:444",
            "http://localhost:30000",
            "shop.example",
        ] {
            assert!(!listed.allow(Some(bad)), "{bad}");
        }
    }

    #[test]
    fn a_star_is_any_page_or_any_of_a_scheme() {
        let any: Origins = "*".parse().unwrap();
        assert!(any.allow(None) && any.allow(Some("null")) && any.allow(Some("https://shop.example")));
        let secure: Origins = "https://*".parse().unwrap();
        assert!(secure.allow(Some("https://shop.example")));
        assert!(
            !secure.allow(Some("http://shop.example")) && !secure.allow(Some("null")) && !secure.allow(Some("https:"))
        );
    }

    #[test]
    fn what_would_never_be_met_is_a_mistake() {
        for bad in [
            "",
            ",",
            "https://a.example,",
            "shop.example",
            "https://",
            "://a",
            "https://a.example/",
            "https://*.a.example",
        ] {
            assert_eq!(bad.parse::<Origins>(), Err(OriginsError), "{bad}");
        }
        let many = vec!["https://a.example"; MAX_ORIGINS + 1].join(",");
        assert_eq!(many.parse::<Origins>(), Err(OriginsError));
    }
}
