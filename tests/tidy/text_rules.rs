//! House rules about the text of any file of the project, comments and documents included.

use super::source::{Finding, Source};

/// Columns of a line of Rust.
const MAX_COLUMNS: usize = 100;

/// Columns of the first line, whose one sentence is not broken.
const MAX_FIRST_COLUMNS: usize = 120;

/// Lines of a file of Rust.
const MAX_FILE_LINES: usize = 500;

/// Files that were longer when the rule came, each with the lines it may have. An entry shrinks
/// with its file and goes when the file fits; none is added for a new file.
const LONG_FILES: &[(&str, usize)] = &[];

/// A file of Rust begins with a line that says its one job.
pub(crate) fn first_line_says_the_job(source: &Source) -> Vec<Finding> {
    let line = source.text.lines().next().unwrap_or("");
    let says = line.strip_prefix("//! ").is_some_and(|job| job.trim().len() >= 10);
    if says { Vec::new() } else { vec![source.finding(0, "the first line is not `//!` and a job")] }
}

/// Text is ASCII, without control characters other than the end of a line, and tabs in a Makefile.
pub(crate) fn ascii_only(source: &Source) -> Vec<Finding> {
    let is_makefile = source.path.ends_with("Makefile");
    let is_bad = |character: &char| match character {
        '\n' => false,
        '\t' => !is_makefile,
        character => !character.is_ascii() || character.is_ascii_control(),
    };
    source
        .text
        .char_indices()
        .filter(|(_, character)| is_bad(character))
        .map(|(at, character)| {
            source.finding(at, format!("not plain ASCII: {}", character.escape_unicode()))
        })
        .collect()
}

/// Lines of Rust have at most 100 columns, the first one 120.
pub(crate) fn lines_fit(source: &Source) -> Vec<Finding> {
    let mut at = 0;
    let mut findings = Vec::new();
    for line in source.text.split('\n') {
        let columns = line.chars().count();
        let limit = if at == 0 { MAX_FIRST_COLUMNS } else { MAX_COLUMNS };
        if columns > limit {
            findings.push(source.finding(at, format!("a line of {columns} columns")));
        }
        at += line.len() + 1;
    }
    findings
}

/// Nothing that was meant for later is left over.
pub(crate) fn nothing_left_over(source: &Source) -> Vec<Finding> {
    let marks =
        [concat!("FIX", "ME"), concat!("TO", "DO"), concat!("XX", "X"), concat!("HA", "CK")];
    marks.iter().flat_map(|mark| whole_words(source, mark, "left over")).collect()
}

/// No path of somebody's machine is written down.
pub(crate) fn no_path_of_one_machine(source: &Source) -> Vec<Finding> {
    let paths =
        [concat!("/tm", "p/"), concat!("/wor", "k/"), concat!("/hom", "e/"), concat!("/roo", "t/")];
    let mut findings = Vec::new();
    for path in paths {
        for (at, _) in source.text.match_indices(path) {
            let before = source.text[..at].bytes().last();
            let stands_alone = !before.is_some_and(|byte| {
                byte.is_ascii_alphanumeric()
                    || matches!(byte, b'_' | b'-' | b'.' | b'}' | b')' | b'/')
            });
            if stands_alone {
                findings.push(source.finding(at, format!("a path of one machine: {path}")));
            }
        }
    }
    findings
}

/// Files of Rust have at most 500 lines; the listed ones at most what is listed.
pub(crate) fn files_stay_small(source: &Source) -> Vec<Finding> {
    lines_within(source, LONG_FILES)
}

