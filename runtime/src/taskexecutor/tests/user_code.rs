//! Task types of the tests. They are light but for those that say something else.

use std::sync::Barrier;

use crate::task::{Task, TaskContext, TaskError, TaskRegistry};

pub(super) fn registry() -> TaskRegistry {
    TaskRegistry::new()
        .with::<Count>("count")
        .with::<Sum>("sum")
        .with::<Idle>("idle")
        .with::<Fail>("fail")
        .with::<Crash>("crash")
        .with::<Deaf>("deaf")
        .with::<Stubborn>("stubborn")
        .with::<Endless>("endless")
        .with::<BreakAfterSome>("break-after-some")
        .with::<Place>("place")
        .with::<HeavyPlace>("heavy-place")
        .with::<Hog>("hog")
}

/// A task type without configuration.
macro_rules! task {
    ($(#[$doc:meta])* $name:ident, $context:ident => $run:expr) => {
        task! { $(#[$doc])* $name, LIGHT = true, $context => $run }
    };
    ($(#[$doc:meta])* $name:ident, LIGHT = $light:literal, $context:ident => $run:expr) => {
        $(#[$doc])*
        struct $name;

        impl Task for $name {
            const LIGHT: bool = $light;

            fn from_config(_: &[u8]) -> Result<Self, TaskError> {
                Ok(Self)
            }

            async fn run(&mut self, $context: &mut TaskContext) -> Result<(), TaskError> {
                $run
            }
        }
    };
}

/// Emits the numbers from 0 to its configuration.
struct Count(u64);

impl Task for Count {
    const LIGHT: bool = true;

    fn from_config(config: &[u8]) -> Result<Self, TaskError> {
        let config = config.try_into();
        let count = config.map_err(|_| TaskError::permanent("8 bytes are expected"))?;
        Ok(Self(u64::from_le_bytes(count)))
    }

    async fn run(&mut self, context: &mut TaskContext) -> Result<(), TaskError> {
        for number in 0..self.0 {
            context.output(0).emit(&number.to_le_bytes()).await?;
        }
        context.progress(10_000);
        Ok(())
    }
}

task! {
    /// Adds the numbers of its input up; the sum is its result.
    Sum, context => {
        let mut sum = 0_u64;
        while let Some((_, record)) = context.input(0).next().await? {
            let record: [u8; 8] = record.as_ref().try_into()?;
            sum += u64::from_le_bytes(record);
        }
        context.result().write(&sum.to_le_bytes()).await
    }
}

task! {
    /// Waits until it is told to stop.
    Idle, context => {
        context.cancelled().await;
        Err(TaskError::cancelled())
    }
}

task! {
    Fail, _context => Err(TaskError::user("boom"))
}

task! {
    Crash, _context => panic!("bang {}", 1)
}

task! {
    /// Waits for something that never comes.
    Deaf, _context => std::future::pending().await
}

task! {
    /// Keeps its thread until the test's process ends.
    Stubborn, LIGHT = false, _context => loop {
        std::thread::park();
    }
}

task! {
    /// Emits for ever.
    Endless, context => loop {
        context.output(0).emit(&1_u64.to_le_bytes()).await?;
    }
}

task! {
    /// Emits more than its partition holds, so that its consumer has begun, and fails.
    BreakAfterSome, context => {
        for _ in 0..1_000_000 {
            context.output(0).emit(&1_u64.to_le_bytes()).await?;
        }
        context.output(0).flush();
        Err(TaskError::user("producer broke"))
    }
}

task! {
    /// The name of its thread is its result.
    Place, context => write_thread(context).await
}

task! {
    HeavyPlace, LIGHT = false, context => write_thread(context).await
}

async fn write_thread(context: &mut TaskContext) -> Result<(), TaskError> {
    let thread = std::thread::current().name().unwrap_or_default().to_owned();
    context.result().write(thread.as_bytes()).await
}

task! {
    /// Keeps its thread until the test comes to the barrier, although it says that it is light.
    Hog, _context => {
        HOG.wait();
        Ok(())
    }
}

pub(super) static HOG: Barrier = Barrier::new(2);
