//! TLS, and clients that show a certificate.

use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};

use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::{RootCertStore, ServerConfig};

use crate::error::{Error, Result};

/// Files of TLS, in PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    /// The server's certificate and those between it and its root.
    pub cert: PathBuf,
    pub key: PathBuf,
    /// Roots of the clients' certificates; with them a client has to show one.
    pub client_ca: Option<PathBuf>,
}

/// What connections are opened with from now on.
pub(super) struct Tls {
    files: TlsFiles,
    config: RwLock<Arc<ServerConfig>>,
}

impl Tls {
    pub fn open(files: &TlsFiles) -> Result<Self> {
        Ok(Self { files: files.clone(), config: RwLock::new(read(files)?) })
    }

    /// Reads the certificates that the files have now; what is returned takes them.
    pub fn reread(&self) -> Result<impl FnOnce()> {
        let config = read(&self.files)?;
        Ok(move || *self.config.write().unwrap_or_else(PoisonError::into_inner) = config)
    }

    pub fn config(&self) -> Arc<ServerConfig> {
        self.config.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

fn read(files: &TlsFiles) -> Result<Arc<ServerConfig>> {
    let provider = Arc::new(ring::default_provider());
    let chain = certificates(&files.cert)?;
    let key =
        PrivateKeyDer::from_pem_file(&files.key).map_err(|fault| unusable(&files.key, "a private key", &fault))?;
    let builder = ServerConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .map_err(|fault| unusable(&files.cert, "TLS 1.2 or 1.3", &fault))?;
    let builder = match &files.client_ca {
        None => builder.with_no_client_auth(),
        Some(file) => {
            let mut roots = RootCertStore::empty();
            for root in certificates(file)? {
                roots.add(root).map_err(|fault| unusable(file, "certificates of authorities", &fault))?;
            }
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build();
            builder.with_client_cert_verifier(
                verifier.map_err(|fault| unusable(file, "certificates of authorities", &fault))?,
            )
        }
    };
    let mut config = builder
        .with_single_cert(chain, key)
        .map_err(|fault| unusable(&files.key, "the private key of the certificate", &fault))?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

fn certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>> {
    let read = CertificateDer::pem_file_iter(file).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let certificates = read.map_err(|fault| unusable(file, "certificates", &fault))?;
    match certificates.is_empty() {
        true => Err(unusable(file, "certificates", &"none")),
        false => Ok(certificates),
    }
}

fn unusable(file: &Path, expected: &str, found: &dyn std::fmt::Display) -> Error {
    Error::format(file, "PEM", expected, found.to_string(), "see --tls-cert, --tls-key and --client-ca")
}
