//! The conformance suite for transports, deliberately broken transports that prove it, and what integration tests share.
//!
//! The author of a backend implements [`conformance::Backend`] for it and gets one test per check with
//! [`conformance_tests!`], or runs all of them with [`conformance::run_all`].

pub mod conformance;
pub mod faulty;
pub mod harness;
pub mod process;

/// Makes a test of each function for each transport between real processes: `quic::name` and `tcp::name` call
/// `name("quic")` and `name("tcp")`.
#[macro_export]
macro_rules! on_both_transports {
    ($($test:ident),* $(,)?) => {
        mod quic {
            $(#[test] fn $test() { super::$test("quic"); })*
        }
        mod tcp {
            $(#[test] fn $test() { super::$test("tcp"); })*
        }
    };
}

/// Makes a test of each async function for each backend: with `quic = make()`, the test `quic::name` runs
/// `name(make()).await`.
#[macro_export]
macro_rules! on_backends {
    ($tests:tt: $($backend:ident = $make:expr),+ $(,)?) => {
        $($crate::on_backends!(@ $backend, $make, $tests);)+
    };
    (@ $backend:ident, $make:expr, [$($test:ident),+ $(,)?]) => {
        mod $backend {
            use super::*;

            $(
                #[tokio::test]
                async fn $test() {
                    super::$test($make).await;
                }
            )+
        }
    };
}
