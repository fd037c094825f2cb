//! Where options come from: the command line over the environment over a file over the defaults.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use clap::builder::StyledStr;
use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Command};
use toml::{Table, Value};

use super::kind::Kind;
use super::table::{Fallback, Row, table, variable};

/// The subcommand that prints the hash of a password.
pub const HASH_PASSWORD: &str = "hash-password";
const CONFIG: &str = "config";
const PRINT_CONFIG: &str = "print-config";
/// The largest file of options that is read.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// Where a value comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// It was not given.
    Default,
    /// A file of options.
    File(PathBuf),
    /// A variable of the environment.
    Environment(String),
    /// The command line.
    Option,
}

/// Every option that has a value, with where it comes from.
#[derive(Debug, Clone, Default)]
pub struct Values(BTreeMap<String, (Value, Source)>);

/// All that is wrong with the options; never empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problems(pub(super) Vec<String>);

/// What the process is to do.
#[derive(Debug)]
pub enum Task {
    /// Serve by these options.
    Serve(Values),
    /// Print these options as a file of options.
    Print(Values),
    /// Print the hash of a password.
    HashPassword,
}

impl Values {
    /// The value of an option.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Value> {
        self.0.get(name).map(|(value, _)| value)
    }

    /// The value of an option that is a whole number.
    #[must_use]
    pub fn number(&self, name: &str) -> Option<u64> {
        self.get(name)?.as_integer()?.try_into().ok()
    }

    /// Where the value of an option comes from.
    #[must_use]
    pub fn source(&self, name: &str) -> Source {
        self.0.get(name).map_or(Source::Default, |(_, source)| source.clone())
    }

    /// A name with its value and where that comes from, for a message.
    pub(super) fn shown(&self, name: &str) -> String {
        let value = self.get(name).map_or_else(|| "none".to_owned(), Value::to_string);
        format!("{name}={value} ({})", self.source(name))
    }

    fn set(&mut self, name: &str, value: Value, source: Source) {
        self.0.insert(name.to_owned(), (value, source));
    }
}

/// The command line.
#[must_use]
pub fn command() -> Command {
    let options = table().into_iter().map(|row| option(&row));
    Command::new("tidelog-broker")
        .version(env!("CARGO_PKG_VERSION"))
        .about(
            "The Kafka protocol over tidelog, an embedded storage engine for transactional \
             partition logs.",
        )
        .after_help(
            "Each option is also a key of the file of --config, and a variable of the \
             environment. An option goes before the environment, that before the file, and that \
             before the default.",
        )
        .args_conflicts_with_subcommands(true)
        .subcommand(Command::new(HASH_PASSWORD).about(
            "Read a password from standard input and print its salted hash, for a line \
             `name:hash` of --users",
        ))
        .arg(
            Arg::new(CONFIG)
                .long(CONFIG)
                .value_name("PATH")
                .env(variable(CONFIG))
                .hide_env_values(true)
                .help("A TOML file of options: each key is the long name of an option"),
        )
        .arg(
            Arg::new(PRINT_CONFIG).long(PRINT_CONFIG).action(ArgAction::SetTrue).help(
                "Print every option with its value and where that comes from, as such a file",
            ),
        )
        .args(options)
}

fn option(row: &Row) -> Arg {
    let name = row.name.to_string();
    let help = match row.kind {
        Kind::Flag => row.help.to_string(),
        kind => format!("{} [default: {}] [{}]", row.help, row.default_text(), kind.bounds()),
    };
    let option = Arg::new(name.clone())
        .long(name)
        .value_name(row.kind.placeholder())
        .env(row.variable())
        .hide_env_values(true)
        .allow_negative_numbers(true)
        .help(StyledStr::from(help.replace('`', "")));
    match row.kind {
        Kind::Flag => option.num_args(0..=1).require_equals(true).default_missing_value("true"),
        _ => option,
    }
}

/// What the process is to do, by its command line, its environment and the file that they name.
///
/// # Errors
/// All that is wrong with the values; what clap finds wrong ends the process.
pub fn read(matches: &ArgMatches) -> Result<Task, Problems> {
    if matches.subcommand_matches(HASH_PASSWORD).is_some() {
        return Ok(Task::HashPassword);
    }
    let rows = table();
    let mut values = Values::default();
    let mut problems = Vec::new();
    for row in &rows {
        if let Fallback::Value(value) = &row.fallback {
            values.set(&row.name, value.clone(), Source::Default);
        }
    }
    if let Some(path) = matches.get_one::<String>(CONFIG) {
        read_file(Path::new(path), &rows, &mut values, &mut problems);
    }
    for row in &rows {
        let Some(text) = matches.get_one::<String>(&row.name) else { continue };
        let source = match matches.value_source(&row.name) {
            Some(ValueSource::EnvVariable) => Source::Environment(row.variable()),
            _ => Source::Option,
        };
        match row.kind.parse(text) {
            Ok(value) => values.set(&row.name, value, source),
            Err(error) => problems.push(format!("{}={text:?} ({source}): {error}", row.name)),
        }
    }
    if !problems.is_empty() {
        return Err(Problems(problems));
    }
    let print = matches.get_flag(PRINT_CONFIG);
    Ok(if print { Task::Print(values) } else { Task::Serve(values) })
}

fn read_file(path: &Path, rows: &[Row], values: &mut Values, problems: &mut Vec<String>) {
    let name = path.display();
    let table = match read_table(path) {
        Ok(table) => table,
        Err(error) => return problems.push(format!("{name}: {error}")),
    };
    for (key, value) in table {
        let Some(row) = rows.iter().find(|row| row.name == key) else {
            problems.push(format!("{name}: there is no option {key:?}"));
            continue;
        };
        let source = Source::File(path.to_owned());
        match row.kind.check(&value) {
            Ok(()) => values.set(&key, value, source),
            Err(error) => problems.push(format!("{key}={value} ({source}): {error}")),
        }
    }
}

fn read_table(path: &Path) -> Result<Table, String> {
    let length = std::fs::metadata(path).map_err(|error| error.to_string())?.len();
    if length > MAX_FILE_BYTES {
        return Err(format!("the file is too long: bytes={length} limit={MAX_FILE_BYTES}"));
    }
    let text = std::fs::read_to_string(path).map_err(|error| error.to_string())?;
    text.parse::<Table>().map_err(|error| error.to_string().trim_end().to_owned())
}

/// Variables of the environment that look as if they set an option, and set none.
#[must_use]
pub fn unknown_variables(names: impl Iterator<Item = String>) -> Vec<String> {
    let known: Vec<String> = table().iter().map(Row::variable).chain([variable(CONFIG)]).collect();
    names.filter(|name| name.starts_with("TIDELOG_") && !known.contains(name)).collect()
}

/// The options as a file of options, each with where it comes from.
#[must_use]
pub fn print(values: &Values) -> String {
    let mut text = String::new();
    for row in table() {
        let line = match values.get(&row.name) {
            Some(value) => format!("{} = {value} # {}\n", row.name, values.source(&row.name)),
            None => format!("# {} is not given: {}\n", row.name, row.default_text()),
        };
        text.push_str(&line);
    }
    text
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            // A path may have any letter but what ends a comment of the file.
            Self::File(path) => write!(f, "file {}", path.display().to_string().escape_default()),
            Self::Environment(variable) => write!(f, "environment {variable}"),
            Self::Option => f.write_str("option"),
        }
    }
}

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.join("\n  "))
    }
}

impl std::error::Error for Problems {}
