//! The file FORMAT: lines of text that tell the version of everything beside it, and whose it is.
//!
//! ```text
//! tidelog format 3
//! engine 0123456789abcdef
//! secret 0123456789abcdef0123456789abcdef
//! ```
//!
//! The secret seals the frames of the commit log. No message and no error repeats it.

use std::io::{ErrorKind, IoSlice};
use std::path::Path;

use super::error::OpenError;
use crate::base::hash::HashKey;
use crate::base::io::Files;
use crate::base::types::EngineId;
use crate::index::keyspace::FORMAT_VERSION;
use crate::log::LogIdentity;

const NAME: &str = "FORMAT";
const NEW_NAME: &str = "FORMAT.new";
const NEXT_NAME: &str = "FORMAT.next";

/// More than any format file is long.
const MAX_BYTES: usize = 4096;

/// Characters of an unknown format that an error repeats.
const SHOWN_CHARS: usize = 100;

/// Hexadecimal digits of half a secret.
const WORD_DIGITS: usize = 16;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Format {
    pub(super) version: u32,
    pub(super) identity: LogIdentity,
}

impl Format {
    /// What the directory's file says; `None` if there is none.
    pub(super) fn read(files: &dyn Files, directory: &Path) -> Result<Option<Self>, OpenError> {
        let path = directory.join(NAME);
        let file = match files.open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(OpenError::file("open", &path, error)),
        };
        let mut buffer = vec![0; MAX_BYTES];
        let length = file.read_at(0, &mut buffer);
        let length = length.map_err(|error| OpenError::file("read", &path, error))?;
        let text = String::from_utf8_lossy(&buffer[..length]);
        let unknown = || OpenError::UnknownFormat {
            path: path.clone(),
            found: text.lines().next().unwrap_or("").chars().take(SHOWN_CHARS).collect(),
        };
        Self::parse(&text).map(Some).ok_or_else(unknown)
    }

    fn parse(text: &str) -> Option<Self> {
        let mut lines = text.lines();
        let version = lines.next()?.strip_prefix("tidelog format ")?.parse().ok()?;
        let engine = lines.next()?.strip_prefix("engine ")?;
        let engine = EngineId(u64::from_str_radix(engine, 16).ok()?);
        let secret = lines.next()?.strip_prefix("secret ")?;
        if secret.len() != 2 * WORD_DIGITS {
            return None;
        }
        let word = |digits| u64::from_str_radix(digits, 16).ok();
        let secret =
            HashKey([word(secret.get(..WORD_DIGITS)?)?, word(secret.get(WORD_DIGITS..)?)?]);
        Some(Self { version, identity: LogIdentity { engine, secret } })
    }

    /// Refuses every version but the one that is written here.
    pub(super) fn check_version(&self, directory: &Path) -> Result<(), OpenError> {
        if self.version == FORMAT_VERSION {
            return Ok(());
        }
        let found = format!("tidelog format {}", self.version);
        Err(OpenError::UnknownFormat { path: directory.join(NAME), found })
    }

    /// Whether the making of an engine was begun here and did not come to its end.
    pub(super) fn is_begun(files: &dyn Files, directory: &Path) -> Result<bool, OpenError> {
        let names = files.list(directory);
        let names = names.map_err(|error| OpenError::file("list", directory, error))?;
        Ok(names.iter().any(|name| name == NEW_NAME))
    }

    /// Says, durably, that an engine is being made.
    pub(super) fn begin(&self, files: &dyn Files, directory: &Path) -> Result<(), OpenError> {
        let path = directory.join(NEXT_NAME);
        let LogIdentity { engine, secret: HashKey([high, low]) } = self.identity;
        let text = format!(
            "tidelog format {}\nengine {engine}\nsecret {high:016x}{low:016x}\n",
            self.version
        );
        assert_eq!(Self::parse(&text), Some(*self), "what is written can be read");
        assert!(text.len() < MAX_BYTES, "what is written is read as a whole");
        let write = || {
            // What an earlier try left may have had an error: it is not written again (rule E4).
            if files.list(directory)?.iter().any(|name| name == NEXT_NAME) {
                files.remove(&path)?;
            }
            let file = files.create(&path)?;
            file.write_at(0, &[IoSlice::new(text.as_bytes())])?;
            file.sync_data()?;
            // So that the file that says so is never absent between two tries.
            files.rename(&path, &directory.join(NEW_NAME))?;
            files.sync_directory(directory)
        };
        write().map_err(|error| OpenError::file("write", &path, error))
    }

    /// Says, durably, that the engine is made.
    pub(super) fn complete(&self, files: &dyn Files, directory: &Path) -> Result<(), OpenError> {
        let path = directory.join(NAME);
        let complete = || {
            files.rename(&directory.join(NEW_NAME), &path)?;
            files.sync_directory(directory)
        };
        complete().map_err(|error| OpenError::file("rename", &path, error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_three_lines_are_a_format() {
        let secret = "secret 0000000000000001000000000000000a\n";
        let good = format!("tidelog format 7\nengine 00000000000000ff\n{secret}");
        let identity = LogIdentity { engine: EngineId(255), secret: HashKey([1, 10]) };
        assert_eq!(Format::parse(&good), Some(Format { version: 7, identity }));
        let without = "tidelog format 7\nengine 00000000000000ff\n";
        for bad in [
            "",
            "tidelog format 7",
            without,
            &format!("tidelog format x\nengine 0\n{secret}"),
            &format!("format 7\nengine 0\n{secret}"),
            &good.replace("000a\n", "00a\n"),
            &good.replace("000a\n", "000g\n"),
        ] {
            assert_eq!(Format::parse(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn another_version_is_refused() {
        let identity = LogIdentity { engine: EngineId(1), secret: HashKey([1, 2]) };
        let version = |version| Format { version, identity };
        assert!(version(FORMAT_VERSION).check_version(Path::new("d")).is_ok());
        assert!(version(FORMAT_VERSION + 1).check_version(Path::new("d")).is_err());
    }
}
