//! The reactive door: claims accepted letters, one run at a time in each thread, and sees each to its end.

use std::fmt;
use std::time::Duration;

use chrono::{DateTime, Utc};
use serde_json::json;

use super::at_work::AtWork;
use super::crew::{Change, Crew, Slot, Work};
use super::deliver::deliver;
use super::job::{Unready, agent_of, job_of, opening_of, party_of};
use super::{CurrentSnapshot, Snapshot};
use crate::events::{Alert, Events};
use crate::harness::{Cancelled, Ended, Harness, Job, Stop, Transcript};
use crate::inference::{ErrorKind, ModelError};
use crate::random;
use crate::run::{Door, EventKind, Outcome, RunId, RunStatus};
use crate::store::{Close, InterruptedRun, NewRun, Store, StoreError, Verdict, WaitingLetter};

/// Attempts without progress after which a letter is put away.
const QUARANTINE_AFTER: u32 = 3;

/// The reason of a letter that was put away for that.
const POISON: &str = "poison: the daemon ended each time it was worked on";

/// How long a run, or a letter, waits for a store that cannot be written.
const STORE_PAUSE: Duration = Duration::from_secs(5);

/// How long a run first waits for a model that does not answer; doubled each time.
const MODEL_PAUSE: Duration = Duration::from_secs(15);

/// The longest such wait.
const LONGEST_PAUSE: Duration = Duration::from_secs(600);

/// How often limits are looked at again, and without being woken the table of letters and runs that nobody works on.
const SWEEP: Duration = Duration::from_secs(20);

/// The reactive front door.
#[derive(Clone)]
pub struct Reactive {
    store: Store,
    harness: Harness,
    events: Events,
    current: CurrentSnapshot,
    at_work: AtWork,
    alert: Alert,
}

impl fmt::Debug for Reactive {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reactive").finish_non_exhaustive()
    }
}

impl Reactive {
    /// A door over this store.
    pub fn new(store: Store, events: Events, current: CurrentSnapshot, alert: Alert) -> Reactive {
        let harness = Harness::new(store.clone(), events.clone());
        Reactive { store, harness, events, current, at_work: AtWork::default(), alert }
    }

    /// Works until it is told to stop: first what an earlier daemon left unfinished, then letters as they
    /// come.
    ///
    /// # Errors
    /// When the store failed for good.
    pub async fn serve(self, stop: Stop) -> Result<(), StoreError> {
        let mut crew = Crew::new(self.current.load().config.settings.limits.concurrent_runs.max(1));
        // Their threads are taken from the start, so that no newer letter of the same thread goes first.
        crew.take(self.store.take_interrupted().await?);
        let mut sweep = tokio::time::interval(SWEEP);
        while !stop.draining.is_cancelled() {
            // Registered before the table is read: a letter stored in between wakes us.
            let woken = self.store.letters_waiting().notified();
            self.claim(&mut crew).await?;
            self.end_cancelled()?;
            crew.stand_in_line();
            tokio::select! {
                () = woken => {}
                change = crew.change() => match change {
                    Change::Room(slot) => self.start(&mut crew, slot, &stop),
                    Change::Ended(ended) => ended?,
                },
                _ = sweep.tick() => {
                    self.release_limited().await;
                    self.take_left(&mut crew)?;
                }
                () = stop.draining.cancelled() => {}
            }
        }
        crew.wait_for_all().await
    }

    async fn release_limited(&self) {
        let limits = self.current.load().config.settings.limits.clone();
        if let Err(error) = self.store.release_limited(&limits, crate::clock::now()).await {
            tracing::warn!(error = %error, "held letters could not be looked at");
        }
    }

