//! Rules about RocksDB: who may name it, that one function writes to it and that one flushes it.

use super::code_rules::anywhere;
use super::source::{Finding, Source};

/// Calls that put anything into RocksDB.
const WRITES: &[&str] = &["write_opt(", "write_without_wal(", ".write(&", "write_wbwi("];

/// Calls that flush, of which one place has the one that takes all families.
const FLUSH_OF_ALL: &str = "flush_cfs_opt(";

/// Calls that flush a part, that flush inside, or that write without a batch (commit log rules
/// S1 to S3): none of them has a place.
const FORBIDDEN: &[&str] = &[
    "flush(",
    "flush_opt(",
    "flush_cf(",
    "flush_cf_opt(",
    "flush_wal(",
    "compact_range(",
    "compact_range_cf(",
    "compact_range_opt(",
    "compact_range_cf_opt(",
    "cancel_all_background_work(",
    "ingest_external_file(",
    "ingest_external_file_cf(",
    "delete_file_in_range(",
    "merge_cf(",
    "open_cf(",
    "Checkpoint",
    "BackupEngine",
];

/// The files that name RocksDB: its store, and the tests of what is assumed about it.
fn names_rocksdb(path: &str) -> bool {
    let file = path.rsplit('/').next().unwrap_or(path);
    (path.starts_with("src/index/store/rocks") && path.ends_with(".rs"))
        || (path.starts_with("tests/") && file.starts_with("rocks"))
}

/// RocksDB is named in its store alone, so that everything else builds and runs without it.
pub(crate) fn rocksdb_in_its_store_alone(source: &Source) -> Vec<Finding> {
    if names_rocksdb(&source.path) {
        return Vec::new();
    }
    let names = ["rocksdb::", "use rocksdb", "librocksdb_sys"];
    anywhere(source, &names, "RocksDB named outside of its store")
}

/// Over the files of RocksDB's store together: one place writes, one flushes, all families.
pub(crate) fn one_place_writes_and_one_flushes(sources: &[&Source]) -> Vec<Finding> {
    let store: Vec<&Source> = sources
        .iter()
        .copied()
        .filter(|source| source.path.starts_with("src/index/store/rocks"))
        .collect();
    let mut findings = Vec::new();
    for source in &store {
        findings.extend(anywhere(source, FORBIDDEN, "flushes or writes past the one function"));
    }
    for (calls, what) in [(WRITES, "writes"), (&[FLUSH_OF_ALL], "flushes")] {
        let mut places: Vec<Finding> = store
            .iter()
            .flat_map(|source| anywhere(source, calls, "one more place that"))
            .collect();
        places.iter_mut().for_each(|place| place.what = format!("one more place that {what}"));
        findings.extend(places.into_iter().skip(1));
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn in_store(text: &str) -> usize {
        one_place_writes_and_one_flushes(&[&Source::new("src/index/store/rocks.rs", text)]).len()
    }

    #[test]
    fn rocksdb_is_found_outside_of_its_store() {
        let text = "#[cfg(feature = \"rocksdb\")]\nuse rocksdb as r;\n";
        for path in
            ["src/engine.rs", "src/index/store/memory.rs", "examples/a.rs", "tests/a/append.rs"]
        {
            assert_eq!(rocksdb_in_its_store_alone(&Source::new(path, text)).len(), 1, "{path}");
        }
        let module = Source::new("tests/store/conformance.rs", "mod rocksdb { fn f() {} }");
        assert!(rocksdb_in_its_store_alone(&module).is_empty());
        for path in
            ["src/index/store/rocks.rs", "src/index/store/rocks/options.rs", "tests/a/rocksdb.rs"]
        {
            assert_eq!(rocksdb_in_its_store_alone(&Source::new(path, text)).len(), 0, "{path}");
        }
    }

    #[test]
    fn one_place_that_writes_and_one_that_flushes_are_right() {
        assert_eq!(in_store("fn a() { db.write_opt(b, c) } fn d() { db.flush_cfs_opt(e, f) }"), 0);
        assert_eq!(in_store("fn a() { lock.write().write(&b); lock.write().take() }"), 0);
    }

    #[test]
    fn a_second_place_that_writes_or_flushes_is_found_in_another_file_too() {
        assert_eq!(in_store("fn a() { db.write_opt(b, c); db.write(&d) }"), 1);
        assert_eq!(in_store("fn a() { db.flush_cfs_opt(b, c); db.flush_cfs_opt(d, e) }"), 1);
        let one = Source::new("src/index/store/rocks.rs", "fn a() { db.write_opt(b, c) }");
        let other =
            Source::new("src/index/store/rocks_options.rs", "fn a() { db.write_without_wal(b) }");
        assert_eq!(one_place_writes_and_one_flushes(&[&one, &other]).len(), 1);
    }

    #[test]
    fn a_flush_of_a_part_or_inside_of_rocksdb_is_found() {
        for call in ["flush()", "flush_cf(a)", "compact_range_cf(a, b)", "merge_cf(a)"] {
            assert_eq!(in_store(&format!("fn a() {{ db.{call} }}")), 1, "{call}");
        }
        assert_eq!(in_store("use rocksdb::checkpoint::Checkpoint;"), 1);
    }

    #[test]
    fn a_flush_of_something_else_in_another_file_is_no_finding() {
        let other = Source::new("src/log/writer.rs", "fn a() { output.flush(); file.write(b) }");
        assert!(one_place_writes_and_one_flushes(&[&other]).is_empty());
    }
}
