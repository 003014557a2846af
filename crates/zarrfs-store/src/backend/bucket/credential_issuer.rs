//! Credentials whose issuer answers for itself: that it refuses or lacks something says nothing of the bucket.
//!
//! A request to a bucket asks for credentials first, and has one last response. A 404 of the server that gives
//! credentials would count as one of the bucket: the object would be missing, and a chunk read as the fill value.

use std::fmt;
use std::sync::Arc;

use object_store::CredentialProvider;

use super::rotation::Source;
use crate::backend::remote::fault;
use crate::backend::remote::runtime::{LastResponse, note_response, with_last_response};

/// A source of credentials that is named where it fails.
pub(super) struct CredentialIssuer<T> {
    source: Source<T>,
    /// Who gives the credentials.
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
            // What the bucket has answered before is no answer to this request either.
            note_response(LastResponse::default());
            let text = fault::without_credentials(&self.name, &error, &last);
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

    /// Whose server answers by a status that would say that an object of the bucket is missing.
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
            note_response(status(self.0));
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
                note_response(status(404));
                issuer.get_credential().await
            };
            let (given, last) = wait(&UNLIMITED, Duration::from_secs(9), asked).unwrap();
            let error = fault::error(&given.unwrap().unwrap_err(), &last, "a");
            assert_eq!(error.kind(), Kind::Unavailable, "{error}");
            let expected = format!("a: no credentials from here: it answered {refusal}");
            assert_eq!(error.to_string(), expected);
        }
    }
}
