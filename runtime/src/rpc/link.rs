//! The caller's end of a gateway: its streams, one after the other.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use bytes::Bytes;
use thalweg_transport::BoxFuture;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use super::{
    address::RpcAddress,
    budget::PeerBudget,
    error::RpcError,
    gateway::Method,
    handshake::{Opened, shake_hands},
    lane::{Lane, Waiter},
    link_task::{EndOnDrop, run},
    outbox::{Company, NotQueued},
    service::RpcService,
    sync::lock,
    wire::{CallContext, Head},
};

/// A gateway of another node, held by its clients and their calls. The last one closes its stream; what was told before
/// still goes out.
///
/// When the connection is drained, the gateway moves to a stream of a new one: what is sent from then on waits until
/// the callee has said that it has handed on everything before, which keeps the order; calls that are under way get
/// their answers on the old stream, however long they take unless the gateway ends first, and then that one ends.
#[derive(Debug)]
pub(super) struct Link {
    shared: Arc<Shared>,
}

#[derive(Debug)]
pub(super) struct Shared {
    pub(super) address: Arc<RpcAddress>,
    pub(super) service: RpcService,
    gateway: String,
    current: Mutex<Current>,
    /// Cancelled when the gateway has ended: its streams end with it, also those that it has moved away from.
    pub(super) gone: CancellationToken,
    /// Cancelled when nobody uses the gateway any more.
    pub(super) released: CancellationToken,
    budget: Arc<PeerBudget>,
}

/// Held while a frame is queued, so that no frame goes to a lane after its last one.
#[derive(Debug)]
struct Current {
    lane: Arc<Lane>,
    /// Why the gateway ended.
    ended: Option<RpcError>,
}

impl Link {
    /// Opens a stream to a gateway of another node. Cancel-safe.
    pub(super) async fn open(
        service: &RpcService,
        address: &RpcAddress,
        gateway: &str,
    ) -> Result<(Self, Arc<RpcAddress>), RpcError> {
        let opened = open_stream(service, address, gateway).await?;
        let address = Arc::new(opened.address.clone());
        let budget = service.outgoing_budget(opened.lease.peer().id.as_str());
        let lane = Arc::new(Lane::new(&budget, opened.max_frame));
        let shared = Arc::new(Shared {
            address: Arc::clone(&address),
            service: service.clone(),
            gateway: gateway.to_owned(),
            current: Mutex::new(Current {
                lane: Arc::clone(&lane),
                ended: None,
            }),
            gone: CancellationToken::new(),
            released: CancellationToken::new(),
            budget,
        });
        shared.spawn(lane, opened, None);
        Ok((Self { shared }, address))
    }

    /// Why the gateway ended, or `None` while it lives.
    pub(super) fn ended(&self) -> Option<RpcError> {
        lock(&self.shared.current).ended.clone()
    }

    /// Waits for the gateway's end without keeping it open.
    pub(super) fn until_ended(&self) -> BoxFuture<'static, RpcError> {
        let shared = Arc::clone(&self.shared);
        Box::pin(async move {
            shared.gone.cancelled().await;
            shared.lost()
        })
    }

    /// Sends a request and waits for its answer. Dropping the future cancels the call.
    pub(super) async fn ask(
        self: Arc<Self>,
        method: &'static Method,
        context: CallContext,
        deadline: Option<Duration>,
        body: Vec<u8>,
    ) -> Result<Bytes, RpcError> {
        let shared = &self.shared;
        let permit = shared.budget.take(body.len())?;
        let (answer, receiver) = oneshot::channel();
        let waiter = Waiter {
            answer,
            _permit: permit,
        };
        let deadline_ms = deadline.map_or(0, |deadline| {
            u32::try_from(deadline.as_millis().max(1)).unwrap_or(u32::MAX)
        });
        let guard = shared.send(method, body, |lane| {
            let (call, company) = lane.issue(waiter);
            let head = Head::Request {
                call,
                method: method.id,
                context,
                deadline_ms,
            };
            (head, company, CancelOnDrop { lane, call })
        })?;
        let answer = receiver.await;
        drop(guard);
        answer.unwrap_or_else(|_| Err(shared.lost()))
    }

    /// Sends a message that is not answered.
    pub(super) fn tell(
        &self,
        method: &'static Method,
        context: CallContext,
        body: Vec<u8>,
    ) -> Result<(), RpcError> {
        let head = Head::Tell {
            method: method.id,
            context,
        };
        self.shared
            .send(method, body, |_| (head, Company::Many, ()))
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.shared.released.cancel();
        lock(&self.shared.current).lane.outbox.close();
    }
}

