//! Reads one subpartition of a finished blocking partition, ahead of its consumer as far as that has asked.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio_util::sync::CancellationToken;

use super::{
    core::BlockingCore,
    reader::{Block, BlockReader, Cursor, Next},
};
use crate::exchange::{
    error::ExchangeError,
    spill_error::SpillError,
    view::{AvailabilityListener, Credit, Item, SubpartitionView},
};

/// The handle of a reader.
#[derive(Debug)]
pub(super) struct BlockingView(pub(super) Arc<ViewCore>);

/// What a view shares with the task that reads for it.
#[derive(Debug)]
pub(super) struct ViewCore {
    partition: Arc<BlockingCore>,
    id: u64,
    listener: Arc<dyn AvailabilityListener>,
    cancel: CancellationToken,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    reader: BlockReader,
    cursor: Cursor,
    next: Next,
    queue: VecDeque<Block>,
    /// A task reads, or waits for buffers to read into.
    reading: bool,
    /// It has buffers and goes on from the cursor.
    on_disk: bool,
    /// The number under which the pool of all readers knows that there may be something in the queue.
    noted: Option<u64>,
    /// Data blocks that were not taken.
    left: u64,
    failed: Option<ExchangeError>,
    closed: bool,
}

impl ViewCore {
    pub(super) fn new(
        partition: Arc<BlockingCore>,
        id: u64,
        listener: Arc<dyn AvailabilityListener>,
        reader: BlockReader,
        total: u64,
    ) -> Self {
        Self {
            partition,
            id,
            listener,
            cancel: CancellationToken::new(),
            state: Mutex::new(State {
                reader,
                cursor: Cursor::default(),
                next: Next::Unknown,
                queue: VecDeque::new(),
                reading: false,
                on_disk: false,
                noted: None,
                left: total,
                failed: None,
                closed: false,
            }),
        }
    }

    /// Ends it with an error, unless it has one.
    pub(super) fn fail(&self, error: &ExchangeError) {
        let mut state = self.lock();
        if state.failed.is_some() || state.closed {
            return;
        }
        state.failed = Some(error.clone());
        let queue = std::mem::take(&mut state.queue);
        drop(state);
        drop(queue);
        self.cancel.cancel();
        self.listener.on_available();
    }

    /// Reads up to `most` data blocks, or, for 0, the events before the next one.
    fn start_reading(self: &Arc<Self>, most: usize) {
        let (view, reading) = (self.clone(), Reading(Some(self.clone())));
        self.partition.io().spawn(async move {
            let read = view.cancel.run_until_cancelled(view.read(most)).await;
            if let Some(Err(error)) = read {
                view.fail(&error);
            }
            reading.done();
        });
    }

    async fn read(self: &Arc<Self>, most: usize) -> Result<(), ExchangeError> {
        let buffers = self.partition.reads.request(most).await?;
        let (mut reader, mut cursor) = {
            let mut state = self.lock();
            state.on_disk = true;
            (state.reader.clone(), state.cursor)
        };
        let operation = self.partition.io().submit(move |scratch| {
            let read = reader.read(&mut cursor, buffers, scratch);
            read.map(|(blocks, next)| (blocks, next, cursor, reader.open))
        });
        let (mut blocks, next, cursor, open) = operation.wait().await.flatten()?;
        let mut state = self.lock();
        (state.reading, state.on_disk) = (false, false);
        if state.closed || state.failed.is_some() {
            drop(state);
            drop(blocks);
            return Ok(());
        }
        state.cursor = cursor;
        state.reader.open = open;
        state.next = next;
        let was_empty = state.queue.is_empty();
        state.queue.append(&mut blocks);
        if state.noted.is_none() && state.queue.iter().any(|block| block.data_type.is_data()) {
            state.noted = Some(self.partition.reads.note(self));
        }
        drop(state);
        // Also if nothing was read: credit may have come meanwhile.
        if was_empty {
            self.listener.on_available();
        }
        Ok(())
    }

