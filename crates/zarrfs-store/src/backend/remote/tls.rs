//! Verifies server certificates: signed by a trusted authority, or trusted themselves.
//!
//! The usual commands mark a self-signed certificate as the certificate of an authority, and the TLS verifier never
//! accepts such a certificate for a server. Here exactly this certificate, byte for byte, is accepted if it is among
//! the trusted ones (the file in SSL_CERT_FILE, or the system's). Its dates and its name are still checked.
//!
//! A machine may trust no certificates at all, as small containers do. Servers without TLS still work there, and for
//! servers with TLS the error says what to install.

use std::sync::{Arc, OnceLock};

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{WebPkiServerVerifier, verify_server_name};
use rustls::crypto::{self, CryptoProvider};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme,
};

/// The error message if a certificate is refused because the machine trusts no certificates at all.
pub(super) const TRUSTS_NONE: &str = "no trusted certificates found: install the package ca-certificates, or set \
    SSL_CERT_FILE to a file with certificates";

/// Returns the TLS settings of a client that trusts the machine's certificates and `others`.
pub(super) fn client_config(
    provider: Arc<CryptoProvider>,
    others: Vec<CertificateDer<'static>>,
    http1_only: bool,
) -> Result<ClientConfig, Error> {
    let verifier = Verifier {
        provider: provider.clone(),
        others,
        trusted: OnceLock::new(),
    };
    let builder =
        ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    let builder = builder.dangerous();
    let builder = builder.with_custom_certificate_verifier(Arc::new(verifier));
    let mut config = builder.with_no_client_auth();
    let protocols: &[&[u8]] = if http1_only {
        &[b"http/1.1"]
    } else {
        &[b"h2", b"http/1.1"]
    };
    config.alpn_protocols = protocols.iter().map(|name| name.to_vec()).collect();
    Ok(config)
}

/// Returns the machine's trusted certificates. They are read once per process, since a store has several clients, and
/// reading them takes longer than everything else that a program does at its start.
fn machine_certificates() -> &'static [CertificateDer<'static>] {
    static CERTIFICATES: OnceLock<Vec<CertificateDer<'static>>> = OnceLock::new();
    CERTIFICATES.get_or_init(|| {
        let native = rustls_native_certs::load_native_certs();
        for error in &native.errors {
            log::warn!("cannot read trusted certificates: {error}");
        }
        native.certs
    })
}

/// Verifies the certificates of servers. The trusted certificates are only read when a server first presents one.
#[derive(Debug)]
struct Verifier {
    provider: Arc<CryptoProvider>,
    /// Certificates that are trusted in addition to the machine's.
    others: Vec<CertificateDer<'static>>,
    /// The verifier of the trusted certificates, or `None` if no certificate is trusted.
    trusted: OnceLock<Result<Option<Trusted>, Error>>,
}

/// The certificates that are trusted, as authorities or as a server's own.
#[derive(Debug)]
struct Trusted {
    by_authority: Arc<WebPkiServerVerifier>,
    certificates: Vec<CertificateDer<'static>>,
}

impl Trusted {
    /// Trusts the certificates that can be parsed. Returns `None` if no certificate can be.
    fn new(
        certificates: Vec<CertificateDer<'static>>,
        provider: &Arc<CryptoProvider>,
    ) -> Result<Option<Trusted>, Error> {
        let mut roots = RootCertStore::empty();
        let (_, unread) = roots.add_parsable_certificates(certificates.iter().cloned());
        if unread > 0 {
            log::warn!("ignored {unread} invalid certificates of the system");
        }
        if roots.is_empty() {
            return Ok(None);
        }
        let builder =
            WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider.clone());
        let by_authority = builder
            .build()
            .map_err(|error| Error::General(error.to_string()))?;
        Ok(Some(Trusted {
            by_authority,
            certificates,
        }))
    }
}

impl Verifier {
    fn trusted(&self) -> Result<&Trusted, Error> {
        let trusted = self.trusted.get_or_init(|| {
            let certificates = [machine_certificates(), &self.others].concat();
            Trusted::new(certificates, &self.provider)
        });
        match trusted {
            Ok(Some(trusted)) => Ok(trusted),
            Ok(None) => Err(Error::General(TRUSTS_NONE.to_string())),
            Err(error) => Err(error.clone()),
        }
    }
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let Trusted {
            by_authority,
            certificates,
        } = self.trusted()?;
        let answer = by_authority.verify_server_cert(
            end_entity,
            intermediates,
            server_name,
            ocsp_response,
            now,
        );
        let is_trusted = || certificates.iter().any(|trusted| trusted == end_entity);
        match answer {
            Err(error) if is_of_an_authority(&error) && is_trusted() => {
                verify_server_name(&ParsedCertificate::try_from(end_entity)?, server_name)?;
                Ok(ServerCertVerified::assertion())
            }
            answer => answer,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        crypto::verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        crypto::verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        let algorithms = &self.provider.signature_verification_algorithms;
        algorithms.supported_schemes()
    }
}

/// Whether a server's certificate was refused only because it is marked as the certificate of an authority. The
/// verifier reports this error only after it has checked the dates of the certificate.
fn is_of_an_authority(error: &Error) -> bool {
    match error {
        Error::InvalidCertificate(CertificateError::Other(other)) => {
            other.0.to_string() == "CaUsedAsEndEntity"
        }
        _ => false,
    }
}
