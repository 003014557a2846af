//! Gives object_store credentials: some are read again after a change, some are named in errors.

use std::fmt;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::Arc;

use http::{HeaderName, Method};
use object_store::CredentialProvider;
use object_store::client::{HttpClient, HttpError, HttpRequest, HttpResponse, HttpResponseBody};
use parking_lot::Mutex;

use crate::backend::opaque_debug;
use crate::backend::remote::errors;
use crate::backend::remote::runtime::{LastResponse, record_response, with_last_response};

/// Gives object_store the credentials of a cloud.
pub(super) type Source<T> = Arc<dyn CredentialProvider<Credential = T>>;

/// Builds a credential source from the present content of the credential files.
type Read<T> = dyn Fn() -> object_store::Result<Source<T>> + Send + Sync;

/// Credentials from files, which are read again when the files have changed.
///
/// object_store and the AWS library read credential files once, but key rotation replaces them. The status of the files
/// is checked before each request, so that no request uses replaced keys.
pub(super) struct RefreshingCredentials<T> {
    files: Vec<PathBuf>,
    read: Box<Read<T>>,
    current: Mutex<CurrentSource<T>>,
}

struct CurrentSource<T> {
    source: Source<T>,
    /// The status of each credential file when it was last read.
    stamps: Vec<FileStamp>,
}

/// Identifies the content of a file by its inode, size and mtime; `None` if the file is missing.
type FileStamp = Option<(u64, u64, i64, i64)>;

fn stamps(files: &[PathBuf]) -> Vec<FileStamp> {
    let stamp = |file: &PathBuf| {
        let meta = fs::metadata(file).ok()?;
        Some((meta.ino(), meta.size(), meta.mtime(), meta.mtime_nsec()))
    };
    files.iter().map(stamp).collect()
}

impl<T> RefreshingCredentials<T> {
    /// Creates credentials that `read` reads from the files now and after each change of a file.
    pub(super) fn new(
        files: Vec<PathBuf>,
        read: impl Fn() -> object_store::Result<Source<T>> + Send + Sync + 'static,
    ) -> object_store::Result<RefreshingCredentials<T>> {
        let stamps = stamps(&files);
        let source = read()?;
        Ok(RefreshingCredentials {
            files,
            read: Box::new(read),
            current: Mutex::new(CurrentSource { source, stamps }),
        })
    }

    /// Returns credentials from the current files, or the previous credentials if the files cannot be read.
    fn source(&self) -> Source<T> {
        let now = stamps(&self.files);
        let mut current = self.current.lock();
        if current.stamps != now {
            // The new stamp is stored even if reading fails: a file that is still being written gets another stamp
            // later.
            current.stamps = now;
            match (self.read)() {
                Ok(source) => {
                    log::info!("read the credentials again, since the files have changed");
                    current.source = source;
                }
                Err(error) => {
                    log::warn!("cannot read the changed credentials, using the old ones: {error}")
                }
            }
        }
        current.source.clone()
    }
}

opaque_debug!(RefreshingCredentials<T>);

#[async_trait::async_trait]
impl<T: fmt::Debug + Send + Sync + 'static> CredentialProvider for RefreshingCredentials<T> {
    type Credential = T;

    async fn get_credential(&self) -> object_store::Result<Arc<T>> {
        self.source().get_credential().await
    }
}

/// A source of credentials whose errors contain its name.
///
/// Before a request to a bucket, object_store requests credentials, and only the last response of both requests is
/// recorded. Without this type, a 404 of the credential server would be taken for a 404 of the bucket: the object would
/// count as missing, and a chunk would read as the fill value.
pub(super) struct NamedCredentials<T> {
    source: Source<T>,
    /// The issuer of the credentials, as error messages name it.
    name: String,
}

impl<T> NamedCredentials<T> {
    pub(super) fn new(name: &str, source: Source<T>) -> Arc<NamedCredentials<T>> {
        Arc::new(NamedCredentials {
            source,
            name: name.to_string(),
        })
    }
}

opaque_debug!(NamedCredentials<T>);

#[async_trait::async_trait]
impl<T: fmt::Debug + Send + Sync + 'static> CredentialProvider for NamedCredentials<T> {
    type Credential = T;

    async fn get_credential(&self) -> object_store::Result<Arc<T>> {
        let (answer, last) = with_last_response(self.source.get_credential()).await;
        answer.map_err(|error| {
            // Clears the recorded response, because it came from an earlier request to the bucket, not from the issuer.
            record_response(LastResponse::default());
            let text = errors::without_credentials(&self.name, &error, &last);
            object_store::Error::Generic {
                store: "credentials",
                source: text.into(),
            }
        })
    }
}

/// Sends a request, to the metadata service of a machine or to any other server.
///
/// object_store and aws-config first request a token, and fail if the service has no tokens (IMDSv1). Other AWS
/// libraries then request the credentials without a token. To get the same behavior, this function answers the request
/// for a token with a placeholder, and removes the placeholder from later requests.
pub(super) async fn execute_with_imdsv1(
    client: &HttpClient,
    mut request: HttpRequest,
) -> Result<HttpResponse, HttpError> {
    let (token_header, placeholder) = ("x-aws-ec2-metadata-token", "no-token");
    // S3's request for a token and the response to it have this header.
    let ttl_header = HeaderName::from_static("x-aws-ec2-metadata-token-ttl-seconds");
    let ttl = request.headers().get(&ttl_header).cloned();
    let ttl = ttl.filter(|_| request.method() == Method::PUT);
    let token = request.headers().get(token_header);
    if token.is_some_and(|token| token == placeholder) {
        request.headers_mut().remove(token_header);
    }
    let mut response = client.execute(request).await?;
    if let Some(ttl) = ttl
        // With these statuses the service refuses the request or does not support it: it has no tokens.
        && matches!(response.status().as_u16(), 403..=405)
        && !std::env::var("AWS_EC2_METADATA_V1_DISABLED")
            .is_ok_and(|value| value.eq_ignore_ascii_case("true"))
    {
        log::info!(
            "the metadata service gives no token ({}), using IMDSv1",
            response.status().as_u16()
        );
        response = HttpResponse::new(HttpResponseBody::from(placeholder.to_string()));
        response.headers_mut().insert(ttl_header, ttl);
    }
    Ok(response)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::backend::remote::runtime::wait;
    use crate::request_context::UNLIMITED;
    use zarr_format::error::Kind;

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
    fn a_failed_credential_request_is_unavailable_not_missing() {
        for refusal in [400, 403, 404, 416] {
            let issuer = NamedCredentials::new("here", Arc::new(Refusing(refusal)));
            let asked = async {
                record_response(status(404));
                issuer.get_credential().await
            };
            let (given, last) = wait(&UNLIMITED, Duration::from_secs(9), asked).unwrap();
            let error = errors::request_error(&given.unwrap().unwrap_err(), &last, "a");
            assert_eq!(error.kind(), Kind::Unavailable, "{error}");
            let expected = format!("a: no credentials from here: status {refusal}");
            assert_eq!(error.to_string(), expected);
        }
    }
}
