//! A run that is told to stop, or ended by the operator; a model that stays away.

use tokio::io::AsyncReadExt as _;

use super::*;
use crate::inference::ErrorKind;
use crate::run::RunStatus;

fn cancelled(ended: Ended) -> Cancelled {
    match ended {
        Ended::Cancelled(cancelled) => *cancelled,
        other => panic!("{other:?}"),
    }
}

/// A tool that says into the fifo `begun` that it runs, and then hangs.
fn hanging(setting: &mut Setting, name: &str, effect: Effect) {
    tool(setting, name, effect, "echo go > begun; exec sleep 60");
}

/// Makes the fifo; resolves when the tool runs.
async fn begun(world: &World) {
    let path = world.home().join("begun");
    rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR, 0).unwrap();
    let mut fifo = tokio::net::unix::pipe::OpenOptions::new().read_write(true).open_receiver(&path).unwrap();
    assert_eq!(fifo.read_u8().await.unwrap(), b'g');
}

async fn statuses(world: &World, cancelled: Cancelled) -> Vec<(ToolStatus, String)> {
    assert_eq!((cancelled.close.status, cancelled.close.outcome), (RunStatus::Cancelled, Outcome::Failed));
    assert_eq!(cancelled.close.error.as_deref(), Some("cancelled by the operator"));
    world.store.close_run(&world.job.context.run, cancelled.steps, cancelled.close, Vec::new(), None).await.unwrap();
    world.results().await
}

#[tokio::test]
async fn harness_k2_a_draining_run_stops_at_a_step_and_goes_on_from_its_journal() {
    let world = World::new(vec![calls(&["look"]), text("On Monday.")], |setting| tool(setting, "look", Effect::Pure, "echo found")).await;
    let stop = Stop::default();
    stop.draining.cancel();
    assert!(matches!(world.run(&stop).await, Ended::Stopped));
    assert!(world.model.requests().is_empty());
    let transcript = Transcript::fold(world.steps().await).unwrap();
    let ended = world.harness.resume(&world.job, transcript, &Stop::default()).await;
    assert_eq!(world.close(ended).await.body, "On Monday.");
}

#[tokio::test]
async fn harness_k2_a_model_call_is_aborted_and_made_again_later() {
    let world = World::new(vec![Said::Silence, text("On Monday.")], same).await;
    let stop = Stop::default();
    let abort = async {
        world.model.asked().await;
        stop.aborting.cancel();
    };
    let transcript = world.open().await;
    let (ended, ()) = tokio::join!(world.harness.run(&world.job, transcript, &stop), abort);
    assert!(matches!(ended, Ended::Stopped));
    let transcript = Transcript::fold(world.steps().await).unwrap();
    let ended = world.harness.resume(&world.job, transcript, &Stop::default()).await;
    assert_eq!(world.close(ended).await.body, "On Monday.");
    let requests = world.model.requests();
    assert_eq!(requests[0], requests[1], "the very same request (J8)");
}

#[tokio::test]
async fn harness_k2_a_tool_without_effects_is_aborted() {
    let world = World::new(vec![calls(&["hang"]), text("Done.")], |setting| hanging(setting, "hang", Effect::Pure)).await;
    let stop = Stop::default();
    let abort = async {
        begun(&world).await;
        stop.aborting.cancel();
    };
    let transcript = world.open().await;
    let (ended, ()) = tokio::join!(world.harness.run(&world.job, transcript, &stop), abort);
    assert!(matches!(ended, Ended::Stopped));
    assert!(world.results().await.is_empty(), "it is to be called again");
}

