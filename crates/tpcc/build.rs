//! Records the sources and the compiler of the build in the program, and aligns its segments to large pages, so that its code
//! can be moved to large pages (`--large-pages code`). Requires neither git nor a network.

use std::path::Path;
use std::process::Command;

fn main() {
    if std::env::var("CARGO_CFG_TARGET_OS").is_ok_and(|os| os == "linux") {
        println!("cargo:rustc-link-arg-bins=-Wl,-z,max-page-size=2097152");
    }
    // A change below `crates` can make the tree dirty, and each commit changes the log of HEAD.
    for path in ["../../crates", "../../.git/HEAD", "../../.git/logs/HEAD"] {
        if Path::new(path).exists() {
            println!("cargo:rerun-if-changed={path}");
        }
    }
    let commit = output("git", &["rev-parse", "--short=12", "HEAD"]).unwrap_or_default();
    let dirty = output("git", &["status", "--porcelain", "--untracked-files=no"]);
    let rustc = std::env::var("RUSTC").unwrap_or_else(|_| "rustc".to_owned());
    let flags = std::env::var("CARGO_ENCODED_RUSTFLAGS").unwrap_or_default().replace('\u{1f}', " ");
    set("COMMIT", &commit);
    set("DIRTY", dirty.map_or("", |changes| if changes.is_empty() { "false" } else { "true" }));
    set("RUSTC", &output(&rustc, &["--version"]).unwrap_or_default());
    set("FLAGS", &flags);
    // Properties of the build that its flags do not show: `cargo xtask pgo` reports here that it used a profile.
    println!("cargo:rerun-if-env-changed=TPCC_BUILT_WITH");
    set("WITH", &std::env::var("TPCC_BUILT_WITH").unwrap_or_default());
    set("PROFILE", &std::env::var("PROFILE").unwrap_or_default());
    set("TARGET", &std::env::var("TARGET").unwrap_or_default());
}

fn set(name: &str, value: &str) {
    println!("cargo:rustc-env=TPCC_BUILD_{name}={value}");
}

fn output(program: &str, arguments: &[&str]) -> Option<String> {
    let output = Command::new(program).args(arguments).output().ok().filter(|output| output.status.success())?;
    Some(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}
