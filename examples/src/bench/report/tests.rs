use std::collections::BTreeMap;

use serde_json::Value;

use super::*;
use crate::bench::{
    case::Calls,
    figures::CallTimes,
    machine::Machine,
    transport_kind::{Placement, TransportKind},
};

fn case(transport: TransportKind, ping: Option<u32>) -> Case {
    Case {
        transport,
        channels: Some(8),
        profile: None,
        placement: transport.is_ours().then_some(Placement::Network),
        calls: ping.map(|payload| Calls {
            payload,
            outstanding: 1,
            gateway: false,
        }),
        stopped: None,
        cores: None,
    }
}

fn figures(throughput: f64, p99: Option<f64>) -> Figures {
    Figures {
        throughput: Some(throughput),
        cpu_seconds_per_gb: Some(1000.0 / throughput),
        cpu_per_call: None,
        rss_peak_mib: Some(20.0),
        calls: p99.map(times),
    }
}

fn times(p99: f64) -> CallTimes {
    CallTimes {
        rate: 5000.0,
        p50: p99 / 2.0,
        p90: p99 / 1.5,
        p99,
        p999: p99 * 2.0,
        max: p99 * 3.0,
    }
}

/// Three rounds on a machine that changes its speed.
fn results(ping: Option<u32>) -> Results {
    let (ours, raw) = (
        case(TransportKind::Tcp, ping),
        case(TransportKind::RawTls, ping),
    );
    let mut results = Results::new(vec![ours.clone(), raw.clone()], 32_768);
    for speed in [1000.0, 4000.0, 2000.0] {
        results.add(&ours, figures(speed * 0.8, ping.map(|_| 300.0)));
        results.add(&raw, figures(speed, ping.map(|_| 200.0)));
    }
    results
}

/// Calls alone, 64 outstanding on two cores: ours takes half as long again.
fn calls_alone() -> Results {
    let case = |transport| Case {
        channels: None,
        calls: Some(Calls {
            payload: 64,
            outstanding: 64,
            gateway: true,
        }),
        cores: Some(2),
        ..case(transport, None)
    };
    let figures = |p99, rate| Figures {
        throughput: None,
        cpu_seconds_per_gb: None,
        cpu_per_call: Some(p99 / 10.0),
        rss_peak_mib: Some(20.0),
        calls: Some(CallTimes { rate, ..times(p99) }),
    };
    let (ours, raw) = (case(TransportKind::Tcp), case(TransportKind::RawTls));
    let mut results = Results::new(vec![ours.clone(), raw.clone()], 32_768);
    results.add(&ours, figures(300.0, 50_000.0));
    results.add(&raw, figures(200.0, 100_000.0));
    results
}

fn document(results: &Results) -> Value {
    let document = results.document(Machine::default(), None, BTreeMap::new());
    serde_json::to_value(document).unwrap()
}

#[test]
fn a_run_has_the_median_and_the_spread_of_its_rounds() {
    let document = document(&results(None));
    let runs = document["runs"].as_array().unwrap();
    assert_eq!(runs.len(), 2);
    let run = &runs[0];
    for (key, value) in [
        ("suite", "exchange"),
        ("transport", "tcp"),
        ("metric", "throughput"),
        ("unit", "MB/s"),
        ("placement", "network"),
    ] {
        assert_eq!(run[key], value, "{run}");
    }
    for (key, value) in [
        ("value", 1600.0),
        ("min", 800.0),
        ("max", 3200.0),
        ("cpu_seconds_per_gb", 0.625),
        ("rss_peak_mib", 20.0),
    ] {
        assert_eq!(run[key], value, "{run}");
    }
    assert_eq!(
        (&run["channels"], &run["buffer"]),
        (&8.into(), &32_768.into())
    );
    for key in ["outstanding", "payload", "profile", "network", "cores"] {
        assert_eq!(run[key], Value::Null, "{run}");
    }
    assert_eq!(runs[1]["placement"], Value::Null);
}

