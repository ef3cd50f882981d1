//! One TLS client configuration for IMAP, SMTP and HTTP: ring, the well-known roots, and an operator's own.

use std::sync::Arc;

use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;

/// A client configuration that trusts the well-known roots and the certificates of `extra`, a PEM text.
///
/// # Errors
/// When `extra` holds no readable certificate.
pub fn client_config(extra: Option<&[u8]>) -> anyhow::Result<ClientConfig> {
    let mut roots = RootCertStore { roots: webpki_roots::TLS_SERVER_ROOTS.to_vec() };
    if let Some(pem) = extra {
        let mut found = 0;
        for certificate in CertificateDer::pem_slice_iter(pem) {
            roots.add(certificate?)?;
            found += 1;
        }
        anyhow::ensure!(found > 0, "no certificate in the file");
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    Ok(ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth())
}
