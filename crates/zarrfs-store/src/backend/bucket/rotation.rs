//! Credentials that are read again when the files that they come from have changed.
//!
//! object_store and Amazon's library read files of credentials once. Rotating keys replaces a file: its time is looked at
//! before each request, so that no request goes with keys that were replaced before.

use std::fmt;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::Arc;

use object_store::CredentialProvider;
use parking_lot::Mutex;

/// A source of credentials of a cloud.
pub(super) type Source<T> = Arc<dyn CredentialProvider<Credential = T>>;

/// Reads files anew.
type Read<T> = dyn Fn() -> object_store::Result<Source<T>> + Send + Sync;

/// Credentials of files.
pub(super) struct RotatedCredentials<T> {
    files: Vec<PathBuf>,
    read: Box<Read<T>>,
    current: Mutex<CurrentSource<T>>,
}

struct CurrentSource<T> {
    source: Source<T>,
    /// The files when they were read.
    stamps: Vec<FileStamp>,
}

/// What tells one content of a file from another: its number, its size, and when it changed.
type FileStamp = Option<(u64, u64, i64, i64)>;

fn stamps(files: &[PathBuf]) -> Vec<FileStamp> {
    let stamp = |file: &PathBuf| {
        let meta = fs::metadata(file).ok()?;
        Some((meta.ino(), meta.size(), meta.mtime(), meta.mtime_nsec()))
    };
    files.iter().map(stamp).collect()
}

impl<T> RotatedCredentials<T> {
    /// Reads files by `read`, now and after each of their changes.
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

    /// Returns the source by what the files say now; the last one if they cannot be read.
    fn source(&self) -> Source<T> {
        let now = stamps(&self.files);
        let mut current = self.current.lock();
        if current.stamps != now {
            // One that is being written changes once more.
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
