//! LLVM tools that a build requires beside the compiler. Their LLVM version must be the compiler's, because each version
//! reads only its own profiles.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::BuildError;

/// Version and target of the compiler that cargo uses here.
#[derive(Clone, Debug)]
pub(super) struct Compiler {
    /// Output of `rustc -vV`; part of the key of a profile.
    pub(super) described: String,
    /// Default target.
    pub(super) host: String,
    /// Major version of the compiler's LLVM.
    pub(super) llvm: u32,
}

impl Compiler {
    /// Queries the installed compiler.
    pub(super) fn here() -> Result<Compiler, BuildError> {
        let described = output(Command::new("rustc").arg("-vV"))
            .ok_or_else(|| BuildError::new("rustc cannot be run").help("install it with rustup"))?;
        let field = |name: &str| described.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
        let host = field("host:").ok_or_else(|| BuildError::new("rustc -vV names no host"))?.to_owned();
        let llvm = field("LLVM version:").and_then(major);
        let llvm = llvm.ok_or_else(|| BuildError::new("rustc -vV names no LLVM version: it has another back end"))?;
        Ok(Compiler { described, host, llvm })
    }

    /// Returns the directory of the toolchain's libraries for the default target.
    pub(super) fn libraries(&self) -> Option<PathBuf> {
        let sysroot = output(Command::new("rustc").args(["--print", "sysroot"]))?;
        Some(Path::new(sysroot.trim()).join("lib/rustlib").join(&self.host).join("lib"))
    }

    /// Finds an LLVM tool of the compiler's major version, first in the toolchain, then in the system.
    pub(super) fn tool(&self, name: &str) -> Option<PathBuf> {
        let sysroot = output(Command::new("rustc").args(["--print", "sysroot"])).unwrap_or_default();
        let own = Path::new(sysroot.trim()).join("lib/rustlib").join(&self.host).join("bin").join(name);
        let candidates = [own, PathBuf::from(format!("{name}-{}", self.llvm)), PathBuf::from(name)];
        candidates.into_iter().find(|tool| {
            let said = output(Command::new(tool).arg("--version")).unwrap_or_default();
            said.split("LLVM version").nth(1).and_then(major) == Some(self.llvm)
        })
    }

    /// Finds `llvm-profdata`, which merges profiles.
    pub(super) fn profdata(&self) -> Result<PathBuf, BuildError> {
        self.tool("llvm-profdata").ok_or_else(|| {
            BuildError::new(format!("llvm-profdata of LLVM {} is missing", self.llvm))
                .help(format!("apt-get install llvm-{}, or rustup component add llvm-tools", self.llvm))
        })
    }
}

/// Returns the major version in a version number, for example 22 for "22.1.2".
fn major(version: &str) -> Option<u32> {
    version.trim().split('.').next()?.parse().ok()
}

/// Returns the standard output of a command; `None` if the command fails or does not exist.
pub(crate) fn output(command: &mut Command) -> Option<String> {
    let output = command.output().ok().filter(|output| output.status.success())?;
    Some(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Runs a command to completion.
pub(super) fn run_command(command: &mut Command) -> Result<(), BuildError> {
    let name = command.get_program().to_string_lossy().into_owned();
    let ended =
        command.stdin(Stdio::null()).output().map_err(|e| BuildError::new(format!("{name}: cannot be run: {e}")))?;
    if ended.status.success() {
        return Ok(());
    }
    Err(BuildError::new(format!("{name}: {}", last_lines(&String::from_utf8_lossy(&ended.stderr), 10))))
}

/// Returns the last lines of a command's output.
pub(super) fn last_lines(said: &str, most: usize) -> String {
    let lines: Vec<&str> = said.lines().collect();
    lines[lines.len().saturating_sub(most)..].join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_have_majors() {
        assert_eq!((major(" 22.1.2"), major("14"), major("unknown")), (Some(22), Some(14), None));
    }

    #[test]
    fn a_tool_that_is_missing_is_named_with_its_package() {
        let compiler = Compiler { described: String::new(), host: "nowhere".into(), llvm: 999_999 };
        let said = compiler.profdata().unwrap_err().to_string();
        assert!(said.contains("LLVM 999999 is missing") && said.contains("llvm-999999"), "{said}");
    }
}