    /// Gives back the buffers of what was not taken, which is read again when it is asked for. Whether there were any.
    pub(super) fn unload(&self) -> bool {
        let mut state = self.lock();
        state.noted = None;
        let first = state
            .queue
            .iter()
            .position(|block| block.data_type.is_data());
        let (Some(first), false) = (first, state.on_disk) else {
            return false;
        };
        let dropped = state.queue.split_off(first);
        if let Some(block) = dropped.front() {
            state.cursor = block.from;
        }
        state.next = Next::Data;
        drop(state);
        drop(dropped);
        true
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Held by the task that reads: fails the view if the task goes away before it has read, because its runtime has ended.
#[derive(Debug)]
struct Reading(Option<Arc<ViewCore>>);

impl Reading {
    fn done(mut self) {
        self.0 = None;
    }
}

impl Drop for Reading {
    fn drop(&mut self) {
        if let Some(view) = self.0.take() {
            view.fail(&SpillError::Closed.into());
        }
    }
}

impl State {
    /// How many data blocks to read now for a consumer with this much credit; `None` for no reading.
    fn wanted(&self, credit: Credit) -> Option<usize> {
        if self.reading || self.next == Next::Nothing {
            return None;
        }
        match credit {
            Credit::Unlimited => {
                let missing = LOCAL_READ_AHEAD.saturating_sub(self.queue.len());
                (missing * 2 >= LOCAL_READ_AHEAD).then_some(missing)
            }
            Credit::Buffers(0) if self.next == Next::Data => None,
            Credit::Buffers(buffers) => {
                let most = (buffers as usize).min(REMOTE_READ_AHEAD);
                self.queue.is_empty().then_some(most)
            }
        }
    }
}

impl SubpartitionView for BlockingView {
    fn take(
        &mut self,
        mut credit: Credit,
        max: usize,
        out: &mut Vec<Item>,
    ) -> Result<(), ExchangeError> {
        let mut state = self.0.lock();
        if let Some(error) = &state.failed {
            return Err(error.clone());
        }
        for _ in 0..max {
            let Some(block) = state.queue.front() else {
                break;
            };
            let data_type = block.data_type;
            if data_type.is_data() {
                if !credit.spend() {
                    break;
                }
                state.left = state.left.saturating_sub(1);
            }
            let backlog = state.backlog();
            let Some(block) = state.queue.pop_front() else {
                break;
            };
            out.push(Item {
                data_type,
                payload: block.payload,
                compressed: block.compressed,
                backlog,
            });
            // What a consumer of this node is given beyond the one item that its task is there to take, nobody could
            // take back for another reader.
            let is_enough = credit == Credit::Unlimited && data_type.is_data();
            if data_type.is_blocking() || is_enough {
                break;
            }
        }
        if let Some(most) = state.wanted(credit) {
            state.reading = true;
            drop(state);
            self.0.start_reading(most);
        }
        Ok(())
    }

    fn backlog(&self) -> u32 {
        self.0.lock().backlog()
    }

    fn accept_compressed(&mut self, buffer_bytes: usize) {
        let mut state = self.0.lock();
        state.reader.keep_compressed = buffer_bytes >= state.reader.buffer_bytes;
    }
}

impl State {
    fn backlog(&self) -> u32 {
        u32::try_from(self.left).unwrap_or(u32::MAX)
    }
}

impl Drop for BlockingView {
    fn drop(&mut self) {
        let view = &self.0;
        let mut state = view.lock();
        state.closed = true;
        let queue = std::mem::take(&mut state.queue);
        if let Some(number) = state.noted.take() {
            view.partition.reads.forget(number);
        }
        drop(state);
        drop(queue);
        view.cancel.cancel();
        view.partition.forget_view(view.id);
    }
}

/// Blocks that are read ahead of a consumer of this node: two at a time hide the way to the disk's thread.
const LOCAL_READ_AHEAD: usize = 4;

/// Blocks that are read at a time for a consumer of another node that has credit for them: as many as its stream
/// writes at once.
const REMOTE_READ_AHEAD: usize = 8;
