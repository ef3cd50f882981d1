//! The tasks of a front door: how many run at once, and one at a time in each thread.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::{Id, JoinError, JoinSet};

use crate::run::ThreadId;
use crate::store::StoreError;

/// The tasks at work and the threads that they hold.
pub(super) struct Crew {
    tasks: JoinSet<Result<(), StoreError>>,
    held: BTreeMap<Id, ThreadId>,
    busy: BTreeSet<ThreadId>,
    slots: Arc<Semaphore>,
}

/// One of the `concurrent_runs`. A run that only waits gives it back.
pub(super) struct Slot {
    slots: Arc<Semaphore>,
    permit: Option<OwnedSemaphorePermit>,
}

impl Slot {
    /// Others may run meanwhile.
    pub(super) fn give_back(&mut self) {
        self.permit = None;
    }

    /// Waits until there is room again.
    pub(super) async fn take_again(&mut self) {
        self.permit = Arc::clone(&self.slots).acquire_owned().await.ok();
    }
}

impl Crew {
    /// With room for so many runs.
    pub(super) fn new(most: usize) -> Crew {
        Crew { tasks: JoinSet::new(), held: BTreeMap::new(), busy: BTreeSet::new(), slots: Arc::new(Semaphore::new(most)) }
    }

    /// Takes threads before their tasks begin.
    pub(super) fn reserve(&mut self, threads: impl IntoIterator<Item = ThreadId>) {
        self.busy.extend(threads);
    }

    /// Takes one; whether it was free.
    pub(super) fn reserve_one(&mut self, thread: ThreadId) -> bool {
        self.busy.insert(thread)
    }

    /// The threads that are taken.
    pub(super) fn busy(&self) -> &BTreeSet<ThreadId> {
        &self.busy
    }

    /// How many runs more may begin now.
    pub(super) fn free_slots(&self) -> usize {
        self.slots.available_permits()
    }

    /// A slot, as soon as there is one; meanwhile tasks that end are seen off.
    pub(super) async fn slot(&mut self) -> Result<Option<Slot>, StoreError> {
        loop {
            tokio::select! {
                permit = Arc::clone(&self.slots).acquire_owned() => {
                    return Ok(permit.ok().map(|permit| Slot { slots: Arc::clone(&self.slots), permit: Some(permit) }));
                }
                Some(joined) = self.tasks.join_next_with_id() => self.leave(joined)?,
            }
        }
    }

    /// Begins a task, which holds its thread until it ends.
    pub(super) fn spawn(&mut self, thread: Option<ThreadId>, task: impl Future<Output = Result<(), StoreError>> + Send + 'static) {
        let id = self.tasks.spawn(task).id();
        if let Some(thread) = thread {
            self.busy.insert(thread);
            self.held.insert(id, thread);
        }
    }

    /// The end of a task; none when none is at work.
    pub(super) async fn next_ended(&mut self) -> Option<Result<(), StoreError>> {
        let joined = self.tasks.join_next_with_id().await?;
        Some(self.leave(joined))
    }

    /// Waits until nothing is at work.
    pub(super) async fn wait_for_all(&mut self) -> Result<(), StoreError> {
        while let Some(ended) = self.next_ended().await {
            ended?;
        }
        Ok(())
    }

    /// A task ended: its thread is free again. A panic in it is a fault of ours: the daemon ends, starts
    /// again and goes on from the journal, and counts the attempt.
    fn leave(&mut self, joined: Result<(Id, Result<(), StoreError>), JoinError>) -> Result<(), StoreError> {
        let (id, result) = match joined {
            Ok((id, result)) => (id, result),
            Err(error) => {
                let fault = if error.is_panic() { Err(StoreError::Fatal("a run crashed".to_owned())) } else { Ok(()) };
                (error.id(), fault)
            }
        };
        if let Some(thread) = self.held.remove(&id) {
            self.busy.remove(&thread);
        }
        result
    }
}
