//! House rules about code: what may be called where, attributes, and the length of functions.

use super::source::{Finding, Source, after_bracket, word_at};

/// Lines of a function, from its `fn` to its closing brace.
const MAX_FUNCTION_LINES: usize = 70;

/// Calls that read a clock.
const CLOCK_READS: &[&str] = &[
    "SystemTime::now",
    "Instant::now",
    "clock_gettime",
    "UNIX_EPOCH.elapsed",
    "Utc::now",
    "Local::now",
];

/// What opens or changes files without the traits of `io`.
const FILE_CALLS: &[&str] = &["std::fs", "fs::", "File::open", "File::create", "File::options"];

/// `unwrap()` is for tests: elsewhere a cause is reported or given back.
pub(crate) fn no_unwrap(source: &Source) -> Vec<Finding> {
    outside_of_tests(source, &[".unwrap()", ".unwrap_err()"], "`unwrap()` outside of tests")
}

/// Time comes in through `Clock` alone, in tests too.
pub(crate) fn no_clock_read(source: &Source) -> Vec<Finding> {
    if source.path == "src/base/clock.rs" {
        return Vec::new();
    }
    anywhere(source, CLOCK_READS, "a clock read outside of `clock`")
}

/// Nothing waits by sleeping: what is awaited tells that it has come.
pub(crate) fn no_sleep(source: &Source) -> Vec<Finding> {
    anywhere(source, &["thread::sleep", "sleep("], "a sleep")
}

/// The engine touches files through `io` alone.
pub(crate) fn no_file_outside_of_io(source: &Source) -> Vec<Finding> {
    if source.path.starts_with("src/base/io/") {
        return Vec::new();
    }
    outside_of_tests(source, FILE_CALLS, "a file used outside of `io`")
}

/// Nothing of the workspace is unsafe, in packages with lints of their own too.
pub(crate) fn no_unsafe(source: &Source) -> Vec<Finding> {
    anywhere(source, &["unsafe"], "unsafe code")
}

/// What tests and benchmarks share: each of them uses its part.
const SHARED: &[&str] =
    &["tests/common/", "broker/tests/common/", "tests/temporary/", "benches/support/"];

/// A lint is expected with its reason, never allowed; no test is switched off. What tests share is
/// dead code in some of the tests that take it in and not in others, which no `expect` can say.
pub(crate) fn no_allow_and_no_ignore(source: &Source) -> Vec<Finding> {
    let mut findings = Vec::new();
    for at in source.code.match_indices('#').map(|(at, _)| at) {
        let open = at + 1 + usize::from(source.code[at + 1..].starts_with('!'));
        if !source.code[open..].starts_with('[') {
            continue;
        }
        let end = after_bracket(&source.code, open);
        let attribute = Source::new(&source.path, &source.text[open..end]);
        let is_shared = SHARED.iter().any(|shared| source.path.starts_with(shared))
            && attribute.code.starts_with("[allow(dead_code, reason");
        if !attribute.places("allow(").is_empty() && !is_shared {
            findings.push(source.finding(at, "an `allow` attribute: say `expect` and the reason"));
        }
        if !attribute.places("ignore").is_empty() {
            findings.push(source.finding(at, "a test that is switched off"));
        }
        let has_reason = !attribute.places("reason").is_empty();
        if !attribute.places("expect(").is_empty() && !has_reason {
            findings.push(source.finding(at, "an expected lint without its reason"));
        }
    }
    findings
}

/// No macro that stands for missing code or for a look inside.
pub(crate) fn nothing_unfinished(source: &Source) -> Vec<Finding> {
    anywhere(source, &["todo!", "unimplemented!", "dbg!"], "unfinished")
}

/// Names are imported one by one, but in tests.
pub(crate) fn no_glob_import(source: &Source) -> Vec<Finding> {
    outside_of_tests(source, &["::*;", "::*,", "::*}"], "a glob import")
}

/// Functions have at most 70 lines.
pub(crate) fn functions_fit(source: &Source) -> Vec<Finding> {
    let mut findings = Vec::new();
    for at in source.places("fn") {
        let name = word_at(&source.code, at + "fn ".len());
        let Some(open) = body(&source.code, at).filter(|_| !name.is_empty()) else { continue };
        let end = after_bracket(&source.code, open);
        let lines = 1 + source.code[at..end].bytes().filter(|&byte| byte == b'\n').count();
        if lines > MAX_FUNCTION_LINES {
            findings.push(source.finding(at, format!("{name} has {lines} lines")));
        }
    }
    findings
}

/// The brace that opens the body of the function at `at`, or nothing where it has none.
fn body(code: &str, at: usize) -> Option<usize> {
    let bytes = code.as_bytes();
    let mut place = at;
    while place < bytes.len() {
        match bytes[place] {
            b'(' | b'[' => place = after_bracket(code, place),
            b'{' => return Some(place),
            b';' => return None,
            _ => place += 1,
        }
    }
    None
}

