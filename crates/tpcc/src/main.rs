//! The `tpcc` command; see the library of the same name.

fn main() -> std::process::ExitCode {
    tpcc::main()
}
