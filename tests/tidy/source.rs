//! A source file as the rules see it: its text, its code with comments and literals blanked out, and its tests.

use std::ops::Range;

/// A source file of the workspace.
#[derive(Debug)]
pub(crate) struct Source {
    /// Its path below the workspace, with `/`.
    pub(crate) path: String,
    /// The file as it is.
    pub(crate) text: String,
    /// The same bytes, where comments and the inside of literals are spaces; lines stay lines.
    pub(crate) code: String,
    /// The bytes that only a test build compiles.
    pub(crate) tests: Vec<Range<usize>>,
}

/// Something that a rule does not like.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Finding {
    /// The file.
    pub(crate) path: String,
    /// The line, from 1.
    pub(crate) line: usize,
    /// What is wrong there.
    pub(crate) what: String,
}

impl Source {
    /// The file at this path with this text.
    pub(crate) fn new(path: &str, text: &str) -> Self {
        let code = blanked(text);
        let tests = test_spans(path, &code);
        Self { path: path.to_owned(), text: text.to_owned(), code, tests }
    }

    /// Whether a byte is in code that only a test build compiles.
    pub(crate) fn is_test(&self, at: usize) -> bool {
        self.tests.iter().any(|span| span.contains(&at))
    }

    /// What is wrong at a byte.
    pub(crate) fn finding(&self, at: usize, what: impl Into<String>) -> Finding {
        let line = 1 + self.text[..at].bytes().filter(|&byte| byte == b'\n').count();
        Finding { path: self.path.clone(), line, what: what.into() }
    }

    /// Where a piece of code stands as words of its own: `unwrap` is not in `unwrap_or`.
    pub(crate) fn places(&self, piece: &str) -> Vec<usize> {
        let starts_as_word = piece.bytes().next().is_some_and(is_word);
        let ends_as_word = piece.bytes().last().is_some_and(is_word);
        let code = self.code.as_bytes();
        self.code
            .match_indices(piece)
            .map(|(at, _)| at)
            .filter(|&at| !(starts_as_word && at > 0 && is_word(code[at - 1])))
            .filter(|&at| {
                !(ends_as_word && code.get(at + piece.len()).copied().is_some_and(is_word))
            })
            .collect()
    }
}

/// Whether a byte can be in a name.
pub(crate) fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

/// The name that begins at a byte, or nothing.
pub(crate) fn word_at(code: &str, at: usize) -> &str {
    let rest = code.get(at..).unwrap_or("");
    let end = rest.bytes().position(|byte| !is_word(byte)).unwrap_or(rest.len());
    &rest[..end]
}

/// The byte after the bracket that closes the one at `open`, or the end of the code.
pub(crate) fn after_bracket(code: &str, open: usize) -> usize {
    let mut depth = 0_usize;
    for (at, byte) in code.bytes().enumerate().skip(open) {
        match byte {
            b'{' | b'(' | b'[' => depth += 1,
            b'}' | b')' | b']' => {
                depth = depth.saturating_sub(1);
                if depth == 0 {
                    return at + 1;
                }
            }
            _ => {}
        }
    }
    code.len()
}

/// The text with comments and the inside of literals as spaces, byte for byte.
fn blanked(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = bytes.to_vec();
    let mut at = 0;
    while at < bytes.len() {
        let (keep, end) = token_at(bytes, at);
        for byte in &mut out[at + keep..end.max(at + keep)] {
            if *byte != b'\n' {
                *byte = b' ';
            }
        }
        at = end.max(at + 1);
    }
    String::from_utf8(out).expect("only whole comments and literals were replaced, by ASCII")
}

/// Of what begins here: how many bytes stay visible, and where it ends.
fn token_at(bytes: &[u8], at: usize) -> (usize, usize) {
    let rest = &bytes[at..];
    if rest.starts_with(b"//") {
        let length = rest.iter().position(|&byte| byte == b'\n').unwrap_or(rest.len());
        return (0, at + length);
    }
    if rest.starts_with(b"/*") {
        return (0, at + block_comment_bytes(rest));
    }
    if rest[0] == b'"' {
        return (1, at + quoted_bytes(rest, b'"'));
    }
    if rest[0] == b'\'' {
        return (1, at + char_bytes(rest));
    }
    if is_word(rest[0]) {
        let word = rest.iter().position(|&byte| !is_word(byte)).unwrap_or(rest.len());
        if matches!(&rest[..word], b"r" | b"br" | b"cr")
            && let Some(length) = raw_string_bytes(&rest[word..])
        {
            return (word, at + word + length);
        }
        return (word, at + word);
    }
    (1, at + 1)
}

