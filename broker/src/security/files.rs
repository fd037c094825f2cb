//! The files of users, grants and certificates: read at the start, and again when the operator asks.

use std::error::Error;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::tls::Certificate;
use super::{Grants, Security, Users};

/// Where the files are; none of them has to be.
#[derive(Debug, Clone, Default)]
pub struct SecurityFiles {
    /// Lines `name:hash`.
    pub users: Option<PathBuf>,
    /// Lines `USER ACTION NAME`.
    pub grants: Option<PathBuf>,
    /// The certificate chain and its key, PEM.
    pub tls: Option<(PathBuf, PathBuf)>,
}

/// What the files say.
#[derive(Debug, Default)]
pub struct Loaded {
    /// The users.
    pub users: Option<Users>,
    /// What they may do.
    pub grants: Option<Grants>,
    /// The certificate with its key.
    pub certificate: Option<Certificate>,
}

/// A file that cannot be used.
#[derive(Debug)]
pub struct FileError {
    /// Which one.
    pub path: PathBuf,
    source: Box<dyn Error + Send + Sync>,
}

impl SecurityFiles {
    /// Reads them all.
    ///
    /// # Errors
    /// [`FileError`] names the first that cannot be used.
    pub fn load(&self) -> Result<Loaded, FileError> {
        let users = self.users.as_deref().map(|path| parsed(path, Users::parse)).transpose()?;
        let grants = self.grants.as_deref().map(|path| parsed(path, Grants::parse)).transpose()?;
        let certificate = match &self.tls {
            Some((certificate, key)) => {
                let (chain, secret) = (read(certificate)?, read(key)?);
                let pair = Certificate::new(chain.as_bytes(), secret.as_bytes());
                Some(pair.map_err(|error| {
                    let path = if error.is_of_key() { key } else { certificate };
                    FileError { path: path.clone(), source: error.into() }
                })?)
            }
            None => None,
        };
        Ok(Loaded { users, grants, certificate })
    }

    /// Reads them all again, and takes them in place of what is there: all, or where one cannot
    /// be used, none.
    ///
    /// # Errors
    /// [`FileError`] names the first that cannot be used; everything is as it was.
    pub fn reload(
        &self,
        security: &Security,
        certificate: Option<&Certificate>,
    ) -> Result<(), FileError> {
        let loaded = self.load()?;
        // Grants first: who is new has them by then, and who is gone has none any more.
        if let (Some(grants), Some(new)) = (&security.grants, loaded.grants) {
            grants.replace(new);
        }
        if let (Some(users), Some(new)) = (&security.users, loaded.users) {
            users.replace(new);
        }
        if let (Some(certificate), Some(new)) = (certificate, &loaded.certificate) {
            certificate.replace(new);
        }
        Ok(())
    }
}

impl Loaded {
    /// Users that grants name and that cannot log in.
    #[must_use]
    pub fn users_without_login(&self) -> Vec<String> {
        let (Some(users), Some(grants)) = (&self.users, &self.grants) else { return Vec::new() };
        let mut names = grants.users();
        names.retain(|name| !users.knows(name));
        names.sort();
        names
    }

    /// What the broker asks of everybody who connects.
    #[must_use]
    pub fn into_security(self) -> Security {
        let grants = self.grants.map(Arc::new);
        Security { users: self.users, grants, ..Security::default() }
    }
}

fn parsed<T, E>(path: &Path, parse: impl FnOnce(&str) -> Result<T, E>) -> Result<T, FileError>
where
    E: Error + Send + Sync + 'static,
{
    parse(&read(path)?).map_err(|error| FileError { path: path.to_owned(), source: error.into() })
}

fn read(path: &Path) -> Result<String, FileError> {
    std::fs::read_to_string(path)
        .map_err(|error| FileError { path: path.to_owned(), source: error.into() })
}

impl fmt::Display for FileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the file cannot be used: {}", self.path.display())
    }
}

impl Error for FileError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&*self.source)
    }
}