impl Shared {
    /// Queues a frame on the stream of this moment.
    fn send<T>(
        &self,
        method: &'static Method,
        body: Vec<u8>,
        begin: impl FnOnce(Arc<Lane>) -> (Head, Company, T),
    ) -> Result<T, RpcError> {
        // What a failure leaves is dropped after the lock.
        let (begun, queued) = {
            let current = lock(&self.current);
            if let Some(error) = &current.ended {
                return Err(error.clone());
            }
            let lane = Arc::clone(&current.lane);
            if body.len() > lane.max_frame as usize {
                return Err(RpcError::TooLarge {
                    what: format!("request of {method}"),
                    size: body.len() as u64,
                    limit: u64::from(lane.max_frame),
                });
            }
            let (head, company, begun) = begin(Arc::clone(&lane));
            (begun, lane.outbox.push_in(company, head, body))
        };
        match queued {
            Ok(()) => Ok(begun),
            Err(NotQueued::Full) => Err(RpcError::Overloaded {
                what: format!("bytes to send to {}", self.address),
                limit: self.service.config().max_pending_bytes,
            }),
            Err(NotQueued::Closed) => Err(self.lost()),
        }
    }

    /// Why calls fail.
    pub(super) fn lost(&self) -> RpcError {
        lock(&self.current)
            .ended
            .clone()
            .unwrap_or_else(|| self.service.stopped())
    }

    /// Opens another stream to the same gateway.
    pub(super) async fn open_another(&self) -> Result<Opened, RpcError> {
        open_stream(&self.service, &self.address, &self.gateway).await
    }

    /// Sends from now on on another stream, behind what this one still has. Not if the gateway has ended, is let go, or
    /// has no room for one more frame.
    pub(super) fn move_to(self: &Arc<Self>, opened: Opened, from: &Arc<Lane>) -> bool {
        let lane = Arc::new(Lane::new(&self.budget, opened.max_frame));
        {
            let mut current = lock(&self.current);
            if current.ended.is_some() || from.retire().is_err() {
                return false;
            }
            current.lane = Arc::clone(&lane);
        }
        self.spawn(lane, opened, Some(Arc::clone(from)));
        true
    }

    /// The stream of a lane has ended. The gateway ends with it, unless it has moved on: then only the calls that are
    /// still under way there.
    pub(super) fn end(&self, lane: &Arc<Lane>, error: &RpcError) {
        let is_whole = {
            let mut current = lock(&self.current);
            // What waits behind a lane whose frames were not all handed on must not be sent after a gap.
            let is_whole = Arc::ptr_eq(&current.lane, lane) || !lane.drained.is_cancelled();
            if is_whole {
                current.ended.get_or_insert_with(|| error.clone());
            }
            is_whole
        };
        if is_whole {
            self.gone.cancel();
        }
        lane.end(error);
    }

    fn spawn(self: &Arc<Self>, lane: Arc<Lane>, opened: Opened, after: Option<Arc<Lane>>) {
        let Some(connections) = self.service.connections() else {
            return;
        };
        let guard = EndOnDrop::new(Arc::clone(self), lane);
        let task = run(guard, opened, after);
        self.service.tasks().spawn_on(task, connections.runtime());
    }
}

async fn open_stream(
    service: &RpcService,
    address: &RpcAddress,
    gateway: &str,
) -> Result<Opened, RpcError> {
    let unreachable = || RpcError::RecipientUnreachable {
        address: address.to_string(),
        reason: "the service is local".to_owned(),
    };
    let connections = service.connections().ok_or_else(unreachable)?;
    let connection = address.connection().ok_or_else(unreachable)?;
    let lease = connections
        .acquire(connection)
        .await
        .map_err(|error| RpcError::connection(address, &error))?;
    shake_hands(service, lease, address, gateway).await
}

/// Gives a call up when its future is dropped before the answer.
struct CancelOnDrop {
    lane: Arc<Lane>,
    call: u64,
}

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.lane.cancel(self.call);
    }
}
