//! Users and their passwords: lines `name:hash` of a file, and the check of a login.
//!
//! The hash is Argon2id with OWASP's parameters (19 MiB, two passes): of the well-known password
//! hashes the one that costs an attacker memory as well as time, with its salt and parameters in
//! the hash's own text, so that they can be raised later. A login costs the broker the same; so
//! only two are worked on at a time, and a password that was right is recognised again by a keyed
//! digest, which makes the reconnection of a thousand clients cheap.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use argon2::password_hash::Output;
use argon2::password_hash::{PasswordHash, PasswordHasher, SaltString};
use argon2::{Algorithm, Argon2, Block, Params, Version};
use parking_lot::Mutex;
use ring::hmac;
use ring::rand::{SecureRandom, SystemRandom};
use tokio::sync::Semaphore;

/// Logins whose hash is computed at the same time: each holds 19 MiB.
const LOGINS_AT_A_TIME: usize = 2;
/// The longest password that is looked at.
pub const MAX_PASSWORD_BYTES: usize = 1024;

/// The users that may log in.
pub struct Users {
    hashes: HashMap<String, Arc<str>>,
    /// What a name without a user is compared with, so that it takes as long.
    nobody: Arc<str>,
    gate: Arc<Semaphore>,
    /// The memory of the hashes that are computed, one for each turn.
    memory: Arc<Mutex<Vec<Vec<Block>>>>,
    key: hmac::Key,
    seen: Mutex<HashMap<String, hmac::Tag>>,
}

/// Why a file of users cannot be used, or a password cannot be hashed.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum UsersError {
    /// A line is not `name:hash`.
    Line {
        /// Its number, from 1.
        line: usize,
    },
    /// What stands behind the colon is no Argon2 hash.
    Hash {
        /// The line's number, from 1.
        line: usize,
    },
    /// A name stands in two lines.
    Twice {
        /// The second line's number, from 1.
        line: usize,
    },
    /// There is no user in the file.
    Empty,
    /// A password is empty or longer than [`MAX_PASSWORD_BYTES`].
    Password {
        /// Its length.
        length_bytes: usize,
    },
    /// The system gave no random bytes, or the hash could not be computed.
    System,
}

impl Users {
    /// Reads the lines of a file; blank lines and those that begin with `#` are passed over.
    ///
    /// # Errors
    /// [`UsersError`] names the first line that is wrong.
    pub fn parse(text: &str) -> Result<Self, UsersError> {
        let mut hashes = HashMap::new();
        for (index, text) in text.lines().enumerate() {
            let (line, text) = (index + 1, text.trim());
            if text.is_empty() || text.starts_with('#') {
                continue;
            }
            let (name, hash) = text.split_once(':').ok_or(UsersError::Line { line })?;
            if name.is_empty() {
                return Err(UsersError::Line { line });
            }
            let parsed = PasswordHash::new(hash).map_err(|_| UsersError::Hash { line })?;
            if parsed.hash.is_none() || Algorithm::try_from(parsed.algorithm).is_err() {
                return Err(UsersError::Hash { line });
            }
            if hashes.insert(name.to_owned(), Arc::from(hash)).is_some() {
                return Err(UsersError::Twice { line });
            }
        }
        if hashes.is_empty() {
            return Err(UsersError::Empty);
        }
        let key = hmac::Key::generate(hmac::HMAC_SHA256, &SystemRandom::new())
            .map_err(|_| UsersError::System)?;
        Ok(Self {
            hashes,
            nobody: Arc::from(hash_password(b"nobody's password")?),
            gate: Arc::new(Semaphore::new(LOGINS_AT_A_TIME)),
            memory: Arc::default(),
            key,
            seen: Mutex::new(HashMap::new()),
        })
    }

