//! Bitmap file: the format that records which points are live for which operations.
//!
//! ```text
//! sched-steps points 1
//! build       8c1f00aa41d2e37b
//! operation   fetch STOCK
//! operation   commit
//! site        btree/leaf  src/search.rs:120   0,1
//! site        log/append  src/log.rs:33       -
//! ```
//!
//! Fields are separated by tabs. A site lists its live operations by their positions among the operation lines, or `*`
//! for all operations, or `-` for none. Sites are in the order of the program's own list of points. A file is valid for
//! one build only: a placement that suits one code layout is wrong for another layout, so a file of another build is
//! rejected.

use std::fmt::Write as _;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use super::operation::Operations;
use super::points;

/// Identity of a build: a hash of the running executable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Build(pub u64);

impl Build {
    /// Returns the build of the running executable. Reads the executable once per process.
    ///
    /// # Errors
    /// The executable cannot be found or read.
    pub fn running() -> io::Result<Build> {
        static RUNNING: OnceLock<Build> = OnceLock::new();
        if let Some(build) = RUNNING.get() {
            return Ok(*build);
        }
        let build = Build::of(&std::fs::read(std::env::current_exe()?)?);
        Ok(*RUNNING.get_or_init(|| build))
    }

    fn of(bytes: &[u8]) -> Build {
        const PRIME: u64 = 0x9e37_79b9_7f4a_7c15;
        let mut hash = bytes.len() as u64;
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            hash = (hash.rotate_left(23) ^ u64::from_le_bytes(word)).wrapping_mul(PRIME);
        }
        Build(hash ^ hash >> 29)
    }
}

impl std::fmt::Display for Build {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// Error of loading or saving a bitmap.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BitmapError {
    /// The file cannot be read or written.
    #[error("{path}: {source}")]
    Io {
        /// Path of the file.
        path: PathBuf,
        /// Error of the operating system.
        source: io::Error,
    },
    /// The file is not a bitmap.
    #[error("{path}:{line}: {what}")]
    Syntax {
        /// Path of the file.
        path: PathBuf,
        /// Line number, from 1.
        line: usize,
        /// Description of the error.
        what: String,
    },
    /// The file was made for another build of the program.
    #[error("{path}: made for build {found}, this is {running}; place the points again")]
    OtherBuild {
        /// Path of the file.
        path: PathBuf,
        /// Build for which the file was made, as written in the file.
        found: String,
        /// Build of the running executable.
        running: Build,
    },
}

/// A point as recorded in a bitmap.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Site {
    /// Name of the point.
    pub name: String,
    /// Source location, as `file:line`.
    pub place: String,
    /// Bit `n` is set if the point is live for operation `n` of the bitmap.
    pub live: u64,
}

/// Bitmap: the operations for which each point is live.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Bitmap {
    /// Names of the operations, at most 64. The index of a name is the bit in `Site::live`.
    pub operations: Vec<String>,
    /// Points, in the order of the program's list.
    pub sites: Vec<Site>,
}

/// Maximum size of a bitmap file in bytes. The few dozen points of a program take some kilobytes.
const MAX_FILE_BYTES: u64 = 1 << 20;
const TITLE: &str = "sched-steps points 1";

impl Bitmap {
    /// Captures the current live operations of all [`points`], for the operations in `operations`.
    #[must_use]
    pub fn current(operations: &Operations) -> Bitmap {
        Bitmap::of_sites(operations, points().map(|point| (point.name(), point.file(), point.line(), point.live())))
    }

