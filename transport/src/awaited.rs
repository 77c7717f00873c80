//! Which dialled addresses have not answered at all.

use std::{
    collections::HashMap,
    net::SocketAddr,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
};

/// Dials under way by address. As large as the number of dials.
#[derive(Debug, Default)]
pub(crate) struct Awaited {
    /// Silent addresses, so that the way of received packets costs one look while there are none.
    silent: AtomicUsize,
    dials: Mutex<HashMap<SocketAddr, Dials>>,
}

#[derive(Debug, Default)]
struct Dials {
    count: usize,
    heard: bool,
}

impl Awaited {
    /// A dial begins; it lasts as long as the guard.
    pub(crate) fn begin(self: &Arc<Self>, address: SocketAddr) -> AwaitedDial {
        let mut dials = self.lock();
        let entry = dials.entry(address).or_default();
        entry.count += 1;
        if entry.count == 1 {
            self.silent.fetch_add(1, Ordering::Relaxed);
        }
        AwaitedDial {
            awaited: Arc::clone(self),
            address,
        }
    }

    /// Something came from there.
    pub(crate) fn heard(&self, address: SocketAddr) {
        if self.silent.load(Ordering::Relaxed) == 0 {
            return;
        }
        if let Some(dials) = self.lock().get_mut(&address)
            && !std::mem::replace(&mut dials.heard, true)
        {
            self.silent.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Whether a dial is under way to this address and nothing has come from there.
    pub(crate) fn is_silent(&self, address: SocketAddr) -> bool {
        self.lock().get(&address).is_some_and(|dials| !dials.heard)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<SocketAddr, Dials>> {
        self.dials.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One dial.
#[derive(Debug)]
pub(crate) struct AwaitedDial {
    awaited: Arc<Awaited>,
    address: SocketAddr,
}

impl Drop for AwaitedDial {
    fn drop(&mut self) {
        let mut dials = self.awaited.lock();
        let Some(entry) = dials.get_mut(&self.address) else {
            return;
        };
        entry.count -= 1;
        if entry.count == 0 {
            if !entry.heard {
                self.awaited.silent.fetch_sub(1, Ordering::Relaxed);
            }
            dials.remove(&self.address);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_silent_until_it_is_heard_while_it_is_dialled() {
        let awaited = Arc::new(Awaited::default());
        let (a, b) = (([10, 0, 0, 1], 1).into(), ([10, 0, 0, 2], 1).into());
        assert!(!awaited.is_silent(a));
        let (first, second) = (awaited.begin(a), awaited.begin(a));
        let _other = awaited.begin(b);
        assert!(awaited.is_silent(a));
        drop(first);
        awaited.heard(a);
        assert!(!awaited.is_silent(a) && awaited.is_silent(b));
        drop(second);
        awaited.heard(a);
        let _again = awaited.begin(a);
        assert!(awaited.is_silent(a));
        assert_eq!(awaited.silent.load(Ordering::Relaxed), 2);
    }
}
