//! The files of the workspace, and the rule that none of the engine's is left out of the build.

use std::path::{Path, PathBuf};

use super::source::{Finding, Source};

/// The directories with files of ours.
const DIRECTORIES: &[&str] =
    &[".ci", "benches", "broker", "docs", "examples", "fuzz", "peers", "src", "tests"];

/// Directories, by name, whose files are made by tools or are data.
const NOT_OURS: &[&str] = &["target", "corpus", "artifacts", "coverage", "data"];

/// The endings of files that are text of ours; files without an ending are, too.
const ENDINGS: &[&str] = &["rs", "md", "toml", "sh", "py", "dict"];

/// All that was read.
pub(crate) struct Tree {
    sources: Vec<Source>,
}

impl Tree {
    /// Every file.
    pub(crate) fn all(&self) -> Vec<&Source> {
        self.sources.iter().collect()
    }

    /// The Rust files whose path begins with one of these.
    pub(crate) fn rust_below(&self, beginnings: &[&str]) -> Vec<&Source> {
        let is_below = |path: &str| beginnings.iter().any(|beginning| path.starts_with(beginning));
        self.sources
            .iter()
            .filter(|source| source.path.ends_with(".rs") && is_below(&source.path))
            .collect()
    }
}

/// Reads all files of ours, of the workspace that this test belongs to.
pub(crate) fn read() -> Tree {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    let mut sources = Vec::new();
    read_directory(&root, "", &mut sources);
    for directory in DIRECTORIES {
        if root.join(directory).is_dir() {
            read_directory(&root.join(directory), &format!("{directory}/"), &mut sources);
        }
    }
    Tree { sources }
}

/// Reads what is in a directory; of the root itself the files only.
fn read_directory(directory: &Path, prefix: &str, sources: &mut Vec<Source>) {
    let entries = std::fs::read_dir(directory).expect("the directory was there a moment ago");
    for entry in entries {
        let entry = entry.expect("the directory can be read to its end");
        let name = entry.file_name().into_string().expect("names of ours are ASCII");
        let path = format!("{prefix}{name}");
        if entry.path().is_dir() {
            if !prefix.is_empty() && !NOT_OURS.contains(&name.as_str()) {
                read_directory(&entry.path(), &format!("{path}/"), sources);
            }
        } else if is_text_of_ours(&name) {
            let text = std::fs::read_to_string(entry.path())
                .unwrap_or_else(|error| panic!("{path} cannot be read as text: {error}"));
            sources.push(Source::new(&path, &text));
        }
    }
}

/// Whether a file is text of ours, by its name; the licences and `.git` of a work tree are not.
fn is_text_of_ours(name: &str) -> bool {
    match name.rsplit_once('.') {
        Some(("", hidden)) => hidden == "gitignore",
        Some((_, ending)) => ENDINGS.contains(&ending),
        None => !name.starts_with("LICENSE"),
    }
}

/// Files of Rust that no `mod` of their parent brings into the build.
pub(crate) fn orphans(sources: &[&Source]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for source in sources {
        let Some(path) = source.path.strip_suffix(".rs") else { continue };
        let (parent, name) = path.rsplit_once('/').unwrap_or(("", path));
        let (parent, name) = match name {
            "lib" | "main" => continue,
            "mod" => parent.rsplit_once('/').unwrap_or(("", parent)),
            _ => (parent, name),
        };
        let declared = sources
            .iter()
            .filter(|other| {
                ["lib.rs", "main.rs", "mod.rs"]
                    .iter()
                    .any(|file| other.path == format!("{parent}/{file}"))
                    || other.path == format!("{parent}.rs")
            })
            .any(|other| !other.places(&format!("mod {name};")).is_empty());
        if !declared {
            findings.push(source.finding(0, "no `mod` brings this file into the build"));
        }
    }
    findings
}

#[test]
fn a_file_that_no_mod_brings_in_is_found() {
    let root = Source::new("src/lib.rs", "pub mod log;\nmod clock;\n// mod lost;\n");
    let log = Source::new("src/log/mod.rs", "mod frame;\n");
    let files = ["src/clock.rs", "src/log/frame.rs", "src/lost.rs", "src/log/lost.rs"]
        .map(|path| Source::new(path, ""));
    let mut all = vec![&root, &log];
    all.extend(&files);
    let found: Vec<String> = orphans(&all).into_iter().map(|finding| finding.path).collect();
    assert_eq!(found, ["src/lost.rs", "src/log/lost.rs"]);
}

#[test]
fn text_of_ours_is_known_by_its_name() {
    for name in ["a.rs", "Makefile", "run", "a.md", ".gitignore", "deny.toml"] {
        assert!(is_text_of_ours(name), "{name}");
    }
    for name in [".git", "LICENSE-MIT", "a.bin", "a.json", "Cargo.lock", ".DS_Store"] {
        assert!(!is_text_of_ours(name), "{name}");
    }
}
