//! TLS by rustls: the certificate and key of a listener, from PEM files.
//!
//! The cryptography is ring's, which builds quickly everywhere; only TLS 1.2 and 1.3 are offered.

use std::fmt;
use std::sync::Arc;

use parking_lot::RwLock;
use rustls::ServerConfig;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::TlsAcceptor;

/// Why a certificate and a key cannot be used.
#[derive(Debug)]
#[non_exhaustive]
pub enum TlsError {
    /// The file of the certificate has none, or it cannot be read as PEM.
    Certificate,
    /// The file of the key has none, or it cannot be read as PEM.
    Key,
    /// The two do not belong together, or the key is of a kind that is not known.
    Pair(rustls::Error),
}

/// The certificate and key that connections are served with: those that are there keep theirs, and
/// the next have the one that was taken last.
#[derive(Debug, Clone)]
pub struct Certificate(Arc<Current>);

#[derive(Debug)]
struct Current(RwLock<Arc<CertifiedKey>>);

impl ResolvesServerCert for Current {
    fn resolve(&self, _hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.0.read()))
    }
}

impl Certificate {
    /// Reads a certificate chain and its key.
    ///
    /// # Errors
    /// [`TlsError`] says which of the two is wrong.
    pub fn new(certificate_pem: &[u8], key_pem: &[u8]) -> Result<Self, TlsError> {
        let pair = pair(certificate_pem, key_pem)?;
        Ok(Self(Arc::new(Current(RwLock::new(pair)))))
    }

    /// Takes another pair for the connections to come.
    pub fn replace(&self, with: &Self) {
        let new = Arc::clone(&with.0.0.read());
        *self.0.0.write() = new;
    }

    /// What accepts TLS connections with whatever is current then.
    ///
    /// # Errors
    /// [`TlsError::Pair`], where the cryptography has no version of TLS in common with rustls.
    pub fn acceptor(&self) -> Result<TlsAcceptor, TlsError> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(TlsError::Pair)?
            .with_no_client_auth()
            .with_cert_resolver(Arc::clone(&self.0) as Arc<dyn ResolvesServerCert>);
        Ok(TlsAcceptor::from(Arc::new(config)))
    }
}

/// What accepts TLS connections with this certificate chain and key.
///
/// # Errors
/// [`TlsError`] says which of the two is wrong.
pub fn acceptor(certificate_pem: &[u8], key_pem: &[u8]) -> Result<TlsAcceptor, TlsError> {
    Certificate::new(certificate_pem, key_pem)?.acceptor()
}

fn pair(certificate_pem: &[u8], key_pem: &[u8]) -> Result<Arc<CertifiedKey>, TlsError> {
    let chain: Vec<CertificateDer<'static>> = CertificateDer::pem_slice_iter(certificate_pem)
        .collect::<Result<_, _>>()
        .map_err(|_| TlsError::Certificate)?;
    if chain.is_empty() {
        return Err(TlsError::Certificate);
    }
    let key = PrivateKeyDer::from_pem_slice(key_pem).map_err(|_| TlsError::Key)?;
    let provider = rustls::crypto::ring::default_provider();
    let pair = CertifiedKey::from_der(chain, key, &provider).map_err(TlsError::Pair)?;
    Ok(Arc::new(pair))
}

impl TlsError {
    /// Whether it is the file of the key that is wrong.
    pub(super) fn is_of_key(&self) -> bool {
        matches!(self, Self::Key)
    }
}

impl fmt::Display for TlsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Certificate => "there is no certificate in the file",
            Self::Key => "there is no private key in the file",
            Self::Pair(_) => "the certificate and the key cannot be used together",
        })
    }
}

impl std::error::Error for TlsError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Pair(error) => Some(error),
            Self::Certificate | Self::Key => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_with_its_key_is_taken_and_with_another_key_it_is_not() {
        let one = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
        let two = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
        let (certificate, key) = (one.cert.pem(), one.key_pair.serialize_pem());
        assert!(acceptor(certificate.as_bytes(), key.as_bytes()).is_ok());
        let other = two.key_pair.serialize_pem();
        let refused = acceptor(certificate.as_bytes(), other.as_bytes()).err();
        assert!(matches!(refused, Some(TlsError::Pair(_))));
        assert!(matches!(acceptor(b"", key.as_bytes()).err(), Some(TlsError::Certificate)));
        assert!(matches!(acceptor(certificate.as_bytes(), b"").err(), Some(TlsError::Key)));
    }
}
