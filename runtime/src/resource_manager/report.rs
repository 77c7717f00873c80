//! Whether what a TaskManager says of itself can be true. Pure.

use std::collections::BTreeSet;

use super::slot_manager::ReportedSlot;
use crate::{
    gateways::TaskManagerReport,
    rpc::HandlerError,
    slots::{SlotReport, SlotState},
};

/// Checks a report before anything of it counts: it decides which slots are given to jobs, and is kept.
///
/// # Errors
/// `report.invalid`, with the first thing that cannot be.
pub(super) fn check_report(report: &TaskManagerReport) -> Result<(), HandlerError> {
    check_slots(&report.slots)?;
    check_text("identity", report.identity.as_deref())?;
    check_text("tls", Some(&report.tls))?;
    check_text(
        "certificate_fingerprint",
        report.certificate_fingerprint.as_deref(),
    )?;
    let connections = report.connections.len();
    if connections > MAX_CONNECTIONS {
        return invalid(format!(
            "{connections} connections: at most {MAX_CONNECTIONS} are allowed"
        ));
    }
    for connection in &report.connections {
        check_text("transport", Some(&connection.transport))?;
        check_text("tls", Some(&connection.tls))?;
    }
    Ok(())
}

/// Checks a text that is kept for status pages or given to others.
pub(super) fn check_text(what: &str, text: Option<&str>) -> Result<(), HandlerError> {
    let bytes = text.map_or(0, str::len);
    if bytes > MAX_TEXT_BYTES {
        return invalid(format!(
            "{what} has {bytes} bytes: at most {MAX_TEXT_BYTES} are allowed"
        ));
    }
    Ok(())
}

/// The part of a report that the slot manager needs.
pub(super) fn reported(report: &SlotReport) -> Vec<ReportedSlot> {
    report
        .slots
        .iter()
        .map(|slot| ReportedSlot {
            slot: slot.index,
            owner: slot.allocation,
        })
        .collect()
}

fn check_slots(report: &SlotReport) -> Result<(), HandlerError> {
    let (mut indexes, mut allocations) = (BTreeSet::new(), BTreeSet::new());
    for slot in &report.slots {
        let index = slot.index;
        if index >= MAX_SLOTS {
            return invalid(format!("slot {index}: the highest is {}", MAX_SLOTS - 1));
        }
        if !indexes.insert(index) {
            return invalid(format!("slot {index} is listed twice"));
        }
        match (slot.state, slot.allocation) {
            (SlotState::Free, None) => {}
            (SlotState::Free, Some(_)) => {
                return invalid(format!("slot {index} is free and has an owner"));
            }
            (state, None) => {
                return invalid(format!("slot {index} is {state} and has no owner"));
            }
            (_, Some((_, allocation))) => {
                if !allocations.insert(allocation) {
                    return invalid(format!("allocation {allocation} has two slots"));
                }
            }
        }
    }
    Ok(())
}

fn invalid(what: String) -> Result<(), HandlerError> {
    Err(HandlerError::new("report.invalid", what))
}

/// The most that a TaskManager can have: 1,024 fixed slots and as many dynamic ones.
const MAX_SLOTS: u32 = 2048;
/// One to and one from each node of a cluster far larger than any that this has been made for.
const MAX_CONNECTIONS: usize = 20_000;
/// More than any identity, fingerprint or address has.
const MAX_TEXT_BYTES: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        ids::{AllocationId, JobId},
        slots::{ResourceProfile, SlotStatus},
    };

    fn slot(index: u32, state: SlotState, allocation: Option<u128>) -> SlotStatus {
        SlotStatus {
            index,
            state,
            profile: ResourceProfile { memory_bytes: 1 },
            allocation: allocation.map(|id| (JobId::from_u128(1), AllocationId::from_u128(id))),
        }
    }

    fn report(slots: Vec<SlotStatus>) -> TaskManagerReport {
        TaskManagerReport {
            slots: SlotReport { slots },
            identity: None,
            tls: "off".to_owned(),
            certificate_expires: None,
            certificate_fingerprint: None,
            connections: Vec::new(),
        }
    }

    #[test]
    fn what_a_task_manager_can_have_is_taken() {
        let fixed = (0..1024).map(|index| slot(index, SlotState::Free, None));
        let dynamic = (1024..2048).map(|i| slot(i, SlotState::Active, Some(i.into())));
        let all = report(fixed.chain(dynamic).collect());
        assert_eq!(check_report(&all), Ok(()));
        assert_eq!(reported(&all.slots).len(), 2048);
    }

    #[test]
    fn slots_that_cannot_be_are_named() {
        use SlotState::{Active, Allocated, Free};
        for (slots, expected) in [
            (vec![slot(1 << 31, Free, None)], "slot 2147483648"),
            (vec![slot(u32::MAX, Free, None)], "slot 4294967295"),
            (vec![slot(2048, Free, None)], "the highest is 2047"),
            (
                vec![slot(0, Free, None), slot(0, Free, None)],
                "slot 0 is listed twice",
            ),
            (vec![slot(3, Free, Some(1))], "slot 3 is free and has an"),
            (vec![slot(3, Allocated, None)], "slot 3 is allocated and"),
            (
                vec![slot(0, Active, Some(1)), slot(1, Active, Some(1))],
                "has two slots",
            ),
        ] {
            let error = check_report(&report(slots)).unwrap_err();
            assert_eq!(error.kind, "report.invalid");
            assert!(error.to_string().contains(expected), "{error}");
        }
    }

    #[test]
    fn long_texts_are_refused() {
        for change in [
            (|r| r.identity = Some("x".repeat(10_000_000))) as fn(&mut TaskManagerReport),
            |r| r.tls = "x".repeat(4097),
            |r| r.certificate_fingerprint = Some("x".repeat(4097)),
        ] {
            let mut long = report(Vec::new());
            change(&mut long);
            let error = check_report(&long).unwrap_err();
            assert!(error.to_string().contains("at most 4096"), "{error}");
        }
    }
}
