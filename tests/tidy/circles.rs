//! The rule that no files import each other in a circle, within a floor or a room of it.

use std::collections::{BTreeMap, BTreeSet};

use super::source::{Finding, Source, after_bracket, is_word, word_at};

/// Folders with circles that were there when the rule came. An entry goes with the last circle in
/// its folder; none is added.
const KNOWN: &[&str] =
    &["src/commit/", "src/config/", "src/record/", "src/record/compression/", "src/write/append/"];

/// The folders whose files are held against the rule.
const ROOTS: &[&str] = &["src/", "broker/src/"];

/// A path of names, the root of the crate left out.
type Names = Vec<String>;

/// A `use` or a path in the code of a file.
struct Path {
    at: usize,
    names: Names,
    /// The name that it has here.
    alias: String,
    /// Whether others see it: then it hands a name on, and imports nothing.
    is_handed_on: bool,
}

/// The modules of a crate by their names, and what each file brings in.
struct Crate<'a> {
    files: BTreeMap<Names, &'a Source>,
    paths: BTreeMap<&'a str, Vec<Path>>,
}

/// All circles of imports, and entries of the list that are no circles any more.
pub(crate) fn circles(sources: &[&Source]) -> Vec<Finding> {
    held_against(sources, KNOWN)
}

fn held_against(sources: &[&Source], known: &[&str]) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut gone: BTreeSet<&str> = known.iter().copied().collect();
    for root in ROOTS {
        let below: Vec<&Source> =
            sources.iter().copied().filter(|source| source.path.starts_with(root)).collect();
        let edges = Crate::new(root, &below).edges();
        for circle in strongly_connected(&edges) {
            let folder = common_folder(&circle);
            if known.contains(&folder) {
                gone.remove(folder);
                continue;
            }
            let first = below.iter().find(|source| source.path == circle[0]);
            let inner = circle.iter().flat_map(|from| {
                let to = edges[from].iter().filter(|to| circle.contains(to));
                to.map(move |to| format!("\n  {from} -> {to}"))
            });
            let what = format!("a circle of imports:{}", inner.collect::<String>());
            findings.extend(first.map(|source| source.finding(0, what)));
        }
    }
    findings.extend(gone.into_iter().map(|folder| Finding {
        path: folder.to_owned(),
        line: 1,
        what: "no circle is left here: take the folder off the list".to_owned(),
    }));
    findings
}

/// The innermost folder that holds all of these files.
fn common_folder<'a>(files: &[&'a str]) -> &'a str {
    let first = files[0];
    let ends = first.match_indices('/').map(|(at, _)| at + 1).rev();
    let holds_all = |end: &usize| files.iter().all(|file| file.starts_with(&first[..*end]));
    &first[..ends.into_iter().find(holds_all).unwrap_or(0)]
}

/// The names of the module that a file is.
fn module_of(root: &str, path: &str) -> Names {
    let below = path[root.len()..].trim_end_matches(".rs");
    let is_named = |name: &&str| !matches!(*name, "mod" | "lib" | "main");
    below.split('/').filter(is_named).map(str::to_owned).collect()
}

impl<'a> Crate<'a> {
    fn new(root: &str, sources: &[&'a Source]) -> Self {
        let files: BTreeMap<Names, &Source> = sources
            .iter()
            // A program beside its library has the library's files; it is read as no module.
            .filter(|source| !source.path.ends_with("/main.rs"))
            .map(|source| (module_of(root, &source.path), *source))
            .collect();
        let mut paths = BTreeMap::new();
        for (module, source) in &files {
            let children: Vec<&str> = files
                .keys()
                .filter(|other| other.len() == module.len() + 1 && other.starts_with(module))
                .map(|other| other[module.len()].as_str())
                .collect();
            paths.insert(source.path.as_str(), paths_of(source, module, &children));
        }
        Self { files, paths }
    }

    /// For each file the files that it imports from, the root's own left out.
    fn edges(&self) -> BTreeMap<&'a str, BTreeSet<&'a str>> {
        let mut edges = BTreeMap::new();
        for source in self.files.values() {
            let imports = self.paths[source.path.as_str()].iter();
            let imports = imports.filter(|path| !path.is_handed_on && !source.is_test(path.at));
            let mut targets: BTreeSet<&str> =
                imports.filter_map(|path| self.home(&path.names, 0)).collect();
            targets.remove(source.path.as_str());
            edges.insert(source.path.as_str(), targets);
        }
        edges
    }

    /// The file that defines what a path names.
    fn home(&self, names: &[String], depth: usize) -> Option<&'a str> {
        let mut length = 0;
        while length < names.len() && self.files.contains_key(&names[..=length]) {
            length += 1;
        }
        let file = self.files.get(&names[..length])?;
        let Some(name) = names.get(length).filter(|_| depth < 8) else { return Some(&file.path) };
        let handed = self.paths[file.path.as_str()].iter().find(|path| path.alias == *name);
        match handed {
            Some(path) if path.names != names => {
                let rest = path.names.iter().chain(&names[length + 1..]).cloned();
                self.home(&rest.collect::<Vec<_>>(), depth + 1)
            }
            _ => Some(&file.path),
        }
    }
}

