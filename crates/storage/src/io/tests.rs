//! Tests of the guarantees of every disk, and of the additional behaviour of the simulated disk.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

fn temp_dir(name: &str) -> std::path::PathBuf {
    use std::sync::atomic::{AtomicU32, Ordering};
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let n = NEXT.fetch_add(1, Ordering::Relaxed);
    std::env::temp_dir().join(format!("storage-io-{}-{name}-{n}", std::process::id()))
}

fn remove_dir(path: &std::path::Path) {
    std::fs::remove_dir_all(path).unwrap();
}

#[derive(Clone, Debug)]
enum Op {
    Write { name: u8, off: u64, len: usize, byte: u8 },
    Read { name: u8, off: u64, len: usize },
    SetLen { name: u8, len: u64 },
    Allocate { name: u8, off: u64, len: u64 },
    Sync { name: u8 },
    Remove { name: u8 },
    Rename { from: u8, to: u8 },
    SyncDir,
    CreateNew { name: u8 },
    Existing { name: u8 },
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let n = 0..3_u8;
    let off = prop_oneof![0..3000_u64, 260_000..270_000_u64];
    let op = prop_oneof![
        4 => (n.clone(), off.clone(), 0..3000_usize, any::<u8>())
            .prop_map(|(name, off, len, byte)| Op::Write { name, off, len, byte }),
        4 => (n.clone(), off.clone(), 0..5000_usize).prop_map(|(name, off, len)| Op::Read { name, off, len }),
        1 => (n.clone(), off.clone()).prop_map(|(name, len)| Op::SetLen { name, len }),
        1 => (n.clone(), off, 1..3000_u64).prop_map(|(name, off, len)| Op::Allocate { name, off, len }),
        1 => n.clone().prop_map(|name| Op::Sync { name }),
        1 => n.clone().prop_map(|name| Op::Remove { name }),
        1 => (n.clone(), n.clone()).prop_map(|(from, to)| Op::Rename { from, to }),
        1 => Just(Op::SyncDir),
        1 => n.clone().prop_map(|name| Op::CreateNew { name }),
        1 => n.prop_map(|name| Op::Existing { name }),
    ];
    proptest::collection::vec(op, 1..60)
}

type Model = BTreeMap<String, Vec<u8>>;

fn file_name(n: u8) -> String {
    format!("f.{n}")
}

fn run(disk: &dyn Disk, ops: &[Op]) -> Model {
    let mut model = Model::new();
    for op in ops {
        let open = |name: u8| disk.open(&file_name(name), OpenMode::Create).unwrap();
        match *op {
            Op::Write { name, off, len, byte } => {
                let data: Vec<u8> = (0..len).map(|i| byte.wrapping_add((i / 100) as u8)).collect();
                write_all_at(&*open(name), &data, off).unwrap();
                let file = model.entry(file_name(name)).or_default();
                if len > 0 {
                    file.resize(file.len().max(off as usize + len), 0);
                    file[off as usize..off as usize + len].copy_from_slice(&data);
                }
            }
            Op::Read { name, off, len } => {
                let file = model.entry(file_name(name)).or_default();
                let from = (off as usize).min(file.len());
                let expected = &file[from..file.len().min(from + len)];
                let mut buf = vec![0xEE; len];
                let got = read_up_to_at(&*open(name), &mut buf, off).unwrap();
                assert_eq!(&buf[..got], expected, "{op:?}");
            }
            Op::SetLen { name, len } => {
                open(name).set_len(len).unwrap();
                model.entry(file_name(name)).or_default().resize(len as usize, 0);
            }
            Op::Allocate { name, off, len } => {
                open(name).allocate(off, len).unwrap();
                let file = model.entry(file_name(name)).or_default();
                file.resize(file.len().max((off + len) as usize), 0);
            }
            Op::Sync { name } => {
                sync_file(&*open(name)).unwrap();
                model.entry(file_name(name)).or_default();
            }
            Op::Remove { name } => {
                let known = model.remove(&file_name(name)).is_some();
                assert_eq!(disk.remove(&file_name(name)).is_ok(), known, "{op:?}");
            }
            Op::Rename { from, to } => {
                let (from, to) = (file_name(from), file_name(to));
                let free = model.contains_key(&from) && !model.contains_key(&to);
                assert_eq!(disk.rename(&from, &to).is_ok(), free, "{op:?}");
                if free && let Some(file) = model.remove(&from) {
                    model.insert(to, file);
                }
            }
            Op::SyncDir => disk.sync_dir().unwrap(),
            Op::CreateNew { name } => {
                let known = model.contains_key(&file_name(name));
                assert_eq!(disk.open(&file_name(name), OpenMode::CreateNew).is_err(), known, "{op:?}");
                model.entry(file_name(name)).or_default();
            }
            Op::Existing { name } => {
                let known = model.contains_key(&file_name(name));
                assert_eq!(disk.open(&file_name(name), OpenMode::Existing).is_ok(), known, "{op:?}");
            }
        }
    }
    model
}

