//! Configures the allocators, and returns free memory to the kernel.
//!
//! jemalloc is the allocator of the program (`main.rs`): it keeps freed memory for a second before it returns it.
//! Codecs in C use the allocator of the C library. By default glibc adapts to large chunks and keeps tens of MiB in
//! each arena, which no budget counts; `configure` prevents that. Pages of the program that only its start needs are
//! released as well. `zarr_format::buffer` pools buffers on top of this.

#![expect(unsafe_code, reason = "advice about memory takes addresses")]

use std::fs;
use std::ops::Range;
use std::ptr;

/// C libraries return a block of at least this size to the kernel when they free it. Smaller blocks are returned once
/// this many bytes are free. c-blosc allocates 2 MiB per chunk: if these blocks were returned each time, all their
/// pages would fault again for every chunk.
#[cfg(target_env = "gnu")]
const MMAP_THRESHOLD: libc::c_int = 4 << 20;

/// Makes glibc return freed memory to the kernel, as other C libraries do by default. Must be called once, before
/// threads start.
pub fn configure() {
    #[cfg(target_env = "gnu")]
    for (setting, value) in [
        (libc::M_MMAP_THRESHOLD, MMAP_THRESHOLD),
        (libc::M_TRIM_THRESHOLD, MMAP_THRESHOLD),
        // At most two arenas: each of them may keep as much free memory as it has ever used.
        (libc::M_ARENA_MAX, 2),
    ] {
        // SAFETY: mallopt takes two numbers, touches no memory of ours, and locks its own state.
        let done = unsafe { libc::mallopt(setting, value) };
        debug_assert_eq!(done, 1, "glibc has these settings");
    }
}

/// Returns all freed memory to the kernel at once, including that of C libraries.
pub fn trim() {
    // Purges all arenas (jemalloc(3), `arena.<i>.purge` with `MALLCTL_ARENAS_ALL`).
    let purge = c"arena.4096.purge";
    // SAFETY: without an old and a new value, the call reads the name alone, and locks the state of the allocator.
    let purged = unsafe {
        let none = ptr::null_mut();
        tikv_jemalloc_sys::mallctl(purge.as_ptr(), none, ptr::null_mut(), none, 0)
    };
    debug_assert_eq!(purged, 0, "jemalloc knows this name");
    #[cfg(target_env = "gnu")]
    // SAFETY: malloc_trim takes a number, and locks the state of the allocator.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// Drops the pages of the program's own executable from memory: the start touches most of them, an idle mount needs
/// few. Pages that are needed again come from the page cache.
pub fn release_program() {
    let (Ok(path), Ok(mappings)) = (
        fs::read_link("/proc/self/exe"),
        fs::read_to_string("/proc/self/smaps"),
    ) else {
        return;
    };
    for range in unchanged_ranges(&mappings, &path.to_string_lossy()) {
        let start = ptr::without_provenance_mut(range.start);
        // SAFETY: the range maps the file of the program itself, which lasts as long as the process. It cannot be
        // written to, and no page of it was changed before, so each page has the same content when it is read again.
        unsafe { libc::madvise(start, range.len(), libc::MADV_DONTNEED) };
    }
}

/// Returns the address ranges that map the file `path` read-only and have no private pages, such as relocated ones.
/// `mappings` is the text of /proc/self/smaps.
fn unchanged_ranges<'a>(
    mappings: &'a str,
    path: &'a str,
) -> impl Iterator<Item = Range<usize>> + 'a {
    let mut current = None;
    mappings.lines().filter_map(move |line| {
        if let Some(size) = line.strip_prefix("Anonymous:") {
            return current.take().filter(|_| size.trim() == "0 kB");
        }
        current = read_only_range(line, path).or(current.take());
        None
    })
}

/// Returns the address range of a mapping from its first line in smaps, or `None` if it does not map the file `path`
/// read-only.
fn read_only_range(line: &str, path: &str) -> Option<Range<usize>> {
    let mut words = line.strip_suffix(path)?.split_ascii_whitespace();
    let (start, end) = words.next()?.split_once('-')?;
    let is_read_only = matches!(words.next()?, "r--p" | "r-xp");
    // Offset, device and inode must be left. If there are more words, `path` is only the end of a longer path.
    if !is_read_only || words.count() != 3 {
        return None;
    }
    let address = |digits| usize::from_str_radix(digits, 16).ok();
    Some(address(start)?..address(end)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_unchanged_pages_of_the_program_are_found() {
        let mappings = "\
1000-2000 r--p 00000000 fe:00 10                     /usr/bin/zarrfs
Size:                  4 kB
Anonymous:             0 kB
VmFlags: rd mr mw me sd
2000-5000 r-xp 00001000 fe:00 10                     /usr/bin/zarrfs
Anonymous:             0 kB
5000-6000 r--p 00004000 fe:00 10                     /usr/bin/zarrfs
Anonymous:             4 kB
6000-7000 rw-p 00005000 fe:00 10                     /usr/bin/zarrfs
Anonymous:             0 kB
7000-8000 r-xp 00000000 fe:00 11                     /x /usr/bin/zarrfs
Anonymous:             0 kB
8000-9000 r-xp 00000000 fe:00 12                     /usr/lib/libc.so.6
Anonymous:             0 kB
9000-a000 r--p 00000000 00:00 0
Anonymous:             0 kB
";
        let ranges: Vec<_> = unchanged_ranges(mappings, "/usr/bin/zarrfs").collect();
        assert_eq!(ranges, [0x1000..0x2000, 0x2000..0x5000]);
    }

    #[test]
    fn a_program_goes_on_after_its_pages_were_released() {
        release_program();
        assert!(std::panic::catch_unwind(|| panic!("on purpose")).is_err());
        assert_eq!(format!("{:?}", Some(1.5)), "Some(1.5)");
    }
}
