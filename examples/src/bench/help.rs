//! Longer help texts.

pub(super) const EXAMPLES: &str = "\
Examples:
  bench exchange                                  every transport and its yardstick, five minutes
  bench exchange --transport quic,raw-quic --channels 8 --duration 2s
  bench rpc                                       calls, alone and beside data, six minutes
  bench exchange --help                           all options, and what is measured how
  bench rpc --help

Exit codes:
  0          success
  1          failure: paths, ports, peers
  2          wrong usage: flags, certificate files
  130, 143   interrupted by Ctrl-C or SIGTERM";

pub(super) const EXCHANGE: &str = "\
What is measured:
  The server (a second process, or the one at --peer) produces, this process consumes. Ours: one
  producing task writes one partition with a subpartition per channel round robin, one consuming
  task reads one gate and drops the buffers, through the public API. The yardsticks move as many
  bytes over the same transport with the same settings and as many streams (raw-quic) or tagged
  frames (raw-tls, raw-tcp), and land them in a pool of as many buffers.

  With the cargo feature peers: flight and flight-tls, a do_get of Arrow Flight for each channel
  on one tonic channel, record batches of 256 KiB, without and with our mutual TLS; a ping is a
  unary call on that channel.

  MB/s     10^6 bytes of payload that the consumer got in the measured time
  CPU      user and system seconds of both processes per 10^9 bytes
  ratio    to the yardstick of the same round, median over the rounds
  ping     with --ping: a call and its answer on the connection that carries the data; suite
           rpc-under-load

Examples:
  bench exchange --channels 1,8,64 --runs 7 --profile jumbo,lan --placement network,own-thread
  bench exchange --transport tcp,raw-tls --channels 8 --ping --json results.json
  bench exchange --transport quic,tcp --channels 64 --slow-consumers 1
  bench exchange --peer bench-2.example:6190 --certs certs/bench-1 --profile lan

Compare ratios, and only of one run: rates change from machine to machine and from hour to hour.";

pub(super) const RPC: &str = "\
What is measured:
  This process calls, the server (a second process, or the one at --peer) answers with what it
  gets. Ours: a gateway, declared and served as any other, each outstanding call made by a task.
  The yardsticks: frames on one stream of the same transport with the same settings, matched by
  id, by one task at each end, which writes at once whatever one read brings. Every end has one
  thread for all of it (--placement own-thread: another one for endpoint and callers).

  With the cargo feature peers: tonic and tonic-tls, unary calls of bytes on one channel, each
  outstanding call made by a task, without and with our mutual TLS; beside data, on the channel of
  as many do_get of Arrow Flight as there are channels.

  --load idle    nothing else moves
  --load bulk    one call outstanding while an exchange saturates the same connection, as bench
                 exchange does; on the yardsticks a call of the bench's own beside as many bytes;
                 suite rpc-under-load

  calls/s        answers that came in the measured time
  p50 ... max    microseconds from before a call to its answer
  CPU            user and system microseconds of both processes per call
  ratio          to the yardstick of the same round, median over the rounds
  to tonic       calls/s as a ratio to those of tonic; beside data, the 99th percentile

Cores:
  One call outstanding keeps one of the two processes waiting at any time. On one core what is
  measured is the code; on two it is mostly how fast the system wakes an idle core. Many calls
  outstanding keep two cores busy. --cores auto does both in one run; --json says in `cores` what
  each figure was measured on, null for no restriction.

Examples:
  bench rpc --transport quic,raw-quic --load idle
  bench rpc --transport tcp,raw-tls --outstanding 1,8,64 --payload 1KiB --cores all
  bench rpc --load bulk --channels 8,64 --runs 7
  bench rpc --transport quic,tcp,tcp-plain,tonic --load idle --outstanding 64
  bench rpc --peer bench-2.example:6190 --certs certs/bench-1 --profile lan

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
