//! Texts as the protocol bounds them: in every version, no longer than a signed length of two bytes
//! can say.

/// The longest text of a request or an answer.
pub const MAX_TEXT_BYTES: usize = i16::MAX as usize;
/// What ends a text of which the rest is left out.
const REST: &str = "...";

/// The text, or as much of its beginning as fits and three dots.
#[must_use]
pub fn cut(mut text: String, most_bytes: usize) -> String {
    if text.len() > most_bytes {
        let mut end = most_bytes.saturating_sub(REST.len());
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        text.truncate(end);
        text.push_str(REST);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_at_the_limit_stays_and_of_a_longer_one_the_beginning_does() {
        assert_eq!(cut("abcdef".to_owned(), 6), "abcdef");
        assert_eq!(cut("abcdefg".to_owned(), 6), "abc...");
        assert_eq!(cut("ab\u{e9}\u{e9}\u{e9}".to_owned(), 6), "ab...", "no half a character");
    }
}