/// As [`files_stay_small`], with this list of longer files.
fn lines_within(source: &Source, long_files: &[(&str, usize)]) -> Vec<Finding> {
    let lines = source.text.lines().count();
    let listed = long_files.iter().find(|(path, _)| *path == source.path);
    let problem = match listed {
        None if lines > MAX_FILE_LINES => {
            format!("{lines} lines, which is more than {MAX_FILE_LINES}: split the file by jobs")
        }
        Some((_, limit)) if lines > *limit => {
            format!("{lines} lines: the file was listed with {limit} and may only shrink")
        }
        Some(_) if lines <= MAX_FILE_LINES => {
            format!("{lines} lines: the file fits and must leave the list of longer ones")
        }
        Some((_, limit)) if lines < *limit => {
            format!("{lines} lines: take its limit in the list down from {limit}")
        }
        _ => return Vec::new(),
    };
    vec![source.finding(0, problem)]
}

/// Where a mark stands in the text as a word of its own.
fn whole_words(source: &Source, mark: &str, what: &str) -> Vec<Finding> {
    let text = source.text.as_bytes();
    source
        .text
        .match_indices(mark)
        .filter(|(at, _)| {
            let before = at.checked_sub(1).and_then(|at| text.get(at));
            let after = text.get(at + mark.len());
            [before, after].into_iter().flatten().all(|byte| !byte.is_ascii_alphanumeric())
        })
        .map(|(at, _)| source.finding(at, format!("{what}: {mark}")))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    type Rule = fn(&Source) -> Vec<Finding>;

    fn count(rule: Rule, text: &str) -> usize {
        rule(&Source::new("src/a.rs", text)).len()
    }

    #[test]
    fn a_file_without_a_job_in_its_first_line_is_found() {
        assert_eq!(count(first_line_says_the_job, "//! Reads the lengths of frames.\n"), 0);
        for text in
            ["", "//!\n", "//! Job.\n", "use std::fmt;\n//! Reads the lengths.", "/// Reads"]
        {
            assert_eq!(count(first_line_says_the_job, text), 1, "{text:?}");
        }
    }

    #[test]
    fn a_character_outside_of_ascii_is_found_in_code_and_in_comments() {
        assert_eq!(count(ascii_only, "let a = 1; // fine\n"), 0);
        assert_eq!(count(ascii_only, "let a = \"\u{e9}\"; // \u{2013}\n\tb\r\n"), 4);
        assert_eq!(ascii_only(&Source::new("Makefile", "a:\n\tb\n")), []);
    }

    #[test]
    fn a_line_of_101_columns_is_found_and_one_of_100_is_not() {
        let lines = |first: usize, second: usize| {
            let text = format!("{}\n{}\nc", "a".repeat(first), "b".repeat(second));
            lines_fit(&Source::new("src/a.rs", &text))
        };
        assert_eq!(lines(120, 100), []);
        assert_eq!(lines(121, 100).len(), 1);
        assert_eq!(lines(120, 101)[0].line, 2);
    }

    #[test]
    fn a_mark_that_means_later_is_found_as_a_word() {
        assert_eq!(count(nothing_left_over, concat!("// TO", "DO: more\n// FIX", "ME\n")), 2);
        assert_eq!(count(nothing_left_over, concat!("const AUTO", "DONE: u8 = 1;")), 0);
    }

    #[test]
    fn a_path_of_one_machine_is_found() {
        assert_eq!(
            count(no_path_of_one_machine, concat!("open(\"/tm", "p/x\") // /hom", "e/me")),
            2
        );
        assert_eq!(count(no_path_of_one_machine, concat!("a/tm", "p/x $(HOME)/ho", "me/")), 0);
    }

    #[test]
    fn a_long_file_is_found_and_a_listed_one_may_only_shrink() {
        let long = [("src/a.rs", 600)];
        let findings = |lines: usize, listed: &[(&str, usize)]| {
            lines_within(&Source::new("src/a.rs", &"x\n".repeat(lines)), listed).len()
        };
        assert_eq!((findings(500, &[]), findings(501, &[])), (0, 1));
        assert_eq!((findings(600, &long), findings(601, &long)), (0, 1));
        assert_eq!((findings(599, &long), findings(500, &long)), (1, 1));
    }
}