/// All paths of a file that lead to a module of its crate.
fn paths_of(source: &Source, module: &[String], children: &[&str]) -> Vec<Path> {
    let mut found = Vec::new();
    let mut uses = Vec::new();
    for at in source.places("use") {
        let start = at + "use".len();
        let end = start + source.code[start..].find(';').unwrap_or(0);
        let before = source.code[..at].trim_end();
        let is_handed_on = before.ends_with("pub") || is_pub_in(before);
        let home = inside(source, module, at);
        let mut leaves = Vec::new();
        expand(source.code[start..end].trim(), &mut Vec::new(), &mut leaves);
        for (names, alias) in leaves {
            if let Some(names) = absolute(&names, &home, children) {
                found.push(Path { at, names, alias, is_handed_on });
            }
        }
        uses.push(at..end);
    }
    let firsts = ["crate", "super", "self"].iter().chain(children);
    for first in firsts {
        for at in source.places(&format!("{first}::")) {
            let is_within = source.code[..at].ends_with("::") || source.code[..at].ends_with('$');
            if is_within || uses.iter().any(|place| place.contains(&at)) {
                continue;
            }
            let bytes = source.code[at..].bytes();
            let length = bytes.take_while(|&byte| is_word(byte) || byte == b':').count();
            let names: Names = source.code[at..at + length]
                .split("::")
                .take_while(|name| !name.is_empty())
                .map(str::to_owned)
                .collect();
            if let Some(names) = absolute(&names, &inside(source, module, at), children) {
                found.push(Path { at, names, alias: String::new(), is_handed_on: false });
            }
        }
    }
    found
}

/// Whether code ends with `pub(crate)` or its like.
fn is_pub_in(before: &str) -> bool {
    before.ends_with(')')
        && before.rfind('(').is_some_and(|open| before[..open].trim_end().ends_with("pub"))
}

/// The names of the module that a byte of a file is in, modules within the file included.
fn inside(source: &Source, module: &[String], at: usize) -> Names {
    let mut names = module.to_vec();
    for place in source.places("mod") {
        let name = word_at(&source.code, place + "mod ".len());
        let after = place + "mod ".len() + name.len();
        if source.code[after..].trim_start().starts_with('{') {
            let open = after + source.code[after..].find('{').unwrap_or(0);
            if (open..after_bracket(&source.code, open)).contains(&at) {
                names.push(name.to_owned());
            }
        }
    }
    names
}

/// The paths and names of a tree of imports.
fn expand(tree: &str, before: &mut Names, leaves: &mut Vec<(Names, String)>) {
    if let Some(open) = tree.find('{') {
        let length = before.len();
        let head = tree[..open].trim_end_matches("::");
        before.extend(head.split("::").filter(|name| !name.is_empty()).map(|n| n.trim().into()));
        let inner = &tree[open + 1..after_bracket(tree, open).saturating_sub(1)];
        for part in parts(inner) {
            expand(part, before, leaves);
        }
        before.truncate(length);
        return;
    }
    let (path, alias) = tree.split_once(" as ").unwrap_or((tree, ""));
    let mut names = before.clone();
    names.extend(path.split("::").map(|name| name.trim().to_owned()));
    if names.last().is_some_and(|name| name == "self" && names.len() > 1 || name == "*") {
        names.pop();
    }
    let alias =
        if alias.is_empty() { names.last().cloned().unwrap_or_default() } else { alias.into() };
    leaves.push((names, alias.trim().to_owned()));
}

/// The parts of a list of imports, by the commas outside of braces.
fn parts(inner: &str) -> Vec<&str> {
    let mut found = Vec::new();
    let (mut depth, mut from) = (0, 0);
    for (at, byte) in inner.bytes().enumerate() {
        match byte {
            b'{' => depth += 1,
            b'}' => depth -= 1,
            b',' if depth == 0 => {
                found.push(inner[from..at].trim());
                from = at + 1;
            }
            _ => {}
        }
    }
    found.push(inner[from..].trim());
    found.retain(|part| !part.is_empty());
    found
}

