//! What is measured in which order.

mod exchange;
mod rpc;

pub(crate) use exchange::cases as exchange_cases;
pub(crate) use rpc::cases as rpc_cases;

use thalweg_transport::Profile;

use super::{
    case::Case,
    transport_kind::{Placement, TransportKind},
};

/// A transport, its profile and where its tasks run; `None` where it makes no difference.
type Way = (TransportKind, Option<Profile>, Option<Placement>);

/// Every transport in each profile and placement that it has.
fn ways(transports: &[TransportKind], profiles: &[Profile], placements: &[Placement]) -> Vec<Way> {
    let mut ways = Vec::new();
    for &profile in profiles {
        for &transport in transports {
            let profile = transport.has_profile().then_some(profile);
            if transport.is_ours() {
                let placements = placements.iter();
                ways.extend(placements.map(|&placement| (transport, profile, Some(placement))));
            } else {
                ways.push((transport, profile, None));
            }
        }
    }
    ways
}

/// Each case once, at its first place.
fn distinct(cases: impl IntoIterator<Item = Case>) -> Vec<Case> {
    let mut distinct: Vec<Case> = Vec::new();
    for case in cases {
        if !distinct.contains(&case) {
            distinct.push(case);
        }
    }
    distinct
}
