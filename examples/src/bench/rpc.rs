//! `bench rpc`.

use super::{
    args::{CoresArg, RpcArgs},
    cores,
    exchange::payload_fits,
    measure::Settings,
    plan::rpc_cases,
    rounds,
};
use crate::cli::failure::Failure;

pub(super) async fn run(args: &RpcArgs, quiet: bool) -> Result<(), Failure> {
    let available = u32::try_from(cores::available()).unwrap_or(u32::MAX);
    check(args, available)?;
    let settings = Settings {
        buffer: args.buffer,
        slow: 0,
        warmup: args.run.warmup,
        duration: args.run.duration,
    };
    rounds::run(&args.run, &settings, rpc_cases(args, available), quiet).await
}

/// What the parser cannot see.
fn check(args: &RpcArgs, available: u32) -> Result<(), Failure> {
    for transport in args.transports() {
        if !transport.is_built() {
            return Err(transport.not_built());
        }
        if !transport.makes_calls() {
            return Err(Failure::usage(format!(
                "--transport {} is for bench exchange: it moves data, tonic and tonic-tls make calls beside it",
                transport.as_str()
            )));
        }
    }
    if let CoresArg::Some(cores) = args.cores {
        if args.run.peer.is_some() {
            return Err(Failure::usage(format!(
                "--cores {cores} is not allowed with --peer: two hosts share no cores"
            )));
        }
        if cores > available {
            return Err(Failure::usage(format!(
                "--cores {cores} is not allowed here: this process has {available}"
            )));
        }
    }
    payload_fits(args.payload, args.buffer)
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::bench::args::{Args, Command};

    fn checked(line: &str) -> Result<(), String> {
        let words = ["bench", "rpc"].into_iter();
        match Args::try_parse_from(words.chain(line.split_whitespace()))
            .unwrap()
            .command
        {
            Command::Rpc(args) => check(&args, 4).map_err(|failure| failure.to_string()),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn cores_have_to_be_there() {
        assert_eq!(checked("--cores 4"), Ok(()));
        let error = checked("--cores 5").unwrap_err();
        assert!(
            error.contains("--cores 5") && error.contains("has 4"),
            "{error}"
        );
        let error = checked("--cores 1 --peer host:1 --certs d").unwrap_err();
        assert!(error.contains("--peer"), "{error}");
        assert_eq!(checked("--cores auto --peer host:1 --certs d"), Ok(()));
    }

    #[test]
    fn peers_are_named_where_they_do_not_fit() {
        let error = checked("--transport flight").unwrap_err();
        let told = if cfg!(feature = "peers") {
            "is for bench exchange"
        } else {
            "needs a bench with the cargo feature peers"
        };
        assert!(error.contains("flight") && error.contains(told), "{error}");
        assert_eq!(
            checked("--transport tonic").is_ok(),
            cfg!(feature = "peers")
        );
    }

    #[test]
    fn a_call_has_to_fit_in_a_frame() {
        let error = checked("--buffer 1KiB --payload 1KiB").unwrap_err();
        assert!(error.contains("at most 1000 bytes"), "{error}");
    }
}
