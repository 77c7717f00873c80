//! The transport contract as checks, for any backend.
//!
//! Each check is an async function that makes a fresh pair of nodes and panics if a clause of the
//! [contract](thalweg_transport::Transport) does not hold. Checks hold for every conforming backend: where the contract
//! leaves a choice, none of them decides it. Every wait has a deadline; what must *not* happen is watched for
//! [`QUIET`].
//!
//! ```
//! use thalweg_tests::{conformance, harness::MemBackend};
//!
//! conformance::run_check(async {
//!     conformance::data::bytes_keep_their_order(&MemBackend::new()).await;
//! });
//! ```
//!
//! In a file of integration tests:
//!
//! ```ignore
//! thalweg_tests::conformance_tests!(my_backend, MyBackend::new());
//! ```

mod backend;
pub mod closing;
pub mod data;
pub mod ending;
pub mod landing;
pub mod limits;
pub mod peers;
pub mod stall;
mod support;

pub use backend::{Backend, Conn, Ends, Pair, RecvHalf, SendHalf};
pub use support::{DEADLINE, QUIET, run_check};

/// Names every check once; the list, the runner and the macro for tests are made from it.
macro_rules! checks {
    (($d:tt) $($theme:ident::$check:ident),* $(,)?) => {
        /// The names of all checks, `theme::check`.
        pub const CHECKS: &[&str] = &[$(concat!(stringify!($theme), "::", stringify!($check))),*];

        /// Runs every check, one after the other. Needs a tokio runtime with time and I/O.
        ///
        /// # Panics
        /// At the first check that fails, with its message.
        pub async fn run_all<B: Backend>(backend: &B) {
            $(
                tracing::info!(check = concat!(stringify!($theme), "::", stringify!($check)), "runs");
                $theme::$check(backend).await;
            )*
        }

        /// Runs the check of this name, as in [`CHECKS`]. Gives whether there is one.
        ///
        /// # Panics
        /// If the check fails, with its message.
        pub async fn run_named<B: Backend>(name: &str, backend: &B) -> bool {
            match name {
                $(
                    concat!(stringify!($theme), "::", stringify!($check)) => {
                        $theme::$check(backend).await;
                        true
                    }
                )*
                _ => false,
            }
        }

        /// Makes a module with one `#[test]` per check of the conformance suite.
        ///
        /// The first argument names the module, the second is an expression that gives the backend.
        #[macro_export]
        macro_rules! conformance_tests {
            ($d module:ident, $d backend:expr) => {
                mod $d module {
                    use super::*;

                    $(
                        #[test]
                        fn $check() {
                            $d crate::conformance::run_check(async {
                                let backend = $d backend;
                                $d crate::conformance::$theme::$check(&backend).await;
                            });
                        }
                    )*
                }
            };
        }
    };
}

checks! { ($)
    data::bytes_keep_their_order,
    data::tries_and_writes_keep_their_order,
    data::a_big_transfer_arrives_intact,
    data::chunks_have_one_to_max_bytes,
    data::written_chunks_are_left_empty,
    data::read_chunks_gives_every_byte_in_order,
    data::a_finish_without_data_reads_as_the_end,
    data::the_end_can_be_read_again,
    data::everything_before_the_finish_arrives,
    data::half_close_leaves_the_other_direction_open,
    data::both_directions_flow_at_once,
    data::empty_chunks_are_no_data,
    data::a_stream_is_seen_at_its_first_byte,
    data::priorities_do_not_reorder_a_stream,
    data::a_cancelled_read_loses_nothing,
    stall::an_unread_stream_takes_a_bounded_number_of_bytes,
    stall::a_stalled_stream_does_not_stall_a_neighbour,
    stall::a_stalled_stream_does_not_stall_opening,
    stall::many_streams_carry_their_own_data,
    stall::stopping_a_stalled_stream_wakes_its_writer,
    stall::a_stalled_stream_goes_on_when_it_is_read,
    limits::open_waits_for_the_limit_and_goes_on_when_it_is_raised,
    limits::waits_for_the_limit_are_counted,
    limits::a_stream_that_is_over_makes_room,
    limits::a_cancelled_open_takes_no_stream,
    limits::allow_streams_never_lowers,
    limits::a_cancelled_accept_loses_no_stream,
    limits::both_sides_open_streams,
    limits::streams_come_and_go_without_end,
    ending::a_reset_arrives_with_its_code,
    ending::a_reset_wakes_a_pending_read,
    ending::a_stop_arrives_with_its_code,
    ending::a_stop_wakes_stopped,
    ending::dropping_an_unfinished_sender_resets_it,
    ending::dropping_an_unread_receiver_stops_it,
    ending::dropping_a_finished_sender_loses_nothing,
    ending::dropping_a_receiver_at_its_end_stops_nothing,
    ending::stopped_says_that_all_was_received,
    ending::writing_after_the_finish_is_an_error,
    ending::writing_after_a_reset_is_an_error,
    ending::reading_after_a_stop_is_an_error,
    ending::finishing_a_stopped_stream_says_so,
    ending::a_dropped_write_may_be_reset,
    ending::the_end_of_a_stream_leaves_its_neighbours,
    landing::everything_lands_in_order_and_then_the_end,
    landing::reading_and_landing_share_a_stream,
    landing::a_paused_landing_waits_and_loses_nothing,
    landing::a_dropped_land_leaves_the_rest_to_read,
    landing::a_reset_ends_a_landing,
    landing::a_close_ends_a_landing,
    closing::close_wakes_every_pending_operation,
    closing::close_wakes_open_at_the_limit,
    closing::operations_after_the_close_fail_alike,
    closing::the_first_close_wins,
    closing::close_after_the_peers_close_changes_nothing,
    closing::large_codes_arrive,
    closing::the_reason_is_made_safe_for_a_log,
    closing::closed_waits_for_the_end,
    closing::what_a_close_cuts_off_never_reads_as_the_end,
    closing::clones_share_the_end,
    closing::dropping_the_last_handle_ends_the_connection,
    closing::a_vanished_peer_is_noticed,
    peers::peer_is_what_was_proved,
    peers::the_expected_node_is_reached,
    peers::the_wrong_node_is_refused,
    peers::accept_is_not_held_up_by_a_silent_peer,
    peers::many_peers_connect_at_once,
    peers::a_cancelled_accept_loses_no_connection,
    peers::a_dropped_dial_leaves_the_listener_working,
    peers::addresses_are_real,
    peers::a_taken_port_is_said_to_be_taken,
    peers::a_port_range_takes_the_first_free_one,
    peers::nobody_listening_is_worth_a_retry,
    peers::connections_are_independent,
    peers::a_dropped_listener_leaves_its_connections,
    peers::stats_move,
}
