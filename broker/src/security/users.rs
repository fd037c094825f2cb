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

use argon2::password_hash::{PasswordHash, PasswordHasher, PasswordVerifier, SaltString};
use argon2::{Algorithm, Argon2};
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
    gate: Semaphore,
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
            gate: Semaphore::new(LOGINS_AT_A_TIME),
            key,
            seen: Mutex::new(HashMap::new()),
        })
    }

    /// Whether this is the password of this user.
    pub async fn verify(&self, name: &str, password: &[u8]) -> bool {
        if password.is_empty() || password.len() > MAX_PASSWORD_BYTES {
            return false;
        }
        let seen = self.seen.lock().get(name).copied();
        if seen.is_some_and(|tag| hmac::verify(&self.key, password, tag.as_ref()).is_ok()) {
            return true;
        }
        let known = self.hashes.get(name);
        let hash = Arc::clone(known.unwrap_or(&self.nobody));
        let copy = password.to_owned();
        let _turn = self.gate.acquire().await.expect("the gate is never closed");
        let matches = tokio::task::spawn_blocking(move || {
            let hash = PasswordHash::new(&hash).expect("hashes are checked when they are read");
            Argon2::default().verify_password(&copy, &hash).is_ok()
        });
        let right = matches.await.unwrap_or(false) && known.is_some();
        if right {
            self.seen.lock().insert(name.to_owned(), hmac::sign(&self.key, password));
        }
        right
    }
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
        assert!(!users.verify("ann", b"Secret").await);
        assert!(users.verify("ann", b"secret").await);
        assert!(users.verify("ann", b"secret").await);
        assert!(!users.verify("ann", b"secret2").await);
        assert!(!users.verify("ann", b"").await);
        assert!(!users.verify("bob", b"secret").await);
        assert!(!users.verify("bob", b"nobody's password").await);
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
