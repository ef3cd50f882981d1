//! The tasks of a front door: how many run at once, in which order they begin, and one at a time in each
//! thread.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use futures_util::future::BoxFuture;
use tokio::sync::{AcquireError, OwnedSemaphorePermit, Semaphore};
use tokio::task::{Id, JoinError, JoinSet};

use crate::run::ThreadId;
use crate::store::{InterruptedRun, StoreError, WaitingLetter};

/// Attempts without progress after which a letter runs with nothing beside it (DESIGN 3, poison).
const ALONE_AFTER: u32 = 2;

/// What one task works on.
pub(super) enum Work {
    /// A letter that no run has taken yet.
    Fresh(Box<WaitingLetter>),
    /// A run that was left unfinished.
    Interrupted(InterruptedRun),
}

impl Work {
    /// The thread that it holds.
    pub(super) fn thread(&self) -> Option<ThreadId> {
        match self {
            Work::Fresh(letter) => Some(letter.thread),
            Work::Interrupted(run) => run.thread,
        }
    }

    fn attempts(&self) -> u32 {
        match self {
            Work::Fresh(letter) => letter.attempts,
            Work::Interrupted(run) => run.attempts,
        }
    }
}

/// Slots to come.
type Room = BoxFuture<'static, Result<OwnedSemaphorePermit, AcquireError>>;

/// The tasks at work, what is to be started, and the threads that both hold.
pub(super) struct Crew {
    tasks: JoinSet<Result<(), StoreError>>,
    held: BTreeMap<Id, ThreadId>,
    busy: BTreeSet<ThreadId>,
    due: VecDeque<Work>,
    slots: Arc<Semaphore>,
    /// All slots: what runs alone takes them.
    most: u32,
    /// The place in line of what is due first.
    room: Option<Room>,
}

/// One of the `concurrent_runs`. A run that only waits gives it back.
pub(super) struct Slot {
    slots: Arc<Semaphore>,
    permit: Option<OwnedSemaphorePermit>,
}

/// What concerns the crew.
pub(super) enum Change {
    /// What is due first has its slot.
    Room(Slot),
    /// A task ended; an error is the daemon's end.
    Ended(Result<(), StoreError>),
}

/// The slots once they are free; never, when nobody asked for any.
async fn given(room: &mut Option<Room>) -> Option<OwnedSemaphorePermit> {
    match room {
        Some(room) => room.await.ok(),
        None => std::future::pending().await,
    }
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
    pub(super) fn new(most: u32) -> Crew {
        let slots = Arc::new(Semaphore::new(most as usize));
        Crew { tasks: JoinSet::new(), held: BTreeMap::new(), busy: BTreeSet::new(), due: VecDeque::new(), slots, most, room: None }
    }

    /// These runs are started before any letter. Their threads are taken from now on.
    pub(super) fn take(&mut self, runs: Vec<InterruptedRun>) {
        self.busy.extend(runs.iter().filter_map(|run| run.thread));
        self.due.extend(runs.into_iter().map(Work::Interrupted));
    }

    /// The same, of runs that nobody works on.
    pub(super) fn take_left(&mut self, runs: Vec<InterruptedRun>) {
        let left = runs.into_iter().filter(|run| run.thread.is_some_and(|thread| !self.busy.contains(&thread))).collect();
        self.take(left);
    }

    /// Starts this letter after what is due already, unless its thread is taken.
    pub(super) fn take_letter(&mut self, letter: WaitingLetter) {
        if self.busy.insert(letter.thread) {
            self.due.push_back(Work::Fresh(Box::new(letter)));
        }
    }

    /// The threads that are taken.
    pub(super) fn busy(&self) -> &BTreeSet<ThreadId> {
        &self.busy
    }

    /// How many letters more may be taken now: none while something else is due.
    pub(super) fn free_slots(&self) -> usize {
        if self.due.is_empty() { self.slots.available_permits() } else { 0 }
    }

    /// Asks for room for what is due first. What has failed to get anywhere twice asks for all of it: it runs with
    /// nothing beside it but runs that only wait. The place in line is kept, so that those cannot get in before it.
    pub(super) fn stand_in_line(&mut self) {
        if self.room.is_some() {
            return;
        }
        self.room = self.due.front().map(|work| -> Room {
            let room = if work.attempts() >= ALONE_AFTER { self.most } else { 1 };
            Box::pin(Arc::clone(&self.slots).acquire_many_owned(room))
        });
    }

    /// Waits for what concerns the crew: the slot that was asked for, or the end of a task.
    pub(super) async fn change(&mut self) -> Change {
        let Crew { tasks, room, .. } = self;
        let joined = tokio::select! {
            permit = given(room) => {
                self.room = None;
                return Change::Room(Slot { slots: Arc::clone(&self.slots), permit });
            }
            Some(joined) = tasks.join_next_with_id() => joined,
        };
        Change::Ended(self.leave(joined))
    }

    /// What is due first.
    pub(super) fn next_due(&mut self) -> Option<Work> {
        self.due.pop_front()
    }

    /// Begins a task, which holds its thread until it ends.
    pub(super) fn spawn(&mut self, thread: Option<ThreadId>, task: impl Future<Output = Result<(), StoreError>> + Send + 'static) {
        let id = self.tasks.spawn(task).id();
        if let Some(thread) = thread {
            self.held.insert(id, thread);
        }
    }

    /// Begins nothing more, and waits until nothing is at work.
    pub(super) async fn wait_for_all(&mut self) -> Result<(), StoreError> {
        // Whoever waits for a slot to end in must not stand behind what was due.
        self.room = None;
        while let Some(joined) = self.tasks.join_next_with_id().await {
            self.leave(joined)?;
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
