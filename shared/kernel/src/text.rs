//! What people read: every message in both languages, chosen when it is sent.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

/// The most ranges of an `Accept-Language` header that are read.
const MAX_RANGES: usize = 32;

/// A language that every message exists in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Language {
    #[default]
    En,
    Zh,
}

impl Language {
    /// The tag of the language, as in `Content-Language`.
    pub const fn tag(self) -> &'static str {
        match self {
            Self::En => "en",
            Self::Zh => "zh",
        }
    }

    /// The better of our languages for an `Accept-Language` header (RFC 9110, 12.5.4). English when neither is asked for.
    pub fn negotiate(accept_language: &str) -> Self {
        let ranges: Vec<Range<'_>> = accept_language.split(',').take(MAX_RANGES).filter_map(Range::parse).collect();
        let [en, zh] = [Self::En, Self::Zh].map(|language| Wish::for_language(&ranges, language));
        // Of two languages wanted equally, the one that was named first.
        let zh_first = zh.quality > en.quality || (zh.quality == en.quality && zh.position < en.position);
        if zh.quality > 0 && zh_first { Self::Zh } else { Self::En }
    }
}

/// One element of the header: `zh-CN;q=0.9`.
struct Range<'a> {
    primary: &'a str,
    /// Thousandths.
    quality: u32,
}

impl<'a> Range<'a> {
    fn parse(element: &'a str) -> Option<Self> {
        let mut parts = element.split(';').map(str::trim);
        let tag = parts.next().filter(|tag| !tag.is_empty())?;
        let primary = tag.split('-').next().unwrap_or(tag);
        let weight = parts.find_map(|part| part.strip_prefix("q=").or_else(|| part.strip_prefix("Q=")));
        let quality = weight.map_or(Some(1_000), quality)?;
        Some(Self { primary, quality })
    }
}

/// A weight of at most three decimals, in thousandths.
fn quality(weight: &str) -> Option<u32> {
    let weight: f32 = weight.parse().ok()?;
    (0.0..=1.0).contains(&weight).then_some((weight * 1_000.0).round() as u32)
}

/// How much a language is wanted, and how early in the header it was named.
struct Wish {
    quality: u32,
    position: usize,
}

impl Wish {
    fn for_language(ranges: &[Range<'_>], language: Language) -> Self {
        let best = |primary: &str| {
            let named = ranges.iter().enumerate().filter(|(_, range)| range.primary.eq_ignore_ascii_case(primary));
            named.map(|(position, range)| Self { quality: range.quality, position }).reduce(Self::better)
        };
        best(language.tag()).or_else(|| best("*")).unwrap_or(Self { quality: 0, position: usize::MAX })
    }

    fn better(self, other: Self) -> Self {
        if other.quality > self.quality { other } else { self }
    }
}

/// Characters that show nothing, or turn what follows around.
pub fn is_invisible(char: char) -> bool {
    matches!(char, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
}

/// Whether nobody would see anything of it: nothing but blanks, and what Unicode says is not shown by itself
/// (Default_Ignorable_Code_Point, the fillers and the empty braille pattern). Within a text such characters have their uses.
pub fn shows_nothing(text: &str) -> bool {
    text.chars().all(|char| {
        char.is_whitespace()
            || is_invisible(char)
            || matches!(
                char,
                '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}' | '\u{180b}'..='\u{180f}'
                    | '\u{2800}' | '\u{3164}' | '\u{fe00}'..='\u{fe0f}' | '\u{ffa0}' | '\u{fff0}'..='\u{fff8}'
                    | '\u{1bca0}'..='\u{1bca3}' | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e0fff}'
            )
    })
}

/// A sentence in every language.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Text {
    pub en: Cow<'static, str>,
    pub zh: Cow<'static, str>,
}

impl Text {
    pub const fn new(en: &'static str, zh: &'static str) -> Self {
        Self { en: Cow::Borrowed(en), zh: Cow::Borrowed(zh) }
    }

    /// From sentences made at run time.
    pub fn of(en: String, zh: String) -> Self {
        Self { en: Cow::Owned(en), zh: Cow::Owned(zh) }
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
    fn the_language_wanted_most_is_chosen() {
        let cases = [
            ("", Language::En),
            ("zh", Language::Zh),
            ("ZH-hans-CN", Language::Zh),
            ("zh-CN,zh;q=0.9,en;q=0.8", Language::Zh),
            ("en-US,en;q=0.9,zh;q=0.8", Language::En),
            ("en;q=0.2, zh;q=0.3", Language::Zh),
            ("en;q=0.5,zh;q=0.5", Language::En),
            ("zh;q=0.5,en;q=0.5", Language::Zh),
            ("en;q=0.1,zh-TW;q=0.05,zh-CN;q=0.7", Language::Zh),
            ("zh;q=0", Language::En),
            ("en;q=0,zh;q=0", Language::En),
            ("en;q=0,*", Language::Zh),
            ("*", Language::En),
            ("*;q=0.5,zh;q=0.1", Language::En),
            ("fr,de;q=0.9", Language::En),
            ("fr,zh;q=0.1", Language::Zh),
            ("zhx", Language::En),
            ("zh;level=1;q=0.4,en;q=0.3", Language::Zh),
            ("zh;q=2,en;q=0.1", Language::En),
            ("zh;q=NaN,en;q=0.1", Language::En),
            (",;,=;q=,zh", Language::Zh),
        ];
        for (header, expected) in cases {
            assert_eq!(Language::negotiate(header), expected, "{header:?}");
        }
    }

    #[test]
    fn a_header_without_end_is_read_to_a_bound() {
        let header = format!("{},zh", vec!["fr"; MAX_RANGES].join(","));
        assert_eq!(Language::negotiate(&header), Language::En);
    }

    #[test]
    fn a_text_is_read_back_as_it_was_stored() {
        let text = Text::new("Sold out.", "已售罄。");
        let stored = serde_json::to_string(&text).unwrap();
        assert_eq!(serde_json::from_str::<Text>(&stored).unwrap(), text);
        assert_eq!(text.in_language(Language::Zh), "已售罄。");
    }
}
