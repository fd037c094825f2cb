//! The layers of the engine as data, and the rule that a module imports only from what lies below it.

use super::source::{Finding, Source, after_bracket, word_at};

/// The folders of a package, each with its row: a folder imports from lower rows alone.
type Table = &'static [(&'static str, u8)];

/// The engine. docs/design.md draws the same table.
const ENGINE: Table = &[
    ("base", 0),
    ("record", 1),
    ("config", 2),
    ("index", 2),
    ("log", 2),
    ("state", 3),
    ("commit", 4),
    ("core", 5),
    ("write", 6),
    ("read", 6),
    ("space", 6),
    ("open", 6),
    ("engine", 7),
    ("testing", 8),
];

/// The broker. The page of its crate tells the same order.
const BROKER: Table = &[
    ("wire", 0),
    ("audit", 1),
    ("fault", 1),
    ("security", 2),
    ("profile", 2),
    ("metrics", 2),
    ("groups", 3),
    ("context", 4),
    ("api", 5),
    ("server", 6),
    ("options", 7),
    ("cluster_id", 7),
];

/// Where the tables hold.
const PACKAGES: &[(&str, Table)] = &[("src/", ENGINE), ("broker/src/", BROKER)];

/// Row of a module, or nothing where the table does not know it.
fn row(table: Table, module: &str) -> Option<u8> {
    table.iter().find(|(name, _)| *name == module).map(|&(_, row)| row)
}

/// The module that a file belongs to; `None` for the root of a package.
fn module_of(below: &str) -> Option<&str> {
    let first = below.split('/').next()?;
    let name = first.strip_suffix(".rs").unwrap_or(first);
    (name != "lib" && name != "main").then_some(name)
}

/// Every file is in a module of the table of its package, and imports only from what lies below.
pub(crate) fn imports_from_below(source: &Source) -> Vec<Finding> {
    let mut packages = PACKAGES.iter();
    let found = packages.find_map(|(root, table)| Some((source.path.strip_prefix(root)?, table)));
    let Some((below, table)) = found else { return Vec::new() };
    let Some(module) = module_of(below) else { return Vec::new() };
    let Some(own) = row(table, module) else {
        let what = format!("the module {module} has no place in the table of layers");
        return vec![source.finding(0, what)];
    };
    let mut findings = Vec::new();
    for (at, imported) in imports(source) {
        // Tests within a folder may use what `testing` has; it stands apart above all layers.
        if imported == module || imported == "testing" && source.is_test(at) {
            continue;
        }
        let what = match row(table, &imported) {
            Some(other) if other < own => continue,
            Some(_) => "does not lie below it in the layers",
            None => "is no module of the table of layers",
        };
        findings.push(source.finding(at, format!("{module} imports {imported}, which {what}")));
    }
    findings
}

/// Entries of the tables that no file is in.
pub(crate) fn empty_layers(sources: &[&Source]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (root, table) in PACKAGES {
        for (module, _) in *table {
            let is_there = sources
                .iter()
                .any(|source| source.path.strip_prefix(root).and_then(module_of) == Some(module));
            if !is_there {
                let what = format!("the table of layers has {module}, which is not there");
                findings.push(Finding { path: (*root).to_owned(), line: 1, what });
            }
        }
    }
    findings
}

/// The modules of the root that a file names, by `crate::` or by enough `super::`, and where.
fn imports(source: &Source) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for at in source.places("crate::") {
        if at > 0 && source.code.as_bytes()[at - 1] == b'$' {
            continue;
        }
        first_names(&source.code, at + "crate::".len(), &mut found);
    }
    for at in source.places("super::") {
        if source.code[..at].ends_with("super::") {
            continue;
        }
        let mut after = at;
        let mut steps = 0;
        while source.code[after..].starts_with("super::") {
            after += "super::".len();
            steps += 1;
        }
        if steps >= depth(source, at) {
            first_names(&source.code, after, &mut found);
        }
    }
    found
}

/// How many modules below the root the code at a byte is.
fn depth(source: &Source, at: usize) -> usize {
    let below = source.path.trim_start_matches("broker/");
    let below = below.trim_start_matches("src/").trim_end_matches(".rs");
    let of_file = below.split('/').filter(|part| *part != "mod").count();
    let inline = source.places("mod").into_iter().filter(|&place| {
        let name = word_at(&source.code, place + "mod ".len());
        let after = place + "mod ".len() + name.len();
        let opens = source.code[after..].trim_start().starts_with('{');
        let open = after + source.code[after..].find('{').unwrap_or(0);
        opens && (open..after_bracket(&source.code, open)).contains(&at)
    });
    of_file + inline.count()
}