    /// Whether this is the password of this user, where that is known without computing a hash:
    /// it was right before, or it cannot be one.
    #[must_use]
    pub fn recall(&self, name: &str, password: &[u8]) -> Option<bool> {
        if password.is_empty() || password.len() > MAX_PASSWORD_BYTES {
            return Some(false);
        }
        let seen = self.seen.lock().get(name).copied();
        let was_right =
            seen.is_some_and(|tag| hmac::verify(&self.key, password, tag.as_ref()).is_ok());
        was_right.then_some(true)
    }

    /// Whether this is the password of this user.
    pub async fn verify(
        &self,
        name: &str,
        password: &[u8],
        may_try: impl FnOnce() -> bool,
    ) -> Option<bool> {
        if let Some(known) = self.recall(name, password) {
            return Some(known);
        }
        let known = self.hashes.get(name);
        let hash = Arc::clone(known.unwrap_or(&self.nobody));
        let copy = password.to_owned();
        let turn = Arc::clone(&self.gate).acquire_owned().await;
        let turn = turn.expect("the gate is never closed");
        // Another connection may have logged in as this user meanwhile.
        if let Some(known) = self.recall(name, password) {
            return Some(known);
        }
        if !may_try() {
            return None;
        }
        let memory = Arc::clone(&self.memory);
        let matches = tokio::task::spawn_blocking(move || {
            // Kept where the client has gone meanwhile, too: the memory is that of the turns.
            let _turn = turn;
            let mut blocks = memory.lock().pop().unwrap_or_default();
            let matches = is_hash_of(&hash, &copy, &mut blocks);
            memory.lock().push(blocks);
            matches
        });
        let right = matches.await.unwrap_or(false) && known.is_some();
        if right {
            self.seen.lock().insert(name.to_owned(), hmac::sign(&self.key, password));
        }
        Some(right)
    }
}

/// Whether a hash, with the parameters that it names, is that of a password.
fn is_hash_of(hash: &str, password: &[u8], blocks: &mut Vec<Block>) -> bool {
    let mut computed = || {
        let hash = PasswordHash::new(hash).ok()?;
        let algorithm = Algorithm::try_from(hash.algorithm).ok()?;
        let version = hash.version.map_or(Ok(Version::default()), Version::try_from).ok()?;
        let params = Params::try_from(&hash).ok()?;
        let expected = hash.hash?;
        let mut salt = [0; 64];
        let salt = hash.salt?.decode_b64(&mut salt).ok()?;
        blocks.resize(params.block_count(), Block::default());
        let mut out = vec![0; expected.len()];
        Argon2::new(algorithm, version, params)
            .hash_password_into_with_memory(password, salt, &mut out, blocks.as_mut_slice())
            .ok()?;
        // Outputs are compared in constant time.
        Some(Output::new(&out).ok()? == expected)
    };
    computed().unwrap_or(false)
}

/// The salted hash of a password, as a line of the file wants it behind the colon.
///
/// # Errors
/// [`UsersError::Password`] where it is empty or too long.
pub fn hash_password(password: &[u8]) -> Result<String, UsersError> {
    let length_bytes = password.len();
    if length_bytes == 0 || length_bytes > MAX_PASSWORD_BYTES {
        return Err(UsersError::Password { length_bytes });
    }
    let mut salt = [0; 16];
    SystemRandom::new().fill(&mut salt).map_err(|_| UsersError::System)?;
    let salt = SaltString::encode_b64(&salt).map_err(|_| UsersError::System)?;
    let hash = Argon2::default().hash_password(password, &salt);
    hash.map(|hash| hash.to_string()).map_err(|_| UsersError::System)
}

impl fmt::Debug for Users {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Users").field("count", &self.hashes.len()).finish_non_exhaustive()
    }
}

impl fmt::Display for UsersError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Line { line } => write!(f, "a user is `name:hash`: line={line}"),
            Self::Hash { line } => write!(
                f,
                "what stands behind the name is no hash of `tidelog-broker hash-password`: \
                 line={line}"
            ),
            Self::Twice { line } => write!(f, "a user is there twice: line={line}"),
            Self::Empty => f.write_str("the file of users has no user"),
            Self::Password { length_bytes } => write!(
                f,
                "a password must not be empty or too long: length_bytes={length_bytes} \
                 limit={MAX_PASSWORD_BYTES}"
            ),
            Self::System => f.write_str("the system gave no random bytes"),
        }
    }
}