/// A path from the root of the crate; nothing where it leads out of the crate.
fn absolute(names: &[String], module: &[String], children: &[&str]) -> Option<Names> {
    let mut base = match names.first()?.as_str() {
        "crate" => Vec::new(),
        "self" | "super" => module.to_vec(),
        first if children.contains(&first) => module.to_vec(),
        _ => return None,
    };
    for name in names {
        match name.as_str() {
            "crate" | "self" => {}
            "super" => {
                base.pop();
            }
            name => base.push(name.to_owned()),
        }
    }
    Some(base)
}

/// The groups of files that reach each other, each sorted.
fn strongly_connected<'a>(edges: &BTreeMap<&'a str, BTreeSet<&'a str>>) -> Vec<Vec<&'a str>> {
    let reach: BTreeMap<&str, BTreeSet<&str>> =
        edges.keys().map(|&from| (from, reached(edges, from))).collect();
    let mut groups = BTreeSet::new();
    for (from, reached) in &reach {
        if reached.contains(from) {
            let group = reached.iter().filter(|to| reach[*to].contains(from)).copied();
            groups.insert(group.collect::<Vec<_>>());
        }
    }
    groups.into_iter().collect()
}

/// The files that a file imports from, directly or through others.
fn reached<'a>(edges: &BTreeMap<&'a str, BTreeSet<&'a str>>, from: &str) -> BTreeSet<&'a str> {
    let mut found = BTreeSet::new();
    let mut open: Vec<&str> = edges[from].iter().copied().collect();
    while let Some(file) = open.pop() {
        if found.insert(file) {
            open.extend(&edges[file]);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(files: &[(&str, &str)], known: &[&str]) -> Vec<String> {
        let sources: Vec<Source> =
            files.iter().map(|(path, text)| Source::new(path, text)).collect();
        let sources: Vec<&Source> = sources.iter().collect();
        held_against(&sources, known).into_iter().map(|finding| finding.what).collect()
    }

    const MOD: (&str, &str) = ("src/log/mod.rs", "mod a;\nmod b;\npub use b::B;");

    #[test]
    fn a_circle_is_found_in_every_form_of_a_path() {
        for text in [
            "use super::b::B;",
            "use super::B;",
            "use crate::log::B;",
            "use crate::log::{self, b::{B, C}};",
            "use crate::{log::B as Other};",
            "fn f() { super::b::g() }",
            "mod c { use super::super::b::B; }",
            "fn f(x: crate::log::B) {}",
        ] {
            let files = [MOD, ("src/log/a.rs", text), ("src/log/b.rs", "use super::a::A;")];
            let found = found(&files, &[]);
            assert_eq!(found.len(), 1, "{text}");
            assert!(found[0].contains("src/log/a.rs -> src/log/b.rs"), "{}", found[0]);
        }
    }

    #[test]
    fn a_longer_circle_and_one_through_the_parent_are_found() {
        let parent = ("src/log/mod.rs", "mod a;\nuse a::A;\npub struct Log(A);");
        assert_eq!(found(&[parent, ("src/log/a.rs", "use super::Log;")], &[]).len(), 1);
        let long = [
            ("src/x/mod.rs", "mod a;\nmod b;\nmod c;"),
            ("src/x/a.rs", "use super::b::B;"),
            ("src/x/b.rs", "use super::c::C;"),
            ("src/x/c.rs", "use crate::x::a::A;"),
        ];
        assert_eq!(found(&long, &[]).len(), 1);
    }

    #[test]
    fn what_is_handed_on_and_what_tests_and_comments_say_is_no_import() {
        for text in [
            "",
            "// use super::b::B;",
            "#[cfg(test)]\nmod tests { use super::super::b::B; }",
            "pub use super::b::B;",
            "pub(crate) use super::b::B;",
            "use std::b::B;",
        ] {
            let files = [MOD, ("src/log/a.rs", text), ("src/log/b.rs", "use super::a::A;")];
            assert_eq!(found(&files, &[]), Vec::<String>::new(), "{text}");
        }
    }

    #[test]
    fn a_listed_circle_is_left_alone_until_it_is_gone() {
        let known = &["src/log/"];
        let b = ("src/log/b.rs", "use super::a::A;");
        assert!(found(&[MOD, ("src/log/a.rs", "use super::B;"), b], known).is_empty());
        assert_eq!(found(&[MOD, ("src/log/a.rs", ""), b], known).len(), 1);
    }
}
