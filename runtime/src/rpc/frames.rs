//! Frames of one stream as they come, from either side.

use std::sync::{Arc, Mutex};

use thalweg_transport::{BoxRecvStream, Landed, Landing, RecvStream, SharedLanding, StreamError};

use super::{
    sync::lock,
    wire::{Decoder, Frame},
};

/// Takes the frames of a stream, in the task that reads the connection where the backend has one. Never waits.
pub(super) trait FrameSink: Send + 'static {
    /// Takes a frame.
    ///
    /// # Errors
    /// What is wrong with it: the stream is of no further use.
    fn on_frame(&mut self, frame: Frame) -> Result<(), String>;

    /// So many bytes of frames that are not whole are held now. False if that is more than the peer may have.
    fn may_hold(&mut self, _bytes: usize) -> bool {
        true
    }
}

/// Why a stream gives no more frames.
#[derive(Debug)]
pub(super) enum NoFrames {
    /// The peer finished, between two frames.
    Finished,
    /// The peer breaks the protocol.
    Broken(String),
    /// The peer begins more frames than it may.
    TooManyBegun,
    /// The stream failed.
    Failed(StreamError),
    /// This side wants no more, see [`Frames::close`].
    Closed,
}

/// Frames on their way to a sink.
#[derive(Debug)]
pub(super) struct Frames<S> {
    sink: S,
    decoder: Decoder,
    /// Whole frames may wait in the decoder.
    more: bool,
    ended: Option<NoFrames>,
}

impl<S: FrameSink> Frames<S> {
    /// Begins with what the decoder holds already.
    pub(super) fn new(sink: S, decoder: Decoder) -> Arc<Mutex<Self>> {
        Arc::new(Mutex::new(Self {
            sink,
            decoder,
            more: true,
            ended: None,
        }))
    }

    /// Takes no more frames.
    pub(super) fn close(&mut self) {
        self.ended.get_or_insert(NoFrames::Closed);
    }

    /// Hands on as many frames as go without holding others up.
    fn take_some(&mut self) {
        for _ in 0..FRAMES_AT_ONCE {
            if self.ended.is_some() {
                return;
            }
            match self.decoder.next_frame() {
                Ok(Some(frame)) => {
                    if let Err(reason) = self.sink.on_frame(frame) {
                        self.ended = Some(NoFrames::Broken(reason));
                    }
                }
                Ok(None) => {
                    self.more = false;
                    if !self.sink.may_hold(self.decoder.len()) {
                        self.ended = Some(NoFrames::TooManyBegun);
                    }
                    return;
                }
                Err(error) => self.ended = Some(NoFrames::Broken(error.to_string())),
            }
        }
        self.more = true;
    }
}

impl<S: FrameSink> Landing for Frames<S> {
    fn land(&mut self, bytes: &[u8]) {
        if self.ended.is_none() {
            self.decoder.push(bytes);
            self.take_some();
        }
    }

    fn hand_on(&mut self) -> bool {
        self.ended.is_none() && !self.more
    }
}

/// Hands frames to the sink until there are no more. Of many small ones it gives way in between.
pub(super) async fn take_frames<S: FrameSink>(
    recv: &mut BoxRecvStream,
    frames: &Arc<Mutex<Frames<S>>>,
) -> NoFrames {
    let landing: SharedLanding = frames.clone();
    loop {
        let more = {
            let mut frames = lock(frames);
            if frames.more {
                frames.take_some();
            }
            if let Some(ended) = frames.ended.take() {
                return ended;
            }
            frames.more
        };
        if more {
            tokio::task::yield_now().await;
            continue;
        }
        match recv.land(&landing).await {
            Ok(Landed::Paused) => {}
            Ok(Landed::End) if lock(frames).decoder.is_empty() => return NoFrames::Finished,
            Ok(Landed::End) => {
                return NoFrames::Broken("the stream ends within a frame".to_owned());
            }
            Err(error) => {
                let ended = lock(frames).ended.take();
                return ended.unwrap_or(NoFrames::Failed(error));
            }
        }
    }
}

/// Small frames that are handed on in one go: a microsecond or two for each.
const FRAMES_AT_ONCE: usize = 128;