#[test]
fn ratios_are_those_of_each_round_to_the_yardstick() {
    let document = document(&results(None));
    let ratios = document["ratios"].as_array().unwrap();
    let [rate, cpu] = &ratios[..] else {
        panic!("{ratios:?}");
    };
    assert_eq!(
        (&rate["metric"], &rate["value"]),
        (&"throughput".into(), &0.8.into())
    );
    assert_eq!(
        (&rate["transport"], &rate["to"]),
        (&"tcp".into(), &"raw-tls".into())
    );
    assert_eq!(
        (&cpu["metric"], &cpu["value"]),
        (&"cpu_seconds_per_gb".into(), &1.25.into())
    );
}

#[test]
fn calls_beside_data_have_a_suite_and_percentiles() {
    let document = document(&results(Some(64)));
    let runs = document["runs"].as_array().unwrap();
    let metrics: Vec<_> = runs.iter().take(7).map(|run| &run["metric"]).collect();
    assert_eq!(
        metrics,
        [
            "throughput",
            "calls",
            "latency_p50",
            "latency_p90",
            "latency_p99",
            "latency_p999",
            "latency_max"
        ]
    );
    let p99 = &runs[4];
    assert_eq!((&p99["unit"], &p99["value"]), (&"us".into(), &300.0.into()));
    for (key, value) in [("outstanding", 1), ("payload", 64)] {
        assert_eq!(p99[key], value, "{p99}");
    }
    assert_eq!(p99["suite"], "rpc-under-load");
    let ratios = document["ratios"].as_array().unwrap();
    assert_eq!(ratios[2]["metric"], "latency_p99");
    assert_eq!(ratios[2]["value"], 1.5);
}

#[test]
fn the_tables_show_both() {
    let text = results(Some(64)).tables();
    let words: Vec<Vec<&str>> = text
        .lines()
        .map(|line| line.split_whitespace().collect())
        .collect();
    assert_eq!(
        words[1],
        [
            "tcp",
            "network",
            "8",
            "ping",
            "1600",
            "800..3200",
            "0.80",
            "0.625",
            "1.25",
            "20"
        ]
    );
    assert_eq!(words[2][..2], ["raw-tls", "8"]);
    assert_eq!(
        words[5],
        [
            "tcp", "network", "8", "5000", "150", "200", "300", "1.50", "600", "900", "1600",
            "0.80"
        ]
    );
}

#[test]
fn calls_alone_have_a_rate_and_cores_and_no_channels() {
    let document = document(&calls_alone());
    let run = &document["runs"][0];
    for (key, value) in [("suite", "rpc"), ("metric", "calls"), ("unit", "calls/s")] {
        assert_eq!(run[key], value, "{run}");
    }
    for (key, value) in [("outstanding", 64), ("payload", 64), ("cores", 2)] {
        assert_eq!(run[key], value, "{run}");
    }
    for key in ["channels", "buffer", "cpu_seconds_per_gb"] {
        assert_eq!(run[key], Value::Null, "{run}");
    }
    let ratios = document["ratios"].as_array().unwrap();
    let of = |metric: &str| {
        let found = ratios.iter().find(|ratio| ratio["metric"] == metric);
        found.map(|ratio| ratio["value"].as_f64().unwrap())
    };
    assert_eq!(of("calls"), Some(0.5));
    assert_eq!(of("latency_p50"), Some(1.5));
    assert_eq!(of("cpu_per_call"), Some(1.5));
    assert_eq!(of("throughput"), None);
}

#[test]
fn calls_alone_have_a_table_of_their_own() {
    let text = calls_alone().tables();
    let words: Vec<Vec<&str>> = text
        .lines()
        .map(|line| line.split_whitespace().collect())
        .collect();
    assert_eq!(words.len(), 3, "{text}");
    let expected =
        "tcp network 64 2 50000 50000..50000 0.50 150.0 1.50 200.0 300.0 1.50 600 900 30.00 1.50";
    assert_eq!(words[1].join(" "), expected);
    assert_eq!(words[2][..3], ["raw-tls", "64", "2"]);
}
