//! Sources, precedence and messages.

use std::{path::Path, time::Duration};

use proptest::prelude::*;

use super::*;

fn load(text: &str) -> Result<Config, ConfigError> {
    from(Sources::new().with_file(ConfigFile::new("c.toml", text)))
}

fn from(sources: Sources) -> Result<Config, ConfigError> {
    Config::load(sources, &Known::default().without(&[]))
}

fn message(text: &str) -> String {
    load(text).unwrap_err().to_string()
}

#[test]
fn no_source_gives_valid_defaults() {
    let config = from(Sources::new()).unwrap();
    assert_eq!(config, Config::default());
    assert_eq!(
        config
            .validate(&Known::default())
            .map_err(|e| e.to_string()),
        Ok(())
    );
    assert_eq!(
        config.transport_config(),
        thalweg_transport::TransportConfig::default()
    );
}

#[test]
fn settings_of_the_exchange_reach_the_transport() {
    let sources = Sources::new()
        .with_preset("transport.buffer_debloating", "true")
        .with_preset("transport.exclusive_buffers_per_channel", "0");
    let transport = from(sources).unwrap().transport_config();
    assert!(transport.buffer_debloating);
    assert_eq!(transport.exclusive_buffers_per_channel, 0);
}

#[test]
fn limits_of_what_peers_can_take_reach_the_transport() {
    let sources = Sources::new()
        .with_preset("transport.max_unread_bytes", "1GiB")
        .with_preset("transport.max_connections", "40000");
    let transport = from(sources).unwrap().transport_config();
    assert_eq!(transport.max_unread_bytes, 1 << 30);
    assert_eq!(transport.max_connections, 40_000);
    assert_eq!(
        message("[transport]\nmax_unread_bytes = \"64KiB\""),
        "transport.max_unread_bytes = \"64KiB\" is not allowed: 1MiB to 1TiB [c.toml line 2]"
    );
    assert_eq!(
        message("[transport]\nmax_connections = 0"),
        "transport.max_connections = 0 is not allowed: 1 to 1000000 [c.toml line 2]"
    );
    let few = message("[transport]\nmax_connections = 9\nconnections_per_peer = 9");
    assert!(few.contains("8/7 of connections_per_peer"), "{few}");
}

#[test]
fn later_sources_override_earlier_ones() {
    let sources = Sources::new()
        .with_preset("transport.profile", "loopback")
        .with_preset("taskmanager.slots", "9")
        .with_file(ConfigFile::new(
            "c.toml",
            "[taskmanager]\nslots = 3\n[node]\nid = \"a\"\nio_threads = 5\n[rpc]\nask_timeout = \"1s\"",
        ))
        .with_environment([
            ("THALWEG__NODE__ID".to_owned(), "b".to_owned()),
            ("THALWEG__RPC__ASK_TIMEOUT".to_owned(), "2s".to_owned()),
            ("HOME".to_owned(), "/".to_owned()),
        ])
        .with_flag("rpc.ask_timeout", "3s");
    let config = from(sources).unwrap();
    assert_eq!(config.transport.profile.as_str(), "loopback");
    assert_eq!(config.taskmanager.slots, 3);
    assert_eq!(config.node.io_threads, 5);
    assert_eq!(config.node.id.unwrap().as_str(), "b");
    assert_eq!(config.rpc.ask_timeout, Duration::from_secs(3));
}

#[test]
fn an_empty_variable_unsets_an_optional_key_only() {
    let variable = |name: &str| {
        Sources::new()
            .with_file(ConfigFile::new("c.toml", "[node]\nid = \"a\""))
            .with_environment([(name.to_owned(), String::new())])
    };
    assert_eq!(from(variable("THALWEG__NODE__ID")).unwrap().node.id, None);
    assert!(from(variable("THALWEG__NODE__IO_THREADS")).is_err());
}

#[test]
fn lists_are_read_from_one_line() {
    for text in ["/a,/b", "[\"/a\", \"/b\"]"] {
        let config = from(Sources::new().with_flag("taskmanager.temp_dirs", text)).unwrap();
        assert_eq!(
            config.taskmanager.temp_dirs,
            [Path::new("/a"), Path::new("/b")]
        );
    }
}

#[test]
fn an_unknown_key_names_the_nearest_and_the_line() {
    assert_eq!(
        message("[transport]\n\nbackned = \"quic\"\n"),
        "unknown key transport.backned (did you mean transport.backend?) [c.toml line 3]"
    );
    assert_eq!(
        message("[node]\nslots = 1"),
        "unknown key node.slots (did you mean taskmanager.slots?) [c.toml line 2]"
    );
    assert_eq!(
        message("[blob]\nzzz = 1"),
        "unknown key blob.zzz (keys of [blob] are store) [c.toml line 2]"
    );
    assert_eq!(
        message("[transprot]\nbind = 1"),
        "unknown section [transprot] (did you mean [transport]?) [c.toml line 1]"
    );
    assert_eq!(
        message("slots = 1"),
        "unknown section [slots] (did you mean [blob]?) [c.toml line 1]".replace(
            "did you mean [blob]?",
            "sections are cluster, node, transport, tls, jobmanager, taskmanager, task, rpc, heartbeat, ha, blob, \
             metrics"
        )
    );
    assert!(message("node = 1").starts_with("node is a section"));
}

