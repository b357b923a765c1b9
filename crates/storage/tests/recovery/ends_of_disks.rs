//! Extreme names, offsets and lengths, on each kind of disk.

use std::io::{ErrorKind, IoSlice};
use std::path::PathBuf;

use storage::disk::{
    BLOCK, Call, Crash, Disk, Fault, FileDisk, MemDisk, OpenMode, SimDisk, When, read_exact_at, read_up_to_at,
    write_all_at, write_all_blocks_at, write_zeros_at,
};

struct Directory(PathBuf);

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Runs `test` on each kind of disk, empty, with a name for messages.
fn each(name: &str, test: impl Fn(&str, &dyn Disk)) {
    let path = std::env::temp_dir().join(format!("lockstep-ends-{name}-{}", std::process::id()));
    let directory = Directory(path);
    test("files", &FileDisk::create(&directory.0).unwrap());
    test("memory", &MemDisk::new());
    test("simulated", &SimDisk::new(1));
}

#[test]
fn a_name_leads_out_of_no_directory() {
    each("names", |disk_name, disk| {
        for name in ["", ".", "..", "/", "a/b", "../escaped", "/tmp/lockstep-escaped", "a/", "zero\0byte"] {
            for mode in [OpenMode::Existing, OpenMode::Create, OpenMode::CreateNew] {
                let refused = disk.open(name, mode).unwrap_err();
                assert_eq!(refused.kind(), ErrorKind::InvalidInput, "{disk_name}, {name:?}, {mode:?}");
            }
            assert!(disk.remove(name).is_err(), "{disk_name}, {name:?}");
            disk.open("a", OpenMode::Create).unwrap();
            assert_eq!(disk.rename("a", name).unwrap_err().kind(), ErrorKind::InvalidInput, "{disk_name}, {name:?}");
            assert!(disk.rename(name, "b").is_err(), "{disk_name}, {name:?}");
        }
        assert_eq!(disk.list().unwrap(), ["a"], "{disk_name}");
        let long = "n".repeat(255);
        write_all_at(&*disk.open(&long, OpenMode::CreateNew).unwrap(), b"x", 0).unwrap();
        assert_eq!(disk.open(&long, OpenMode::CreateNew).unwrap_err().kind(), ErrorKind::AlreadyExists, "{disk_name}");
    });
}

#[test]
fn offsets_and_lengths_have_their_ends() {
    const FAR: [u64; 4] = [u64::MAX, u64::MAX - 1, u64::MAX / 2, i64::MAX as u64];
    each("offsets", |name, disk| {
        let file = disk.open("f", OpenMode::CreateNew).unwrap();
        write_all_at(&*file, b"abc", 0).unwrap();
        assert_eq!(file.read_at(&mut [], 0).unwrap(), 0);
        assert_eq!(file.write_at(&[], 0).unwrap(), 0);
        for off in [3, 4, 1 << 40] {
            assert_eq!(read_up_to_at(&*file, &mut [0; 8], off).unwrap(), 0, "{name}, {off}");
            assert!(read_exact_at(&*file, &mut [0; 8], off).is_err(), "{name}, {off}");
            read_exact_at(&*file, &mut [], off).unwrap();
        }
        for off in FAR {
            // The file ends before the offset, or the system refuses the offset.
            assert!(matches!(file.read_at(&mut [0; 8], off), Ok(0) | Err(_)), "{name}, {off}");
            assert!(file.write_at(&[1; 8], off).is_err(), "{name}, {off}");
            assert!(write_all_at(&*file, &[1; 8], off).is_err(), "{name}, {off}");
            assert!(file.allocate(off, u64::MAX).is_err(), "{name}, {off}");
            assert!(write_zeros_at(&*file, off, u64::MAX).is_err(), "{name}, {off}");
            assert!(write_all_blocks_at(&*file, &mut [IoSlice::new(&[1; BLOCK])], off).is_err(), "{name}, {off}");
        }
        write_zeros_at(&*file, 1, 0).unwrap();
        write_all_blocks_at(&*file, &mut [], 0).unwrap();
        let mut all = [0; 3];
        read_exact_at(&*file, &mut all, 0).unwrap();
        assert_eq!((&all, file.len().unwrap()), (b"abc", 3), "{name}");
        for len in [1, 1 << 30] {
            file.set_len(len).unwrap();
            assert_eq!(file.len().unwrap(), len, "{name}");
        }
        // Space beyond the end reads as zeros, and truncated bytes are gone.
        let mut all = [7; 3];
        read_exact_at(&*file, &mut all, 0).unwrap();
        assert_eq!(&all, b"a\0\0", "{name}");
        read_exact_at(&*file, &mut all, (1 << 30) - 3).unwrap();
        assert_eq!(all, [0; 3], "{name}");
    });
}

