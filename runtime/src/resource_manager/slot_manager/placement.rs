//! Chooses TaskManagers for the slots of one request. Pure.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
};

use thalweg_transport::ResourceId;

use crate::{ids::AllocationId, job::Placement};

/// A TaskManager that may be chosen.
#[derive(Debug, Clone)]
pub(super) struct Candidate {
    pub(super) id: ResourceId,
    /// Indexes of its free slots.
    pub(super) free: Vec<u32>,
    /// Slot groups of the job that it serves already.
    pub(super) groups: BTreeSet<u32>,
}

/// A slot for an allocation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Choice {
    pub(super) allocation: AllocationId,
    pub(super) group: u32,
    pub(super) task_manager: ResourceId,
    pub(super) slot: u32,
}

/// Places all the needed allocations, by slot group, or none.
pub(super) fn place(
    mut candidates: Vec<Candidate>,
    needs: &BTreeMap<u32, Vec<AllocationId>>,
    placement: Placement,
) -> Option<Vec<Choice>> {
    let mut choices = Vec::new();
    match placement {
        Placement::Spread => {
            for (&group, allocations) in needs {
                spread(&mut candidates, group, allocations, &mut choices)?;
            }
        }
        Placement::SeparateGroups => {
            for (group, mut candidates) in separate(candidates, needs)? {
                let allocations = needs.get(&group)?;
                spread(&mut candidates, group, allocations, &mut choices)?;
            }
        }
    }
    Some(choices)
}

/// Gives each allocation a slot of the TaskManager that has the most free ones; among equals, of the one that has got
/// the fewest of this group, then of the first by name.
fn spread(
    candidates: &mut [Candidate],
    group: u32,
    allocations: &[AllocationId],
    choices: &mut Vec<Choice>,
) -> Option<()> {
    let mut given: BTreeMap<ResourceId, usize> = BTreeMap::new();
    for &allocation in allocations {
        let best = candidates
            .iter_mut()
            .filter(|candidate| !candidate.free.is_empty())
            .min_by_key(|candidate| {
                let got = given.get(&candidate.id).copied().unwrap_or(0);
                (Reverse(candidate.free.len()), got, candidate.id.clone())
            })?;
        *given.entry(best.id.clone()).or_default() += 1;
        choices.push(Choice {
            allocation,
            group,
            task_manager: best.id.clone(),
            slot: best.free.remove(0),
        });
    }
    Some(())
}

/// Divides the TaskManagers among the groups.
///
/// A TaskManager that serves a group of the job already stays with it. Then the group with the largest need takes the
/// smallest free TaskManager that covers it, or else the largest, and so on; this finds a division of equally large
/// TaskManagers whenever there is one, and may miss one where they differ. What is left goes to the group that has the
/// least for its need, so that load spreads.
fn separate(
    candidates: Vec<Candidate>,
    needs: &BTreeMap<u32, Vec<AllocationId>>,
) -> Option<BTreeMap<u32, Vec<Candidate>>> {
    let mut parts: BTreeMap<u32, Vec<Candidate>> =
        needs.keys().map(|&group| (group, Vec::new())).collect();
    let mut unbound = Vec::new();
    for candidate in candidates {
        match (candidate.groups.len(), candidate.groups.first()) {
            (0, _) => unbound.push(candidate),
            (1, Some(group)) => {
                if let Some(part) = parts.get_mut(group) {
                    part.push(candidate);
                }
            }
            _ => {}
        }
    }
    unbound.retain(|candidate| !candidate.free.is_empty());
    unbound.sort_by_key(|candidate| (candidate.free.len(), candidate.id.clone()));

    let mut order: Vec<(u32, usize)> = needs.iter().map(|(&g, a)| (g, a.len())).collect();
    order.sort_by_key(|&(group, need)| (Reverse(need), group));
    for &(group, need) in &order {
        let part = parts.get_mut(&group)?;
        let mut missing = need.saturating_sub(capacity(part));
        while missing > 0 {
            let covers = unbound
                .iter()
                .position(|candidate| candidate.free.len() >= missing);
            let index = covers.or_else(|| unbound.len().checked_sub(1))?;
            let taken = unbound.remove(index);
            missing = missing.saturating_sub(taken.free.len());
            part.push(taken);
        }
    }
    unbound.sort_by_key(|candidate| (Reverse(candidate.free.len()), candidate.id.clone()));
    for candidate in unbound {
        let (group, _) = order.iter().min_by(|(a, need_a), (b, need_b)| {
            let has = |group| parts.get(group).map_or(0, |part| capacity(part));
            (has(a) * need_b).cmp(&(has(b) * need_a))
        })?;
        parts.get_mut(group)?.push(candidate);
    }
    Some(parts)
}

