//! House rules about prose: plain words, short paragraphs, and lines that fit, in documents and module pages.

use super::source::{Finding, Source};

/// Columns of a line of a document; of a link its text counts.
const MAX_COLUMNS: usize = 100;

/// Words of a paragraph.
const MAX_PARAGRAPH_WORDS: usize = 80;

/// Words that a newcomer would have to learn, and what is said instead. An entry is found where its
/// words stand alone, in any case, and as a part of a `snake_case` name.
const WORDS: &[(&str, &str)] = &[
    ("behind", "after or beyond; behind is for lag alone"),
    ("told", "reported, notified or answered"),
    ("tend", "maintain"),
    ("hurry", "expedite"),
    ("is_content", "is_clean or is_valid"),
    ("mend", "repair"),
    ("mends", "repairs"),
    ("mended", "repaired"),
    ("cut", "checkpoint for the index, truncate for a file"),
    ("cuts", "checkpoints for the index, truncates for a file"),
    ("the world", "the machine, or what is meant"),
    ("looks at", "checks, reads"),
];

/// Where words of the list stood when the rule came, by the beginnings of paths. An entry goes with
/// the last such word; none is added.
const NOT_YET_PLAIN: &[&str] = &[
    ".ci/rocksdb",
    "CHANGELOG.md",
    "benches/cleaner.rs",
    "benches/fetch.rs",
    "benches/maintenance.rs",
    "benches/reuse.rs",
    "benches/support/",
    "broker/src/api/",
    "broker/src/context.rs",
    "broker/src/fault.rs",
    "broker/src/groups/",
    "broker/src/lib.rs",
    "broker/src/metrics/",
    "broker/src/profile.rs",
    "broker/src/security/",
    "broker/src/server/",
    "broker/src/wire/",
    "broker/tests/acceptance.sh",
    "broker/tests/clients/",
    "broker/tests/common/",
    "broker/tests/hostile_requests.rs",
    "broker/tests/requests/",
    "docs/broker.md",
    "docs/cleaner.md",
    "docs/design.md",
    "docs/operations.md",
    "fuzz/",
    "src/commit/",
    "src/config/",
    "src/core/",
    "src/engine/",
    "src/log/",
    "src/read/",
    "src/record/",
    "src/space/",
    "src/state/",
    "src/write/",
    "tests/cleaner/",
    "tests/commit/",
    "tests/common/",
    "tests/crash/",
    "tests/engine/",
    "tests/log/",
    "tests/log_crash/",
    "tests/producers/",
    "tests/records/",
    "tests/space/",
    "tests/store/",
    "tests/threads.rs",
];

/// Documents and module pages that were longer when the rule came, by the beginnings of paths. An
/// entry goes when all that it covers keeps the rule; none is added.
const NOT_YET_SHORT: &[&str] = &[
    "broker/src/api/fetch.rs",
    "broker/src/api/produce.rs",
    "broker/src/security/users.rs",
    "docs/design.md",
    "src/space/cleaner/mod.rs",
];

/// Words that are not plain, outside of the list of files that have them yet.
pub(crate) fn words_are_plain(sources: &[&Source]) -> Vec<Finding> {
    outside_of(NOT_YET_PLAIN, sources, unplain_words)
}

/// Long lines and paragraphs, outside of the list of files that have them yet.
pub(crate) fn prose_is_short(sources: &[&Source]) -> Vec<Finding> {
    outside_of(NOT_YET_SHORT, sources, long_prose)
}

/// Findings of a rule in files that no entry of a list covers, and entries that cover none.
fn outside_of(
    listed: &[&str],
    sources: &[&Source],
    rule: fn(&Source) -> Vec<Finding>,
) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut used = vec![false; listed.len()];
    for source in sources {
        let found = rule(source);
        match listed.iter().position(|beginning| source.path.starts_with(beginning)) {
            Some(place) => used[place] |= !found.is_empty(),
            None => findings.extend(found),
        }
    }
    let done = listed.iter().zip(used).filter(|(_, used)| !used);
    findings.extend(done.map(|(path, _)| Finding {
        path: (*path).to_owned(),
        line: 1,
        what: "nothing is left here: take the entry off the list".to_owned(),
    }));
    findings
}

/// Each word of a file that is in the list of words.
fn unplain_words(source: &Source) -> Vec<Finding> {
    // The list itself, and the cases that show that it is kept.
    if source.path == "tests/tidy/prose.rs" {
        return Vec::new();
    }
    let text = source.text.to_ascii_lowercase();
    let bytes = text.as_bytes();
    let mut findings = Vec::new();
    for (word, instead) in WORDS {
        for (at, _) in text.match_indices(word) {
            let before = at.checked_sub(1).and_then(|at| bytes.get(at));
            let after = bytes.get(at + word.len());
            let stands_alone =
                [before, after].into_iter().flatten().all(|byte| !byte.is_ascii_alphanumeric());
            if stands_alone && !(*word == "behind" && is_about_lag(&text, at)) {
                findings.push(source.finding(at, format!("say {instead}, not {word}")));
            }
        }
    }
    findings
}

/// Whether the line of a byte is about something that lags.
fn is_about_lag(text: &str, at: usize) -> bool {
    let from = text[..at].rfind('\n').map_or(0, |end| end + 1);
    let line = text[from..].lines().next().unwrap_or("");
    line.contains("lag")
}

