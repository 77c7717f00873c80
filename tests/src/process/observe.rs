//! What tests see of a running cluster through `status --json`.

use std::{thread, time::Duration};

use serde_json::Value;

use super::{ClusterFiles, spawned::now};

/// An answer of `status --json`.
#[derive(Debug, Clone)]
pub struct Known(pub Value);

impl Known {
    /// The ids of the registered TaskManagers.
    #[must_use]
    pub fn task_managers(&self) -> Vec<String> {
        let rows = self.0["taskmanagers"].as_array();
        rows.into_iter()
            .flatten()
            .map(|row| text(&row["id"]))
            .collect()
    }

    /// Free slots of the whole cluster.
    #[must_use]
    pub fn free_slots(&self) -> u64 {
        let rows = self.0["taskmanagers"].as_array();
        rows.into_iter()
            .flatten()
            .filter_map(|row| row["slots_free"].as_u64())
            .sum()
    }

    /// The job of this name that was submitted last; `Null` if there is none.
    #[must_use]
    pub fn job(&self, name: &str) -> &Value {
        let jobs = self.0["jobs"].as_array();
        jobs.into_iter()
            .flatten()
            .rfind(|job| job["name"] == name)
            .unwrap_or(&Value::Null)
    }
}

impl ClusterFiles {
    /// Asks for the status.
    ///
    /// # Panics
    /// If the command fails.
    #[must_use]
    pub fn status(&self) -> Known {
        let asked = self.run_client("status", &["--json"]);
        assert_eq!(asked.code(), Some(0), "{asked:?}");
        let value = serde_json::from_str(&asked.stdout);
        Known(value.unwrap_or_else(|error| panic!("{error}: {asked:?}")))
    }

    /// Asks for the status until it is as wanted.
    ///
    /// # Panics
    /// If a command fails, or after the deadline, with the last answer.
    pub fn wait_status(
        &self,
        deadline: Duration,
        what: &str,
        mut wanted: impl FnMut(&Known) -> bool,
    ) -> Known {
        until(deadline, what, || {
            let known = self.status();
            if wanted(&known) {
                Ok(known)
            } else {
                Err(known.0.to_string())
            }
        })
    }
}

/// Looks again and again until something is there.
///
/// # Panics
/// After the deadline, with what was seen last.
pub fn until<T>(deadline: Duration, what: &str, mut look: impl FnMut() -> Result<T, String>) -> T {
    let end = now() + deadline;
    loop {
        match look() {
            Ok(found) => return found,
            Err(seen) => assert!(now() < end, "{what}: not within {deadline:?}: {seen}"),
        }
        pause(LOOK_INTERVAL);
    }
}

/// Lets time pass for real processes, which cannot be waited for.
#[expect(
    clippy::disallowed_methods,
    reason = "nothing notifies the test of what happens in other processes"
)]
pub fn pause(duration: Duration) {
    thread::sleep(duration);
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// Short beside everything that is waited for.
const LOOK_INTERVAL: Duration = Duration::from_millis(20);
