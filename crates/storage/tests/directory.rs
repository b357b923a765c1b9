//! The directory of a database: it stays the directory that was opened, even if the path later leads to another one; it
//! has one owner; and other files in it are never changed.

#![allow(clippy::unwrap_used, reason = "tests")]

mod common;

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{FileTypeExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use common::NUMBERS;
use storage::{Background, Database, DatabaseFiles, OpenError, Options};

struct Directory(PathBuf);

impl Directory {
    fn new(name: &str) -> Directory {
        let path = std::env::temp_dir().join(format!("lockstep-directory-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir(&path).unwrap();
        Directory(path)
    }

    fn join(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn options() -> Options {
    Options::new().buffer_pool(1 << 20).log_segment(64 << 10).checkpoint_every(256 << 10)
}

fn put(db: &Database, rows: std::ops::Range<u64>) {
    for row in rows {
        db.transact(|tx| tx.put(&NUMBERS, &row, &(row + 7))).unwrap();
    }
}

fn numbers(dir: &Path) -> Vec<(u64, u64)> {
    let db = options().create(false).open(dir).unwrap();
    let rows = db.begin().unwrap().range(&NUMBERS, ..).unwrap().map(Result::unwrap).collect();
    db.close().unwrap();
    rows
}

/// Returns the name and content of every regular file of a directory.
fn files(dir: &Path) -> BTreeMap<String, Vec<u8>> {
    let entries = fs::read_dir(dir).unwrap().map(Result::unwrap);
    let regular = entries.filter(|entry| entry.file_type().unwrap().is_file());
    regular.map(|e| (e.file_name().into_string().unwrap(), fs::read(e.path()).unwrap())).collect()
}

/// Runs the ignored test `name` of this file in a separate process, in `dir`.
fn in_a_process(name: &str, dir: &Path) {
    let mut child = Command::new(std::env::current_exe().unwrap());
    let output = child.args([name, "--exact", "--ignored", "--nocapture"]).current_dir(dir).output().unwrap();
    assert!(
        output.status.success(),
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
}

/// A program that opens `bank` by a relative path and then changes its working directory still writes to the same
/// database, not to another one of the same name.
#[test]
fn a_relative_path_means_what_it_meant_when_it_was_opened() {
    let dir = Directory::new("chdir");
    for place in ["first", "second"] {
        fs::create_dir(dir.join(place)).unwrap();
    }
    let other = options().open(dir.join("second/bank")).unwrap();
    put(&other, 0..3);
    other.close().unwrap();
    let before = files(&dir.join("second/bank"));
    in_a_process("child_that_changes_its_directory", &dir.join("first"));
    assert_eq!(files(&dir.join("second/bank")), before, "the other database is as it was");
    assert_eq!(numbers(&dir.join("first/bank")).len(), 5_000, "everything that was acknowledged is there");
}

#[test]
#[ignore = "started by another test"]
fn child_that_changes_its_directory() {
    let db = options().background(Background::Inline).open("bank").unwrap();
    put(&db, 0..1);
    std::env::set_current_dir("../second").unwrap();
    // Segments are created and recycled, and checkpoints are taken.
    for row in 1..5_000 {
        put(&db, row..row + 1);
        db.step().unwrap();
    }
    // The process ends as if killed: the next open recovers.
    std::process::exit(0);
}

/// If any file of a database is a symbolic link, the database is refused and the link's target is unchanged.
#[test]
fn links_are_refused_and_what_they_lead_to_stays() {
    let dir = Directory::new("links");
    let (away, links) = (dir.join("away"), dir.join("links"));
    let db = options().open(&away).unwrap();
    put(&db, 0..2_000);
    db.close().unwrap();
    let before = files(&away);
    let names: Vec<&String> = before.keys().collect();
    let mut cases: Vec<Vec<&str>> = names.iter().map(|name| vec![name.as_str()]).collect();
    cases.push(names.iter().map(|name| name.as_str()).filter(|name| *name != "lock").collect());
    assert!(cases.len() >= 5, "{names:?}");
    for linked in &cases {
        for create in [true, false] {
            let _ = fs::remove_dir_all(&links);
            fs::create_dir(&links).unwrap();
            for name in &names {
                if linked.contains(&name.as_str()) {
                    symlink(away.join(name), links.join(name)).unwrap();
                } else {
                    fs::copy(away.join(name), links.join(name)).unwrap();
                }
            }
            let error = options().create(create).open(&links).unwrap_err().to_string();
            assert!(error.contains("symbolic link") && error.contains(linked[0]), "{linked:?}: {error}");
            assert_eq!(files(&away), before, "{linked:?}");
            for name in linked {
                assert!(links.join(name).is_symlink(), "{name}");
            }
        }
    }
    assert_eq!(numbers(&away).len(), 2_000);
    // A link to the directory is only another name for it.
    symlink(&away, dir.join("alias")).unwrap();
    assert_eq!(numbers(&dir.join("alias")).len(), 2_000);
}

/// After a power loss a file may be longer than its written bytes, or have old disk content: unsynced bytes are
/// undefined. A `lock` file of any such content does not prevent the database from opening.
#[test]
fn a_lock_file_of_any_content_keeps_no_database_closed() {
    let dir = Directory::new("lock-content");
    let bank = dir.join("bank");
    let db = options().open(&bank).unwrap();
    put(&db, 0..100);
    db.close().unwrap();
    let zeros = [0; 4096];
    for content in [&b""[..], b"\n", b"\0\0\0\0\0", b"12\0\0\0", &zeros[..20], &zeros, b"years of work", &[0xFF; 30]] {
        fs::write(bank.join("lock"), content).unwrap();
        assert_eq!(numbers(&bank).len(), 100, "{content:?}");
        let claimed = DatabaseFiles::claim(&bank).unwrap().unwrap();
        assert!(matches!(options().open(&bank), Err(OpenError::InUse { .. })), "{content:?}");
        drop(claimed);
        let left = fs::read(bank.join("lock")).unwrap();
        let is_number = left.trim_ascii().iter().all(u8::is_ascii_digit) && !left.trim_ascii().is_empty();
        assert!(is_number || left == content, "the number of a process, or what it was: {left:?}");
    }
    // A lone `lock` file belongs to another program, unless its content is that of an unwritten file.
    let alone = dir.join("alone");
    fs::create_dir(&alone).unwrap();
    fs::write(alone.join("lock"), "years of work").unwrap();
    let told = options().open(&alone).unwrap_err().to_string();
    assert!(told.contains("not the lock file") && told.contains("choose another directory"), "{told}");
    assert_eq!(files(&alone).len(), 1);
    fs::write(alone.join("lock"), &zeros[..5]).unwrap();
    options().open(&alone).unwrap().close().unwrap();
}

/// Creating a database does not overwrite an existing file with one of its names.
#[test]
fn nothing_is_made_over_what_exists() {
    let dir = Directory::new("over");
    let precious = dir.join("precious");
    fs::write(&precious, "years of work").unwrap();
    for name in ["control", "control.new", "pages.0", "log.0", "log.17", "lock"] {
        for kind in ["file", "link", "dangling link", "directory", "fifo", "hard link"] {
            let place = dir.join("place");
            let _ = fs::remove_dir_all(&place);
            fs::create_dir(&place).unwrap();
            let path = place.join(name);
            match kind {
                "file" => fs::write(&path, "years of work").unwrap(),
                "link" => symlink(&precious, &path).unwrap(),
                "dangling link" => symlink(dir.join("nothing"), &path).unwrap(),
                "directory" => fs::create_dir(&path).unwrap(),
                "fifo" => assert!(Command::new("mkfifo").arg(&path).status().unwrap().success()),
                _ => fs::hard_link(&precious, &path).unwrap(),
            }
            let error = options().open(&place).unwrap_err().to_string();
            assert!(error.contains(name), "{name}, a {kind}: {error}");
            let kept = fs::symlink_metadata(&path).unwrap().file_type();
            match kind {
                "file" | "hard link" => assert_eq!(fs::read(&path).unwrap(), b"years of work", "{name}, a {kind}"),
                "link" | "dangling link" => assert!(kept.is_symlink(), "{name}, a {kind}"),
                "directory" => assert!(kept.is_dir(), "{name}"),
                _ => assert!(kept.is_fifo(), "{name}"),
            }
            assert_eq!(fs::read(&precious).unwrap(), b"years of work", "{name}, a {kind}");
            assert!(!dir.join("nothing").exists());
        }
    }
}

/// A file with the name of a log segment but other content is neither recycled nor removed.
#[test]
fn a_file_called_like_a_segment_stays() {
    let dir = Directory::new("segment");
    let bank = dir.join("bank");
    let db = options().background(Background::Inline).open(&bank).unwrap();
    for row in 0..3_000 {
        put(&db, row..row + 1);
        db.step().unwrap();
    }
    db.close().unwrap();
    assert!(!bank.join("log.0").exists(), "the first segments were given up");
    fs::write(bank.join("log.0"), "years of work").unwrap();
    assert_eq!(numbers(&bank).len(), 3_000);
    assert_eq!(fs::read(bank.join("log.0")).unwrap(), b"years of work");
    fs::write(bank.join("log.4000000"), "years of work").unwrap();
    let error = options().open(&bank).unwrap_err().to_string();
    assert!(error.contains("log.4000000") && error.contains("move it away"), "{error}");
    fs::remove_file(bank.join("log.4000000")).unwrap();
    assert_eq!(numbers(&bank).len(), 3_000);
}

/// Deletion removes exactly the database's own files, and only if no process has it open.
#[test]
fn deleting_takes_only_what_is_the_databases() {
    let dir = Directory::new("delete");
    let bank = dir.join("bank");
    assert!(DatabaseFiles::claim(&bank).unwrap().is_none() && !bank.exists());
    fs::create_dir(&bank).unwrap();
    fs::write(bank.join("notes.txt"), "mine").unwrap();
    assert!(DatabaseFiles::claim(&bank).unwrap().is_none());
    assert_eq!(files(&bank).len(), 1, "looking puts nothing there");
    fs::remove_file(bank.join("notes.txt")).unwrap();
    let db = options().open(&bank).unwrap();
    put(&db, 0..100);
    assert!(matches!(DatabaseFiles::claim(&bank), Err(OpenError::InUse { .. })));
    db.close().unwrap();
    let own: u64 = files(&bank).iter().filter(|(name, _)| *name != "lock").map(|(_, bytes)| bytes.len() as u64).sum();
    let foreign = ["log.txt", "pages.doc", "log.01", "control.old", "log.777", "n\u{f6}tes"];
    for name in foreign {
        fs::write(bank.join(name), "years of work").unwrap();
    }
    fs::create_dir(bank.join("lost+found")).unwrap();
    let claimed = DatabaseFiles::claim(&bank).unwrap().unwrap();
    assert_eq!(claimed.bytes(), own);
    let mut told = claimed.foreign().to_vec();
    told.sort_unstable();
    assert_eq!(told, ["control.old", "log.01", "log.777", "log.txt", "n\u{f6}tes", "pages.doc"]);
    assert!(matches!(options().open(&bank), Err(OpenError::InUse { .. })), "it cannot be opened while it is deleted");
    claimed.delete().unwrap();
    let mut left = files(&bank);
    left.remove("lock");
    assert_eq!(left.len(), foreign.len());
    assert!(left.values().all(|bytes| bytes == b"years of work") && bank.join("lost+found").is_dir());
    assert!(DatabaseFiles::claim(&bank).unwrap().is_some_and(|rest| rest.bytes() == 0));
    // The files of an unfinished copy also belong to a database.
    let copy = dir.join("copy");
    fs::create_dir(&copy).unwrap();
    fs::write(copy.join("copying"), "").unwrap();
    fs::write(copy.join("pages.0"), [0; 8192]).unwrap();
    DatabaseFiles::claim(&copy).unwrap().unwrap().delete().unwrap();
    assert!(!copy.join("copying").exists() && !copy.join("pages.0").exists());
}

/// Files whose names only resemble those of a database do not belong to it.
#[test]
fn names_that_are_not_quite_ours_are_foreign() {
    for name in ["log.txt", "log.", "log.01", "pages.doc", "pages.1", "control.old", "LOCK", "n\u{f6}tes"] {
        let dir = Directory::new("foreign");
        fs::write(dir.join(name), "mine").unwrap();
        let error = options().open(&dir.0).unwrap_err();
        assert!(matches!(&error, OpenError::NotADatabase { .. }) && error.to_string().contains(name), "{error}");
        assert_eq!(files(&dir.0).len(), 1, "nothing was put there");
        assert_eq!(fs::read(dir.join(name)).unwrap(), b"mine");
    }
}

/// The lock is on the directory: removing or replacing the file `lock` does not admit another process.
#[test]
fn a_lock_file_that_is_removed_lets_no_second_owner_in() {
    let dir = Directory::new("lock");
    let bank = dir.join("bank");
    let db = options().open(&bank).unwrap();
    put(&db, 0..1);
    for replace in [false, true] {
        fs::remove_file(bank.join("lock")).unwrap();
        if replace {
            fs::write(bank.join("lock"), "").unwrap();
        }
        let error = options().open(&bank).unwrap_err();
        assert!(matches!(error, OpenError::InUse { .. }), "{error}");
        fs::write(bank.join("lock"), "").unwrap();
    }
    in_a_process("child_that_is_a_second_owner", &bank);
    put(&db, 1..2);
    db.close().unwrap();
    assert_eq!(numbers(&bank), [(0, 7), (1, 8)]);
}

#[test]
#[ignore = "started by another test"]
fn child_that_is_a_second_owner() {
    assert!(matches!(options().open("."), Err(OpenError::InUse { .. })));
}

/// A directory that is renamed while it is open stays the directory of the database.
#[test]
fn a_directory_may_be_renamed_while_it_is_open() {
    let dir = Directory::new("renamed");
    let db = options().background(Background::Inline).open(dir.join("old")).unwrap();
    put(&db, 0..1);
    fs::rename(dir.join("old"), dir.join("new")).unwrap();
    for row in 1..2_000 {
        put(&db, row..row + 1);
        db.step().unwrap();
    }
    db.close().unwrap();
    assert!(!dir.join("old").exists());
    assert_eq!(numbers(&dir.join("new")).len(), 2_000);
}