    /// Runs that a task had to leave, since the store would not take what it wrote: without this nobody would look at
    /// them again before the next start.
    fn take_left(&self, crew: &mut Crew) -> Result<(), StoreError> {
        match self.store.runs_at_work() {
            Ok(runs) => {
                crew.take_left(runs);
                Ok(())
            }
            Err(StoreError::Retry(reason)) => {
                tracing::warn!(reason, "the store is busy; runs that were left wait");
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    /// Takes waiting letters while there is room, and nothing before them.
    async fn claim(&self, crew: &mut Crew) -> Result<(), StoreError> {
        let free = crew.free_slots();
        if free == 0 {
            return Ok(());
        }
        let waiting = match self.store.waiting_letters(free, crew.busy()).await {
            Ok(waiting) => waiting,
            Err(StoreError::Retry(reason)) => {
                tracing::warn!(reason, "the store is busy; letters wait");
                return Ok(());
            }
            Err(error) => return Err(error),
        };
        for letter in waiting {
            crew.take_letter(letter);
        }
        Ok(())
    }

    /// Starts what is due first.
    fn start(&self, crew: &mut Crew, slot: Slot, stop: &Stop) {
        let Some(work) = crew.next_due() else { return };
        let thread = work.thread();
        let (door, stop) = (self.clone(), stop.clone());
        crew.spawn(thread, async move { Box::pin(door.work(work, slot, &stop)).await });
    }

    async fn work(self, work: Work, slot: Slot, stop: &Stop) -> Result<(), StoreError> {
        let done = match work {
            Work::Fresh(letter) => self.answer(*letter, slot, stop).await,
            Work::Interrupted(run) => self.recover(run, slot, stop).await,
        };
        match done {
            Ok(()) => Ok(()),
            Err(StoreError::Superseded) => {
                tracing::warn!("a run belongs to a later daemon");
                Ok(())
            }
            // A letter is claimed again, a run is found by a sweep. Not at once: the store would only be asked the same.
            Err(error @ (StoreError::Retry(_) | StoreError::Fault(_))) => {
                tracing::warn!(error = %error, "a run was left where it stands");
                tokio::select! {
                    () = tokio::time::sleep(STORE_PAUSE) => {}
                    () = stop.draining.cancelled() => {}
                }
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    /// A letter from its claim to its reply.
    async fn answer(&self, letter: WaitingLetter, slot: Slot, stop: &Stop) -> Result<(), StoreError> {
        if letter.careful {
            let attempts = self.store.note_attempt(letter.id).await?;
            if attempts > QUARANTINE_AFTER {
                return self.put_away(&letter).await;
            }
        }
        let snapshot = self.current.load();
        let now = crate::clock::now();
        let run = RunId::mint(now, u64::from_be_bytes(random::bytes()));
        let stop = &stop.for_run();
        let _present = self.at_work.enter(&run, stop);
        match self.open(&snapshot, &letter, run, now).await {
            Ok(Some((job, transcript))) => {
                let ended = self.harness.run(&job, transcript, stop).await;
                let give_up_at = give_up_at(&job, now);
                self.see_to_the_end(job, letter, ended, slot, (stop, give_up_at)).await
            }
            Ok(None) => Ok(()),
            // Asking again would meet the same.
            Err(Refused::Store(error @ StoreError::Fault(_))) => self.hold(&letter, &error.to_string()).await,
            Err(Refused::Store(error)) => Err(error),
            Err(Refused::Unready(why)) => self.hold(&letter, &why.to_string()).await,
        }
    }

    async fn hold(&self, letter: &WaitingLetter, why: &str) -> Result<(), StoreError> {
        tracing::error!(letter = letter.id.0, "a letter cannot be worked on and is held");
        self.store.judge_letter(letter.id, Verdict::Held, why).await?;
        self.tell("letter.held", letter, &format!("is held: {why}"));
        Ok(())
    }

    /// Builds the job and commits claim, run start and first request together. None when the letter was
    /// taken or judged otherwise meanwhile.
    async fn open(
        &self,
        snapshot: &Snapshot,
        letter: &WaitingLetter,
        run: RunId,
        now: DateTime<Utc>,
    ) -> Result<Option<(Job, Transcript)>, Refused> {
        let agent = agent_of(snapshot, &letter.agent)?;
        if let Some(most) = agent.budget.day_cost {
            let midnight = now.date_naive().and_time(chrono::NaiveTime::MIN).and_utc();
            if self.store.spent_since(&agent.name, midnight).await? >= most {
                self.hold(letter, "limit:day_cost").await?;
                return Ok(None);
            }
        }
        let party = party_of(snapshot, &agent, letter).await.map_err(Unready::Context)?;
        let job = job_of(snapshot, agent, letter, run.clone(), party)?;
        let steps = opening_of(snapshot, &self.store, &job, letter, now).await?;
        let new = NewRun {
            id: run.clone(),
            door: Door::Reactive,
            agent: letter.agent.clone(),
            thread: Some(letter.thread),
            letter: Some(letter.id),
            model: job.model.name().to_owned(),
            started_at: now,
        };
        if !self.store.open_run(new, steps.clone()).await? {
            return Ok(None);
        }
        tracing::info!(run = run.as_str(), letter = letter.id.0, agent = letter.agent, "run started");
        let data = json!({ "letter": letter.id.0, "agent": letter.agent, "mailbox": letter.mailbox });
        self.events.emit(Some(&run), EventKind::RunStarted, data);
        Ok(Transcript::fold(steps).map(|transcript| (job, transcript)))
    }

    /// A run that an earlier daemon left: the same fold, the same loop.
    async fn recover(&self, run: InterruptedRun, slot: Slot, stop: &Stop) -> Result<(), StoreError> {
        let Some(letter) = self.letter_of(&run).await? else {
            return self.give_up(&run, "its letter is gone").await;
        };
        if self.store.note_run_attempt(&run.id).await? > QUARANTINE_AFTER {
            // The letter first: once its run has ended, no start comes back to it.
            self.put_away(&letter).await?;
            return self.fail(&run, POISON).await;
        }
        let steps = self.store.replay(&run.id).await?;
        let Some(transcript) = Transcript::fold(steps) else {
            return self.give_up(&run, "its journal does not begin with an opening").await;
        };
        let snapshot = self.current.load();
        let party = transcript.party().clone();
        let job = agent_of(&snapshot, &run.agent).and_then(|agent| job_of(&snapshot, agent, &letter, run.id.clone(), party));
        let job = match job {
            Ok(job) => job,
            Err(why) => return self.give_up(&run, &why.to_string()).await,
        };
        tracing::info!(run = run.id.as_str(), letter = letter.id.0, attempts = run.attempts, "run resumed");
        let stop = &stop.for_run();
        let _present = self.at_work.enter(&run.id, stop);
        // Wished for while no daemon was there to do it.
        self.end_cancelled()?;
        let ended = self.harness.resume(&job, transcript, stop).await;
        let give_up_at = give_up_at(&job, run.started_at);
        self.see_to_the_end(job, letter, ended, slot, (stop, give_up_at)).await
    }

    async fn put_away(&self, letter: &WaitingLetter) -> Result<(), StoreError> {
        self.store.judge_letter(letter.id, Verdict::Quarantined, POISON).await?;
        self.tell("letter.quarantined", letter, "was put away: the daemon ended each time it was worked on");
        Ok(())
    }

    async fn letter_of(&self, run: &InterruptedRun) -> Result<Option<WaitingLetter>, StoreError> {
        match run.letter {
            Some(id) => self.store.letter(id).await,
            None => Ok(None),
        }
    }

    async fn give_up(&self, run: &InterruptedRun, why: &str) -> Result<(), StoreError> {
        self.fail(run, why).await?;
        (self.alert)(
            format!("run:{}", run.id),
            "[dutiful] a run was given up".to_owned(),
            format!("Run {}: {why}.\n\n`dutiful run {}`\n", run.id, run.id),
        );
        Ok(())
    }

    async fn fail(&self, run: &InterruptedRun, why: &str) -> Result<(), StoreError> {
        let close = Close {
            status: RunStatus::Failed,
            outcome: Outcome::Failed,
            error: Some(why.to_owned()),
            rounds: 0,
            usage: crate::chat::Usage::default(),
            cost: 0,
        };
        let steps = vec![crate::store::Step::Closed(close.clone())];
        self.store.close_run(&run.id, steps, close, Vec::new(), None).await?;
        Ok(())
    }

    /// Delivers the outcome. While no model answers, or the disk is full, it waits with the slot given back
    /// and goes on from the journal.
    async fn see_to_the_end(
        &self,
        mut job: Job,
        letter: WaitingLetter,
        mut ended: Ended,
        mut slot: Slot,
        (stop, give_up_at): (&Stop, DateTime<Utc>),
    ) -> Result<(), StoreError> {
        let mut pause = MODEL_PAUSE;
        loop {
            let mut away = false;
            let wait = match ended {
                // The daemon ends as it was told to: that says nothing against the letter.
                Ended::Stopped => return self.store.uncount_attempt(&job.context.run).await,
                Ended::Cancelled(cancelled) => return self.cancelled(&job, *cancelled).await,
                Ended::Finished(finish) => match deliver(&self.store, &job, &letter, *finish).await {
                    Err(StoreError::Retry(_)) => STORE_PAUSE,
                    Err(error) => return Err(error),
                    Ok(outcome) => {
                        let kind = if outcome == Outcome::Failed { EventKind::RunFailed } else { EventKind::RunCompleted };
                        self.events.emit(Some(&job.context.run), kind, json!({ "outcome": outcome.as_str() }));
                        return Ok(());
                    }
                },
                Ended::Broken(StoreError::Retry(_)) => STORE_PAUSE,
                Ended::Broken(error) => return Err(error),
                Ended::Unavailable(error) => {
                    away = true;
                    self.model_is_away(&job, &error);
                    let left = (give_up_at - crate::clock::now()).to_std().unwrap_or_default();
                    let wait = if is_misconfigured(error.kind) { LONGEST_PAUSE } else { error.retry_after.unwrap_or(pause).max(pause) };
                    pause = (pause * 2).min(LONGEST_PAUSE);
                    wait.min(left)
                }
            };
            slot.give_back();
            // There is room for another.
            self.store.letters_waiting().notify_one();
            let reloaded = self.current.changed();
            tokio::select! {
                () = tokio::time::sleep(wait) => {}
                // The key may be right now: the run goes on with the model as it is configured by then.
                () = reloaded, if away => {}
                () = stop.cancelled.cancelled() => {}
                () = stop.draining.cancelled() => return Ok(()),
            }
            let Some(transcript) = Transcript::fold(self.store.replay(&job.context.run).await?) else { return Ok(()) };
            ended = if stop.cancelled.is_cancelled() {
                self.harness.cancel(&job, transcript)
            } else if away && crate::clock::now() >= give_up_at {
                self.harness.without_model(&job, transcript)
            } else {
                slot.take_again().await;
                job.model = self.current.load().models.get(&job.context.agent.model).unwrap_or(job.model);
                self.harness.resume(&job, transcript, stop).await
            };
        }
    }

    /// The operator ended the run: no letter goes out (harness K4).
    async fn cancelled(&self, job: &Job, cancelled: Cancelled) -> Result<(), StoreError> {
        let run = &job.context.run;
        self.store.close_run(run, cancelled.steps, cancelled.close, Vec::new(), None).await?;
        self.events.emit(Some(run), EventKind::RunCancelled, json!({}));
        tracing::info!(run = run.as_str(), "run cancelled by the operator");
        Ok(())
    }

    /// Tells the runs that the operator wants ended (harness K1).
    fn end_cancelled(&self) -> Result<(), StoreError> {
        match self.store.runs_to_cancel() {
            Ok(runs) => {
                for run in runs {
                    self.at_work.end(&run);
                }
                Ok(())
            }
            Err(StoreError::Retry(reason)) => {
                tracing::warn!(reason, "the store is busy; cancelled runs go on for now");
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    fn model_is_away(&self, job: &Job, error: &ModelError) {
        let model = job.model.name();
        self.events.emit(Some(&job.context.run), EventKind::RunPaused, json!({ "model": model, "error": error.kind.as_str() }));
        (self.alert)(
            format!("model:{model}"),
            format!("[dutiful] the model {model} does not answer"),
            format!("The model {model} does not answer: {error}\n\nLetters wait and are answered when it is back. Nothing is lost.\n"),
        );
    }

    fn tell(&self, key: &str, letter: &WaitingLetter, what: &str) {
        (self.alert)(
            format!("{key}:{}", letter.id),
            format!("[dutiful] letter {} needs you", letter.id),
            format!("The letter {} to {} {what}.\n\n`dutiful letter {}`\n", letter.id, letter.agent, letter.id),
        );
    }
}

/// Whether a person has to put the model right first: it is asked seldom until then (harness F9).
fn is_misconfigured(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::Auth | ErrorKind::Permission | ErrorKind::QuotaExhausted)
}

/// Until when a run that began then waits for its model; after that the fallback reply goes out.
fn give_up_at(job: &Job, started_at: DateTime<Utc>) -> DateTime<Utc> {
    let queue_age = chrono::TimeDelta::from_std(job.context.settings.limits.queue_age).unwrap_or(chrono::TimeDelta::MAX);
    started_at.checked_add_signed(queue_age).unwrap_or(DateTime::<Utc>::MAX_UTC)
}

/// Why a letter got no run.
enum Refused {
    Unready(Unready),
    Store(StoreError),
}

impl From<Unready> for Refused {
    fn from(why: Unready) -> Refused {
        Refused::Unready(why)
    }
}

impl From<StoreError> for Refused {
    fn from(error: StoreError) -> Refused {
        Refused::Store(error)
    }
}
