//! The programs of the workspace, built when a test asks for them.

use std::{
    collections::HashMap,
    env,
    path::{Path, PathBuf},
    process::Command,
    sync::{LazyLock, Mutex, PoisonError},
};

/// The path of a program of the workspace (`cluster`, `certs`), built in the profile of the running test.
///
/// Cargo gives a test the programs of its own package only, hence the call to cargo; it does nothing if the program is
/// up to date.
///
/// # Panics
/// If the program cannot be built.
#[must_use]
pub fn binary(name: &str) -> PathBuf {
    static BUILT: LazyLock<Mutex<HashMap<String, PathBuf>>> = LazyLock::new(Mutex::default);
    let mut built = BUILT.lock().unwrap_or_else(PoisonError::into_inner);
    built
        .entry(name.to_owned())
        .or_insert_with(|| build(name))
        .clone()
}

fn build(name: &str) -> PathBuf {
    let profile_dir = profile_dir();
    let mut cargo = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo
        .args(["build", "--quiet", "--bin", name])
        .current_dir(workspace());
    cargo.args([
        "-p",
        if name == "certs" {
            "thalweg-certs"
        } else {
            "thalweg-examples"
        },
    ]);
    if profile_dir.ends_with("release") {
        cargo.arg("--release");
    }
    if let Some(target) = profile_dir.parent() {
        cargo.arg("--target-dir").arg(target);
    }
    let status = cargo.status().expect("cargo runs");
    assert!(status.success(), "building {name} failed");
    profile_dir.join(name)
}

/// `target/debug` or `target/release`: the folder above the one of the running test.
fn profile_dir() -> PathBuf {
    let test = env::current_exe().expect("a test has a path");
    let deps = test.parent().expect("it lies in target/<profile>/deps");
    deps.parent()
        .expect("it lies in target/<profile>/deps")
        .to_path_buf()
}

fn workspace() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("the crate lies in the workspace")
}
