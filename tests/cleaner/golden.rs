//! What Apache Kafka's cleaner and retention leave of a partition: 260 recorded cases, played on an engine.

use crate::cases;

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::path::PathBuf;

use cases::player::Player;
use cases::render::binding;
use cases::{Case, Step, parse};

/// How many cases are in our own copy, and how many of them are played.
const CASE_COUNT: usize = 260;
const PLAYED_COUNT: usize = 259;

/// A setting that is not there yet.
const WITHOUT_THE_SETTING: &str = "a-single-record-above-max-decompressed-message-bytes";

/// The folder of the recorded cases: our own copy, or the one that the environment names.
fn golden() -> (PathBuf, bool) {
    match std::env::var_os("TIDELOG_GOLDEN") {
        Some(folder) => (PathBuf::from(folder).join("cleaner"), false),
        None => (PathBuf::from("tests/data/golden/cleaner"), true),
    }
}

fn all_cases() -> (Vec<Case>, bool) {
    let (folder, is_our_copy) = golden();
    let entries = fs::read_dir(&folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
    let paths = entries.map(|entry| entry.expect("an entry of the folder").path());
    let mut files: Vec<_> = paths.filter(|p| p.extension().is_some_and(|e| e == "cases")).collect();
    files.sort();
    let cases = files.iter().flat_map(|path| {
        let name = path.file_stem().expect("a file has a name").to_string_lossy().into_owned();
        parse(&name, &fs::read_to_string(path).expect("the file can be read"))
    });
    (cases.collect(), is_our_copy)
}

/// Why a case is not played.
fn skipped(case: &Case) -> Option<&'static str> {
    (case.name == WITHOUT_THE_SETTING).then_some("about a setting that is not there yet")
}

/// Kafka has the log alone to learn producers from; a store beside it may know more.
fn as_after_a_rebuild(expected: &mut Vec<String>, found: &mut Vec<String>) {
    let id = |line: &String| {
        line.strip_prefix("producer ").map(|rest| rest.split(' ').next().map(str::to_owned))
    };
    expected.retain(|line| !(line.starts_with("producer ") && line.contains(" epoch=-1 ")));
    let known: Vec<_> = expected.iter().filter_map(id).collect();
    found.retain(|line| id(line).is_none_or(|id| known.contains(&id)));
}

/// Kafka writes what is appended anew in the topic's codec; a batch here keeps its own.
fn without_codec(lines: &mut [String]) {
    for line in lines.iter_mut().filter(|line| line.starts_with("batch ")) {
        let kept = line.split(' ').filter(|word| !word.starts_with("codec="));
        *line = kept.collect::<Vec<_>>().join(" ");
    }
}

fn compare(step: &Step, found: &[String], is_last: bool, player: &Player) -> Option<String> {
    let binding = |lines: &[String]| -> Vec<String> {
        lines.iter().filter_map(|line| binding(line)).collect()
    };
    let (mut expected, mut found) = (binding(step.expected()), binding(found));
    if expected.is_empty() || player.is_limited && !is_last {
        return None;
    }
    if player.is_rebuilt {
        as_after_a_rebuild(&mut expected, &mut found);
    }
    if !expected.iter().any(|line| line.starts_with("committed")) {
        found.retain(|line| !line.starts_with("committed"));
    }
    if player.has_codec {
        without_codec(&mut expected);
        without_codec(&mut found);
    }
    if player.is_limited {
        // How far a round gets is each cleaner's own.
        expected.retain(|line| !line.starts_with("pass"));
        found.retain(|line| !line.starts_with("pass"));
    }
    if let (Some(wanted), Some(did)) = (expected.first(), found.first_mut()) {
        // A pass that is told without figures, for a horizon or in a round of maintenance.
        if wanted == "pass" && did.starts_with("pass from") {
            *did = "pass".to_owned();
        }
    }
    // A log that is not clean has no binding first dirty offset.
    let wants_checkpoint = expected.iter().any(|line| line.contains("checkpoint="));
    if !wants_checkpoint {
        for line in found.iter_mut().filter(|line| line.starts_with("log ")) {
            let kept = line.split(' ').filter(|word| !word.starts_with("checkpoint="));
            *line = kept.collect::<Vec<_>>().join(" ");
        }
    }
    (expected != found).then(|| {
        let mut text = format!("  {}\n", step.action);
        for index in 0..expected.len().max(found.len()) {
            let line = |lines: &[String]| lines.get(index).cloned().unwrap_or_default();
            let (wanted, got) = (line(&expected), line(&found));
            let mark = if wanted == got { ' ' } else { '*' };
            let _ = writeln!(text, "  {mark} {wanted:90} | {got}");
        }
        text
    })
}