#[tokio::test]
async fn harness_k4_a_run_cancelled_while_its_tools_run_closes_every_call() {
    for (effect, status) in [(Effect::Pure, ToolStatus::Failed), (Effect::Effectful, ToolStatus::Unknown)] {
        let world = World::new(vec![calls(&["look", "hang", "mark"])], |setting| {
            tool(setting, "look", Effect::Pure, "echo found");
            hanging(setting, "hang", effect);
            tool(setting, "mark", Effect::Effectful, "echo x >> marks");
        })
        .await;
        let stop = Stop::default().for_run();
        let cancel = async {
            begun(&world).await;
            stop.cancelled.cancel();
        };
        let transcript = world.open().await;
        let (ended, ()) = tokio::join!(world.harness.run(&world.job, transcript, &stop), cancel);
        let results = statuses(&world, cancelled(ended)).await;
        assert_eq!(results.len(), 3, "{results:?}");
        let of = |wanted: ToolStatus| results.iter().find(|(status, _)| *status == wanted).map(|(_, text)| text.clone());
        assert!(of(status).unwrap().contains("cancelled by the operator"));
        assert_eq!(of(ToolStatus::Skipped).unwrap(), "not run: cancelled by the operator");
        assert!(world.lines("marks").is_empty());
    }
}

#[tokio::test]
async fn harness_k1_a_run_cancelled_while_its_model_thinks_ends_without_a_reply() {
    let world = World::new(vec![calls(&["look"]), Said::Silence], |setting| tool(setting, "look", Effect::Pure, "echo found")).await;
    let daemon = Stop::default();
    let stop = daemon.for_run();
    let cancel = async {
        world.model.asked().await;
        world.model.asked().await;
        stop.cancelled.cancel();
    };
    let transcript = world.open().await;
    let (ended, ()) = tokio::join!(world.harness.run(&world.job, transcript, &stop), cancel);
    let cancelled = cancelled(ended);
    assert!(!cancelled.steps.iter().any(|step| matches!(step, Step::ReplyReady { .. })));
    assert_eq!((cancelled.close.rounds, cancelled.close.usage.output), (1, 5));
    assert!(!daemon.cancelled.is_cancelled(), "the other runs go on");
    statuses(&world, cancelled).await;
}

#[tokio::test]
async fn harness_k1_what_is_to_end_before_it_goes_on_makes_no_call() {
    let world = World::new(vec![text("On Monday.")], same).await;
    let stop = Stop::default().for_run();
    stop.cancelled.cancel();
    cancelled(world.run(&stop).await);
    assert!(world.model.requests().is_empty());
}

#[tokio::test]
async fn harness_f9_a_model_that_cannot_be_asked_leaves_the_run_open() {
    let world = World::new(vec![calls(&["look"]), Said::Status(401), text("On Monday.")], |setting| {
        tool(setting, "look", Effect::Effectful, "echo x >> looks; echo found");
    })
    .await;
    match world.run(&Stop::default()).await {
        Ended::Unavailable(error) => assert_eq!(error.kind, ErrorKind::Auth),
        other => panic!("{other:?}"),
    }
    let steps = world.steps().await;
    assert!(
        matches!(steps.last(), Some(Step::ModelFailed { purpose: Purpose::Round, error, attempts: 1, cost: 0, .. }) if error == "auth"),
        "{:?}",
        steps.last()
    );
    let ended = world.harness.resume(&world.job, Transcript::fold(steps).unwrap(), &Stop::default()).await;
    assert_eq!(world.close(ended).await.body, "On Monday.");
    assert_eq!(world.lines("looks").len(), 1, "what was done is not done again");
}

#[tokio::test]
async fn harness_f9_after_too_long_the_fallback_goes_out() {
    let world = World::new(vec![Said::Status(401)], same).await;
    assert!(matches!(world.run(&Stop::default()).await, Ended::Unavailable(_)));
    let transcript = Transcript::fold(world.steps().await).unwrap();
    let finish = finished(world.harness.without_model(&world.job, transcript));
    assert_eq!((finish.body.as_str(), finish.close.outcome), ("A colleague will write to you.", Outcome::Fallback));
    assert!(finish.close.error.unwrap().starts_with("auth: "));
}

#[tokio::test]
async fn harness_f2_a_request_that_is_at_fault_is_no_outage() {
    let world = World::new(vec![Said::Status(400)], same).await;
    let finish = world.finish().await;
    assert_eq!((finish.close.outcome, world.model.requests().len()), (Outcome::Fallback, 1));
}