#[test]
fn a_wrong_value_names_key_value_source_and_what_is_allowed() {
    assert_eq!(
        message("[transport]\nbackend = \"quick\""),
        "transport.backend = \"quick\" is not allowed: quic or tcp (did you mean quic?) [c.toml line 2]"
    );
    assert_eq!(
        message("[rpc]\nask_timeout = 10"),
        "rpc.ask_timeout = 10 is not allowed: a duration like 250ms, 10s or 1m30s [c.toml line 2]"
    );
    assert_eq!(
        message("[taskmanager]\nslots = -1"),
        "taskmanager.slots = -1 is not allowed: a whole number from 0 to 4294967295 [c.toml line 2]"
    );
    let flag = from(Sources::new().with_flag("taskmanager.slots", "0")).unwrap_err();
    assert_eq!(
        flag.to_string(),
        "taskmanager.slots = 0 is not allowed: 1 to 1024 [given by a flag]"
    );
    let variable = [("THALWEG__TRANSPORT__PROFILE".to_owned(), "lann".to_owned())];
    assert_eq!(
        from(Sources::new().with_environment(variable))
            .unwrap_err()
            .to_string(),
        "transport.profile = \"lann\" is not allowed: loopback, jumbo, lan or wan (did you mean lan?) \
         [environment variable THALWEG__TRANSPORT__PROFILE]"
    );
    for (key, value) in [
        ("transport.bind", "host:1"),
        ("transport.reuse_connections", "yes"),
        ("transport.buffer_size", "2TiB"),
        ("transport.buffer_pool", "100KiB"),
        ("transport.max_unread_bytes", "2TiB"),
        ("transport.max_connections", "-1"),
        ("node.id", "a b"),
        ("cluster.id", "Demo"),
        ("jobmanager.address", "host"),
        ("jobmanager.address", "host:0"),
        ("transport.advertise", "a:b:c"),
        ("blob.store", "/var"),
        ("taskmanager.temp_dirs", ""),
        ("taskmanager.memory", "1KiB"),
        ("taskmanager.task_placement", "thread"),
    ] {
        let error = from(Sources::new().with_flag(key, value)).unwrap_err();
        let text = error.to_string();
        assert!(
            error.is_usage() && text.starts_with(&format!("{key} = ")),
            "{text}"
        );
    }
}

#[test]
fn environment_names_without_a_key_are_refused() {
    for name in ["THALWEG__NODE", "THALWEG__NODE__IDD", "THALWEG__NOD__ID"] {
        let error = from(Sources::new().with_environment([(name.to_owned(), "x".to_owned())]));
        assert!(error.unwrap_err().to_string().contains(name), "{name}");
    }
}

#[test]
fn several_problems_are_reported_at_once_in_order() {
    let error = load("[rpc]\nx = 1\n[node]\nio_threads = \"many\"").unwrap_err();
    let lines: Vec<_> = error.problems().iter().map(|p| p.key.as_str()).collect();
    assert_eq!(lines, ["rpc.x", "node.io_threads"]);
    assert_eq!(error.to_string().lines().count(), 2);
}

#[test]
fn rules_between_values_are_checked() {
    for (text, expected) in [
        (
            "[tls]\nmode = \"off\"",
            "transport.backend = \"quic\" needs tls.mode = \"mutual\": QUIC is always encrypted",
        ),
        (
            "[tls]\nmode = \"optional\"\n[transport]\nbackend = \"tcp\"",
            "tls.mode = \"optional\" is not supported by this version: mutual or off",
        ),
        (
            "[tls]\ncert = \"c\"\nca = \"a\"",
            "tls.cert needs tls.key too, or tls.dir to find it in",
        ),
        (
            "[heartbeat]\ninterval = \"1m\"",
            "heartbeat.interval = \"1m\" is not allowed: at most heartbeat.timeout, which is 50s",
        ),
        (
            "[transport]\nkeep_alive = \"6s\"",
            "transport.keep_alive = \"6s\" is not allowed: less than idle_timeout",
        ),
        (
            "[ha]\nmode = \"etcd\"\netcd_endpoints = [\"http://h:1\"]",
            "without the cargo feature etcd",
        ),
        (
            "[ha]\netcd_key = \"k\"",
            "ha.etcd_key needs ha.etcd_cert too",
        ),
        (
            "[rpc]\nmax_pending_bytes = \"1KiB\"",
            "at least rpc.max_frame_size, which is 10MiB",
        ),
    ] {
        let message = message(text);
        assert!(message.contains(expected), "{message}");
    }
    assert!(load("[tls]\nmode = \"off\"\n[transport]\nbackend = \"tcp\"").is_ok());
}

