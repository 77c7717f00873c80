//! Longer help texts.

pub(super) const EXAMPLES: &str = "\
Examples:
  bench exchange                                  every transport and its yardstick, about five minutes
  bench exchange --transport quic,raw-quic --channels 8 --duration 2s
  bench exchange --help                           all options, and what is measured how

Exit codes:
  0          success
  1          failure: paths, ports, peers
  2          wrong usage: flags, certificate files
  130, 143   interrupted by Ctrl-C or SIGTERM";

pub(super) const EXCHANGE: &str = "\
What is measured:
  The server (a second process, or the one at --peer) produces, this process consumes. Ours: one producing task writes
  one partition with a subpartition per channel round robin, one consuming task reads one gate and drops the buffers,
  through the public API. The yardsticks move as many bytes over the same transport with the same settings and as many
  streams (raw-quic) or tagged frames (raw-tls, raw-tcp), and land them in a pool of as many buffers.

  MB/s     10^6 bytes of payload that the consumer got in the measured time
  CPU      user and system seconds of both processes per 10^9 bytes
  ratio    to the yardstick of the same round, median over the rounds
  ping     with --ping: a call and its answer on the connection that carries the data; suite rpc-under-load

Examples:
  bench exchange --channels 1,8,64 --runs 7 --profile loopback,jumbo,lan --placement network,own-thread
  bench exchange --transport tcp,raw-tls --channels 8 --ping --json results.json
  bench exchange --transport quic,tcp --channels 64 --slow-consumers 1
  bench exchange --peer bench-2.example:6190 --certs certs/bench-1 --profile lan

Compare ratios, and only of one run: rates change from machine to machine and from hour to hour.";

pub(super) const SERVER: &str = "\
Prints one line on standard output when it is ready:
  ready address=10.0.0.7:6190 id=bench-2 pid=4711

Serves one bench at a time until Ctrl-C or SIGTERM.

Examples:
  certs init demo-certs --cluster-id bench
  certs issue demo-certs --role taskmanager --id bench-1
  certs issue demo-certs --role taskmanager --id bench-2
  bench server --bind 10.0.0.7:6190 --certs demo-certs/bench-2     on one host
  bench exchange --peer 10.0.0.7:6190 --certs demo-certs/bench-1   on the other";
