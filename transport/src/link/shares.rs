//! How much of what a node has for its peers one of them may take.

use std::{
    collections::HashMap,
    net::{IpAddr, Ipv6Addr},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use crate::{handler::Peer, identity::PeerIdentity, transport::Connection};

/// Counts places by peer, so that one that dials without end leaves others some.
#[derive(Debug)]
pub(super) struct Shares {
    of_one: usize,
    taken: Mutex<HashMap<Who, usize>>,
}

/// Whose a place is.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Who {
    /// A node: what its certificate proves, or, without TLS, what it says.
    Node(Arc<str>),
    /// Where a peer comes from, as long as nothing else is known of it; of IPv6 the network, of which a machine has all
    /// addresses.
    Address(IpAddr),
}

impl Who {
    /// Who is at the other end before its hello.
    pub(super) fn of_connection<C: Connection>(connection: &C) -> Self {
        match connection.peer() {
            PeerIdentity::Verified(peer) => Self::Node(Arc::clone(&peer.uri)),
            PeerIdentity::Unverified => {
                Self::Address(match connection.remote_addr().ip().to_canonical() {
                    IpAddr::V6(address) => {
                        let network = u128::from(address) & (u128::MAX << 64);
                        IpAddr::V6(Ipv6Addr::from(network))
                    }
                    address => address,
                })
            }
        }
    }

    /// Who is at the other end by its hello.
    pub(super) fn of_peer(peer: &Peer) -> Self {
        Self::Node(match &peer.identity {
            PeerIdentity::Verified(verified) => Arc::clone(&verified.uri),
            PeerIdentity::Unverified => peer.id.as_str().into(),
        })
    }
}

impl Shares {
    /// One peer may have `most` of `all` places, and never the last eighth of them (of fewer than 8 it may have all).
    pub(super) fn new(all: u32, most: u32) -> Arc<Self> {
        Arc::new(Self {
            of_one: most.min(all - all / 8) as usize,
            taken: Mutex::default(),
        })
    }

    /// Places that one peer may have.
    pub(super) fn of_one(&self) -> usize {
        self.of_one
    }

    /// A place, or `None` if the peer has all that it may have.
    pub(super) fn take(self: &Arc<Self>, who: Who) -> Option<Share> {
        let mut taken = self.lock();
        let count = taken.entry(who.clone()).or_default();
        if *count >= self.of_one {
            return None;
        }
        *count += 1;
        drop(taken);
        Some(Share {
            shares: Arc::clone(self),
            who,
        })
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Who, usize>> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A place of a peer; dropping it gives it back.
#[derive(Debug)]
pub(super) struct Share {
    shares: Arc<Shares>,
    who: Who,
}

impl Drop for Share {
    fn drop(&mut self) {
        let mut taken = self.shares.lock();
        if let Some(count) = taken.get_mut(&self.who) {
            *count -= 1;
            if *count == 0 {
                taken.remove(&self.who);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(name: &str) -> Who {
        Who::Node(name.into())
    }

    #[test]
    fn a_peer_has_no_more_than_its_share_and_others_have_theirs() {
        let shares = Shares::new(16, 100);
        let mut held: Vec<_> = (0..14).map(|_| shares.take(node("a")).unwrap()).collect();
        assert!(shares.take(node("a")).is_none());
        let _other = shares.take(node("b")).unwrap();
        held.pop();
        held.push(shares.take(node("a")).unwrap());
        assert!(shares.take(node("a")).is_none());
        drop(held);
        assert_eq!(shares.lock().len(), 1, "who has nothing is forgotten");
        assert_eq!(Shares::new(10_000, 256).of_one(), 256);
        assert_eq!(Shares::new(1, 256).of_one(), 1);
    }
}