fn capacity(part: &[Candidate]) -> usize {
    part.iter().map(|candidate| candidate.free.len()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn candidates(free: &[u32]) -> Vec<Candidate> {
        (1..)
            .zip(free)
            .map(|(n, &free)| Candidate {
                id: ResourceId::new(&format!("tm-{n}")).unwrap(),
                free: (0..free).collect(),
                groups: BTreeSet::new(),
            })
            .collect()
    }

    fn needs(needs: &[u32]) -> BTreeMap<u32, Vec<AllocationId>> {
        (0..)
            .zip(needs)
            .map(|(group, &need)| {
                let id = |i| AllocationId::from_u128(u128::from(group) * 1000 + u128::from(i));
                (group, (0..need).map(id).collect())
            })
            .collect()
    }

    /// How many slots of each group each TaskManager got: `tm-1:g0x2 …`.
    fn summary(choices: Option<Vec<Choice>>) -> String {
        let Some(choices) = choices else {
            return "none".to_owned();
        };
        let mut counts = BTreeMap::new();
        for choice in choices {
            *counts
                .entry((choice.task_manager, choice.group))
                .or_insert(0) += 1;
        }
        let parts: Vec<_> = counts
            .iter()
            .map(|((id, group), count)| format!("{id}:g{group}x{count}"))
            .collect();
        parts.join(" ")
    }

    fn placed(free: &[u32], need: &[u32], placement: Placement) -> String {
        summary(place(candidates(free), &needs(need), placement))
    }

    #[test]
    fn slots_are_spread_evenly_from_the_emptiest() {
        let spread = |free: &[u32], need: &[u32]| placed(free, need, Placement::Spread);
        assert_eq!(spread(&[2, 2], &[2]), "tm-1:g0x1 tm-2:g0x1");
        assert_eq!(spread(&[1, 4], &[3]), "tm-2:g0x3");
        assert_eq!(
            spread(&[4, 4], &[2, 2]),
            "tm-1:g0x1 tm-1:g1x1 tm-2:g0x1 tm-2:g1x1"
        );
        assert_eq!(spread(&[2, 1], &[3]), "tm-1:g0x2 tm-2:g0x1");
        assert_eq!(spread(&[2, 1], &[4]), "none");
        assert_eq!(spread(&[], &[1]), "none");
    }

    #[test]
    fn separate_groups_never_meet() {
        let separate = |free: &[u32], need: &[u32]| placed(free, need, Placement::SeparateGroups);
        assert_eq!(separate(&[2, 2], &[2, 2]), "tm-1:g0x2 tm-2:g1x2");
        assert_eq!(separate(&[8], &[1, 1]), "none");
        assert_eq!(separate(&[2, 4], &[4, 2]), "tm-1:g1x2 tm-2:g0x4");
        assert_eq!(
            separate(&[4, 4, 4, 4], &[4, 4]),
            "tm-1:g0x2 tm-2:g1x2 tm-3:g0x2 tm-4:g1x2"
        );
        assert_eq!(separate(&[2, 2, 2], &[4, 3]), "none");
    }

    #[test]
    fn a_group_stays_where_it_is() {
        let mut all = candidates(&[2, 2]);
        all[0].groups.insert(1);
        let one = BTreeMap::from([(0, vec![AllocationId::from_u128(1)])]);
        let placed = place(all, &one, Placement::SeparateGroups);
        assert_eq!(summary(placed), "tm-2:g0x1");
    }
}
