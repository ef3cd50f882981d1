//! What the logs hold: ids, sizes and states; never a letter's words, a person's address or a password.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use crate::world::{Account, Daemon, MailServers, ModelServer, Said, Wire, World};

/// Stands in each place that must not be told of.
const SUBJECT: &str = "Subjectcanary";
const BODY: &str = "Bodycanary";
const ANSWER: &str = "Answercanary";

fn letter(agent: &Account, alice: &Account) -> String {
    format!(
        "From: Alicecanary <{}>\nTo: <{}>\nSubject: {SUBJECT}\nMessage-ID: <secret@example.com>\nDate: Mon, 30 Nov 2026 12:00:00 +0000\n\n{BODY}\n",
        alice.address(),
        agent.address()
    )
}

/// One letter answered over real servers under a log filter; all that was logged.
fn logged_under(filter: &str) -> Option<(String, Account, Account)> {
    let servers = MailServers::shared()?;
    let (agent, alice) = (servers.account("agent"), servers.account("alicecanary"));
    let model = ModelServer::start(Wire::Openai, |_| Said::text(ANSWER));
    let world = World::on_servers(&model, &servers, &agent);
    world.append("dutiful.toml", &format!("\n[telemetry]\nlog = \"{filter}\"\n"));
    let daemon = world.start();
    servers.send(&alice.address(), &agent.address(), &letter(&agent, &alice));
    assert!(servers.inbox(&alice).wait_for(1)[0].text.contains(ANSWER));
    let console = daemon.log();
    assert!(daemon.terminate().success());
    let files: String =
        fs::read_dir(world.path("data/log")).unwrap().map(|entry| fs::read_to_string(entry.unwrap().path()).unwrap()).collect();
    assert!(console.contains("letter kept") && files.contains("letter kept"), "both logs are written");
    Some((console + &files, agent, alice))
}

#[test]
fn email_k1_security_s39_info_names_no_person_and_quotes_no_letter() {
    let Some((log, agent, alice)) = logged_under("info") else { return };
    for canary in [SUBJECT, BODY, ANSWER, "Alicecanary", &alice.address(), &agent.address()] {
        let told: Vec<&str> = log.lines().filter(|line| line.contains(canary)).collect();
        assert!(told.is_empty(), "{canary}: {told:#?}");
    }
}

#[test]
fn email_k1_security_s38_no_filter_shows_a_password_or_a_letters_text() {
    let Some((log, ..)) = logged_under("trace,async_imap=trace,imap_proto=trace,lettre=trace,rustls=trace") else { return };
    assert!(log.contains("TRACE") || log.contains("DEBUG"), "the filter was heard");
    // The password of every account of these servers, as sent by LOGIN and by AUTH PLAIN.
    for canary in ["\"secret\"", "AHNlY3JldA", "c2VjcmV0", BODY, ANSWER, SUBJECT] {
        let told: Vec<&str> = log.lines().filter(|line| line.contains(canary)).collect();
        assert!(told.is_empty(), "{canary}: {told:#?}");
    }
}

/// Mode of a file, in its last three octal digits.
fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

fn open_to_others(folder: &Path) -> Vec<String> {
    let mut open = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if mode(&path) & 0o077 != 0 {
            open.push(format!("{} {:o}", path.display(), mode(&path)));
        }
        if path.is_dir() {
            open.extend(open_to_others(&path));
        }
    }
    open
}

#[test]
fn security_s41_email_k3_all_that_the_daemon_makes_is_its_owners_alone_under_umask_000() {
    let model = ModelServer::start(Wire::Openai, |_| Said::text(ANSWER));
    let world = World::on_maildir(&model);
    let daemon: Daemon = world.start_with_umask(0);
    world.mailbox().deliver(&crate::answers_mail::letter("private", BODY));
    world.sent().wait_for(1);
    let data = world.path("data");
    assert_eq!(mode(&data), 0o700);
    let names: Vec<String> = fs::read_dir(&data).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    for expected in ["dutiful.db", "dutiful.db-wal", "dutiful.db-shm", "dutiful.sock", "log"] {
        assert!(names.iter().any(|name| name == expected), "{expected} in {names:?}");
    }
    assert_eq!(open_to_others(&data), Vec::<String>::new());
    assert!(daemon.terminate().success());
}