    /// Builds a bitmap for sites that the caller lists with name, file, line, and live operations.
    #[must_use]
    pub fn of_sites<'a>(operations: &Operations, sites: impl Iterator<Item = (&'a str, &'a str, u32, u64)>) -> Bitmap {
        let sites =
            sites.map(|(name, file, line, live)| Site { name: name.into(), place: format!("{file}:{line}"), live });
        Bitmap { operations: operations.iter().map(|(_, name)| name.to_owned()).collect(), sites: sites.collect() }
    }

    /// Returns the live operations of each site as a bit set over `operations`, in the order of the sites. Operations
    /// are matched by name. For an operation that the bitmap does not contain, a site is live only if it is live for
    /// all operations.
    #[must_use]
    pub fn live_for(&self, operations: &Operations) -> Vec<u64> {
        let at: Vec<Option<usize>> =
            operations.iter().map(|(_, name)| self.operations.iter().position(|own| own == name)).collect();
        let of_site = |site: &Site| {
            if site.live == u64::MAX {
                return u64::MAX;
            }
            at.iter()
                .enumerate()
                .filter(|(_, at)| at.is_some_and(|at| site.live >> at & 1 == 1))
                .fold(0, |live, (to, _)| live | 1 << to)
        };
        self.sites.iter().map(of_site).collect()
    }

    /// Sets the live operations of all [`points`] from the bitmap. Points that the bitmap does not list become dead.
    pub fn apply(&self, operations: &Operations) {
        let live = self.live_for(operations);
        for point in points() {
            let place = format!("{}:{}", point.file(), point.line());
            let listed = self.sites.iter().position(|site| site.name == point.name() && site.place == place);
            point.set_live(listed.map_or(0, |at| live[at]));
        }
    }

    /// Writes the bitmap to a file, marked with the running build.
    ///
    /// # Errors
    /// [`BitmapError::Io`].
    pub fn save(&self, path: &Path) -> Result<(), BitmapError> {
        let failed = |source| BitmapError::Io { path: path.to_owned(), source };
        let text = self.to_text(Build::running().map_err(failed)?);
        std::fs::write(path, text).map_err(failed)
    }

    /// Reads a bitmap file that [`Bitmap::save`] wrote in this build.
    ///
    /// # Errors
    /// [`BitmapError`]: the file is unreadable, not a bitmap, or of another build.
    pub fn load(path: &Path) -> Result<Bitmap, BitmapError> {
        let failed = |source| BitmapError::Io { path: path.to_owned(), source };
        let mut text = String::new();
        let file = std::fs::File::open(path).map_err(failed)?;
        file.take(MAX_FILE_BYTES + 1).read_to_string(&mut text).map_err(failed)?;
        if text.len() as u64 > MAX_FILE_BYTES {
            let what = format!("not a file of points: it is larger than {MAX_FILE_BYTES} bytes");
            return Err(BitmapError::Syntax { path: path.to_owned(), line: 1, what });
        }
        Bitmap::from_text(&text, path, Build::running().map_err(failed)?)
    }

    fn to_text(&self, build: Build) -> String {
        let mut text = format!("{TITLE}\nbuild\t{build}\n");
        // Writing to a string cannot fail, so the results are ignored.
        for operation in &self.operations {
            let _ = writeln!(text, "operation\t{operation}");
        }
        for Site { name, place, live } in &self.sites {
            let listed = (0..self.operations.len().min(64)).filter(|at| live >> at & 1 == 1).map(|at| at.to_string());
            let live = match *live {
                u64::MAX => "*".to_owned(),
                _ => Some(listed.collect::<Vec<_>>().join(","))
                    .filter(|list| !list.is_empty())
                    .unwrap_or_else(|| "-".to_owned()),
            };
            let _ = writeln!(text, "site\t{name}\t{place}\t{live}");
        }
        text
    }

    fn from_text(text: &str, path: &Path, running: Build) -> Result<Bitmap, BitmapError> {
        let wrong = |line: usize, what: String| BitmapError::Syntax { path: path.to_owned(), line: line + 1, what };
        let mut lines = text.lines().enumerate();
        if lines.next().is_none_or(|(_, line)| line != TITLE) {
            return Err(wrong(0, format!("not a file of points: '{TITLE}' is missing")));
        }
        let mut bitmap = Bitmap::default();
        let mut build = None;
        for (number, line) in lines {
            let fields: Vec<&str> = line.split('\t').collect();
            match fields[..] {
                ["build", found] if found == running.to_string() => build = Some(()),
                ["build", found] => {
                    return Err(BitmapError::OtherBuild { path: path.to_owned(), found: found.to_owned(), running });
                }
                ["operation", _] if bitmap.operations.len() == 64 => {
                    return Err(wrong(number, "more than 64 operations".to_owned()));
                }
                ["operation", name] => bitmap.operations.push(name.to_owned()),
                ["site", name, place, live] => {
                    let live = parse_live(live, bitmap.operations.len()).map_err(|what| wrong(number, what))?;
                    bitmap.sites.push(Site { name: name.to_owned(), place: place.to_owned(), live });
                }
                [""] => {}
                _ => return Err(wrong(number, format!("'{line}' is neither build, operation nor site"))),
            }
        }
        match build {
            Some(()) => Ok(bitmap),
            None => Err(wrong(1, "it does not say for which build it was made".to_owned())),
        }
    }
}

