//! Generated pictures and reference documents: the crates, from their manifests; the comparison of engines, from results of
//! `cargo xtask peers`; the reference of the command line.

mod commands;
mod crates;
mod peers;

use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;

/// Flags of `cargo xtask picture`.
#[derive(Debug, Args)]
pub(crate) struct PictureFlags {
    /// Directory for the pictures, instead of the repository's own.
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

/// Path of a picture in the repository, and the function that draws it from other files of the repository.
type Picture = (&'static str, fn(&Path) -> io::Result<String>);

const PICTURES: [Picture; 3] =
    [(crates::FILE, crates::draw), (peers::FILE, peers::draw), (commands::FILE, commands::draw)];

/// Runs the command.
pub(crate) fn run(flags: &PictureFlags) -> ExitCode {
    let root = root();
    for (file, draw) in PICTURES {
        let to = match &flags.out {
            Some(directory) => directory.join(Path::new(file).file_name().unwrap_or_default()),
            None => root.join(file),
        };
        let written = draw(&root).and_then(|picture| {
            to.parent().map_or(Ok(()), std::fs::create_dir_all)?;
            std::fs::write(&to, picture)
        });
        if let Err(error) = written {
            eprintln!("error: {}: {error}", to.display());
            return ExitCode::FAILURE;
        }
        println!("drawn     {}", to.display());
    }
    ExitCode::SUCCESS
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pictures_in_the_repository_are_of_what_lies_there() {
        let root = root();
        for (file, draw) in PICTURES {
            let kept = std::fs::read_to_string(root.join(file)).unwrap();
            assert_eq!(kept, draw(&root).unwrap(), "{file}: draw it again: cargo xtask picture");
        }
    }
}
