//! Opening of existing and missing databases, and damaged pages.

use std::sync::Arc;

use crate::common::{NUMBERS, ROWS, on, open, small};
use storage::disk::{Disk, MemDisk, OpenMode, SimDisk};
use storage::{OpenError, Options, StorageError, TxnError};

struct Directory(std::path::PathBuf);

impl Directory {
    fn new(name: &str) -> Directory {
        let path = std::env::temp_dir().join(format!("lockstep-opening-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        Directory(path)
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
        let _ = std::fs::remove_file(&self.0);
    }
}

fn files() -> Options {
    Options::new().buffer_pool(4 << 20).log_segment(1 << 20)
}

#[test]
fn a_missing_directory_is_created_or_missing() {
    let dir = Directory::new("missing");
    assert!(matches!(files().create(false).open(&dir.0), Err(OpenError::Missing { .. })));
    assert!(!dir.0.exists(), "looking creates nothing");
    let db = files().open(&dir.0).unwrap();
    db.transact(|tx| tx.put(&NUMBERS, &1, &2)).unwrap();
    let second = files().open(&dir.0).unwrap_err();
    assert!(matches!(&second, OpenError::InUse { .. }), "{second}");
    db.close().unwrap();
    let db = files().create(false).open(&dir.0).unwrap();
    assert_eq!(db.begin().unwrap().get(&NUMBERS, &1).unwrap(), Some(2));
}

#[test]
fn a_file_or_a_foreign_directory_is_no_database() {
    let dir = Directory::new("file");
    std::fs::write(&dir.0, "text").unwrap();
    for create in [true, false] {
        let error = files().create(create).open(&dir.0).unwrap_err();
        assert!(matches!(&error, OpenError::NotADatabase { .. }), "{error}");
    }
    assert_eq!(std::fs::read(&dir.0).unwrap(), b"text");
    let dir = Directory::new("foreign");
    std::fs::create_dir(&dir.0).unwrap();
    std::fs::write(dir.0.join("photo.jpg"), "x").unwrap();
    let error = files().open(&dir.0).unwrap_err();
    assert!(error.to_string().contains("photo.jpg"), "{error}");
    assert_eq!(std::fs::read_dir(&dir.0).unwrap().count(), 1, "nothing was put there");
}

#[test]
fn one_owner_at_a_time_in_memory_too() {
    let disk = Arc::new(MemDisk::new());
    let db = files().open_on(disk.clone()).unwrap();
    assert!(matches!(files().open_on(disk.clone()), Err(OpenError::InUse { .. })));
    drop(db);
    files().open_on(disk).unwrap();
}

#[test]
fn a_pool_too_small_is_refused() {
    let error = Options::new().buffer_pool(1000).open_on(Arc::new(MemDisk::new())).unwrap_err();
    assert!(matches!(error, OpenError::Setting { setting: "buffer_pool", .. }));
}

/// One copy of the control file may be damaged, but not both; another format is distinguished from damage.
#[test]
fn damage_to_the_control_file() {
    let disk = SimDisk::new(1);
    let db = open(&disk);
    db.transact(|tx| tx.put(&NUMBERS, &1, &2)).unwrap();
    db.checkpoint().unwrap();
    db.close().unwrap();
    for copy in 0..2 {
        let one = disk.crash(storage::disk::Crash::All);
        assert!(one.flip("control", copy * 4096 + 20, 3));
        // The older copy names an older checkpoint: the restart has more work, and its log may have been removed.
        match small().open_on(on(&one)) {
            Ok(db) => assert_eq!(db.begin().unwrap().get(&NUMBERS, &1).unwrap(), Some(2)),
            Err(error) => assert!(matches!(error, OpenError::Storage(StorageError::CorruptFile { .. })), "{error}"),
        }
    }
    let both = disk.crash(storage::disk::Crash::All);
    assert!(both.flip("control", 20, 3) && both.flip("control", 4096 + 20, 3));
    let error = small().open_on(on(&both)).unwrap_err();
    assert!(
        matches!(&error, OpenError::Storage(StorageError::CorruptFile { file, .. }) if file.ends_with("control")),
        "{error}"
    );
}

#[test]
fn a_damaged_page_is_named() {
    let disk = SimDisk::new(2);
    let db = open(&disk);
    db.transact(|tx| (0..500u16).try_for_each(|k| tx.put(&ROWS, k.to_be_bytes().as_ref(), &vec![9; 100]))).unwrap();
    db.close().unwrap();
    let file = disk.open("pages.0", OpenMode::Existing).unwrap();
    let pages = file.len().unwrap() / 8192;
    let mut named = 0;
    for page in 3..pages {
        let one = disk.crash(storage::disk::Crash::All);
        let mut byte = [0];
        one.open("pages.0", OpenMode::Existing).unwrap().read_at(&mut byte, page * 8192 + 4000).unwrap();
        one.flip("pages.0", page * 8192 + 4000, 1);
        let db = open(&one);
        let verified = db.verify_pages();
        let read = db.begin().unwrap().range(&ROWS, ..).unwrap().try_for_each(|r| r.map(drop));
        if let Err(error) = &read {
            match error {
                TxnError::Storage(StorageError::CorruptPage { file, page: found, .. }) => {
                    assert!(file.ends_with("pages.0"));
                    assert_eq!(u64::from(found.0), page);
                }
                other => panic!("{other}"),
            }
            assert!(verified.is_err(), "verify_pages found nothing wrong with page {page}");
            named += 1;
        }
        if let Err(error) = verified {
            assert!(
                matches!(error, StorageError::CorruptPage { page: found, .. } if u64::from(found.0) == page),
                "{error}"
            );
        }
    }
    assert!(named >= 5, "{named} of {pages}");
}
