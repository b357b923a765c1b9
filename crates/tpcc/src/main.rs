//! The `tpcc` command, implemented in the library of the same name.

fn main() -> std::process::ExitCode {
    tpcc::main()
}
