//! The test of layers and house rules: every file of the workspace is read and held against them.

mod circles;
mod code_rules;
mod layers;
mod prose;
mod source;
mod store_rules;
mod text_rules;
mod tree;

use source::{Finding, Source};

/// A rule about one file, and its findings there.
type Rule = fn(&Source) -> Vec<Finding>;

/// Rules about all files of the project that are text of ours, documents and recipes too.
const OF_ALL_TEXT: &[Rule] = &[text_rules::ascii_only, text_rules::no_path_of_one_machine];

/// Rules about all Rust, that of tests, benches, examples and fuzz targets too.
const OF_RUST: &[Rule] = &[
    text_rules::first_line_says_the_job,
    text_rules::lines_fit,
    text_rules::files_stay_small,
    text_rules::nothing_left_over,
    code_rules::no_allow_and_no_ignore,
    code_rules::nothing_unfinished,
    code_rules::no_glob_import,
    code_rules::no_unwrap,
    code_rules::no_clock_read,
    code_rules::no_sleep,
    code_rules::no_unsafe,
    code_rules::functions_fit,
];

/// Rules about the engine and the packages that live on it.
const OF_PRODUCTS: &[Rule] = &[store_rules::rocksdb_in_its_store_alone];

/// Rules about the engine alone.
const OF_THE_ENGINE: &[Rule] = &[code_rules::no_file_outside_of_io];

/// Findings of these rules in these files.
fn findings(rules: &[Rule], sources: &[&Source]) -> Vec<Finding> {
    sources.iter().flat_map(|source| rules.iter().flat_map(|rule| rule(source))).collect()
}

/// Fails with one line for each finding.
fn assert_none(mut findings: Vec<Finding>) {
    findings.sort_by(|a, b| (&a.path, a.line).cmp(&(&b.path, b.line)));
    let lines: Vec<String> = findings
        .iter()
        .map(|finding| format!("{}:{}: {}", finding.path, finding.line, finding.what))
        .collect();
    assert!(lines.is_empty(), "{} findings:\n{}", lines.len(), lines.join("\n"));
}

#[test]
fn every_module_imports_only_from_below_and_uses_files_through_io() {
    let tree = tree::read();
    assert_none(findings(OF_THE_ENGINE, &tree.rust_below(&["src/"])));
    let layered = tree.rust_below(&["src/", "broker/src/"]);
    assert_none(findings(&[layers::imports_from_below], &layered));
    assert_none(layers::empty_layers(&layered));
}

#[test]
fn no_files_of_a_folder_import_each_other_in_a_circle() {
    let tree = tree::read();
    assert_none(circles::circles(&tree.rust_below(&["src/", "broker/src/"])));
}

#[test]
fn rocksdb_is_named_in_its_store_alone_and_written_and_flushed_in_one_place() {
    let tree = tree::read();
    let all = tree.rust_below(&["src/", "tests/", "examples/", "fuzz/", "broker/"]);
    let mut found = findings(OF_PRODUCTS, &all);
    found.extend(store_rules::one_place_writes_and_one_flushes(&all));
    assert_none(found);
}

#[test]
fn every_file_of_rust_keeps_the_house_rules() {
    let tree = tree::read();
    assert_none(findings(OF_RUST, &tree.rust_below(&[""])));
}

#[test]
fn every_text_of_the_project_is_ascii_and_names_no_machine() {
    let tree = tree::read();
    assert_none(findings(OF_ALL_TEXT, &tree.all()));
}

#[test]
fn all_texts_use_plain_words() {
    let tree = tree::read();
    assert_none(prose::words_are_plain(&tree.all()));
}

#[test]
fn documents_and_module_pages_have_short_lines_and_paragraphs() {
    let tree = tree::read();
    let all = tree.all();
    let written: Vec<_> = all
        .into_iter()
        .filter(|source| source.path.ends_with(".md") || source.path.ends_with(".rs"))
        .collect();
    assert_none(prose::prose_is_short(&written));
}

#[test]
fn every_file_of_the_engine_is_a_module_of_its_parent() {
    let tree = tree::read();
    assert_none(tree::orphans(&tree.rust_below(&["src/"])));
}

#[test]
fn the_rules_see_the_engine_its_tests_and_its_documents() {
    let tree = tree::read();
    let paths: Vec<&str> = tree.all().iter().map(|source| source.path.as_str()).collect();
    for path in ["src/lib.rs", "src/base/io/mod.rs", "tests/tidy/main.rs", "README.md", "Makefile"]
    {
        assert!(paths.contains(&path), "{path} was not read");
    }
}
