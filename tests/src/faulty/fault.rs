//! The ways in which a backend can break the contract.

/// A breach of the contract, as a plausible bug of a backend.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// A sender that is dropped half way ends its stream as if it were complete (as quinn does).
    DropEndsCleanly,
    /// A receiver that is dropped tells the peer nothing.
    DroppedReceiverKeepsQuiet,
    /// All streams share one window.
    SharedWindow,
    /// A stream buffers whatever is written.
    UnboundedBuffer,
    /// A read that is dropped after it took data loses it.
    CancelledReadLosesBytes,
    /// A read gives more than was asked for.
    ChunkTooLarge,
    /// Two chunks of one write change places.
    ReordersChunks,
    /// The last byte before the finish is lost.
    FinishLosesTail,
    /// A reset reads as the end of data.
    ResetReadsAsEnd,
    /// A reset arrives with another code.
    ResetCodeLost,
    /// A stop arrives with another code.
    StopCodeLost,
    /// Writing after the finish looks like success.
    WritesAfterFinish,
    /// The peer's stream limit is not kept.
    OpenIgnoresLimit,
    /// An `open` that is given up takes a stream later.
    CancelledOpenTakesStream,
    /// `close` is remembered, but nobody is told.
    CloseWakesNobody,
    /// The two sides see different codes of one close.
    CloseCodeDiffers,
    /// `accept` waits while any handshake is unfinished.
    AcceptWaitsForSilentPeers,
    /// A peer that proved nothing is taken for verified.
    ClaimsIdentity,
    /// The counters stand still.
    StatsStandStill,
}

impl Fault {
    /// All of them.
    pub const ALL: [Self; 19] = [
        Self::DropEndsCleanly,
        Self::DroppedReceiverKeepsQuiet,
        Self::SharedWindow,
        Self::UnboundedBuffer,
        Self::CancelledReadLosesBytes,
        Self::ChunkTooLarge,
        Self::ReordersChunks,
        Self::FinishLosesTail,
        Self::ResetReadsAsEnd,
        Self::ResetCodeLost,
        Self::StopCodeLost,
        Self::WritesAfterFinish,
        Self::OpenIgnoresLimit,
        Self::CancelledOpenTakesStream,
        Self::CloseWakesNobody,
        Self::CloseCodeDiffers,
        Self::AcceptWaitsForSilentPeers,
        Self::ClaimsIdentity,
        Self::StatsStandStill,
    ];

    /// The check that has to find it, as in [`CHECKS`](crate::conformance::CHECKS), and a part of what it says then.
    #[must_use]
    pub fn found_by(self) -> (&'static str, &'static str) {
        match self {
            Self::DropEndsCleanly => (
                "ending::dropping_an_unfinished_sender_resets_it",
                "the stream ended as if it were complete",
            ),
            Self::DroppedReceiverKeepsQuiet => (
                "ending::dropping_an_unread_receiver_stops_it",
                "writing up to an error: nothing happened",
            ),
            Self::SharedWindow => (
                "stall::a_stalled_stream_does_not_stall_a_neighbour",
                "nothing happened",
            ),
            Self::UnboundedBuffer => (
                "stall::an_unread_stream_takes_a_bounded_number_of_bytes",
                "bytes were taken without a reader",
            ),
            Self::CancelledReadLosesBytes => ("data::a_cancelled_read_loses_nothing", "byte"),
            Self::ChunkTooLarge => ("data::chunks_have_one_to_max_bytes", "a read of at most"),
            Self::ReordersChunks => ("data::a_big_transfer_arrives_intact", "differs"),
            Self::FinishLosesTail => (
                "data::everything_before_the_finish_arrives",
                "number of bytes",
            ),
            Self::ResetReadsAsEnd => ("ending::a_reset_wakes_a_pending_read", "a reset"),
            Self::ResetCodeLost => ("ending::a_reset_arrives_with_its_code", "expected a reset"),
            Self::StopCodeLost => ("ending::a_stop_arrives_with_its_code", "expected a stop"),
            Self::WritesAfterFinish => ("ending::writing_after_the_finish_is_an_error", "Ok(())"),
            Self::OpenIgnoresLimit => (
                "limits::open_waits_for_the_limit_and_goes_on_when_it_is_raised",
                "no limit was met",
            ),
            Self::CancelledOpenTakesStream => (
                "limits::a_cancelled_open_takes_no_stream",
                "streams without and with cancelled waits",
            ),
            Self::CloseWakesNobody => (
                "closing::close_wakes_every_pending_operation",
                "waking the closing side: nothing happened",
            ),
            Self::CloseCodeDiffers => (
                "closing::operations_after_the_close_fail_alike",
                "expected the peer's close",
            ),
            Self::AcceptWaitsForSilentPeers => (
                "peers::accept_is_not_held_up_by_a_silent_peer",
                "connecting beside silent peers: nothing happened",
            ),
            Self::ClaimsIdentity => ("peers::peer_is_what_was_proved", "is taken for"),
            Self::StatsStandStill => ("peers::stats_move", "bytes_sent: 0"),
        }
    }
}
