//! Keeps the errors of a credential server apart from those of the bucket.
//!
//! A request to a bucket first requests credentials, and only its last response is recorded. Without this, a 404 of the
//! credential server would count as the bucket's: the object would be missing, and a chunk would read as the fill
//! value.

use std::fmt;
use std::sync::Arc;

use object_store::CredentialProvider;

use super::rotation::Source;
use crate::backend::remote::errors;
use crate::backend::remote::runtime::{LastResponse, record_response, with_last_response};

/// A source of credentials that is named in its errors.
pub(super) struct CredentialIssuer<T> {
    source: Source<T>,
    /// The name of the issuer.
    name: String,
}

impl<T> CredentialIssuer<T> {
    pub(super) fn new(name: &str, source: Source<T>) -> Arc<CredentialIssuer<T>> {
        Arc::new(CredentialIssuer {
            source,
            name: name.to_string(),
        })
    }
}

impl<T> fmt::Debug for CredentialIssuer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CredentialIssuer")
    }
}

#[async_trait::async_trait]
impl<T: fmt::Debug + Send + Sync + 'static> CredentialProvider for CredentialIssuer<T> {
    type Credential = T;

    async fn get_credential(&self) -> object_store::Result<Arc<T>> {
        let (given, last) = with_last_response(self.source.get_credential()).await;
        given.map_err(|error| {
            // An earlier response of the bucket does not answer this request either.
            record_response(LastResponse::default());
            let text = errors::without_credentials(&self.name, &error, &last);
            object_store::Error::Generic {
                store: "credentials",
                source: text.into(),
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::backend::remote::runtime::wait;
    use crate::request_context::UNLIMITED;
    use zarr_format::error::Kind;

    /// A source whose server responds with this status, such as one that means "missing" for an object.
    #[derive(Debug)]
    struct Refusing(u16);

    fn status(status: u16) -> LastResponse {
        LastResponse {
            status: Some(status),
            ..LastResponse::default()
        }
    }

    #[async_trait::async_trait]
    impl CredentialProvider for Refusing {
        type Credential = String;

        async fn get_credential(&self) -> object_store::Result<Arc<String>> {
            record_response(status(self.0));
            Err(object_store::Error::Generic {
                store: "S3",
                source: "refused".into(),
            })
        }
    }

    #[test]
    fn what_an_issuer_answers_is_no_answer_of_the_bucket() {
        for refusal in [400, 403, 404, 416] {
            let issuer = CredentialIssuer::new("here", Arc::new(Refusing(refusal)));
            let asked = async {
                record_response(status(404));
                issuer.get_credential().await
            };
            let (given, last) = wait(&UNLIMITED, Duration::from_secs(9), asked).unwrap();
            let error = errors::request_error(&given.unwrap().unwrap_err(), &last, "a");
            assert_eq!(error.kind(), Kind::Unavailable, "{error}");
            let expected = format!("a: no credentials from here: it answered {refusal}");
            assert_eq!(error.to_string(), expected);
        }
    }
}
