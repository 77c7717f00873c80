//! The transport contract on each of the crate's backends: one test per backend and check.

use thalweg_tests::{
    conformance_tests,
    harness::{MemBackend, QuicBackend, TcpBackend},
};
use thalweg_transport::Profile;

conformance_tests!(mem, MemBackend::new());
conformance_tests!(mem_without_identity, MemBackend::anonymous());
conformance_tests!(quic, QuicBackend::new(Profile::Lan));
conformance_tests!(quic_loopback, QuicBackend::new(Profile::Loopback));
conformance_tests!(tcp, TcpBackend::tls());
conformance_tests!(tcp_without_tls, TcpBackend::plaintext());