impl std::error::Error for UsersError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_right_password_passes_the_first_time_and_again_and_no_other_does() {
        let file = format!("# users\n\nann:{}\n", hash_password(b"secret").unwrap());
        let users = Users::parse(&file).unwrap();
        assert_eq!(users.verify("ann", b"Secret", || true).await, Some(false));
        assert_eq!(users.verify("ann", b"secret", || true).await, Some(true));
        assert_eq!(users.verify("ann", b"secret", || true).await, Some(true));
        assert_eq!(users.verify("ann", b"secret2", || true).await, Some(false));
        assert_eq!(users.verify("ann", b"", || true).await, Some(false));
        assert_eq!(users.verify("bob", b"secret", || true).await, Some(false));
        assert_eq!(users.verify("bob", b"nobody's password", || true).await, Some(false));
    }

    #[tokio::test]
    async fn who_may_not_try_any_more_once_the_turn_has_come_is_told_neither_right_nor_wrong() {
        let line = format!("ann:{}\n", hash_password(b"secret").unwrap());
        let users = Users::parse(&line).unwrap();
        assert_eq!(users.verify("ann", b"secret", || false).await, None);
        assert_eq!(users.verify("ann", b"secret", || true).await, Some(true));
        assert_eq!(users.verify("ann", b"secret", || false).await, Some(true), "it is known now");
    }

    #[tokio::test]
    async fn however_many_log_in_the_memory_of_two_hashes_is_kept_and_no_more() {
        let file = format!("ann:{}\n", hash_password(b"secret").unwrap());
        let users = Arc::new(Users::parse(&file).unwrap());
        let wrong = (0..12).map(|at| {
            let users = Arc::clone(&users);
            tokio::spawn(async move {
                users.verify("ann", format!("wrong-{at}").as_bytes(), || true).await
            })
        });
        for one in wrong.collect::<Vec<_>>() {
            assert_eq!(one.await.unwrap(), Some(false));
        }
        let kept = users.memory.lock().len();
        assert!((1..=LOGINS_AT_A_TIME).contains(&kept), "kept={kept}");
        assert_eq!(users.recall("ann", b"secret"), None);
        assert_eq!(users.verify("ann", b"secret", || true).await, Some(true));
        assert_eq!(users.recall("ann", b"secret"), Some(true));
    }

    #[test]
    fn two_hashes_of_one_password_differ() {
        assert_ne!(hash_password(b"secret").unwrap(), hash_password(b"secret").unwrap());
    }

    #[test]
    fn a_password_of_the_longest_length_is_hashed_and_one_byte_more_is_refused() {
        assert!(hash_password(&[b'x'; MAX_PASSWORD_BYTES]).is_ok());
        let refused = hash_password(&[b'x'; MAX_PASSWORD_BYTES + 1]).unwrap_err();
        assert_eq!(refused, UsersError::Password { length_bytes: MAX_PASSWORD_BYTES + 1 });
        assert_eq!(hash_password(b""), Err(UsersError::Password { length_bytes: 0 }));
    }

    #[test]
    fn a_wrong_line_is_named() {
        let hash = hash_password(b"x").unwrap();
        let parse = |text: &str| Users::parse(text).unwrap_err();
        assert_eq!(parse("ann"), UsersError::Line { line: 1 });
        assert_eq!(parse(&format!(":{hash}")), UsersError::Line { line: 1 });
        assert_eq!(parse(&format!("a:{hash}\nb:plain")), UsersError::Hash { line: 2 });
        assert_eq!(parse(&format!("a:{hash}\na:{hash}")), UsersError::Twice { line: 2 });
        assert_eq!(parse("# nobody\n"), UsersError::Empty);
    }
}
