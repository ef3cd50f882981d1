use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::peer::Peer;
use super::*;
use crate::config::Security;
use crate::mail::MessageId;
use std::time::Duration;

const LETTER: &[u8] = b"From: a@example.com\r\nSubject: x\r\n\r\nhello\r\n";

fn soon() -> Instant {
    Instant::now() + Duration::from_secs(5)
}

#[tokio::test]
async fn login_names_with_quotes_are_written_so_that_the_server_reads_them_back() {
    let peer = Peer::start().await;
    connect(&peer.account()).await.unwrap();
    assert!(peer.see(|state| state.commands[0] == r#"LOGIN "shop \"1\"" "pass\\word""#), "{:?}", peer.see(|state| state.commands.clone()));
}

#[tokio::test]
async fn email_a12_a_refused_login_is_told_from_a_lost_connection() {
    let peer = Peer::start().await;
    peer.change(|state| state.refuses_login = true);
    assert!(matches!(connect(&peer.account()).await, Err(ImapError::Login(_))));
}

#[tokio::test]
async fn email_a3_a_greeting_that_turns_us_away_or_claims_a_login_ends_the_session() {
    let peer = Peer::start().await;
    peer.change(|state| state.greeting = "* BYE too many\r\n");
    assert!(matches!(connect(&peer.account()).await, Err(ImapError::Lost(_))));
    peer.change(|state| state.greeting = "* PREAUTH welcome\r\n");
    assert!(matches!(connect(&peer.account()).await, Err(ImapError::Violation(_))));
    peer.change(|state| state.greeting = "SSH-2.0-OpenSSH\r\n");
    assert!(connect(&peer.account()).await.is_err());
}

#[tokio::test]
async fn email_a1_plain_text_is_refused_for_any_other_host() {
    let peer = Peer::start().await;
    let mut account = peer.account();
    account.server.host = "192.0.2.1".to_owned();
    assert!(matches!(connect(&account).await, Err(ImapError::Untrusted(_))));
}

/// Answers one connection: greeting, then `answer` to STARTTLS.
async fn starttls_with(answer: &'static [u8]) -> ImapError {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let peer = Peer::start().await;
    let mut account = peer.account();
    account.server.port = listener.local_addr().unwrap().port();
    account.server.security = Security::StartTls;
    let server = async {
        let (mut tcp, _) = listener.accept().await.unwrap();
        tcp.write_all(b"* OK ready\r\n").await.unwrap();
        let mut asked = [0; 13];
        tcp.read_exact(&mut asked).await.unwrap();
        assert_eq!(&asked, b"s1 STARTTLS\r\n");
        tcp.write_all(answer).await.unwrap();
        // Held open until the client gives up: whatever more it says must be a handshake, never a login.
        let mut more = Vec::new();
        drop(tcp.read_to_end(&mut more).await);
        assert!(!String::from_utf8_lossy(&more).contains("LOGIN"));
    };
    let (session, ()) = tokio::join!(connect(&account), server);
    session.unwrap_err()
}

#[tokio::test]
async fn email_a2_bytes_sent_before_the_handshake_are_refused() {
    let injected = starttls_with(b"s1 OK go\r\n* OK [ALERT] injected\r\n").await;
    assert_eq!(injected, ImapError::Violation("bytes between STARTTLS and the handshake"));
}

#[tokio::test]
async fn email_a1_a_server_without_starttls_gets_no_password() {
    let refused = starttls_with(b"s1 NO not offered\r\n").await;
    assert_eq!(refused, ImapError::Violation("the server does not offer STARTTLS"));
}

#[tokio::test]
async fn email_b6_a_refused_fetch_is_an_error_and_no_empty_folder() {
    let peer = Peer::start().await;
    let uid = peer.change(|state| state.put(LETTER));
    let mut session = connect(&peer.account()).await.unwrap();
    session.select("INBOX", false).await.unwrap();
    peer.change(|state| state.refuses_fetch = true);
    assert!(matches!(session.bodies(&[uid], 100).await, Err(ImapError::Refused { .. })));
    assert!(matches!(session.facts("1:*").await, Err(ImapError::Refused { .. })));
}

#[tokio::test]
async fn email_b7_flag_changes_of_another_client_are_no_letters() {
    let peer = Peer::start().await;
    let uid = peer.change(|state| state.put(LETTER));
    peer.change(|state| state.stray_fetches = true);
    let mut session = connect(&peer.account()).await.unwrap();
    session.select("INBOX", false).await.unwrap();
    let facts = session.facts("1:*").await.unwrap();
    assert_eq!(facts.iter().map(|facts| (facts.uid, facts.bytes)).collect::<Vec<_>>(), [(uid, u64::try_from(LETTER.len()).unwrap())]);
    assert!(facts[0].received_at.is_some());
    assert_eq!(session.bodies(&[uid], 100).await.unwrap(), [Body { uid, raw: LETTER.to_vec() }]);
}

#[tokio::test]
async fn security_r13_a_session_cut_at_any_byte_ends_in_an_error_and_never_in_less_mail() {
    let peer = Peer::start().await;
    let uid = peer.change(|state| state.put(LETTER));
    let account = peer.account();
    let mut whole = 0;
    for cut in 0..2000 {
        peer.change(|state| state.cut_after = vec![cut]);
        let fetched = async {
            let mut session = connect(&account).await?;
            session.select("INBOX", false).await?;
            let found = session.search("UID 1:*").await?;
            let bodies = session.bodies(&[uid], 100).await?;
            Ok::<_, ImapError>((found, bodies))
        };
        match fetched.await {
            Ok((found, bodies)) => {
                assert_eq!((found, bodies), (vec![uid], vec![Body { uid, raw: LETTER.to_vec() }]), "cut after {cut}");
                whole += 1;
                break;
            }
            Err(ImapError::Late { step, .. }) => panic!("hung at {step}, cut after {cut}"),
            Err(_) => {}
        }
    }
    assert_eq!(whole, 1, "the recorded session fits into the bound of the loop");
}

#[tokio::test]
async fn email_a6_a_letter_in_the_gap_before_idle_wakes_at_once() {
    let peer = Peer::start().await;
    peer.change(|state| state.in_the_gap = Some(LETTER.to_vec()));
    let mut session = connect(&peer.account()).await.unwrap();
    session.select("INBOX", false).await.unwrap();
    assert_eq!(session.idle(soon(), &CancellationToken::new()).await.unwrap(), Woken::News);
    assert_eq!(session.search("UID 1:*").await.unwrap(), [1]);
}

#[tokio::test]
async fn email_a7_idle_ends_when_due_and_when_told_and_leaves_the_session_usable() {
    let peer = Peer::start().await;
    let mut session = connect(&peer.account()).await.unwrap();
    session.select("INBOX", false).await.unwrap();
    let stop = CancellationToken::new();
    assert_eq!(session.idle(Instant::now(), &stop).await.unwrap(), Woken::Due);
    stop.cancel();
    assert_eq!(session.idle(soon(), &stop).await.unwrap(), Woken::Stopped);
    session.noop().await.unwrap();
    session.logout().await;
}

#[tokio::test]
async fn email_a9_idle_answered_no_is_refused_and_does_not_hang() {
    let peer = Peer::start().await;
    peer.change(|state| state.refuses_idle = true);
    let mut session = connect(&peer.account()).await.unwrap();
    session.select("INBOX", false).await.unwrap();
    assert_eq!(session.idle(soon(), &CancellationToken::new()).await.unwrap(), Woken::Refused);
    session.noop().await.unwrap();
}

#[tokio::test]
async fn email_a10_a_connection_closed_during_idle_is_lost() {
    let peer = Peer::start().await;
    let mut session = connect(&peer.account()).await.unwrap();
    session.select("INBOX", false).await.unwrap();
    let stop = CancellationToken::new();
    let (woken, ()) = tokio::join!(session.idle(soon(), &stop), async {
        peer.until(|state| state.idling == 1).await;
        drop(peer);
    });
    assert!(matches!(woken, Err(ImapError::Lost(_))), "{woken:?}");
}

#[tokio::test]
async fn email_g14_a_copy_goes_into_the_special_folder_byte_for_byte() {
    let peer = Peer::start().await;
    let mut session = connect(&peer.account()).await.unwrap();
    let folder = session.sent_folder().await.unwrap().unwrap();
    assert_eq!(folder, "Sent Items");
    session.examine_listed(&folder).await.unwrap();
    let id = MessageId::parse("<one@shop.example>").unwrap();
    let raw = b"Message-ID: <one@shop.example>\r\n\r\nhi {3}\r\n";
    assert!(!session.holds(&id).await.unwrap());
    session.append_listed(&folder, raw).await.unwrap();
    assert!(session.holds(&id).await.unwrap());
    assert!(peer.see(|state| state.appended == [("Sent Items".to_owned(), raw.to_vec())]));
    assert!(peer.see(|state| state.commands.iter().any(|command| command.contains("(\\Seen)"))));
}

#[tokio::test]
async fn email_j1_a_server_that_sends_without_end_is_cut_off() {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let peer = Peer::start().await;
    let mut account = peer.account();
    account.server.port = listener.local_addr().unwrap().port();
    let server = async {
        let (mut tcp, _) = listener.accept().await.unwrap();
        tcp.write_all(b"* OK ").await.unwrap();
        while tcp.write_all(&[b'a'; 4096]).await.is_ok() {}
    };
    let (session, ()) = tokio::join!(connect(&account), server);
    assert!(matches!(session, Err(ImapError::Lost(_))), "{session:?}");
}

#[tokio::test]
async fn email_a13_a_token_is_made_for_each_connection_and_a_refusal_is_heard_to_its_end() {
    let peer = Peer::start().await;
    let folder = tempfile::tempdir().unwrap();
    let script = "echo x >> made; printf 't0ken%s' $(wc -l < made)".to_owned();
    let argv = vec!["/bin/sh".to_owned(), "-c".to_owned(), script];
    let account =
        Account { login: Login::TokenCommand { argv, folder: folder.path().to_owned() }, username: "shop".to_owned(), ..peer.account() };
    connect(&account).await.unwrap();
    peer.change(|state| state.refuses_login = true);
    let refused = connect(&account).await.unwrap_err();
    assert!(matches!(&refused, ImapError::Login(text) if !text.contains("t0ken")), "{refused}");
    let commands = peer.see(|state| state.commands.clone());
    // base64 of user=shop, 1, auth=Bearer t0kenN, 1, 1.
    let sent = ["dXNlcj1zaG9wAWF1dGg9QmVhcmVyIHQwa2VuMQEB", "dXNlcj1zaG9wAWF1dGg9QmVhcmVyIHQwa2VuMgEB"];
    let dialogues: Vec<&str> = commands.iter().map(String::as_str).filter(|command| *command != "CAPABILITY").collect();
    assert_eq!(dialogues, ["AUTHENTICATE XOAUTH2", sent[0], "AUTHENTICATE XOAUTH2", sent[1], ""]);
}

#[tokio::test]
async fn email_a4_a_server_that_falls_silent_is_given_up() {
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let peer = Peer::start().await;
    let mut account = peer.account();
    account.server.port = listener.local_addr().unwrap().port();
    account.timing.dial = Duration::from_millis(50);
    account.timing.command = Duration::from_millis(50);
    for greeting in ["", "* OK ready\r\n"] {
        let silent = async {
            let (mut tcp, _) = listener.accept().await.unwrap();
            tokio::io::AsyncWriteExt::write_all(&mut tcp, greeting.as_bytes()).await.unwrap();
            tcp
        };
        let (_held, connected) = tokio::join!(silent, connect(&account));
        assert!(matches!(connected, Err(ImapError::Late { .. })), "{greeting}: {connected:?}");
    }
}

#[tokio::test]
async fn email_a5_capabilities_are_asked_after_the_login_and_imap4rev1_is_required() {
    let peer = Peer::start().await;
    let session = connect(&peer.account()).await.unwrap();
    assert!(session.offers("MOVE") && !session.offers("CONDSTORE"));
    assert_eq!(peer.see(|state| state.commands.last().cloned()).as_deref(), Some("CAPABILITY"));
    peer.change(|state| state.capabilities = "IMAP2 IDLE");
    assert!(matches!(connect(&peer.account()).await, Err(ImapError::Violation(_) | ImapError::Unparsable(_))));
}
