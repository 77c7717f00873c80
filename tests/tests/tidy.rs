//! Rules of the code base that a test can keep; ARCHITECTURE.md states them as invariants.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

#[test]
fn files_hold_one_noun() {
    let long: Vec<String> = sources(&root())
        .into_iter()
        .filter_map(|path| {
            let lines = read(&path).lines().count();
            (lines > MAX_LINES).then(|| format!("{}: {lines} lines", shown(&path)))
        })
        .collect();
    assert!(
        long.is_empty(),
        "files over {MAX_LINES} lines:\n{}",
        long.join("\n")
    );
}

#[test]
fn pure_modules_read_no_clock_open_no_socket_and_spawn_no_task() {
    let mut found = Vec::new();
    let mut pure = 0;
    for path in sources(&root()) {
        if !PURE.iter().any(|prefix| shown(&path).starts_with(prefix)) || is_test_file(&path) {
            continue;
        }
        pure += 1;
        let text = read(&path);
        for (number, line) in code_lines(&text) {
            for banned in BANNED_IN_PURE {
                if line.contains(banned) {
                    found.push(format!("{}:{number}: {banned}", shown(&path)));
                }
            }
        }
    }
    assert!(
        pure > 20,
        "only {pure} pure files found: has the layout changed?"
    );
    assert!(
        found.is_empty(),
        "pure modules with effects:\n{}",
        found.join("\n")
    );
}

#[test]
fn tasks_are_spawned_on_an_owner() {
    let mut found = Vec::new();
    for path in sources(&root()) {
        // What a user's own program spawns is shown as a user would write it.
        let is_example = shown(&path).starts_with("transport/examples/");
        if is_example || is_test_file(&path) || shown(&path).starts_with("tests/") {
            continue;
        }
        for (number, line) in code_lines(&read(&path)) {
            if line.contains("tokio::spawn(") || line.contains("task::spawn(") {
                found.push(format!("{}:{number}", shown(&path)));
            }
        }
    }
    assert!(
        found.is_empty(),
        "tasks without an owner:\n{}",
        found.join("\n")
    );
}

#[test]
fn crates_depend_in_one_direction() {
    for (name, allowed) in ARROWS {
        let manifest: toml::Table = read(&root().join(name).join("Cargo.toml"))
            .parse()
            .expect("a manifest is TOML");
        let dependencies = manifest["dependencies"]
            .as_table()
            .expect("dependencies are a table");
        for dependency in dependencies
            .keys()
            .filter(|key| key.starts_with("thalweg-"))
        {
            assert!(
                allowed.contains(&dependency.as_str()),
                "{name} must not depend on {dependency}"
            );
        }
    }
}

#[test]
fn nothing_is_left_unfinished() {
    let marks = [
        ["to", "do!("],
        ["unimple", "mented!("],
        ["#[igno", "re"],
        ["FIX", "ME"],
    ]
    .map(|parts| parts.concat());
    for path in sources(&root()) {
        for (number, line) in read(&path).lines().enumerate() {
            for mark in &marks {
                assert!(
                    !line.contains(mark.as_str()),
                    "{}:{}: {mark}",
                    shown(&path),
                    number + 1
                );
            }
        }
    }
}

#[test]
fn the_tables_of_flinks_tests_name_tests_that_exist() {
    let mut known = BTreeSet::new();
    for path in sources(&root()) {
        for line in read(&path).lines() {
            let (_, rest) = line
                .split_once("fn ")
                .or_else(|| line.split_once("mod "))
                .unwrap_or_default();
            let is_of_name = |c: &char| *c == '_' || c.is_alphanumeric();
            let name: String = rest.chars().take_while(is_of_name).collect();
            known.insert(name);
        }
    }
    let mut named = 0;
    for table in fs::read_dir(root().join("tests/flink"))
        .expect("the tables are there")
        .flatten()
    {
        let text = read(&table.path());
        let code = text.split('`').skip(1).step_by(2);
        for path in code.filter(|code| code.starts_with("thalweg_")) {
            named += 1;
            let test = path.rsplit("::").next().unwrap_or_default();
            assert!(known.contains(test), "{}: {path}", shown(&table.path()));
        }
    }
    assert!(named > 20, "only {named} tests are named");
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("the crate lies in the workspace")
        .to_path_buf()
}

fn sources(root: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders: Vec<PathBuf> = CRATES.iter().map(|name| root.join(name)).collect();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder)
            .expect("a source folder is readable")
            .flatten()
        {
            let path = entry.path();
            if path.is_dir() && path.file_name().is_some_and(|name| name != "target") {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

/// Lines of code before the file's test module, without comments.
fn code_lines(text: &str) -> Vec<(usize, String)> {
    text.lines()
        .enumerate()
        .take_while(|(_, line)| !line.starts_with("#[cfg(test)]"))
        .map(|(index, line)| {
            (
                index + 1,
                line.split("//").next().unwrap_or_default().to_owned(),
            )
        })
        .collect()
}

fn is_test_file(path: &Path) -> bool {
    path.components().any(|part| {
        let part = part.as_os_str().to_string_lossy();
        part == "tests" || part == "tests.rs" || part.ends_with("_tests.rs")
    })
}

fn shown(path: &Path) -> String {
    path.strip_prefix(root())
        .unwrap_or(path)
        .display()
        .to_string()
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

const MAX_LINES: usize = 500;
const CRATES: [&str; 5] = ["transport", "runtime", "certs", "examples", "tests"];
const BANNED_IN_PURE: [&str; 7] = [
    "tokio::",
    "Instant::now",
    "SystemTime",
    "fastrand",
    "std::net::Tcp",
    "std::net::Udp",
    "thalweg_transport::now",
];
/// Folders and files of pure state machines.
const PURE: [&str; 17] = [
    "transport/src/proto/",
    "runtime/src/job/",
    "runtime/src/slots/",
    "runtime/src/gateways/",
    "runtime/src/heartbeat/",
    "runtime/src/registration/connection.rs",
    "runtime/src/registration/retrying.rs",
    "runtime/src/job_master/deployment.rs",
    "runtime/src/job_master/execution_graph/",
    "runtime/src/job_master/restart.rs",
    "runtime/src/job_master/results.rs",
    "runtime/src/job_master/slot_pool.rs",
    "runtime/src/resource_manager/report.rs",
    "runtime/src/resource_manager/slot_manager/",
    "runtime/src/rpc/rate.rs",
    "runtime/src/task/pace.rs",
    "runtime/src/taskexecutor/hold.rs",
];
/// Which crates of the workspace a crate may depend on.
const ARROWS: [(&str, &[&str]); 5] = [
    ("certs", &[]),
    ("transport", &[]),
    (
        "runtime",
        &["thalweg-transport", "thalweg-certs", "thalweg-macros"],
    ),
    (
        "examples",
        &["thalweg-runtime", "thalweg-transport", "thalweg-certs"],
    ),
    (
        "tests",
        &[
            "thalweg-examples",
            "thalweg-runtime",
            "thalweg-transport",
            "thalweg-certs",
        ],
    ),
];