/// Lengths that do not fit memory are refused, and the disk stays usable.
#[test]
fn a_length_that_no_memory_holds_is_refused() {
    let memory = MemDisk::new();
    let file = memory.open("f", OpenMode::CreateNew).unwrap();
    write_all_at(&*file, b"abc", 0).unwrap();
    for len in [u64::MAX, u64::MAX / 2] {
        assert_eq!(file.set_len(len).unwrap_err().kind(), ErrorKind::StorageFull);
        assert_eq!(file.allocate(0, len).unwrap_err().kind(), ErrorKind::StorageFull);
        assert_eq!(file.write_at(b"x", len - 1).unwrap_err().kind(), ErrorKind::StorageFull);
        assert_eq!(file.len().unwrap(), 3);
    }
    let simulated = SimDisk::new(1);
    let (one, two) = (simulated.open("1", OpenMode::Create).unwrap(), simulated.open("2", OpenMode::Create).unwrap());
    assert!(one.set_len(u64::MAX).is_err());
    for file in [&one, &two, &simulated.open("3", OpenMode::Create).unwrap()] {
        file.set_len(i64::MAX as u64).unwrap();
    }
    assert_eq!(simulated.used(), u64::MAX);
    simulated.set_capacity(u64::MAX - 1);
    assert_eq!(simulated.open("4", OpenMode::Create).unwrap().set_len(1).unwrap_err().kind(), ErrorKind::StorageFull);
    one.set_len(0).unwrap();
    simulated.crash(Crash::Random(7)).open("1", OpenMode::Create).unwrap();
}

#[test]
fn faults_of_a_simulated_disk_have_their_ends() {
    let disk = SimDisk::new(1);
    let file = disk.open("f", OpenMode::CreateNew).unwrap();
    // Both 0 and 1 mean the next call.
    for n in [0, 1] {
        disk.plan(Some(Call::Write), When::Once(n), Fault::Eio);
        assert!(file.write_at(b"x", 0).is_err());
        file.write_at(b"x", 0).unwrap();
    }
    disk.plan(None, When::Once(u64::MAX), Fault::Eio);
    disk.plan(None, When::From(u64::MAX), Fault::Eio);
    file.sync().unwrap();
    assert_eq!(disk.planned(), 2);
    disk.heal();
    disk.plan(Some(Call::Write), When::Once(1), Fault::Misdirect(u64::MAX));
    assert!(file.write_at(b"x", 0).is_err());
    for (off, bit, hits) in [(0, 0, true), (0, 255, true), (1, 0, false), (u64::MAX, 0, false)] {
        assert_eq!(disk.flip("f", off, bit), hits, "{off}");
        assert_eq!(disk.poke("f", off, bit), hits, "{off}");
    }
    assert!(!disk.flip("none", 0, 0));
    disk.set_capacity(0);
    assert_eq!(file.set_len(2).unwrap_err().kind(), ErrorKind::StorageFull);
    disk.power_off_after(u64::MAX);
    assert!(!disk.is_off());
    disk.power_off_after(0);
    assert!(disk.is_off() && file.sync().is_err());
}
