//! What user code is given.

use super::{Input, Output, ResultWriter, TaskInfo, controls::Controls};

/// The surroundings of a running task: who it is, its inputs and outputs, its result.
#[derive(Debug)]
pub struct TaskContext {
    info: TaskInfo,
    inputs: Vec<Input>,
    outputs: Vec<Output>,
    result: ResultWriter,
    controls: Controls,
}

impl TaskContext {
    pub(crate) fn new(
        info: TaskInfo,
        inputs: Vec<Input>,
        outputs: Vec<Output>,
        result: ResultWriter,
        controls: Controls,
    ) -> Self {
        Self {
            info,
            inputs,
            outputs,
            result,
            controls,
        }
    }

    /// Who the task is.
    #[must_use]
    pub fn info(&self) -> &TaskInfo {
        &self.info
    }

    /// An input; they are in the order of the graph's edges into the vertex.
    ///
    /// # Panics
    /// If the vertex has no such input, which fails the task.
    pub fn input(&mut self, index: usize) -> &mut Input {
        let count = self.inputs.len();
        self.inputs
            .get_mut(index)
            .unwrap_or_else(|| panic!("the task has {count} inputs, number {index} was asked for"))
    }

    /// An output; they are in the order of the graph's edges out of the vertex.
    ///
    /// # Panics
    /// If the vertex has no such output, which fails the task.
    pub fn output(&mut self, index: usize) -> &mut Output {
        let count = self.outputs.len();
        self.outputs
            .get_mut(index)
            .unwrap_or_else(|| panic!("the task has {count} outputs, number {index} was asked for"))
    }

    /// All inputs and outputs, to be used at the same time.
    pub fn io(&mut self) -> (&mut [Input], &mut [Output]) {
        (&mut self.inputs, &mut self.outputs)
    }

    /// The task's part of the job's result.
    pub fn result(&mut self) -> &mut ResultWriter {
        &mut self.result
    }

    /// Says how far the task is: 0 to 10,000. Shown in status pages.
    pub fn progress(&self, parts: u32) {
        self.controls.counters.set_progress(parts);
    }

    /// Whether the task was told to stop. Code that computes for long without reading or writing looks here.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.controls.cancellation.is_cancelled()
    }

    /// Waits until the task is told to stop.
    ///
    /// # Cancel safety
    /// Cancel-safe.
    pub fn cancelled(&self) -> impl Future<Output = ()> + Send + 'static {
        let cancellation = self.controls.cancellation.clone();
        async move { cancellation.cancelled().await }
    }

    pub(crate) fn into_outputs(self) -> Vec<Output> {
        self.outputs
    }
}
