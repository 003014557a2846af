//! Reads credentials again when their files have changed.
//!
//! object_store and the AWS library read credential files once, but key rotation replaces them. The status of the files
//! is checked before each request, so that no request uses replaced keys.

use std::fmt;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::Arc;

use object_store::CredentialProvider;
use parking_lot::Mutex;

/// A source of credentials for a cloud.
pub(super) type Source<T> = Arc<dyn CredentialProvider<Credential = T>>;

/// Reads the files.
type Read<T> = dyn Fn() -> object_store::Result<Source<T>> + Send + Sync;

/// Credentials from files.
pub(super) struct RotatedCredentials<T> {
    files: Vec<PathBuf>,
    read: Box<Read<T>>,
    current: Mutex<CurrentSource<T>>,
}

struct CurrentSource<T> {
    source: Source<T>,
    /// The stamps of the files when they were read.
    stamps: Vec<FileStamp>,
}

/// Identifies the content of a file: inode, size and mtime, or `None` if it is missing.
type FileStamp = Option<(u64, u64, i64, i64)>;

fn stamps(files: &[PathBuf]) -> Vec<FileStamp> {
    let stamp = |file: &PathBuf| {
        let meta = fs::metadata(file).ok()?;
        Some((meta.ino(), meta.size(), meta.mtime(), meta.mtime_nsec()))
    };
    files.iter().map(stamp).collect()
}

impl<T> RotatedCredentials<T> {
    /// Reads the files with `read`, now and after each change.
    pub(super) fn new(
        files: Vec<PathBuf>,
        read: impl Fn() -> object_store::Result<Source<T>> + Send + Sync + 'static,
    ) -> object_store::Result<RotatedCredentials<T>> {
        let stamps = stamps(&files);
        let source = read()?;
        Ok(RotatedCredentials {
            files,
            read: Box::new(read),
            current: Mutex::new(CurrentSource { source, stamps }),
        })
    }

    /// Returns the source for the current files, or the previous one if they cannot be read.
    fn source(&self) -> Source<T> {
        let now = stamps(&self.files);
        let mut current = self.current.lock();
        if current.stamps != now {
            // If a file is still being written, its stamp changes once more.
            current.stamps = now;
            match (self.read)() {
                Ok(source) => {
                    log::info!("the files of credentials have changed, and were read again");
                    current.source = source;
                }
                Err(error) => log::warn!("credentials cannot be read again: {error}"),
            }
        }
        current.source.clone()
    }
}

impl<T> fmt::Debug for RotatedCredentials<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RotatedCredentials")
    }
}

#[async_trait::async_trait]
impl<T: fmt::Debug + Send + Sync + 'static> CredentialProvider for RotatedCredentials<T> {
    type Credential = T;

    async fn get_credential(&self) -> object_store::Result<Arc<T>> {
        self.source().get_credential().await
    }
}
