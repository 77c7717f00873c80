//! From files, environment and flags to the configuration.

use std::path::Path;

use thalweg_runtime::config::{Config, Known, Sources, environment};

use super::{args::RunArgs, failure::Failure};

/// The configuration of a command that only has `--config`.
pub(crate) fn from_file(path: Option<&Path>) -> Result<Config, Failure> {
    load(sources(path)?)
}

/// The configuration of `run`: its profile is `loopback` unless something says otherwise.
pub(crate) fn for_run(args: &RunArgs) -> Result<Config, Failure> {
    let sources = sources(args.config.as_deref())?;
    load(with_flags(sources, args))
}

fn sources(path: Option<&Path>) -> Result<Sources, Failure> {
    let sources = Sources::new().with_environment(environment()?);
    Ok(match path {
        Some(path) => sources.read_file(path)?,
        None => sources,
    })
}

fn with_flags(mut sources: Sources, args: &RunArgs) -> Sources {
    sources = sources.with_preset("transport.profile", "loopback");
    let slots = args.slots.map(|slots| slots.to_string());
    for (key, value) in [
        ("transport.backend", &args.transport),
        ("transport.profile", &args.profile),
        ("tls.mode", &args.tls),
        ("taskmanager.slots", &slots),
    ] {
        if let Some(value) = value {
            sources = sources.with_flag(key, value);
        }
    }
    sources
}

fn load(sources: Sources) -> Result<Config, Failure> {
    Ok(Config::load(sources, &Known::default())?)
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory, Parser};
    use thalweg_runtime::config::{ConfigFile, TlsMode};
    use thalweg_transport::Profile;

    use super::{super::args, *};

    fn run_args(line: &str) -> RunArgs {
        let words = line.split_whitespace().map(Into::into);
        let words = args::with_command(&args::Args::command(), words);
        match args::Args::try_parse_from(words).unwrap().command {
            args::Command::Run(args) => args,
            other => panic!("{other:?}"),
        }
    }

    fn config(line: &str, file: &str) -> Result<Config, Failure> {
        let sources = Sources::new().with_file(ConfigFile::new("c.toml", file));
        load(with_flags(sources, &run_args(line)))
    }

    #[test]
    fn run_is_made_for_one_machine_unless_told_otherwise() {
        assert_eq!(
            config("cluster", "").unwrap().transport.profile,
            Profile::Loopback
        );
        let file = "[transport]\nprofile = \"wan\"";
        assert_eq!(
            config("cluster", file).unwrap().transport.profile,
            Profile::Wan
        );
        let flag = config("cluster --profile jumbo", file).unwrap();
        assert_eq!(flag.transport.profile, Profile::Jumbo);
    }

    #[test]
    fn flags_override_the_file() {
        let file = "[transport]\nbackend = \"quic\"\n[taskmanager]\nslots = 9";
        let config = config("cluster --transport tcp --tls off --slots 3 shuffle", file).unwrap();
        assert_eq!(config.transport.backend, "tcp");
        assert_eq!(config.tls.mode, TlsMode::Off);
        assert_eq!(config.taskmanager.slots, 3);
    }

    #[test]
    fn values_that_do_not_fit_together_are_wrong_usage() {
        for (line, told) in [
            ("cluster --tls off", "QUIC is always encrypted"),
            (
                "cluster --slots 0",
                "taskmanager.slots = 0 is not allowed: 1 to 1024",
            ),
        ] {
            let failure = config(line, "").unwrap_err();
            assert_eq!(failure.code(), 2);
            assert!(failure.to_string().contains(told), "{failure}");
        }
    }

    #[test]
    fn the_example_files_are_valid_and_one_key_changes_the_transport() {
        let file = |name: &str| {
            let path = Path::new(env!("CARGO_MANIFEST_DIR"))
                .join("config")
                .join(name);
            (path.clone(), std::fs::read_to_string(path).unwrap())
        };
        for (name, dir) in [
            ("jobmanager.toml", "demo-certs/jm-1"),
            ("taskmanager.toml", "demo-certs/tm-1"),
            ("client.toml", "demo-certs/client"),
        ] {
            let (path, text) = file(name);
            let quic = load(Sources::new().read_file(&path).unwrap()).unwrap();
            assert_eq!(
                (quic.transport.backend.as_str(), quic.tls.mode),
                ("quic", TlsMode::Mutual)
            );
            assert_eq!(quic.tls.dir.as_deref(), Some(Path::new(dir)));
            let changed = text.replacen("backend = \"quic\"", "backend = \"tcp\"", 1);
            let by_line = load(Sources::new().with_file(ConfigFile::new(&path, changed))).unwrap();
            let variables = |name: &str, value: &str| {
                let pair = (name.to_owned(), value.to_owned());
                load(
                    Sources::new()
                        .read_file(&path)
                        .unwrap()
                        .with_environment([pair]),
                )
                .unwrap()
            };
            let by_variable = variables("THALWEG__TRANSPORT__BACKEND", "tcp");
            let mut expected = quic;
            expected.transport.backend = "tcp".to_owned();
            assert_eq!(by_line, expected);
            assert_eq!(by_variable, expected);
            let other = variables("THALWEG__TLS__DIR", "demo-certs/tm-2");
            assert_eq!(other.tls.dir.as_deref(), Some(Path::new("demo-certs/tm-2")));
        }
    }

    #[test]
    fn the_example_files_belong_to_one_cluster() {
        let read = |name: &str| {
            let path = Path::new(env!("CARGO_MANIFEST_DIR"))
                .join("config")
                .join(name);
            load(Sources::new().read_file(&path).unwrap()).unwrap()
        };
        let job_manager = read("jobmanager.toml");
        assert_eq!(
            job_manager.transport.bind.to_string(),
            job_manager.jobmanager.address
        );
        for name in ["taskmanager.toml", "client.toml"] {
            assert_eq!(
                read(name).jobmanager.address,
                job_manager.jobmanager.address
            );
            assert_eq!(read(name).cluster, job_manager.cluster);
        }
    }
}
