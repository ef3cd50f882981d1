//! When the disk fails, the daemon ends: it never goes on as if something had been written.

use dutiful::config::Config;
use dutiful::daemon::{self, Options};
use dutiful::store::{CommitStop, OpenOptions};
use tokio::runtime::Builder;

use crate::answers_mail::letter;
use crate::world::{ModelServer, Said, Wire, World};

#[test]
fn security_r9_a_commit_that_fails_ends_the_daemon_with_an_error_and_the_letter_stays_to_be_answered() {
    let model = ModelServer::start(Wire::Openai, |_| Said::text("An answer."));
    let world = World::on_maildir(&model);
    assert!(world.start().terminate().success());
    world.mailbox().deliver(&letter("failing", "Are you there?"));

    let store = OpenOptions { stop_at_commit: Some(CommitStop::Acknowledged(0)) };
    let config = Config::load(&world.path("")).unwrap();
    let runtime = Builder::new_multi_thread().enable_all().build().unwrap();
    let ended = runtime.block_on(daemon::run(config, Options { store, ..Options::default() }));
    assert!(format!("{:#}", ended.unwrap_err()).contains("the store failed"));
    drop(runtime);
    assert!(model.asked().is_empty() && world.sent().letters().is_empty());

    let daemon = world.start();
    assert_eq!(world.sent().wait_for(1)[0].header("In-Reply-To").as_deref(), Some("<failing@example.com>"));
    assert!(daemon.terminate().success());
    assert_eq!(world.sent().letters().len(), 1);
}
