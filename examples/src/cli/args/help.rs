//! Longer help texts: usage and examples of each command.

pub(super) const USAGE: &str = "\
cluster [run] [OPTIONS] [JOB [ARGS]]
       cluster <COMMAND> [OPTIONS]";

pub(super) const EXAMPLES: &str = "\
Examples:
  cluster                                       count the words of a generated text
  cluster wordcount README.md                   count the words of a file
  cluster --taskmanagers 3 shuffle --bytes 4GiB  send generated records, all to all
  cluster --transport tcp shuffle               the same code over TCP with TLS
  cluster run --help                            options of run, and the jobs
  cluster jobmanager --config jobmanager.toml   a real cluster: one process per node

Exit codes:
  0          success
  1          failure: paths, ports, peers, jobs
  2          wrong usage: flags, configuration, certificate files
  130, 143   a job was interrupted by Ctrl-C or SIGTERM";

pub(super) const RUN: &str = "\
Examples:
  cluster run
  cluster run wordcount --help
  cluster run --output counts.tsv wordcount src/ README.md
  cluster run --taskmanagers 3 --slots 4 shuffle --bytes 8GiB --record-size 4KiB
  cluster run --transport tcp --tls off shuffle --pattern one-way
  cluster run --json --quiet shuffle --bytes 256MiB | tail -1

With mutual TLS and no certificates configured, throw-away ones are made in memory.";

pub(super) const JOB_MANAGER: &str = "\
Prints one line on standard output when it is ready:
  ready role=jobmanager id=jm-1 address=127.0.0.1:6120 transport=quic tls=mutual pid=4711

The first Ctrl-C or SIGTERM drains for up to node.drain_timeout, the second ends at once.

Examples:
  certs init demo-certs --cluster-id demo
  certs issue demo-certs --role jobmanager --id jm-1
  cluster jobmanager --config examples/config/jobmanager.toml
  THALWEG__TRANSPORT__BACKEND=tcp cluster jobmanager --config examples/config/jobmanager.toml";

pub(super) const TASK_MANAGER: &str = "\
Prints one line on standard output when it is registered:
  ready role=taskmanager id=tm-1 address=127.0.0.1:50123 transport=quic tls=mutual pid=4712

It may be started before its JobManager: it keeps trying. A second TaskManager with the same id
replaces the first. The first Ctrl-C or SIGTERM drains for up to node.drain_timeout, the second
ends at once.

Examples:
  certs issue demo-certs --role taskmanager --id tm-1
  cluster taskmanager --config examples/config/taskmanager.toml
  THALWEG__TLS__DIR=demo-certs/tm-2 cluster taskmanager --config examples/config/taskmanager.toml";

pub(super) const SUBMIT: &str = "\
Ctrl-C or SIGTERM cancels the job. A cancelled job ends with exit code 1.

Examples:
  certs issue demo-certs --role client --id client
  cluster submit --config examples/config/client.toml wordcount README.md
  cluster submit --config examples/config/client.toml --json shuffle --bytes 4GiB
  cluster submit --config examples/config/client.toml --detach shuffle --bytes 100GiB";

pub(super) const STATUS: &str = "\
Examples:
  cluster status --config examples/config/client.toml
  cluster status --config examples/config/client.toml --json | jq .taskmanagers";

pub(super) const CANCEL: &str = "\
Examples:
  cluster cancel --config examples/config/client.toml 6f1c3a52e0b94d7c8a90b1f2d3e4c5a6

`cluster status` lists the jobs with their ids.";

pub(super) const CONFIG: &str = "\
Each overrides the one before: defaults, the file, environment variables
THALWEG__<SECTION>__<KEY>.

Examples:
  cluster config
  cluster config --config examples/config/taskmanager.toml
  THALWEG__TRANSPORT__BACKEND=tcp cluster config";

pub(super) const WORD_COUNT: &str = "\
Words are runs of letters and digits, in lower case. A path given twice counts twice. Inside
folders hidden files count and symbolic links are skipped. The TaskManagers read the files:
they must see the same paths.

Examples:
  cluster wordcount
  cluster wordcount README.md docs/
  cluster run --output counts.tsv wordcount /var/log/dmesg";

pub(super) const SHUFFLE: &str = "\
Every sink checks count, checksum and order of what each source sent to it.

Examples:
  cluster shuffle --bytes 4GiB
  cluster shuffle --bytes 256MiB --record-size 100B
  cluster --taskmanagers 2 shuffle --pattern one-way";
