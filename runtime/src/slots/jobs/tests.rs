//! The states of a job.

use std::convert::Infallible;

use super::*;

type Table = JobTable<&'static str, &'static str>;

const JOB: JobId = JobId::from_u128(1);
const OTHER: JobId = JobId::from_u128(2);

fn peer() -> ResourceId {
    ResourceId::new("jm").unwrap()
}

fn create(table: &mut Table, job: JobId) {
    table
        .get_or_create(job, || Ok::<_, Infallible>("services"))
        .unwrap();
}

fn connected() -> Table {
    let mut table = Table::new();
    create(&mut table, JOB);
    table.connect(JOB, peer(), "connection").unwrap();
    table
}

#[test]
fn an_unknown_job_is_made_and_a_known_one_returned() {
    let mut table = Table::new();
    create(&mut table, JOB);
    let known = table.get_or_create(JOB, || Err("made twice")).unwrap();
    assert_eq!(*known.services(), "services");
}

#[test]
fn a_job_whose_services_fail_does_not_exist() {
    let mut table = Table::new();
    assert_eq!(
        table.get_or_create(JOB, || Err("no disk")).map(|_| ()),
        Err("no disk")
    );
    assert!(table.get(JOB).is_none());
}

#[test]
fn a_connection_is_found_by_job_and_by_resource() {
    let table = connected();
    let job = table.get(JOB).unwrap();
    assert_eq!(job.connection(), Some((&peer(), &"connection")));
    assert_eq!(table.jobs_of(&peer()).collect::<Vec<_>>(), [JOB]);
}

#[test]
fn connecting_twice_is_refused_and_gives_the_connection_back() {
    let mut table = connected();
    assert_eq!(
        table.connect(JOB, peer(), "second"),
        Err((JobTableError::AlreadyConnected(JOB), "second"))
    );
}

#[test]
fn a_job_can_be_connected_again_after_a_disconnect() {
    let mut table = connected();
    assert_eq!(table.disconnect(JOB), Ok((peer(), "connection")));
    assert_eq!(table.jobs_of(&peer()).count(), 0);
    assert_eq!(table.disconnect(JOB), Err(JobTableError::NotConnected(JOB)));
    assert!(table.get(JOB).is_some());
    assert_eq!(table.connect(JOB, peer(), "second"), Ok(()));
}

#[test]
fn closing_hands_services_and_connection_over() {
    let mut table = connected();
    let closed = table.close(JOB).unwrap();
    assert_eq!(closed.services, "services");
    assert_eq!(closed.connection, Some((peer(), "connection")));
    assert_eq!(table.jobs_of(&peer()).count(), 0);
    assert_eq!(table.jobs().count(), 0);
}

#[test]
fn every_use_after_a_close_is_refused() {
    let mut table = connected();
    table.close(JOB).unwrap();
    let gone = JobTableError::NotFound(JOB);
    assert_eq!(table.close(JOB), Err(gone));
    assert_eq!(table.disconnect(JOB), Err(gone));
    assert_eq!(table.connect(JOB, peer(), "late"), Err((gone, "late")));
    assert!(table.get_mut(JOB).is_none());
}

#[test]
fn one_jobmanager_may_lead_several_jobs() {
    let mut table = connected();
    create(&mut table, OTHER);
    table.connect(OTHER, peer(), "other").unwrap();
    assert_eq!(table.jobs_of(&peer()).collect::<Vec<_>>(), [JOB, OTHER]);
    table.close(JOB).unwrap();
    assert_eq!(table.jobs_of(&peer()).collect::<Vec<_>>(), [OTHER]);
}

#[test]
fn closing_all_hands_every_job_over() {
    let mut table = connected();
    create(&mut table, OTHER);
    let closed = table.close_all();
    assert_eq!(
        closed.iter().map(|(job, _)| *job).collect::<Vec<_>>(),
        [JOB, OTHER]
    );
    assert!(closed[0].1.connection.is_some() && closed[1].1.connection.is_none());
    assert_eq!(table.jobs().count(), 0);
}

#[test]
fn services_and_connections_can_be_changed() {
    let mut table = connected();
    let job = table.get_mut(JOB).unwrap();
    *job.services_mut() = "changed";
    *job.connection_mut().unwrap() = "renewed";
    assert_eq!(*table.get(JOB).unwrap().services(), "changed");
    assert_eq!(table.disconnect(JOB).unwrap().1, "renewed");
}