/// Under damage tidelog's answer is another one than Kafka's: the partition is left as it is.
fn check_damage(player: &mut Player, step: &Step, differences: &mut String) {
    if step.action != "maintain" {
        player.play(&step.action);
        return;
    }
    let before = player.engine().metrics().live_bytes;
    let plan = |player: &Player| player.engine().cleaner().plan(&player.partition());
    let first_dirty = plan(player).expect("the index is whole").first_dirty;
    let was_damaged = !player.damaged.is_empty();
    let found = player.play(&step.action);
    if !was_damaged {
        if found[0] != "pass" {
            let _ = writeln!(differences, "  it was repaired, and not cleaned: {found:?}");
        }
        return;
    }
    let after = plan(player).expect("the index is whole").first_dirty;
    let is_left = player.engine().metrics().live_bytes == before || step.tidelog.is_some();
    if found[0] != "pass failed" || !is_left || after != first_dirty && step.tidelog.is_none() {
        let _ = writeln!(differences, "  the damaged partition was not left alone: {found:?}");
    }
    if let Some(expected) = &step.tidelog {
        let lines = |lines: &[String]| -> Vec<String> {
            let told = ["pass", "committed"];
            let lines = lines.iter().filter(|line| !told.iter().any(|word| line.starts_with(word)));
            lines.map(|line| line.split(" checkpoint").next().unwrap_or("").to_owned()).collect()
        };
        if lines(expected) != lines(&found) {
            let _ = writeln!(differences, "  retention stopped: {found:?}");
        }
    }
}

fn play(case: &Case) -> String {
    let mut player = Player::new(&case.defaults);
    let mut differences = String::new();
    let last = case.steps.iter().rposition(|step| !step.expected().is_empty());
    for (index, step) in case.steps.iter().enumerate() {
        if case.file == "damage" {
            check_damage(&mut player, step, &mut differences);
            continue;
        }
        let found = player.play(&step.action);
        let is_last = Some(index) == last;
        if let Some(difference) = compare(step, &found, is_last, &player) {
            differences += &difference;
        }
    }
    let report = player.engine().verify().expect("the index can be read");
    if !report.is_clean() && player.damaged.is_empty() {
        let _ = writeln!(differences, "  verify: {report}");
    }
    differences
}

#[test]
fn every_recorded_case_ends_as_recorded() {
    let (cases, is_our_copy) = all_cases();
    let mut reasons: BTreeMap<&str, usize> = BTreeMap::new();
    let (mut played_count, mut failures) = (0, Vec::new());
    for case in &cases {
        if let Some(reason) = skipped(case) {
            *reasons.entry(reason).or_default() += 1;
            continue;
        }
        played_count += 1;
        let differences = play(case);
        if !differences.is_empty() {
            failures.push(format!("{}/{}\n{differences}", case.file, case.name));
        }
    }
    println!("{played_count} of {} cases were played", cases.len());
    reasons.iter().for_each(|(reason, count)| println!("{count} were not: {reason}"));
    assert!(failures.is_empty(), "{} cases differ:\n{}", failures.len(), failures.join("\n"));
    if is_our_copy {
        assert_eq!((cases.len(), played_count), (CASE_COUNT, PLAYED_COUNT));
    }
}
