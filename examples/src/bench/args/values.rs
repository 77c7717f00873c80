//! Values of flags.

use std::{str::FromStr, time::Duration};

use clap::{ValueEnum, builder::PossibleValue};
use thalweg_runtime::config::{ByteSize, format_duration, parse_duration};

use crate::bench::{
    spec::{MAX_CORES, MAX_PAYLOAD},
    transport_kind::TransportKind,
};

/// A value of `--transport`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TransportArg {
    All,
    One(TransportKind),
}

/// What `--ping` adds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum PingArg {
    /// Each measurement without and with it
    Also,
    /// Each measurement with it
    Only,
}

/// What calls are measured beside.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum LoadArg {
    /// Nothing else moves
    Idle,
    /// One call outstanding beside data that saturates the same connection; suite rpc-under-load
    Bulk,
}

/// The cores of both processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CoresArg {
    /// What is measured decides.
    Auto,
    /// Where the system puts them.
    All,
    /// So many.
    Some(u32),
}

/// What is chosen, each once.
pub(super) fn chosen(args: &[TransportArg], all: &[TransportKind]) -> Vec<TransportKind> {
    let mut chosen = Vec::new();
    for arg in args {
        let these = match arg {
            TransportArg::All => all.to_vec(),
            TransportArg::One(one) => vec![*one],
        };
        for one in these {
            if !chosen.contains(&one) {
                chosen.push(one);
            }
        }
    }
    chosen
}

impl ValueEnum for TransportArg {
    fn value_variants<'a>() -> &'a [Self] {
        const VARIANTS: [TransportArg; TransportKind::ALL.len() + 1] = {
            let mut variants = [TransportArg::All; TransportKind::ALL.len() + 1];
            let mut index = 0;
            while index < TransportKind::ALL.len() {
                variants[index + 1] = TransportArg::One(TransportKind::ALL[index]);
                index += 1;
            }
            variants
        };
        &VARIANTS
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        match self {
            Self::All => Some(PossibleValue::new("all").help("All that fit and are built")),
            Self::One(kind) => kind.to_possible_value(),
        }
    }
}

impl FromStr for CoresArg {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "auto" => Ok(Self::Auto),
            "all" => Ok(Self::All),
            number => number
                .parse()
                .ok()
                .filter(|cores| (1..=MAX_CORES).contains(cores))
                .map(Self::Some)
                .ok_or_else(|| format!("auto, all or 1 to {MAX_CORES} are allowed")),
        }
    }
}

pub(super) fn buffer(text: &str) -> Result<u32, String> {
    size(text, 1024, 1024 * 1024)
}

pub(super) fn payload(text: &str) -> Result<u32, String> {
    size(text, 1, MAX_PAYLOAD)
}

fn size(text: &str, least: u32, most: u32) -> Result<u32, String> {
    let size: ByteSize = text.parse()?;
    u32::try_from(size.as_u64())
        .ok()
        .filter(|bytes| (least..=most).contains(bytes))
        .ok_or_else(|| {
            let shown = |bytes: u32| ByteSize::bytes(bytes.into());
            format!("{} to {} are allowed", shown(least), shown(most))
        })
}

pub(super) fn duration(text: &str) -> Result<Duration, String> {
    time(text, Duration::from_millis(10))
}

pub(super) fn warmup(text: &str) -> Result<Duration, String> {
    time(text, Duration::ZERO)
}

fn time(text: &str, least: Duration) -> Result<Duration, String> {
    let time = parse_duration(text)?;
    if (least..=LONGEST).contains(&time) {
        Ok(time)
    } else {
        let (least, most) = (format_duration(least), format_duration(LONGEST));
        Err(format!("{least} to {most} are allowed"))
    }
}

pub(super) fn host_and_port(text: &str) -> Result<String, String> {
    let parts = text.rsplit_once(':');
    match parts.map(|(host, port)| (host, port.parse::<u16>())) {
        Some((host, Ok(1..))) if !host.is_empty() => Ok(text.to_owned()),
        _ => Err("a host and a port are expected, like bench-2.example:6190".to_owned()),
    }
}

/// One measurement.
const LONGEST: Duration = Duration::from_secs(3600);