/// Each place of one of these pieces, as a finding.
pub(crate) fn anywhere(source: &Source, pieces: &[&str], what: &str) -> Vec<Finding> {
    let mut places: Vec<(usize, &str)> = pieces
        .iter()
        .flat_map(|piece| source.places(piece).into_iter().map(move |at| (at, *piece)))
        .collect();
    places.sort_unstable();
    places.into_iter().map(|(at, piece)| source.finding(at, format!("{what}: {piece}"))).collect()
}

/// As [`anywhere`], but not in code that only a test build compiles.
fn outside_of_tests(source: &Source, pieces: &[&str], what: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    for piece in pieces {
        for at in source.places(piece).into_iter().filter(|&at| !source.is_test(at)) {
            findings.push(source.finding(at, format!("{what}: {piece}")));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    type Rule = fn(&Source) -> Vec<Finding>;

    fn count(rule: Rule, text: &str) -> usize {
        rule(&Source::new("src/log/writer.rs", text)).len()
    }

    #[test]
    fn unwrap_is_found_outside_of_tests_only() {
        assert_eq!(count(no_unwrap, "fn f() { a.unwrap(); b.unwrap_or(1); c.expect(\"why\") }"), 1);
        assert_eq!(count(no_unwrap, "#[cfg(test)]\nmod tests { fn f() { a.unwrap() } }"), 0);
        assert_eq!(count(no_unwrap, "#[test]\nfn f() { a.unwrap() }\nfn g() { b.unwrap() }"), 1);
        assert_eq!(count(no_unwrap, "/// `a.unwrap()`\nfn f() {}"), 0);
    }

    #[test]
    fn a_clock_read_is_found_everywhere_but_in_clock() {
        let text = "fn f() { std::time::Instant::now(); SystemTime::now() }";
        assert_eq!(count(no_clock_read, text), 2);
        assert_eq!(no_clock_read(&Source::new("tests/a.rs", text)).len(), 2);
        assert_eq!(no_clock_read(&Source::new("src/base/clock.rs", text)).len(), 0);
    }

    #[test]
    fn a_sleep_is_found() {
        assert_eq!(count(no_sleep, "fn f() { wait(a); sleep(b) }"), 1);
    }

    #[test]
    fn a_file_opened_outside_of_io_is_found() {
        for text in ["use std::fs;", "fn f() { File::open(a) }", "fn f() { rustix::fs::fsync(a) }"]
        {
            assert!(count(no_file_outside_of_io, text) > 0, "{text}");
            assert!(no_file_outside_of_io(&Source::new("src/base/io/real.rs", text)).is_empty());
        }
        let fine = "fn f(options: &OpenOptions) { files.open(a); Files::create(b) }";
        assert_eq!(count(no_file_outside_of_io, fine), 0);
    }

    #[test]
    fn unsafe_code_is_found_in_any_form() {
        assert_eq!(count(no_unsafe, "unsafe impl Send for A {}\nfn f() { unsafe { g() } }"), 2);
        assert_eq!(count(no_unsafe, "#![forbid(unsafe_code)]\n// unsafe\n"), 0);
    }

    #[test]
    fn allowed_lints_and_ignored_tests_are_found() {
        let bad = "#![allow(dead_code)]\n#[allow(x)]\nfn f() {}\n#[cfg_attr(test, allow(y))]\n\
                   fn g() {}\n#[test]\n#[ignore = \"slow\"]\nfn h() {}\n#[expect(z)]\nfn i() {}";
        assert_eq!(count(no_allow_and_no_ignore, bad), 5);
        let good = "#[expect(dead_code, reason = \"allow( and ignore are words\")]\n\
                    #[derive(Debug)]\nfn f() { allow(a[1]) }";
        assert_eq!(count(no_allow_and_no_ignore, good), 0);
        let shared = "#![allow(dead_code, reason = \"each test takes its part\")]";
        assert_eq!(count(no_allow_and_no_ignore, shared), 1);
        assert!(no_allow_and_no_ignore(&Source::new("tests/common/mod.rs", shared)).is_empty());
    }

    #[test]
    fn unfinished_code_is_found() {
        assert_eq!(count(nothing_unfinished, "fn f() { todo!(); dbg!(a); unimplemented!() }"), 3);
        assert_eq!(count(nothing_unfinished, "fn f() { \"todo!\" }"), 0);
    }

    #[test]
    fn a_glob_import_is_found_outside_of_tests_only() {
        assert_eq!(count(no_glob_import, "use super::*;\nuse a::{b::*, c};"), 2);
        assert_eq!(count(no_glob_import, "#[cfg(test)]\nmod tests { use super::*; }"), 0);
    }

    #[test]
    fn a_function_of_71_lines_is_found_and_one_of_70_is_not() {
        let function = |lines: usize| format!("fn f(a: [u8; 2]) {{{}}}", "\n".repeat(lines - 1));
        assert_eq!(count(functions_fit, &function(70)), 0);
        assert_eq!(count(functions_fit, &function(71)), 1);
        let without_body =
            format!("trait A {{ fn f();{} }}\nfn g(h: fn(u8)) {{}}", "\n".repeat(80));
        assert_eq!(count(functions_fit, &without_body), 0);
    }
}
