//! What clients read: each text in both languages, chosen when it is sent.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

/// The most of an `Accept-Language` header that is looked at, in bytes. Real ones are shorter.
const MAX_HEADER_LEN: usize = 256;

/// A language that clients are answered in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Language {
    #[default]
    En,
    Zh,
}

impl Language {
    /// The one a client likes best, by the value of `Accept-Language` (RFC 9110): English when it names neither.
    pub fn from_accept_language(header: &str) -> Self {
        let Some(header) = header.get(..header.len().min(MAX_HEADER_LEN)) else {
            return Self::default();
        };
        let mut best = (Self::default(), 0.0);
        for range in header.split(',') {
            let mut parts = range.split(';').map(str::trim);
            let language = match parts.next().and_then(|tag| tag.split('-').next()) {
                Some(primary) if primary.eq_ignore_ascii_case("zh") => Self::Zh,
                Some(primary) if primary.eq_ignore_ascii_case("en") => Self::En,
                Some(_) | None => continue,
            };
            let weight = match parts.find_map(|parameter| parameter.strip_prefix("q=")) {
                None => 1.0,
                Some(weight) => weight.parse().unwrap_or(0.0),
            };
            // The first of equals: clients list what they like best first.
            if weight > best.1 {
                best = (language, weight);
            }
        }
        best.0
    }
}

/// One message in both languages.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Text {
    pub en: Cow<'static, str>,
    pub zh: Cow<'static, str>,
}

impl Text {
    pub const fn new(en: &'static str, zh: &'static str) -> Self {
        Self {
            en: Cow::Borrowed(en),
            zh: Cow::Borrowed(zh),
        }
    }

    pub const fn of(en: String, zh: String) -> Self {
        Self {
            en: Cow::Owned(en),
            zh: Cow::Owned(zh),
        }
    }

    pub fn in_language(&self, language: Language) -> &str {
        match language {
            Language::En => &self.en,
            Language::Zh => &self.zh,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_language_a_client_likes_best() {
        for (header, language) in [
            ("", Language::En),
            ("zh", Language::Zh),
            ("ZH-Hans-CN, en;q=0.8", Language::Zh),
            ("en-GB,en;q=0.9,zh;q=0.8", Language::En),
            ("fr, zh;q=0.5, en; q=0.7", Language::En),
            ("fr;q=1, zh;q=0.1", Language::Zh),
            ("zh;q=0, en;q=0", Language::En),
            ("zhuang", Language::En),
            ("*", Language::En),
            ("zh;q=nonsense", Language::En),
        ] {
            assert_eq!(
                Language::from_accept_language(header),
                language,
                "{header:?}"
            );
        }
    }

    #[test]
    fn a_long_or_odd_header_is_no_trouble() {
        assert_eq!(
            Language::from_accept_language(&"zh,".repeat(1_000)),
            Language::Zh
        );
        assert_eq!(
            Language::from_accept_language(&"文".repeat(200)),
            Language::En
        );
    }

    #[test]
    fn a_text_is_read_back_as_it_was_stored() {
        let text = Text::new("Sold out.", "已售罄。");
        let stored = serde_json::to_string(&text).unwrap();
        assert_eq!(serde_json::from_str::<Text>(&stored).unwrap(), text);
        assert_eq!(text.in_language(Language::Zh), "已售罄。");
    }
}
