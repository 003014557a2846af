//! A file with a bearer token, which other programs renew while a store is mounted.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use http::HeaderValue;
use parking_lot::Mutex;

use super::read_file;
use crate::backend::opaque_debug;
use zarr_format::error::{Error, Result};

/// How often the file with the bearer token is checked for a change.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// A file with a bearer token, which is read again when it changes.
pub(super) struct TokenFile {
    path: PathBuf,
    known: Mutex<KnownToken>,
}

/// The bearer token that was last read from the file.
struct KnownToken {
    authorization: HeaderValue,
    stamp: Option<FileStamp>,
    checked: Instant,
    /// Whether the last attempt to read the token file failed. Only the first of several failures is logged.
    is_unreadable: bool,
}

/// The times and the inode of the token file, which differ after a change of the file.
#[derive(PartialEq, Eq)]
struct FileStamp([i64; 4], u64);

impl FileStamp {
    fn of(path: &Path) -> Option<FileStamp> {
        let facts = fs::metadata(path).ok()?;
        let times = [
            facts.mtime(),
            facts.mtime_nsec(),
            facts.ctime(),
            facts.ctime_nsec(),
        ];
        Some(FileStamp(times, facts.ino()))
    }
}

opaque_debug!(TokenFile);

impl TokenFile {
    pub(super) fn open(path: &Path) -> Result<TokenFile> {
        // The file's times are taken before its content is read. If the file changes during the read, the times differ
        // at the next check, and the file is read again.
        let stamp = FileStamp::of(path);
        Ok(TokenFile {
            path: path.to_path_buf(),
            known: Mutex::new(KnownToken {
                authorization: read(path)?,
                stamp,
                checked: Instant::now(),
                is_unreadable: false,
            }),
        })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the value of the header `Authorization`. The token file is read again if it was changed.
    pub(super) async fn authorization(self: &Arc<TokenFile>) -> HeaderValue {
        if self.begin_check() {
            self.on_thread(TokenFile::read_if_changed).await;
        }
        self.known.lock().authorization.clone()
    }

    /// Reads the token file again if necessary, and returns its token. Returns `None` if the file still has the token
    /// `refused`, which the server has refused.
    pub(super) async fn renewed(
        self: &Arc<TokenFile>,
        refused: &HeaderValue,
    ) -> Option<HeaderValue> {
        if self.known.lock().authorization == *refused {
            self.on_thread(TokenFile::read_again).await;
        }
        let now = self.known.lock().authorization.clone();
        (now != *refused).then_some(now)
    }

    /// Whether the token file is due for a check. Of several concurrent requests, only one gets true.
    fn begin_check(&self) -> bool {
        let mut known = self.known.lock();
        let is_due = known.checked.elapsed() >= CHECK_INTERVAL;
        if is_due {
            known.checked = Instant::now();
        }
        is_due
    }

    /// Runs `work`, which may wait for the disk, in a thread for blocking calls.
    async fn on_thread(self: &Arc<TokenFile>, work: fn(&TokenFile)) {
        let file = self.clone();
        if tokio::task::spawn_blocking(move || work(&file))
            .await
            .is_err()
        {
            log::warn!("{}: the token was not read again", self.path.display());
        }
    }

    fn read_if_changed(&self) {
        let stamp = FileStamp::of(&self.path);
        let is_changed = self.known.lock().stamp != stamp;
        if is_changed {
            self.read_again();
        }
    }

    fn read_again(&self) {
        let stamp = FileStamp::of(&self.path);
        let read = read(&self.path);
        let mut known = self.known.lock();
        match read {
            Ok(authorization) => {
                (known.authorization, known.stamp) = (authorization, stamp);
                known.is_unreadable = false;
            }
            // A failure is only logged once: the program that renews the token may just be writing the file.
            Err(_) if known.is_unreadable => {}
            Err(error) => {
                known.is_unreadable = true;
                drop(known);
                let error = error.about(self.path.display());
                log::warn!("--bearer-token-file {error}; the last token stays in use");
            }
        }
    }
}

fn read(path: &Path) -> Result<HeaderValue> {
    let text = read_file(path)?;
    let token = text.trim();
    let fault = |why: &str| Err(Error::invalid("", why));
    if token.is_empty() {
        return fault("the file is empty: put the token into it");
    }
    if token.contains(char::is_whitespace) {
        return fault("the file has more than a token: put only the token into it");
    }
    match HeaderValue::from_str(&format!("Bearer {token}")) {
        Ok(mut value) if token.is_ascii() => {
            value.set_sensitive(true);
            Ok(value)
        }
        Ok(_) | Err(_) => fault("the token has characters that no token can have"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::runtime::Builder;

    #[test]
    fn a_changed_token_file_is_read_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        fs::write(&path, "one\n").unwrap();
        let file = Arc::new(TokenFile::open(&path).unwrap());
        let runtime = Builder::new_multi_thread()
            .worker_threads(1)
            .build()
            .unwrap();
        let current = || runtime.block_on(file.authorization());
        let due = || file.known.lock().checked -= CHECK_INTERVAL;
        assert_eq!(current(), "Bearer one");
        fs::write(&path, "second").unwrap();
        due();
        assert_eq!(current(), "Bearer second");
        // While the token file is empty, the last token stays in use.
        fs::write(&path, "").unwrap();
        due();
        assert_eq!(current(), "Bearer second");
        assert!(file.known.lock().is_unreadable);
        fs::remove_file(&path).unwrap();
        due();
        assert_eq!(current(), "Bearer second");
        fs::write(&path, "third").unwrap();
        due();
        assert_eq!(current(), "Bearer third");
    }

    #[test]
    fn a_refused_token_is_read_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        fs::write(&path, "one").unwrap();
        let file = Arc::new(TokenFile::open(&path).unwrap());
        let runtime = Builder::new_multi_thread()
            .worker_threads(1)
            .build()
            .unwrap();
        let one = HeaderValue::from_static("Bearer one");
        let renewed = |refused: &HeaderValue| runtime.block_on(file.renewed(refused));
        assert_eq!(renewed(&one), None);
        fs::write(&path, "two").unwrap();
        let two = renewed(&one).unwrap();
        assert_eq!(two, "Bearer two");
        // The token `one` was refused, but another request has read the new token meanwhile.
        assert_eq!(renewed(&one), Some(two.clone()));
        assert_eq!(renewed(&two), None);
    }
}