/// Lines of a document that do not fit, and paragraphs with too many words.
fn long_prose(source: &Source) -> Vec<Finding> {
    let is_document = source.path.ends_with(".md");
    let mut findings = Vec::new();
    let mut paragraph = Paragraph::default();
    let (mut at, mut is_code) = (0, false);
    for line in source.text.split('\n') {
        let prose = if is_document { Some(line) } else { line.strip_prefix("//!") };
        let prose = prose.map(str::trim_end).unwrap_or("");
        let text = prose.trim_start();
        if text.starts_with("```") {
            is_code = !is_code;
        }
        let is_exempt = is_code || ["```", "|", "<", "#", "!["].iter().any(|s| text.starts_with(s));
        if is_exempt || text.is_empty() || is_definition(text) {
            findings.extend(paragraph.end(source));
        } else {
            let shown = without_targets(prose);
            if is_document && shown.chars().count() > MAX_COLUMNS {
                findings.push(source.finding(at, format!("{} columns", shown.chars().count())));
            }
            if begins_item(text) {
                findings.extend(paragraph.end(source));
            }
            paragraph.add(at, &shown);
        }
        at += line.len() + 1;
    }
    findings.extend(paragraph.end(source));
    findings
}

/// Where a paragraph began, and its words so far.
#[derive(Default)]
struct Paragraph {
    at: usize,
    words: usize,
}

impl Paragraph {
    fn add(&mut self, at: usize, line: &str) {
        if self.words == 0 {
            self.at = at;
        }
        let is_word = |part: &&str| part.bytes().any(|byte| byte.is_ascii_alphanumeric());
        self.words += line.split_whitespace().filter(is_word).count();
    }

    fn end(&mut self, source: &Source) -> Option<Finding> {
        let words = std::mem::take(&mut self.words);
        (words > MAX_PARAGRAPH_WORDS)
            .then(|| source.finding(self.at, format!("a paragraph of {words} words")))
    }
}

/// Whether a line begins an item of a list.
fn begins_item(text: &str) -> bool {
    let number = text.trim_start_matches(|character: char| character.is_ascii_digit());
    ["- ", "* ", "+ "].iter().any(|mark| text.starts_with(mark))
        || number.len() < text.len() && number.starts_with(". ")
}

/// Whether a line says where a link leads.
fn is_definition(text: &str) -> bool {
    text.starts_with('[') && text.contains("]: ")
}

/// A line where of each link only the text is left.
fn without_targets(line: &str) -> String {
    let mut shown = String::new();
    let mut rest = line;
    while let Some(at) = rest.find("](") {
        let Some(end) = rest[at..].find(')') else { break };
        shown.push_str(&rest[..=at]);
        rest = &rest[at + end + 1..];
    }
    shown + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(rule: fn(&Source) -> Vec<Finding>, path: &str, text: &str) -> usize {
        rule(&Source::new(path, text)).len()
    }

    #[test]
    fn a_word_of_the_list_is_found_alone_and_in_a_name() {
        for text in ["// It is told.", "fn begin_cut() {}", "The World", "\"behind\""] {
            assert_eq!(count(unplain_words, "src/a.rs", text), 1, "{text}");
        }
        for text in ["attend, cutting, mending", "// The consumer lags behind.", "CutLimits"] {
            assert_eq!(count(unplain_words, "src/a.rs", text), 0, "{text}");
        }
    }

    #[test]
    fn a_paragraph_of_81_words_is_found_and_one_of_80_is_not() {
        let words = |count: usize| "word ".repeat(count);
        for (count_of_words, found) in [(80, 0), (81, 1)] {
            let text: String = words(count_of_words)
                .split_inclusive("d ")
                .enumerate()
                .fold(String::new(), |text, (place, word)| {
                    text + word + if place % 10 == 9 { "\n" } else { "" }
                });
            assert_eq!(count(long_prose, "docs/a.md", &text), found);
            let page: String = text.lines().map(|line| format!("//! {line}\n")).collect();
            assert_eq!(count(long_prose, "src/a.rs", &page), found);
            assert_eq!(count(long_prose, "src/a.rs", &page.replace("//!", "///")), 0);
        }
    }

    #[test]
    fn items_tables_and_code_end_a_paragraph_and_count_apart() {
        let words = "word ".repeat(15);
        let lines = |before: &str| format!("{before}{words}\n").repeat(8);
        assert_eq!(count(long_prose, "docs/a.md", &lines("")), 1);
        for before in ["- ", "12. ", "| ", "# "] {
            assert_eq!(count(long_prose, "docs/a.md", &lines(before)), 0, "{before}");
        }
        let code = format!("```text\n{}```\n", lines(""));
        assert_eq!(count(long_prose, "docs/a.md", &code), 0);
    }

    #[test]
    fn a_line_of_101_columns_is_found_and_of_a_link_only_its_text_counts() {
        assert_eq!(count(long_prose, "docs/a.md", &"a".repeat(101)), 1);
        assert_eq!(count(long_prose, "docs/a.md", &"a".repeat(100)), 0);
        let link = format!("{} [text](https://{}) b", "a".repeat(90), "c".repeat(40));
        assert_eq!(count(long_prose, "docs/a.md", &link), 0);
        assert_eq!(count(long_prose, "docs/a.md", &format!("[a]: {}", "b".repeat(120))), 0);
    }

    #[test]
    fn a_listed_file_is_left_alone_until_nothing_is_left_in_it() {
        let bad = Source::new("src/a/b.rs", "// told");
        let good = Source::new("src/a/b.rs", "// reported");
        assert_eq!(outside_of(&["src/a/"], &[&bad], unplain_words).len(), 0);
        assert_eq!(outside_of(&["src/c/"], &[&bad], unplain_words).len(), 2);
        assert_eq!(outside_of(&["src/a/"], &[&good], unplain_words).len(), 1);
    }
}