fn contents(disk: &dyn Disk) -> Model {
    let read = |name: String| {
        let file = disk.open(&name, OpenMode::Existing).unwrap();
        let mut bytes = vec![0; file.len().unwrap() as usize];
        read_exact_at(&*file, &mut bytes, 0).unwrap();
        (name, bytes)
    };
    disk.list().unwrap().into_iter().map(read).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn every_disk_is_a_map_of_byte_strings(ops in ops()) {
        let mem = MemDisk::new();
        prop_assert_eq!(run(&mem, &ops), contents(&mem));

        let sim = SimDisk::new(1);
        sim.plan(Some(Call::Write), When::Once(3), Fault::Short);
        sim.plan(Some(Call::Read), When::Once(3), Fault::Short);
        let model = run(&sim, &ops);
        prop_assert_eq!(&model, &contents(&sim));
        prop_assert_eq!(&model, &contents(&sim.crash(Crash::All)), "nothing is lost when the process dies");
        let again = SimDisk::new(1);
        again.plan(Some(Call::Write), When::Once(3), Fault::Short);
        again.plan(Some(Call::Read), When::Once(3), Fault::Short);
        run(&again, &ops);
        contents(&again);
        prop_assert_eq!(again.trace(), sim.trace(), "same calls, same trace");

        let dir = temp_dir("model");
        let file = FileDisk::create(&dir).unwrap();
        prop_assert_eq!(run(&file, &ops), contents(&file));
        remove_dir(&dir);
    }

    #[test]
    fn what_was_synced_survives(ops in ops(), seed in any::<u64>()) {
        let sim = SimDisk::new(2);
        let model = run(&sim, &ops);
        for name in model.keys() {
            sync_file(&*sim.open(name, OpenMode::Existing).unwrap()).unwrap();
        }
        sim.sync_dir().unwrap();
        for how in [Crash::All, Crash::Nothing, Crash::Random(seed)] {
            prop_assert_eq!(&model, &contents(&sim.crash(how)), "{:?}", how);
        }
    }
}

fn written(disk: &SimDisk, bytes: &[u8]) -> Arc<dyn DiskFile> {
    let file = disk.open("a", OpenMode::Create).unwrap();
    write_all_at(&*file, bytes, 0).unwrap();
    file
}

#[test]
fn what_was_not_synced_is_lost_kept_reordered_or_torn() {
    let disk = SimDisk::new(3);
    let file = written(&disk, &[1; 4096]);
    sync_file(&*file).unwrap();
    disk.sync_dir().unwrap();
    write_all_at(&*file, &[2; 4096], 0).unwrap();
    assert_eq!(contents(&disk.crash(Crash::Nothing))["a"], [1; 4096]);
    assert_eq!(contents(&disk.crash(Crash::All))["a"], [2; 4096]);
    let (mut old, mut new, mut torn, mut later_first) = (0, 0, 0, 0);
    for seed in 0..200 {
        let bytes = &contents(&disk.crash(Crash::Random(seed)))["a"];
        let sectors: Vec<&[u8]> = bytes.chunks(512).collect();
        old += sectors.iter().filter(|s| **s == [1; 512]).count();
        new += sectors.iter().filter(|s| **s == [2; 512]).count();
        torn += sectors.iter().filter(|s| s.contains(&1) && s.contains(&2)).count();
        later_first += usize::from(sectors[0] == [1; 512] && sectors[7] == [2; 512]);
    }
    assert_eq!(old + new + torn, 1600, "a sector is old, new, or part of each");
    assert!(old > 400 && new > 400 && torn > 20 && later_first > 20, "{old} {new} {torn} {later_first}");
}

