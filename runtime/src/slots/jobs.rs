//! The jobs of a TaskExecutor and their connections.

use std::collections::{BTreeMap, BTreeSet};

use thalweg_transport::ResourceId;
use thiserror::Error;

use crate::ids::JobId;

/// The jobs that have something on this node: what serves each of them (`J`), and the connection to its JobMaster
/// (`C`), if there is one now.
///
/// Follows Flink's `DefaultJobTable`. A JobManager process may lead several jobs, so a ResourceId leads to all of them.
#[derive(Debug)]
pub struct JobTable<J, C> {
    jobs: BTreeMap<JobId, Job<J, C>>,
    by_resource: BTreeMap<ResourceId, BTreeSet<JobId>>,
}

/// One job.
#[derive(Debug)]
pub struct Job<J, C> {
    services: J,
    connection: Option<(ResourceId, C)>,
}

impl<J, C> Job<J, C> {
    /// What serves the job.
    #[must_use]
    pub fn services(&self) -> &J {
        &self.services
    }

    /// What serves the job, to be changed.
    pub fn services_mut(&mut self) -> &mut J {
        &mut self.services
    }

    /// The JobMaster's ResourceId and the connection to it.
    #[must_use]
    pub fn connection(&self) -> Option<(&ResourceId, &C)> {
        self.connection.as_ref().map(|(peer, c)| (peer, c))
    }

    /// The connection, to be changed.
    pub fn connection_mut(&mut self) -> Option<&mut C> {
        self.connection.as_mut().map(|(_, c)| c)
    }
}

/// What is left of a job that was closed: for the caller to shut down.
#[derive(Debug, PartialEq, Eq)]
pub struct ClosedJob<J, C> {
    /// What served the job.
    pub services: J,
    /// The connection, if there was one.
    pub connection: Option<(ResourceId, C)>,
}

/// A job that is not in the state that an operation needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum JobTableError {
    /// There is a connection already.
    #[error("job {0} is already connected to a JobMaster")]
    AlreadyConnected(JobId),
    /// There is no such job, or not any more.
    #[error("job {0} is not known here")]
    NotFound(JobId),
    /// There is no connection.
    #[error("job {0} is not connected to a JobMaster")]
    NotConnected(JobId),
}

impl<J, C> JobTable<J, C> {
    /// A table without jobs.
    #[must_use]
    pub fn new() -> Self {
        Self {
            jobs: BTreeMap::new(),
            by_resource: BTreeMap::new(),
        }
    }

    /// The job; made by `create` if it is new.
    ///
    /// # Errors
    /// What `create` fails with; the job does not exist then.
    pub fn get_or_create<E>(
        &mut self,
        job: JobId,
        create: impl FnOnce() -> Result<J, E>,
    ) -> Result<&mut Job<J, C>, E> {
        match self.jobs.entry(job) {
            std::collections::btree_map::Entry::Occupied(entry) => Ok(entry.into_mut()),
            std::collections::btree_map::Entry::Vacant(entry) => Ok(entry.insert(Job {
                services: create()?,
                connection: None,
            })),
        }
    }

    /// A job that exists.
    #[must_use]
    pub fn get(&self, job: JobId) -> Option<&Job<J, C>> {
        self.jobs.get(&job)
    }

    /// A job that exists, to be changed.
    pub fn get_mut(&mut self, job: JobId) -> Option<&mut Job<J, C>> {
        self.jobs.get_mut(&job)
    }

    /// Notes the connection of a job.
    ///
    /// # Errors
    /// [`JobTableError::NotFound`] or [`JobTableError::AlreadyConnected`]; the connection comes back with it.
    pub fn connect(
        &mut self,
        job: JobId,
        peer: ResourceId,
        connection: C,
    ) -> Result<(), (JobTableError, C)> {
        let Some(entry) = self.jobs.get_mut(&job) else {
            return Err((JobTableError::NotFound(job), connection));
        };
        if entry.connection.is_some() {
            return Err((JobTableError::AlreadyConnected(job), connection));
        }
        entry.connection = Some((peer.clone(), connection));
        self.by_resource.entry(peer).or_default().insert(job);
        Ok(())
    }

    /// Takes the connection of a job; the job stays.
    ///
    /// # Errors
    /// [`JobTableError::NotFound`] or [`JobTableError::NotConnected`].
    pub fn disconnect(&mut self, job: JobId) -> Result<(ResourceId, C), JobTableError> {
        let entry = self
            .jobs
            .get_mut(&job)
            .ok_or(JobTableError::NotFound(job))?;
        let (peer, connection) = entry
            .connection
            .take()
            .ok_or(JobTableError::NotConnected(job))?;
        self.forget(&peer, job);
        Ok((peer, connection))
    }

    /// Takes a job out, with its connection.
    ///
    /// # Errors
    /// [`JobTableError::NotFound`], also the second time.
    pub fn close(&mut self, job: JobId) -> Result<ClosedJob<J, C>, JobTableError> {
        let Job {
            services,
            connection,
        } = self.jobs.remove(&job).ok_or(JobTableError::NotFound(job))?;
        if let Some((peer, _)) = &connection {
            self.forget(peer, job);
        }
        Ok(ClosedJob {
            services,
            connection,
        })
    }

    /// Takes all jobs out, in the order of their ids.
    pub fn close_all(&mut self) -> Vec<(JobId, ClosedJob<J, C>)> {
        let jobs: Vec<_> = self.jobs.keys().copied().collect();
        jobs.into_iter()
            .filter_map(|job| Some((job, self.close(job).ok()?)))
            .collect()
    }

    /// The jobs that are connected to a JobManager.
    pub fn jobs_of(&self, peer: &ResourceId) -> impl Iterator<Item = JobId> {
        self.by_resource.get(peer).into_iter().flatten().copied()
    }

    /// All jobs, in the order of their ids.
    pub fn jobs(&self) -> impl Iterator<Item = (JobId, &Job<J, C>)> {
        self.jobs.iter().map(|(id, job)| (*id, job))
    }

    fn forget(&mut self, peer: &ResourceId, job: JobId) {
        if let Some(jobs) = self.by_resource.get_mut(peer) {
            jobs.remove(&job);
            if jobs.is_empty() {
                self.by_resource.remove(peer);
            }
        }
    }
}

impl<J, C> Default for JobTable<J, C> {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests;