/// The names that stand first in a path or in each path of a group that begins at `at`.
fn first_names(code: &str, at: usize, found: &mut Vec<(usize, String)>) {
    if !code[at..].starts_with('{') {
        found.push((at, word_at(code, at).to_owned()));
        return;
    }
    let end = after_bracket(code, at) - 1;
    let mut depth = 0_usize;
    let mut is_first = true;
    for (place, byte) in code.bytes().enumerate().take(end).skip(at + 1) {
        match byte {
            b'{' => depth += 1,
            b'}' => depth = depth.saturating_sub(1),
            b',' if depth == 0 => is_first = true,
            byte if depth == 0 && is_first && !byte.is_ascii_whitespace() => {
                found.push((place, word_at(code, place).to_owned()));
                is_first = false;
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn complaints(path: &str, text: &str) -> Vec<String> {
        imports_from_below(&Source::new(path, text)).into_iter().map(|found| found.what).collect()
    }

    #[test]
    fn imports_from_lower_rows_and_from_the_own_module_are_right() {
        let text = "use crate::base::error::A;\nuse crate::{base::io::Files, base::{Offset, A}};\n\
                    use crate::log::frame;\nuse super::segment;\nfn f(x: crate::base::B) {}";
        assert_eq!(complaints("src/log/writer.rs", text), Vec::<String>::new());
        let text = "use crate::base::types::A;";
        assert_eq!(complaints("src/base/clock.rs", text), Vec::<String>::new());
    }

    #[test]
    fn an_import_from_the_own_row_or_above_is_found_in_every_form() {
        for text in [
            "use crate::index::Store;",
            "use crate::{base::Offset, index::Store};",
            "use crate::{\n    base::{A, B},\n    index,\n};",
            "fn f(x: crate::index::Store) {}",
            "use super::super::index::Store;",
            "mod a { use super::super::super::index::Store; }",
            "use crate::engine::Engine;",
        ] {
            assert_eq!(complaints("src/log/writer.rs", text).len(), 1, "{text}");
        }
        assert_eq!(complaints("src/write/a.rs", "use super::super::read::Fetched;").len(), 1);
    }

    #[test]
    fn the_broker_has_a_table_of_its_own() {
        assert_eq!(complaints("broker/src/groups/join.rs", "use crate::wire::Frame;").len(), 0);
        assert_eq!(complaints("broker/src/groups/join.rs", "use crate::api::Api;").len(), 1);
        assert_eq!(complaints("broker/src/fault.rs", "use super::groups::Group;").len(), 1);
        assert_eq!(complaints("broker/src/base.rs", "fn f() {}").len(), 1);
    }

    #[test]
    fn tests_within_a_folder_use_the_simulations_and_its_code_does_not() {
        let import = "use crate::testing::SimulatedDisk;";
        assert_eq!(complaints("src/log/writer.rs", import).len(), 1);
        let in_test = format!("#[cfg(test)]\nmod tests {{ {import} }}");
        assert_eq!(complaints("src/log/writer.rs", &in_test).len(), 0);
        assert_eq!(complaints("src/log/tests.rs", import).len(), 0);
    }

    #[test]
    fn a_layer_without_files_is_found() {
        let all: Vec<Source> = PACKAGES
            .iter()
            .flat_map(|(root, table)| table.iter().map(move |(name, _)| format!("{root}{name}.rs")))
            .map(|path| Source::new(&path, ""))
            .collect();
        let all: Vec<&Source> = all.iter().collect();
        assert_eq!(empty_layers(&all), []);
        assert_eq!(empty_layers(&all[1..]).len(), 1);
    }

    #[test]
    fn a_module_outside_of_the_table_is_found() {
        assert_eq!(complaints("src/helpers.rs", "fn f() {}").len(), 1);
        assert_eq!(complaints("src/log/mod.rs", "use crate::helpers::f;").len(), 1);
        assert_eq!(complaints("src/log/mod.rs", "use crate::Engine;").len(), 1);
    }

    #[test]
    fn what_is_said_in_comments_and_what_the_root_does_is_no_import() {
        assert!(complaints("src/log/mod.rs", "//! See [`crate::engine::Engine`].\n").is_empty());
        assert!(complaints("src/lib.rs", "pub use crate::engine::Engine;").is_empty());
        assert!(complaints("broker/src/main.rs", "use crate::server::Server;").is_empty());
        assert!(complaints("broker/tests/groups.rs", "use crate::server::Server;").is_empty());
        assert!(complaints("src/log/mod.rs", "mod a { use super::store; }").is_empty());
    }
}