#[test]
fn names_wait_for_the_directory_sync() {
    let disk = SimDisk::new(4);
    sync_file(&*written(&disk, b"first")).unwrap();
    assert!(contents(&disk.crash(Crash::Nothing)).is_empty(), "a file without a durable name is gone");
    disk.sync_dir().unwrap();
    disk.rename("a", "b").unwrap();
    let mut seen = std::collections::BTreeSet::new();
    for seed in 0..50 {
        let names: Vec<String> = contents(&disk.crash(Crash::Random(seed))).into_keys().collect();
        assert_eq!(names.len(), 1, "a rename is atomic");
        seen.extend(names);
    }
    assert_eq!(seen.len(), 2, "undone or done");
    disk.remove("b").unwrap();
    assert_eq!(contents(&disk.crash(Crash::Nothing))["a"], b"first");
    disk.sync_dir().unwrap();
    assert!(contents(&disk.crash(Crash::Nothing)).is_empty());
}

#[test]
fn a_failed_sync_loses_what_it_should_have_written() {
    let disk = SimDisk::new(5);
    let file = written(&disk, &[1; 512]);
    disk.sync_dir().unwrap();
    disk.plan(Some(Call::Sync), When::Once(1), Fault::Eio);
    assert!(sync_file(&*file).is_err());
    sync_file(&*file).unwrap();
    let mut byte = [0];
    read_exact_at(&*file, &mut byte, 0).unwrap();
    assert_eq!(byte, [1], "the cache still has it");
    assert_eq!(contents(&disk.crash(Crash::Nothing))["a"], [0; 512], "and a sync that is tried again lies");
}

#[test]
fn faults_hit_the_call_they_were_planned_for() {
    let disk = SimDisk::new(6);
    let file = written(&disk, &[7; 1024]);
    disk.plan(Some(Call::Write), When::Once(2), Fault::Enospc);
    write_all_at(&*file, &[1], 0).unwrap();
    assert!(matches!(write_all_at(&*file, &[2], 0), Err(StorageError::NoSpace { .. })));
    write_all_at(&*file, &[3], 0).unwrap();
    disk.plan(None, When::From(1), Fault::Eio);
    for _ in 0..3 {
        assert!(matches!(sync_file(&*file), Err(StorageError::Io { op: "sync", .. })));
        assert!(disk.list().is_err());
    }
    disk.heal();
    disk.plan(Some(Call::Read), When::Once(1), Fault::Flip);
    let mut bytes = [0; 1024];
    read_exact_at(&*file, &mut bytes, 0).unwrap();
    let wrong: u32 = bytes[1..].iter().map(|b| (b ^ 7).count_ones()).sum::<u32>() + (bytes[0] ^ 3).count_ones();
    assert_eq!(wrong, 1);
    disk.plan(Some(Call::Write), When::Once(1), Fault::Misdirect(512));
    write_all_at(&*file, &[9], 0).unwrap();
    read_exact_at(&*file, &mut bytes, 0).unwrap();
    assert_eq!((bytes[0], bytes[512]), (3, 9));
    assert!(disk.flip("a", 512, 0) && !disk.flip("a", 1024, 0) && !disk.flip("b", 0, 0));
    read_exact_at(&*file, &mut bytes, 0).unwrap();
    assert_eq!(bytes[512], 8);
    assert_eq!(disk.count(Call::Sync), 3);
}

#[test]
fn a_full_disk_takes_nothing_more_until_there_is_space() {
    let disk = SimDisk::new(7);
    disk.set_capacity(1000);
    let file = written(&disk, &[1; 1000]);
    assert!(matches!(write_all_at(&*file, &[1], 1000), Err(StorageError::NoSpace { .. })));
    assert!(file.allocate(0, 1001).is_err() && file.set_len(1001).is_err());
    write_all_at(&*file, &[2; 1000], 0).unwrap();
    file.set_len(10).unwrap();
    write_all_at(&*file, &[1], 900).unwrap();
    assert_eq!(disk.used(), 901);
}

#[test]
fn after_the_cut_nothing_happens() {
    let disk = SimDisk::new(8);
    disk.power_off_after(3);
    let file = written(&disk, &[1; 10]);
    sync_file(&*file).unwrap();
    assert!(disk.is_off());
    assert!(disk.sync_dir().is_err() && write_all_at(&*file, &[2], 0).is_err());
    assert!(contents(&disk.crash(Crash::Nothing)).is_empty());
    assert_eq!(contents(&disk.crash(Crash::All))["a"], [1; 10]);
}

