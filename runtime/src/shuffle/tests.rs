//! Tests of the exchange.
