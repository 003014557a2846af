//! The upper folder itself: one owner, one store, and damage.
//!
//! A damaged upper folder is refused, or has exactly its state after an earlier change.

use std::fs;

use zarr_format::error::Kind;
use zarrfs_overlay::{Overlay, OverlayConfig};
use zarrfs_store::backend::memory::MemoryStore;
use zarrfs_store::{Key, Store};

use crate::overlay::fixture::{Fixture, Lower, NAME, opened, shown};
use crate::overlay::reference::Tree;
use crate::overlay::steps::Step;
use zarrfs_store::request_context::UNLIMITED;

const CONFIG: OverlayConfig = OverlayConfig {
    uid: 0,
    gid: 0,
    write_through: false,
};

#[test]
fn an_upper_folder_has_one_owner_and_one_store() {
    let mut fixture = Fixture::new(Lower::Memory, &[("a", b"1")]);
    fixture.write("a", b"2");
    let open = |name: &str| Overlay::open(&fixture.upper(), fixture.lower.clone(), name, CONFIG);
    assert_eq!(open(NAME).err().unwrap().kind(), Kind::Exists);
    fixture.close();
    let open = |name: &str| opened(&fixture.upper(), &fixture.lower, name);
    let other = open("/another/store").err().unwrap();
    assert_eq!(other.kind(), Kind::Invalid);
    assert!(other.to_string().contains(NAME), "{other}");
    open(NAME).unwrap();
    fs::write(fixture.upper().join("zarrfs.json"), "{\"zarrfs\": 3}").unwrap();
    assert_eq!(open(NAME).err().unwrap().kind(), Kind::Unsupported);
}

/// Invariant (mount): An upper folder in another format is refused and not changed.
///
/// The folder is as zarrfs 0.1 leaves it after a write, a removal and a hard link.
#[test]
fn an_upper_folder_of_zarrfs_0_1_is_refused_and_unchanged() {
    let folder = tempfile::tempdir().unwrap();
    let upper = folder.path().join("upper");
    fs::create_dir_all(upper.join("keys")).unwrap();
    fs::create_dir(upper.join("pending")).unwrap();
    let identity = "{\n  \"zarrfs\": 1,\n  \"store\": \"/memory\"\n}\n";
    fs::write(upper.join("zarrfs.json"), identity).unwrap();
    let journal = concat!(
        r#"ee06f85d [{"held":"a","version":"88390883530ffb17","same":false}]"#,
        "\n",
        r#"af11c314 [{"held":"b","version":"8e020fef6015c0cc","same":false},{"white":"b","of":null}]"#,
        "\n",
        r#"d0c76672 [{"held":"c","version":null,"same":false}]"#,
        "\n"
    );
    fs::write(upper.join("journal"), journal).unwrap();
    fs::write(upper.join("keys/a"), "new").unwrap();
    fs::hard_link(upper.join("keys/a"), upper.join("keys/c")).unwrap();
    let store: std::sync::Arc<dyn Store> = std::sync::Arc::new(MemoryStore::default());
    let refused = Overlay::open(&upper, store, "/memory", CONFIG).err();
    let refused = refused.unwrap();
    assert_eq!(refused.kind(), Kind::Unsupported);
    let expected = format!(
        "{}: the changes were written by zarrfs 0.1: commit or discard with that version",
        upper.display()
    );
    assert_eq!(refused.to_string(), expected);
    assert_eq!(fs::read_to_string(upper.join("journal")).unwrap(), journal);
    assert_eq!(
        fs::read_to_string(upper.join("zarrfs.json")).unwrap(),
        identity
    );
    for name in ["a", "c"] {
        assert_eq!(fs::read(upper.join("keys").join(name)).unwrap(), b"new");
    }
}

fn copied(from: &std::path::Path, to: &std::path::Path) {
    let mut command = std::process::Command::new("cp");
    let done = command.arg("-a").arg(from).arg(to).status().unwrap();
    assert!(done.success());
}

/// Truncates the journal at each offset and changes each of its bytes, as damage would.
#[test]
fn a_damaged_journal_is_refused_or_shows_an_earlier_state() {
    let mut fixture = Fixture::new(Lower::Memory, &[("a/x", b"1"), ("b", b"2"), ("c", b"3")]);
    let path = |text: &str| text.to_string();
    fixture.take(&Step::Unlink(path("b"))).unwrap();
    fixture.take(&Step::Rename(path("a"), path("d"))).unwrap();
    fixture.take(&Step::Unlink(path("c"))).unwrap();
    fixture.close();
    let (upper, copy) = (fixture.upper(), fixture.folder.path().join("copy"));
    let journal = fs::read(upper.join("journal")).unwrap();
    // The tree that the overlay had after each line of the journal.
    let ends = (0..=journal.len()).filter(|&end| end == 0 || journal[end - 1] == b'\n');
    let mut earlier: Vec<Tree> = Vec::new();
    let look = |bytes: &[u8]| -> Option<Tree> {
        let _ = fs::remove_dir_all(&copy);
        copied(&upper, &copy);
        fs::write(copy.join("journal"), bytes).unwrap();
        let overlay = opened(&copy, &fixture.lower, NAME);
        match overlay {
            Ok(overlay) => Some(shown(&overlay, true)),
            Err(error) => {
                assert_eq!(error.kind(), Kind::Corrupt, "{error}");
                None
            }
        }
    };
    for end in ends {
        earlier.push(look(&journal[..end]).unwrap());
    }
    for at in (0..journal.len()).step_by(3) {
        let cut = look(&journal[..at]).expect("a line that was cut did not happen");
        assert!(earlier.contains(&cut), "cut at {at}");
        let mut bytes = journal.clone();
        bytes[at] ^= 1;
        if let Some(found) = look(&bytes) {
            assert!(earlier.contains(&found), "byte {at}");
        }
    }
    assert_eq!(
        fixture
            .lower
            .list(&UNLIMITED, &Key::root())
            .unwrap()
            .next(&UNLIMITED)
            .unwrap()
            .unwrap()
            .name,
        b"a"
    );
}

/// A program replaces a file repeatedly for a long time. The journal must not grow without limit.
#[test]
fn a_journal_is_compacted_while_the_overlay_is_open() {
    const LARGEST: u64 = (1 << 20) + (64 << 10);
    let mut fixture = Fixture::new(Lower::Memory, &[("a", b"old")]);
    let journal = fixture.upper().join("journal");
    let replace = Step::Rename("arriving".to_string(), "a".to_string());
    let (mut longest, mut last) = (0, 0);
    for number in 0_u32.. {
        fixture.write("arriving", &number.to_le_bytes());
        fixture.take(&replace).unwrap();
        last = number;
        let length = fs::metadata(&journal).unwrap().len();
        assert!(length < LARGEST, "{length} bytes after {number} files");
        if length < longest {
            break;
        }
        longest = length;
    }
    let kept = fixture.shown();
    fixture.remount();
    assert_eq!(fixture.shown(), kept);
    let found = fixture
        .overlay()
        .get(&UNLIMITED, &Key::new("a").unwrap(), 16)
        .unwrap();
    assert_eq!(found.unwrap().bytes, last.to_le_bytes());
}
