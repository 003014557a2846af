//! Finds and closes descriptors inherited from the caller, except the standard streams.
//!
//! A daemon that kept them would hold a script's locks, and pipes whose reader waits for their end.

use std::fs;
use std::os::fd::{BorrowedFd, RawFd};

use rustix::io::{FdFlags, fcntl_getfd};

/// The kernel's list of this process's descriptors.
const OWN: &str = "/proc/self/fd";

/// Descriptors that this process has not opened itself.
pub(super) struct InheritedDescriptors(Vec<RawFd>);

impl InheritedDescriptors {
    /// Finds them: descriptors without close-on-exec, which this process sets on all of its own. Must be called before
    /// threads are started.
    pub(super) fn find() -> InheritedDescriptors {
        let entries = fs::read_dir(OWN).into_iter().flatten().flatten();
        let numbers = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        let numbers: Vec<RawFd> = numbers.filter(|&number| number > 2).collect();
        InheritedDescriptors(numbers.into_iter().filter(is_passed_on).collect())
    }

    /// Closes them. Files opened by their names, such as `/dev/fd/9`, stay open.
    #[expect(
        unsafe_code,
        reason = "descriptors that nothing here owns have numbers alone"
    )]
    pub(super) fn close(self) {
        for number in self.0 {
            // SAFETY: it was open before this process opened anything and has no owner here, so that no other code has
            // closed it, and its number is not reused for another file.
            unsafe { rustix::io::close(number) };
        }
    }
}

/// Whether a descriptor is open and inherited by child processes.
#[expect(
    unsafe_code,
    reason = "descriptors that nothing here owns have numbers alone"
)]
fn is_passed_on(number: &RawFd) -> bool {
    // SAFETY: the number is only queried, and a closed one is an error.
    let descriptor = unsafe { BorrowedFd::borrow_raw(*number) };
    fcntl_getfd(descriptor).is_ok_and(|flags| !flags.contains(FdFlags::CLOEXEC))
}
