//! `bench exchange`.

use super::{args::ExchangeArgs, measure::Settings, plan::exchange_cases, rounds};
use crate::cli::failure::Failure;

pub(super) async fn run(args: &ExchangeArgs, quiet: bool) -> Result<(), Failure> {
    check(args)?;
    let settings = Settings {
        buffer: args.buffer,
        slow: args.slow_consumers.unwrap_or(0),
        warmup: args.run.warmup,
        duration: args.run.duration,
    };
    rounds::run(&args.run, &settings, exchange_cases(args), quiet).await
}

/// What the parser cannot see.
fn check(args: &ExchangeArgs) -> Result<(), Failure> {
    for transport in args.transports() {
        if !transport.is_built() {
            return Err(transport.not_built());
        }
        if !transport.moves_data() {
            return Err(Failure::usage(format!(
                "--transport {} is for bench rpc: it makes calls, flight and flight-tls move data",
                transport.as_str()
            )));
        }
    }
    if let Some(slow) = args.slow_consumers {
        if let Some(channels) = args.channels.iter().find(|channels| **channels <= slow) {
            return Err(Failure::usage(format!(
                "--slow-consumers {slow} is not allowed with --channels {channels}: less than the channels"
            )));
        }
        if args.ping.is_some() {
            return Err(Failure::usage(
                "--ping is not allowed with --slow-consumers: calls are measured beside consumers that read",
            ));
        }
    }
    if exchange_cases(args).is_empty() {
        return Err(Failure::usage(
            "--slow-consumers needs one of ours in --transport: quic, tcp or tcp-plain",
        ));
    }
    if args.ping.is_some() {
        payload_fits(args.payload, args.buffer)?;
    }
    Ok(())
}

/// A raw call comes back in one frame of the data that it is beside.
pub(super) fn payload_fits(payload: u32, buffer: u32) -> Result<(), Failure> {
    let longest = buffer as usize - thalweg_transport::FRAME_OVERHEAD;
    if payload as usize > longest {
        return Err(Failure::usage(format!(
            "--payload {payload} is not allowed with this --buffer: at most {longest} bytes"
        )));
    }
    Ok(())
}