fn parse_live(field: &str, operations: usize) -> Result<u64, String> {
    match field {
        "*" => Ok(u64::MAX),
        "-" => Ok(0),
        list => list.split(',').try_fold(0, |live, number| match number.parse::<usize>() {
            Ok(at) if at < operations => Ok(live | 1 << at),
            _ => Err(format!("'{number}' is not one of the {operations} operations above")),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Bitmap {
        let site = |name: &str, live| Site { name: name.into(), place: format!("src/{name}.rs:7"), live };
        Bitmap {
            operations: vec!["fetch STOCK".into(), "commit".into()],
            sites: vec![site("a", 0), site("b", 0b10), site("c", u64::MAX), site("d", 0b11)],
        }
    }

    #[test]
    fn text_and_back() {
        let (build, path) = (Build(7), Path::new("points"));
        let text = sample().to_text(build);
        assert_eq!(Bitmap::from_text(&text, path, build).unwrap(), sample());
    }

    #[test]
    fn another_build_is_refused() {
        let text = sample().to_text(Build(7));
        let error = Bitmap::from_text(&text, Path::new("p"), Build(8)).unwrap_err();
        assert!(matches!(error, BitmapError::OtherBuild { .. }), "{error}");
        assert_ne!(Build::of(b"one program"), Build::of(b"two program"));
    }

    #[test]
    fn damage_is_named_by_line() {
        let path = Path::new("p");
        for (text, line) in [
            ("", 1),
            ("hello\n", 1),
            ("sched-steps points 1\n", 2),
            ("sched-steps points 1\nbuild\t0000000000000007\nsite\ta\tb:1\t0\n", 3),
            ("sched-steps points 1\nbuild\t0000000000000007\nsite\ta\n", 3),
        ] {
            match Bitmap::from_text(text, path, Build(7)) {
                Err(BitmapError::Syntax { line: found, .. }) => assert_eq!(found, line, "{text:?}"),
                other => panic!("{text:?}: {other:?}"),
            }
        }
    }

    #[test]
    fn operations_are_matched_by_name() {
        let mut operations = Operations::new();
        for name in ["begin", "commit", "fetch STOCK"] {
            operations.add(name, "").unwrap();
        }
        assert_eq!(sample().live_for(&operations), [0, 0b010, u64::MAX, 0b110]);
    }

    #[test]
    #[cfg_attr(miri, ignore = "reads the executable")]
    fn saved_and_loaded() {
        let path = std::env::temp_dir().join(format!("sched-steps-points-{}", std::process::id()));
        sample().save(&path).unwrap();
        assert_eq!(Bitmap::load(&path).unwrap(), sample());
        std::fs::write(&path, sample().to_text(Build(1))).unwrap();
        assert!(matches!(Bitmap::load(&path), Err(BitmapError::OtherBuild { .. })));
        std::fs::remove_file(&path).unwrap();
        assert!(matches!(Bitmap::load(&path), Err(BitmapError::Io { .. })));
    }

    #[test]
    #[cfg_attr(miri, ignore = "reads a device")]
    fn a_file_without_an_end_is_refused() {
        assert!(matches!(Bitmap::load(Path::new("/dev/zero")), Err(BitmapError::Syntax { .. })));
    }
}
