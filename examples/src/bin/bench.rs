//! `bench`: compares the transports with each other and with what lies below them.

use std::process::ExitCode;

fn main() -> ExitCode {
    thalweg_examples::bench::main(std::env::args_os())
}
