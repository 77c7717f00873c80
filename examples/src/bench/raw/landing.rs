//! From the bytes of a plain TCP connection to full buffers: one copy.

use std::sync::Arc;

use tokio::sync::mpsc;

use super::{
    buffers::Buffers,
    header::{CALLS, HEADER_BYTES, Header},
};
use crate::bench::counters::Counters;

/// Takes what was read, in pieces of any length.
#[derive(Debug)]
pub(super) struct Landing {
    buffers: Buffers,
    counters: Arc<Counters>,
    answers: mpsc::Sender<()>,
    header: [u8; HEADER_BYTES],
    header_bytes: usize,
    body: Option<Body>,
}

#[derive(Debug)]
struct Body {
    channel: u32,
    missing: usize,
    buffer: Vec<u8>,
}

impl Landing {
    /// `answers` hears of each answered call.
    pub(super) fn new(
        buffers: Buffers,
        counters: Arc<Counters>,
        answers: mpsc::Sender<()>,
    ) -> Self {
        Self {
            buffers,
            counters,
            answers,
            header: [0; HEADER_BYTES],
            header_bytes: 0,
            body: None,
        }
    }

    /// # Errors
    /// A frame that is too long.
    pub(super) fn push(&mut self, mut bytes: &[u8]) -> Result<(), String> {
        while !bytes.is_empty() {
            let Some(body) = &mut self.body else {
                let take = bytes.len().min(HEADER_BYTES - self.header_bytes);
                let (now, later) = bytes.split_at(take);
                self.header[self.header_bytes..][..take].copy_from_slice(now);
                self.header_bytes += take;
                bytes = later;
                if self.header_bytes == HEADER_BYTES {
                    self.header_bytes = 0;
                    self.body = Some(self.begin(Header::decode(&self.header))?);
                }
                continue;
            };
            let take = bytes.len().min(body.missing);
            let (now, later) = bytes.split_at(take);
            body.buffer.extend_from_slice(now);
            body.missing -= take;
            bytes = later;
            if body.missing == 0
                && let Some(body) = self.body.take()
            {
                self.finish(body.channel, body.buffer);
            }
        }
        Ok(())
    }

    /// Counts a whole frame and gives its buffer back, as a consumer that drops it.
    pub(super) fn finish(&self, channel: u32, buffer: Vec<u8>) {
        if channel == CALLS {
            // Full only if more calls were answered than made.
            let _ = self.answers.try_send(());
        } else {
            self.counters.add(channel as usize, buffer.len());
        }
        self.buffers.give_back(buffer);
    }

    /// A buffer for this frame.
    ///
    /// # Errors
    /// A frame that is too long or has nothing in it.
    pub(super) fn buffer_for(&self, header: Header) -> Result<Vec<u8>, String> {
        let limit = self.buffers.size();
        if header.length == 0 || header.length as usize > limit {
            return Err(format!(
                "a frame of {} bytes came, 1 to {limit} bytes are allowed",
                header.length
            ));
        }
        Ok(self.buffers.take())
    }

    fn begin(&self, header: Header) -> Result<Body, String> {
        Ok(Body {
            channel: header.channel,
            missing: header.length as usize,
            buffer: self.buffer_for(header)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use thalweg_transport::{Profile, TransportConfig};

    use super::*;
    use crate::bench::{
        spec::Spec,
        transport_kind::{Placement, TransportKind},
    };

    fn landing() -> (Landing, Arc<Counters>, mpsc::Receiver<()>) {
        let spec = Spec {
            transport: TransportKind::RawTcp,
            channels: 2,
            buffer: 1024,
            profile: Profile::Loopback,
            placement: Placement::Network,
            separate: false,
            calls: None,
            cores: None,
        };
        let mut config = TransportConfig::default();
        config.buffer_size = spec.buffer;
        let counters = Arc::new(Counters::new(2));
        let (answers, answered) = mpsc::channel(4);
        let buffers = Buffers::new(&spec, &config);
        let landing = Landing::new(buffers, counters.clone(), answers);
        (landing, counters, answered)
    }

    fn frame(channel: u32, length: u32) -> Vec<u8> {
        let header = Header { channel, length }.encode();
        [&header[..], &vec![7; length as usize]].concat()
    }

    #[test]
    fn frames_land_however_the_bytes_are_cut() {
        let bytes = [frame(0, 1000), frame(CALLS, 64), frame(1, 10)].concat();
        for piece in [1, 7, 24, 25, 999, 4096] {
            let (mut landing, counters, mut answered) = landing();
            for part in bytes.chunks(piece) {
                landing.push(part).unwrap();
            }
            assert_eq!(
                (counters.bytes(1), counters.bytes(2)),
                (1000, 1010),
                "{piece}"
            );
            assert!(answered.try_recv().is_ok() && answered.try_recv().is_err());
        }
    }

    #[test]
    fn a_frame_that_no_buffer_takes_is_refused() {
        for length in [0, 1001, u32::MAX] {
            let (mut landing, _, _) = landing();
            let header = Header { channel: 0, length }.encode();
            let error = landing.push(&header).unwrap_err();
            assert!(error.contains("1 to 1000 bytes are allowed"), "{error}");
        }
    }
}
