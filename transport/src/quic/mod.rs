//! QUIC by quinn.
