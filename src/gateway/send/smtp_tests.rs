use super::*;
use crate::config::Secret;
use crate::gateway::send::smtp_peer::{Act, Peer, client_tls};
use crate::gateway::test_letters::{address, claimed};

/// Waits long for what will come, and shortly for the one answer that a script holds back.
fn patience(script: &[(&'static str, Act)]) -> Patience {
    let short = Duration::from_millis(60);
    let mut patience = Patience::default();
    for (phase, act) in script {
        match (*phase, act) {
            ("MAIL" | "RCPT", Act::Stall) => patience.envelope = short,
            ("DATA", Act::Stall) => patience.data = short,
            // Both, since the dot goes out within the first.
            ("dot", Act::Stall) => (patience.content, patience.after_dot) = (Duration::from_millis(300), short),
            _ => {}
        }
    }
    patience
}

fn login(token: bool) -> Login {
    Login { username: "sundae".to_owned(), secret: Secret::new("s3cret".to_owned()), token }
}

async fn open(peer: &Peer) -> Result<Session, Outcome> {
    open_with(peer, Patience::default()).await
}

async fn open_with(peer: &Peer, patience: Patience) -> Result<Session, Outcome> {
    let tls = client_tls();
    let server = Server { address: &peer.address, tls: &tls, hello: "shop.example", patience };
    Session::open(&server, Some(&login(false))).await
}

async fn send_one(script: &[(&'static str, Act)]) -> (Outcome, Peer) {
    let peer = Peer::start(Security::Implicit, "server", script).await;
    let outcome = match open_with(&peer, patience(script)).await {
        Ok(mut session) => session.send(&claimed("one")).await,
        Err(outcome) => outcome,
    };
    (outcome, peer)
}

#[tokio::test]
async fn email_g17_the_bytes_on_the_wire_are_the_letter_dot_stuffed() {
    let (outcome, peer) = send_one(&[]).await;
    assert_eq!(outcome, Outcome::Accepted);
    let seen = peer.seen();
    let (_, message) = seen.split_once("DATA\r\n").unwrap();
    assert_eq!(message, "Message-ID: <one@shop.example>\r\n\r\nhello\r\n..\r\n...\r\n..x\r\nend\r\n.\r\n");
    assert!(seen.contains("MAIL FROM:<sundae@shop.example> SIZE="), "{seen}");
    assert!(seen.contains("RCPT TO:<alice@example.com>\r\n"), "{seen}");
}

#[tokio::test]
async fn email_g9_before_the_dot_nothing_is_in_doubt_after_it_everything() {
    use Act::{Cut, Say, Stall};
    for (phase, act, expected) in [
        ("greeting", Cut, "unreachable"),
        ("greeting", Say("554 go away"), "unreachable"),
        ("EHLO", Cut, "unreachable"),
        ("AUTH", Cut, "unreachable"),
        ("AUTH", Say("454 4.7.0 later"), "unreachable"),
        ("AUTH", Say("535 5.7.8 wrong"), "login"),
        ("MAIL", Cut, "unreachable"),
        ("MAIL", Stall, "unreachable"),
        ("MAIL", Say("421 4.3.2 closing"), "unreachable"),
        ("MAIL", Say("530 5.7.0 log in"), "refused 530"),
        ("RCPT", Cut, "unreachable"),
        ("RCPT", Stall, "unreachable"),
        ("RCPT", Say("450 4.2.0 greylisted"), "refused 450"),
        ("RCPT", Say("550 5.1.1 no such user"), "refused 550"),
        ("DATA", Cut, "broken"),
        ("DATA", Stall, "broken"),
        ("DATA", Say("250 what"), "broken"),
        ("DATA", Say("451 4.3.0 no"), "refused 451"),
        ("dot", Say("451 4.3.0 no"), "refused 451"),
        ("dot", Say("554 5.7.1 spam"), "refused 554"),
        ("dot", Say("421 4.3.2 closing"), "refused 421"),
        ("dot", Cut, "uncertain"),
        ("dot", Stall, "uncertain"),
        ("dot", Say("hello"), "uncertain"),
        ("dot", Say("354 again"), "uncertain"),
        ("dot", Say("250 2.0.0 angenommen, tsch\u{fc}ss"), "accepted"),
    ] {
        let (outcome, _peer) = send_one(&[(phase, act.clone())]).await;
        let seen = match &outcome {
            Outcome::Accepted => "accepted".to_owned(),
            Outcome::Refused(refusal) => format!("refused {}", refusal.code),
            Outcome::Broken(_) => "broken".to_owned(),
            Outcome::Unreachable(_) => "unreachable".to_owned(),
            Outcome::LoginRefused(_) => "login".to_owned(),
            Outcome::Uncertain(_) => "uncertain".to_owned(),
        };
        assert_eq!(seen, expected, "{phase} {act:?}: {outcome:?}");
    }
}

#[tokio::test]
async fn email_g9_a_cut_inside_a_long_message_is_not_in_doubt() {
    let peer = Peer::start(Security::Implicit, "server", &[("EHLO", Act::Say("250-peer\r\n250 AUTH PLAIN")), ("content", Act::Cut)]).await;
    let mut session = open(&peer).await.unwrap();
    session.size_limit = None;
    let mut letter = claimed("one");
    // Far more than both sides' buffers take, so the cut comes before the dot.
    letter.bytes = b"x: y\r\n\r\n".iter().copied().chain(b"line\r\n".iter().copied().cycle().take(12 << 20)).collect();
    assert!(matches!(session.send(&letter).await, Outcome::Broken(_)));
}

#[tokio::test]
async fn email_g12_a_refused_letter_does_not_hurt_the_next() {
    let peer = Peer::start(Security::Implicit, "server", &[("RCPT", Act::Say("550 5.1.1 no"))]).await;
    let mut session = open(&peer).await.unwrap();
    let Outcome::Refused(refusal) = session.send(&claimed("one")).await else { panic!("refused") };
    assert_eq!((refusal.code, refusal.enhanced.as_deref(), refusal.is_permanent()), (550, Some("5.1.1"), true));
    assert!(session.is_ready().await);
    assert_eq!(session.send(&claimed("two")).await, Outcome::Accepted);
    assert_eq!(peer.connections(), 1);
    assert!(peer.seen().contains("RSET\r\nMAIL"), "{}", peer.seen());
}

#[tokio::test]
async fn email_g13_a_connection_that_broke_or_idled_is_not_used_again() {
    let peer = Peer::start(Security::Implicit, "server", &[("dot", Act::Cut)]).await;
    let mut session = open(&peer).await.unwrap();
    assert!(matches!(session.send(&claimed("one")).await, Outcome::Uncertain(_)));
    assert!(!session.is_ready().await);

    let peer = Peer::start(Security::Implicit, "server", &[("NOOP", Act::Say("421 4.4.2 idle"))]).await;
    let mut session = open(&peer).await.unwrap();
    session.used_at -= Duration::from_secs(2);
    assert!(!session.is_ready().await, "421 to NOOP means a new connection");
    let mut session = open(&peer).await.unwrap();
    session.used_at -= Duration::from_secs(2);
    assert!(session.is_ready().await, "NOOP was answered");
    session.used_at -= Duration::from_secs(31);
    assert!(!session.is_ready().await);
}

#[tokio::test]
async fn email_g16_what_the_server_cannot_take_is_refused_with_the_reason() {
    let peer = Peer::start(Security::Implicit, "server", &[]).await;
    let mut session = open(&peer).await.unwrap();
    let mut letter = claimed("one");
    letter.recipient = address("jürgen@example.com");
    let Outcome::Refused(refusal) = session.send(&letter).await else { panic!("refused") };
    assert!(refusal.is_permanent() && refusal.text.contains("SMTPUTF8"));
    letter = claimed("two");
    letter.bytes = vec![b'x'; 100_001];
    let Outcome::Refused(refusal) = session.send(&letter).await else { panic!("refused") };
    assert!(refusal.is_permanent() && refusal.text.contains("larger"));
    assert_eq!(session.send(&claimed("three")).await, Outcome::Accepted);
}

#[tokio::test]
async fn security_s32_starttls_works_and_an_injected_reply_gets_no_credentials() {
    let peer = Peer::start(Security::StartTls, "server", &[]).await;
    let mut session = open(&peer).await.unwrap();
    assert_eq!(session.send(&claimed("one")).await, Outcome::Accepted);
    assert!(peer.seen().contains("AUTH PLAIN "));

    for (phase, act) in [
        ("STARTTLS", Act::Say("220 go\r\n250 injected")),
        ("STARTTLS", Act::Say("220 go\r\n250")),
        ("STARTTLS", Act::Say("502 not here")),
        ("STARTTLS", Act::Say("454 4.7.0 not now")),
        ("EHLO", Act::Say("250-peer\r\n250 AUTH PLAIN LOGIN\r\n220 go")),
        ("greeting", Act::Say("220 peer\r\n250 injected")),
        ("STARTTLS", Act::Cut),
    ] {
        let peer = Peer::start(Security::StartTls, "server", &[(phase, act.clone())]).await;
        assert!(matches!(open(&peer).await, Err(Outcome::Unreachable(_))), "{phase} {act:?}");
        assert!(!peer.seen().contains("AUTH") && !peer.seen().contains("MAIL"), "{phase} {act:?}: {}", peer.seen());
    }
}

#[tokio::test]
async fn security_s32_a_certificate_of_another_name_or_none_gets_no_credentials() {
    for security in [Security::Implicit, Security::StartTls] {
        let peer = Peer::start(security, "wrong", &[]).await;
        let Err(Outcome::Unreachable(reason)) = open(&peer).await else { panic!("trusted a wrong name") };
        assert!(reason.contains("not to be trusted"), "{reason}");
        assert!(!peer.seen().contains("AUTH"));
    }
    // A server that speaks no TLS at all where TLS is wanted.
    let mut peer = Peer::start(Security::Plaintext, "server", &[]).await;
    peer.address.security = Security::Implicit;
    assert!(matches!(open(&peer).await, Err(Outcome::Unreachable(_))));
    assert!(!peer.seen().contains("s3cret") && !peer.seen().contains("AUTH"));
}

#[tokio::test]
async fn the_login_follows_what_is_configured_and_offered() {
    let tls = client_tls();
    let peer = Peer::start(Security::Plaintext, "server", &[]).await;
    let server = Server { address: &peer.address, tls: &tls, hello: "shop.example", patience: Patience::default() };
    Session::open(&server, Some(&login(true))).await.unwrap();
    assert!(peer.seen().contains("AUTH XOAUTH2 "), "{}", peer.seen());

    let peer = Peer::start(Security::Plaintext, "server", &[("EHLO", Act::Say("250 peer"))]).await;
    assert!(matches!(open(&peer).await, Err(Outcome::LoginRefused(_))));

    let peer = Peer::start(Security::Plaintext, "server", &[]).await;
    let server = Server { address: &peer.address, ..server };
    Session::open(&server, None).await.unwrap();
    assert!(!peer.seen().contains("AUTH"));
}

#[test]
fn email_g9_nobody_is_hurried_into_duplicates() {
    let patience = Patience::default();
    let seconds = Duration::from_secs;
    assert!(patience.envelope >= seconds(300) && patience.data >= seconds(120) && patience.content >= seconds(180));
    assert!(patience.after_dot >= seconds(600), "RFC 5321 section 4.5.3.2.6");
}