#[test]
fn etcd_needs_endpoints_and_a_lasting_blob_store() {
    let known = Known::default()
        .with_ha_modes(&["standalone", "etcd"])
        .without(&[]);
    let mut config = Config::default();
    config.ha.mode = "etcd".to_owned();
    let error = config.validate(&known).unwrap_err();
    assert_eq!(error.problems().len(), 2, "{error}");
    config.ha.etcd_endpoints = vec!["http://127.0.0.1:2379".parse().unwrap()];
    config.blob.store = Some("file:///var/lib/blobs".parse().unwrap());
    assert!(config.validate(&known).is_ok());
}

#[test]
fn registered_backends_are_allowed_by_name() {
    let known = Known::default().with_backends(&["quic", "tcp", "mem"]);
    let sources = Sources::new().with_flag("transport.backend", "mem");
    assert_eq!(
        Config::load(sources, &known).unwrap().transport.backend,
        "mem"
    );
}

#[test]
fn a_file_that_is_not_toml_names_the_place() {
    let error = load("[node]\nid = \"a\nx").unwrap_err();
    assert!(
        error.to_string().starts_with("c.toml line 2, column "),
        "{error}"
    );
    assert!(error.is_usage());
}

#[test]
fn a_missing_file_is_no_usage_error() {
    let dir = tempfile::tempdir().unwrap();
    let error = Sources::new()
        .read_file(&dir.path().join("none.toml"))
        .unwrap_err();
    assert!(!error.is_usage());
    assert!(error.to_string().contains("none.toml"));
}

#[test]
fn credentials_in_urls_are_not_printed() {
    let mut config = Config::default();
    config.blob.store = Some("s3://id:hunter2@bucket".parse().unwrap());
    assert!(!config.to_toml().contains("hunter2"));
    assert!(!format!("{config:?}").contains("hunter2"));
    let error = from(Sources::new().with_flag("node.id", "x://id:hunter2@y")).unwrap_err();
    assert!(!error.to_string().contains("hunter2"));
}

#[test]
fn certificates_are_found_in_the_folder_or_one_by_one() {
    let config = load("[tls]\ndir = \"d\"\nkey = \"/run/key.pem\"").unwrap();
    let files = config.tls.files().unwrap();
    assert_eq!(files.cert, Path::new("d/cert.pem"));
    assert_eq!(files.key, Path::new("/run/key.pem"));
    assert_eq!(Config::default().tls.files(), None);
}

#[test]
fn what_is_printed_keeps_comments_and_shows_unset_keys() {
    let config = load("[node]\nid = \"tm-7\"\n[transport]\nbackend = \"tcp\"").unwrap();
    let text = config.to_toml();
    assert!(
        text.contains("\nid = \"tm-7\"                        # resource id; default"),
        "{text}"
    );
    assert!(
        text.contains("\nbackend = \"tcp\"                    # quic | tcp\n"),
        "{text}"
    );
    assert!(text.contains("\n# listen = "), "{text}");
}

proptest! {
    #[test]
    fn what_is_printed_reads_back(
        id in "[a-zA-Z0-9._-]{1,20}",
        slots in 1..=1024_u32,
        dirs in prop::collection::vec("[^\0]{1,12}", 1..4),
        millis in 1..86_400_000_u64,
        frame in 1024..(1_u64 << 30),
        reuse: bool,
    ) {
        let mut config = Config::default();
        config.node.id = Some(thalweg_transport::ResourceId::new(&id).unwrap());
        config.taskmanager.slots = slots;
        config.taskmanager.temp_dirs = dirs.into_iter().map(Into::into).collect();
        config.rpc.ask_timeout = Duration::from_millis(millis);
        config.rpc.max_frame_size = ByteSize::bytes(frame);
        config.rpc.max_pending_bytes = ByteSize::bytes(frame * 2);
        config.transport.reuse_connections = reuse;
        config.transport.bind = "0.0.0.0:50100-50200".parse().unwrap();
        config.transport.advertise = Some("[::1]:6121".to_owned());
        config.metrics.listen = Some("127.0.0.1:9249".parse().unwrap());
        config.blob.store = Some("file:///var/lib/blobs".parse().unwrap());
        let text = config.to_toml();
        prop_assert_eq!(load(&text).map_err(|e| format!("{e}\n{text}")), Ok(config));
    }

    #[test]
    fn no_text_makes_the_reader_panic(text in "[\\[\\]a-z.=\"#\\n 0-9]{0,80}", value in ".{0,40}") {
        let _ = load(&text);
        for section in Config::default().sections() {
            for key in section.keys() {
                let _ = from(Sources::new().with_flag(&format!("{}.{key}", section.name()), value.clone()));
            }
        }
    }
}