#[test]
fn dropped_syncs_show() {
    let disk = SimDisk::new(9);
    disk.drop_syncs(true);
    let file = written(&disk, &[1; 10]);
    sync_file(&*file).unwrap();
    disk.sync_dir().unwrap();
    assert!(contents(&disk.crash(Crash::Nothing)).is_empty());
}

#[test]
fn a_directory_has_one_owner() {
    let dir = temp_dir("lock");
    let (real, other) = (FileDisk::create(dir.join("a/b")).unwrap(), FileDisk::open(dir.join("a/b")).unwrap());
    let (mem, sim) = (MemDisk::new(), SimDisk::new(0));
    let pairs: [(&dyn Disk, &dyn Disk); 3] = [(&real, &other), (&mem, &mem.clone()), (&sim, &sim.clone())];
    for (disk, same) in pairs {
        let lock = disk.lock().unwrap();
        let refused = same.lock().unwrap_err();
        assert!(matches!(refused, LockError::Held { pid: Some(pid), .. } if pid == std::process::id()), "{refused}");
        drop(lock);
        drop(same.lock().unwrap());
    }
    remove_dir(&dir);
}

#[test]
fn errors_name_the_file() {
    let dir = temp_dir("errors");
    let disk = FileDisk::create(&dir).unwrap();
    assert_eq!(disk.open("x", OpenMode::Existing).unwrap_err().kind(), io::ErrorKind::NotFound);
    let file = disk.open("x", OpenMode::CreateNew).unwrap();
    let error = read_exact_at(&*file, &mut [0; 4], 8).unwrap_err().to_string();
    assert!(error.contains(&format!("{}/x: read at byte 8", dir.display())), "{error}");
    assert!(FileDisk::open(dir.join("x")).is_err() && FileDisk::open(dir.join("none")).is_err());
    remove_dir(&dir);
}

/// Runs the test on a thread without the rights of root.
#[cfg(all(target_os = "linux", not(miri)))]
fn without_rights<T: Send>(test: impl FnOnce() -> T + Send) -> T {
    let run = || {
        if rustix::process::geteuid().is_root() {
            // The system call changes the user of the calling thread only.
            rustix::thread::set_thread_uid(rustix::process::Uid::from_raw(54_321)).unwrap();
        }
        test()
    };
    std::thread::scope(|s| s.spawn(run).join()).unwrap()
}

#[cfg(all(target_os = "linux", not(miri)))]
#[test]
fn a_directory_is_made_below_one_that_may_be_entered_and_not_read() {
    use std::os::unix::fs::PermissionsExt;

    let parent = temp_dir("unreadable");
    std::fs::create_dir(&parent).unwrap();
    std::fs::set_permissions(&parent, PermissionsExt::from_mode(0o333)).unwrap();
    let dir = parent.join("a/b");
    without_rights(|| {
        assert_eq!(std::fs::File::open(&parent).unwrap_err().kind(), io::ErrorKind::PermissionDenied);
        if let Err(error) = std::fs::metadata(parent.join(".")) {
            return eprintln!("did not run: another user may not enter {}: {error}", parent.display());
        }
        FileDisk::create(&dir).unwrap().list().unwrap();
        assert!(dir.is_dir());
    });
    std::fs::set_permissions(&parent, PermissionsExt::from_mode(0o755)).unwrap();
    remove_dir(&parent);
}

#[cfg(not(miri))]
#[test]
fn a_directory_that_cannot_be_made_leaves_none_of_its_parents() {
    let parent = temp_dir("no-parents");
    std::fs::create_dir(&parent).unwrap();
    let too_long = "n".repeat(300);
    FileDisk::create(parent.join("a/b").join(&too_long)).unwrap_err();
    assert_eq!(std::fs::read_dir(&parent).unwrap().count(), 0);
    // Directories that existed before the call must remain.
    std::fs::create_dir(parent.join("a")).unwrap();
    FileDisk::create(parent.join("a/b").join(too_long)).unwrap_err();
    assert!(parent.join("a").is_dir() && !parent.join("a/b").exists());
    remove_dir(&parent);
}
