//! `cluster`: the TLS-secured example cluster.

use std::process::ExitCode;

fn main() -> ExitCode {
    thalweg_examples::cli::main(std::env::args_os())
}
