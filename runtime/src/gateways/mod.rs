//! The gateways between the parts of a cluster, and the messages that they carry.
//!
//! | gateway | served by | called by |
//! |---|---|---|
//! | [`DispatcherGateway`] | Dispatcher | clients |
//! | [`ResourceManagerGateway`] | ResourceManager | TaskExecutors, JobMasters |
//! | [`JobMasterGateway`] (fenced) | one JobMaster per job | TaskExecutors, the Dispatcher |
//! | [`TaskExecutorGateway`] | TaskExecutor | ResourceManager, JobMasters |
//!
//! # Who may call what
//! From another node, by the role in its certificate; calls inside one process are not asked for it.
//!
//! | method | roles |
//! |---|---|
//! | `Dispatcher.submit_job` | client, jobmanager |
//! | `Dispatcher.cancel_job` | client, jobmanager |
//! | `Dispatcher.job_status` | client, jobmanager |
//! | `Dispatcher.job_result` | client, jobmanager |
//! | `Dispatcher.cluster_status` | client, jobmanager |
//! | `ResourceManager.register_task_executor` | taskmanager |
//! | `ResourceManager.report_slots` | taskmanager |
//! | `ResourceManager.disconnect_task_executor` | taskmanager |
//! | `ResourceManager.notify_slot_available` | taskmanager |
//! | `ResourceManager.request_slots` | jobmanager |
//! | `ResourceManager.release_job` | jobmanager |
//! | `ResourceManager.overview` | jobmanager |
//! | `JobMaster.register_task_manager` | taskmanager |
//! | `JobMaster.offer_slots` | taskmanager |
//! | `JobMaster.fail_slot` | taskmanager |
//! | `JobMaster.update_task_state` | taskmanager |
//! | `JobMaster.add_task_result` | taskmanager |
//! | `JobMaster.report_metrics` | taskmanager |
//! | `JobMaster.partition_producer_state` | taskmanager |
//! | `JobMaster.disconnect_task_manager` | taskmanager |
//! | `JobMaster.cancel` | jobmanager |
//! | `JobMaster.status` | jobmanager |
//! | `JobMaster.result` | jobmanager |
//! | `TaskExecutor.request_slot` | jobmanager |
//! | `TaskExecutor.submit_task` | jobmanager |
//! | `TaskExecutor.cancel_task` | jobmanager |
//! | `TaskExecutor.free_slot` | jobmanager |
//! | `TaskExecutor.heartbeat_from_resource_manager` | jobmanager |
//! | `TaskExecutor.heartbeat_from_job_master` | jobmanager |
//! | `TaskExecutor.disconnect_resource_manager` | jobmanager |
//! | `TaskExecutor.disconnect_job_master` | jobmanager |
//!
//! Beyond the role, a caller with a certificate speaks for its own node only: a registration, an offer, a goodbye, a state
//! or a result of a task is taken from the node that it names, or that the task was deployed to. All methods of a JobMaster
//! want its fencing token, which a TaskManager learns with a slot of that job. Instances, allocations and tokens are random
//! numbers of 128 bits. So a TaskManager can spoil the jobs that have tasks on it, by wrong data or a wrong result, and no
//! others; clients and the JobManager are trusted with all jobs.
//!
//! Registrations, slot reports and heartbeats are bounded per second and peer before they reach an endpoint, and what a
//! TaskManager says of itself is checked before it counts.

mod dispatcher;
mod failure;
mod job_master;
mod resource_manager;
mod task_executor;

pub use dispatcher::*;
pub use job_master::*;
pub use resource_manager::*;
pub use task_executor::*;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rpc::{Gateway, Method};

    fn methods() -> impl Iterator<Item = &'static Method> {
        [
            DispatcherClient::METHODS,
            ResourceManagerClient::METHODS,
            JobMasterClient::METHODS,
            TaskExecutorClient::METHODS,
        ]
        .into_iter()
        .flatten()
    }

    #[test]
    fn the_table_says_who_may_call_what() {
        let declared: Vec<String> = methods()
            .map(|method| format!("//! | `{method}` | {} |", method.callers.join(", ")))
            .collect();
        let documented: Vec<&str> = include_str!("mod.rs")
            .lines()
            .filter(|line| line.starts_with("//! | `"))
            .collect();
        assert_eq!(documented, declared);
    }

    #[test]
    fn no_method_is_open_to_every_role() {
        for method in methods() {
            assert!(!method.callers.is_empty(), "{method} has no caller");
            assert!(!method.may_be_called_by("somebody"), "{method}");
        }
    }

    #[test]
    fn registrations_reports_and_heartbeats_are_bounded_per_second() {
        let bounded: Vec<String> = methods()
            .filter_map(|method| Some(format!("{method} {}", method.max_per_second?)))
            .collect();
        assert_eq!(
            bounded,
            [
                "ResourceManager.register_task_executor 100",
                "ResourceManager.report_slots 100",
                "JobMaster.register_task_manager 100",
                "TaskExecutor.heartbeat_from_resource_manager 1000",
                "TaskExecutor.heartbeat_from_job_master 1000",
            ]
        );
    }

    #[test]
    fn every_method_of_a_job_master_is_fenced() {
        assert!(JobMasterClient::METHODS.iter().all(|method| method.fenced));
    }
}
