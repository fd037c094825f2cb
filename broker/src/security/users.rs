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
use parking_lot::{Mutex, RwLock};
use ring::hmac;
use ring::rand::{SecureRandom, SystemRandom};
use tokio::sync::Semaphore;

/// Logins whose hash is computed at the same time: each holds 19 MiB.
const LOGINS_AT_A_TIME: usize = 2;
/// The most memory that the hash of one password may take, in KiB, and the most passes over it: a
/// login would take many seconds, or the memory of everybody else.
const MAX_HASH_KIB: u32 = 256 * 1024;
const MAX_HASH_PASSES: u32 = 32;
/// The longest password that is checked.
pub const MAX_PASSWORD_BYTES: usize = 1024;

/// The users that may log in.
pub struct Users {
    hashes: RwLock<HashMap<String, Arc<str>>>,
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
    /// The hash would cost far more memory or time than those that are made here.
    Cost {
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
        // Some editors begin a file with a mark of its encoding.
        let text = text.trim_start_matches('\u{feff}');
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
            let params = Params::try_from(&parsed).map_err(|_| UsersError::Hash { line })?;
            if params.m_cost() > MAX_HASH_KIB || params.t_cost() > MAX_HASH_PASSES {
                return Err(UsersError::Cost { line });
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
            hashes: RwLock::new(hashes),
            nobody: Arc::from(hash_password(b"nobody's password")?),
            gate: Arc::new(Semaphore::new(LOGINS_AT_A_TIME)),
            memory: Arc::default(),
            key,
            seen: Mutex::new(HashMap::new()),
        })
    }

    /// Takes the users of another file in place of these. What was right before and is still in
    /// the file is still recognised; who has logged in stays.
    pub fn replace(&self, with: Self) {
        let new = with.hashes.into_inner();
        let mut hashes = self.hashes.write();
        self.seen.lock().retain(|name, _| new.get(name) == hashes.get(name));
        *hashes = new;
    }

    /// How many there are.
    #[must_use]
    pub fn count(&self) -> usize {
        self.hashes.read().len()
    }

    /// Whether there is a user of this name.
    #[must_use]
    pub fn knows(&self, name: &str) -> bool {
        self.hashes.read().contains_key(name)
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
        let known = self.hashes.read().get(name).cloned();
        let hash = known.clone().unwrap_or_else(|| Arc::clone(&self.nobody));
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
        let matches = matches.await.unwrap_or(false);
        // Other users may have been taken meanwhile.
        let hashes = self.hashes.read();
        let right = matches && known.is_some() && hashes.get(name) == known.as_ref();
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
        f.debug_struct("Users").field("count", &self.count()).finish_non_exhaustive()
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
            Self::Cost { line } => write!(
                f,
                "the hash costs too much to be checked: line={line} \
                 memory_limit_kib={MAX_HASH_KIB} pass_limit={MAX_HASH_PASSES}"
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
        for (cost, dear) in [("m=19456,t=2", "m=4194304,t=2"), ("m=19456,t=2", "m=19456,t=1000")] {
            let dear = hash.replace(cost, dear);
            assert_eq!(parse(&format!("a:{hash}\nb:{dear}")), UsersError::Cost { line: 2 });
        }
    }

    #[test]
    fn a_mark_of_the_encoding_and_ends_of_lines_as_elsewhere_are_passed_over() {
        let hash = hash_password(b"x").unwrap();
        let users = Users::parse(&format!("\u{feff}ann:{hash}\r\nbob:{hash}\r\n")).unwrap();
        assert!(users.knows("ann") && users.knows("bob"));
    }

    #[tokio::test]
    async fn with_other_users_an_old_password_is_wrong_even_where_it_was_right_before() {
        let (old, kept) = (hash_password(b"old").unwrap(), hash_password(b"kept").unwrap());
        let users = Users::parse(&format!("ann:{old}\nbob:{kept}\ncid:{old}")).unwrap();
        assert_eq!(users.verify("ann", b"old", || true).await, Some(true));
        assert_eq!(users.verify("bob", b"kept", || true).await, Some(true));
        let new = hash_password(b"new").unwrap();
        users.replace(Users::parse(&format!("ann:{new}\nbob:{kept}\ndan:{new}")).unwrap());
        assert_eq!(users.recall("bob", b"kept"), Some(true), "the file has not changed it");
        assert_eq!(users.recall("ann", b"old"), None);
        for (name, password, right) in [
            ("ann", "old", false),
            ("ann", "new", true),
            ("cid", "old", false),
            ("dan", "new", true),
        ] {
            let verified = users.verify(name, password.as_bytes(), || true).await;
            assert_eq!(verified, Some(right), "{name} {password}");
        }
        assert_eq!(users.count(), 3);
    }
}
