//! The layers of the engine as data, and the rule that a module imports only from what lies below it.

use super::source::{Finding, Source, behind_bracket, word_at};

/// Each folder of the engine with its row and, where folders of one row build on each other, its
/// step in the row. A folder imports from lower rows, and from lower steps of its own row.
/// docs/design.md draws the same table.
const LAYERS: &[(&str, u8, u8)] = &[
    ("base", 0, 0),
    ("record", 1, 0),
    ("config", 2, 0),
    ("index", 2, 0),
    ("log", 2, 0),
    ("state", 3, 0),
    ("commit", 4, 0),
    ("core", 5, 0),
    ("write", 6, 0),
    ("read", 6, 0),
    ("space", 6, 0),
    ("open", 6, 0),
    ("engine", 7, 0),
    ("testing", 8, 0),
];

/// Row and step of a module, or nothing where the table does not know it.
fn layer(module: &str) -> Option<(u8, u8)> {
    LAYERS.iter().find(|(name, ..)| *name == module).map(|&(_, row, step)| (row, step))
}

/// The module of the engine that a file belongs to; `None` for the root and for other packages.
fn module_of(path: &str) -> Option<&str> {
    let below = path.strip_prefix("src/")?;
    let first = below.split('/').next()?;
    let name = first.strip_suffix(".rs").unwrap_or(first);
    (name != "lib").then_some(name)
}

/// Every file of the engine is in a module of the table, and imports only from what lies below.
pub(crate) fn imports_from_below(source: &Source) -> Vec<Finding> {
    let Some(module) = module_of(&source.path) else { return Vec::new() };
    let Some(own) = layer(module) else {
        let what = format!("the module {module} has no place in the table of layers");
        return vec![source.finding(0, what)];
    };
    let mut findings = Vec::new();
    for (at, imported) in imports(source) {
        // Tests within a folder may use what `testing` has; it stands apart above all layers.
        if imported == module || imported == "testing" && source.is_test(at) {
            continue;
        }
        match layer(&imported) {
            Some(other) if other < own => {}
            Some(_) => findings.push(source.finding(
                at,
                format!("{module} imports {imported}, which does not lie below it in the layers"),
            )),
            None => findings.push(source.finding(
                at,
                format!("{module} imports {imported}, which is no module of the table of layers"),
            )),
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
        let mut behind = at;
        let mut steps = 0;
        while source.code[behind..].starts_with("super::") {
            behind += "super::".len();
            steps += 1;
        }
        if steps >= depth(source, at) {
            first_names(&source.code, behind, &mut found);
        }
    }
    found
}

/// How many modules below the root the code at a byte is.
fn depth(source: &Source, at: usize) -> usize {
    let below = source.path.trim_start_matches("src/").trim_end_matches(".rs");
    let of_file = below.split('/').filter(|part| *part != "mod").count();
    let inline = source.places("mod").into_iter().filter(|&place| {
        let name = word_at(&source.code, place + "mod ".len());
        let behind = place + "mod ".len() + name.len();
        let opens = source.code[behind..].trim_start().starts_with('{');
        let open = behind + source.code[behind..].find('{').unwrap_or(0);
        opens && (open..behind_bracket(&source.code, open)).contains(&at)
    });
    of_file + inline.count()
}

/// The names that stand first in a path or in each path of a group that begins at `at`.
fn first_names(code: &str, at: usize, found: &mut Vec<(usize, String)>) {
    if !code[at..].starts_with('{') {
        found.push((at, word_at(code, at).to_owned()));
        return;
    }
    let end = behind_bracket(code, at) - 1;
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
    fn a_module_outside_of_the_table_is_found() {
        assert_eq!(complaints("src/helpers.rs", "fn f() {}").len(), 1);
        assert_eq!(complaints("src/log/mod.rs", "use crate::helpers::f;").len(), 1);
        assert_eq!(complaints("src/log/mod.rs", "use crate::Engine;").len(), 1);
    }

    #[test]
    fn what_is_said_in_comments_and_what_the_root_does_is_no_import() {
        assert!(complaints("src/log/mod.rs", "//! See [`crate::engine::Engine`].\n").is_empty());
        assert!(complaints("src/lib.rs", "pub use crate::engine::Engine;").is_empty());
        assert!(complaints("broker/src/main.rs", "use crate::engine::Engine;").is_empty());
        assert!(complaints("src/log/mod.rs", "mod a { use super::store; }").is_empty());
    }
}
