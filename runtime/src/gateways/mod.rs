//! The gateways between the parts of a cluster, and the messages that they carry.
//!
//! | gateway | served by | called by |
//! |---|---|---|
//! | [`DispatcherGateway`] | Dispatcher | clients |
//! | [`ResourceManagerGateway`] | ResourceManager | TaskExecutors, JobMasters |
//! | [`JobMasterGateway`] (fenced) | one JobMaster per job | TaskExecutors, the Dispatcher |
//! | [`TaskExecutorGateway`] | TaskExecutor | ResourceManager, JobMasters |

mod dispatcher;
mod failure;
mod job_master;
mod resource_manager;
mod task_executor;

pub use dispatcher::*;
pub use job_master::*;
pub use resource_manager::*;
pub use task_executor::*;
