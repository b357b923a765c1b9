//! Fuzzing process: libFuzzer linked into this program. `cargo xtask fuzz` builds and runs it.
#![allow(unsafe_code)]

use std::ffi::{CString, c_char, c_int};
use std::process::ExitCode;
use std::ptr;
use std::sync::OnceLock;

use clap::Args;
use clap::builder::PossibleValuesParser;

use super::{TARGETS, Target};

/// Flags of the fuzzing process.
#[derive(Debug, Args)]
pub struct GuidedFlags {
    /// Target to fuzz.
    #[arg(value_parser = PossibleValuesParser::new(TARGETS.iter().map(|t| t.name)))]
    target: String,
    /// Arguments for libFuzzer: directories, files, `-flag=value`.
    #[arg(last = true)]
    arguments: Vec<String>,
}

/// Current target. It is a static variable because libFuzzer's callback gets no such argument.
static FUZZED: OnceLock<&Target> = OnceLock::new();

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    if let Some(target) = FUZZED.get() {
        (target.run)(input);
    }
});

unsafe extern "C" {
    fn LLVMFuzzerTestOneInput(data: *const u8, size: usize) -> c_int;
    fn LLVMFuzzerRunDriver(
        argc: *mut c_int,
        argv: *mut *mut *mut c_char,
        callback: unsafe extern "C" fn(*const u8, usize) -> c_int,
    ) -> c_int;
}

/// Fuzzes until libFuzzer ends. An input that fails ends the process.
pub fn run(flags: &GuidedFlags) -> ExitCode {
    if let Some(target) = TARGETS.iter().find(|t| t.name == flags.target) {
        FUZZED.get_or_init(|| target);
    }
    let words = ["fuzz"].into_iter().chain(flags.arguments.iter().map(String::as_str));
    let Ok(words) = words.map(CString::new).collect::<Result<Vec<_>, _>>() else {
        eprintln!("fuzz: an argument has a zero byte in it");
        return ExitCode::from(2);
    };
    let mut argv: Vec<*mut c_char> = words.into_iter().map(CString::into_raw).chain([ptr::null_mut()]).collect();
    let mut argc = (argv.len() - 1) as c_int;
    let mut argv = argv.as_mut_ptr();
    // SAFETY: as for the `main` of a C program, `argv` has `argc` strings that are never freed, followed by a null pointer.
    // The driver is called once, and the callback is the one that `fuzz_target!` generated for it.
    let code = unsafe { LLVMFuzzerRunDriver(&raw mut argc, &raw mut argv, LLVMFuzzerTestOneInput) };
    ExitCode::from(u8::try_from(code).unwrap_or(1))
}