/// The length of a block comment, comments inside it included.
fn block_comment_bytes(rest: &[u8]) -> usize {
    let mut depth = 0_usize;
    let mut at = 0;
    while at < rest.len() {
        if rest[at..].starts_with(b"/*") {
            depth += 1;
            at += 2;
        } else if rest[at..].starts_with(b"*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return at;
            }
        } else {
            at += 1;
        }
    }
    rest.len()
}

/// The length of a literal between two quotes, the quotes included.
fn quoted_bytes(rest: &[u8], quote: u8) -> usize {
    let mut at = 1;
    while at < rest.len() {
        match rest[at] {
            b'\\' => at += 2,
            byte if byte == quote => return at + 1,
            _ => at += 1,
        }
    }
    rest.len()
}

/// The length of a character literal, or 1 where the quote begins a lifetime.
fn char_bytes(rest: &[u8]) -> usize {
    let is_literal = match rest.get(1) {
        Some(b'\\') => true,
        Some(&byte) if byte < 0x80 => rest.get(2) == Some(&b'\''),
        Some(_) => true,
        None => false,
    };
    if is_literal { quoted_bytes(rest, b'\'') } else { 1 }
}

/// The length of a raw string from its hashes on, or nothing where there is none.
fn raw_string_bytes(rest: &[u8]) -> Option<usize> {
    let hashes = rest.iter().position(|&byte| byte != b'#')?;
    if rest[hashes] != b'"' {
        return None;
    }
    let mut closing = vec![b'"'];
    closing.resize(hashes + 1, b'#');
    let body = &rest[hashes + 1..];
    let end = body.windows(closing.len()).position(|window| window == closing);
    Some(end.map_or(rest.len(), |end| hashes + 1 + end + closing.len()))
}

/// The bytes after `#[cfg(test)]`, `#[cfg(all(test, ...))]`, `#[test]`; all of a file of tests.
fn test_spans(path: &str, code: &str) -> Vec<Range<usize>> {
    let is_test_file = path.starts_with("tests/")
        || path.contains("/tests/")
        || path.ends_with("/tests.rs")
        || path.ends_with("_tests.rs");
    if is_test_file {
        return std::iter::once(0..code.len()).collect();
    }
    let mut spans = Vec::new();
    for mark in ["#[cfg(test)]", "#[cfg(all(test", "#[test]"] {
        for (at, _) in code.match_indices(mark) {
            spans.push(at..item_end(code, at));
        }
    }
    spans
}

/// The end of the item whose first attribute begins at `at`.
fn item_end(code: &str, mut at: usize) -> usize {
    let bytes = code.as_bytes();
    while at < bytes.len() {
        match bytes[at] {
            b'#' | b'(' | b'[' => at = after_bracket(code, at),
            b'{' => return after_bracket(code, at),
            b';' => return at + 1,
            _ => at += 1,
        }
    }
    code.len()
}

#[test]
fn comments_and_literals_are_blank_and_lines_stay() {
    let text = "let a = \"x.unwrap()\"; // y.unwrap()\n/* a /* b */ c */ let b = 'x';\n";
    let source = Source::new("src/a.rs", text);
    assert_eq!(source.code.len(), text.len());
    assert_eq!(source.code.lines().count(), 2);
    assert!(source.places("unwrap").is_empty(), "{}", source.code);
    assert_eq!(source.places("let").len(), 2);
}

#[test]
fn raw_strings_escapes_and_lifetimes_do_not_confuse() {
    let text = "let a = br#\"one \" todo!() \"#; let b = \"\\\"todo!()\"; fn f<'a>(x: &'a str) {}\n\
                let c = '\\''; let d = '\"'; let r = 1; real();";
    let source = Source::new("src/a.rs", text);
    assert!(source.places("todo!(").is_empty(), "{}", source.code);
    assert_eq!(source.places("real").len(), 1, "{}", source.code);
    assert_eq!(source.places("str").len(), 1, "{}", source.code);
}

#[test]
fn a_piece_is_found_as_words_only() {
    let source = Source::new("src/a.rs", "a.unwrap_or(1); b.unwrap(); my_unwrap();");
    assert_eq!(source.places("unwrap").len(), 1);
    assert_eq!(source.places(".unwrap()").len(), 1);
}

#[test]
fn what_a_test_build_alone_compiles_is_known() {
    let text = "fn a() { x.f() }\n#[cfg(test)]\n#[path = \"b\"]\nmod tests { fn b() { x.g() } }\n\
                fn c() { x.h() }\n#[cfg(all(test, unix))]\nuse x::i;\nfn d() { j() }\n";
    let source = Source::new("src/a.rs", text);
    let is_test = |piece: &str| source.is_test(source.places(piece)[0]);
    assert!(!is_test("f") && is_test("g") && !is_test("h") && is_test("i") && !is_test("j"));
    assert!(Source::new("src/log/tests.rs", "f()").is_test(0));
    assert!(Source::new("broker/tests/a.rs", "f()").is_test(0));
}
