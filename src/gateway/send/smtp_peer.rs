//! A scripted SMTP server on loopback, for what a real one does not do on demand: it can cut, stall or lie at
//! each phase, and keeps every byte it was sent.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use rustls::ServerConfig;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

use crate::config::{Security, ServerAddress};

/// What the peer does instead of answering well.
#[derive(Debug, Clone)]
pub(super) enum Act {
    /// Says this, CRLF added.
    Say(&'static str),
    /// Closes the connection.
    Cut,
    /// Says nothing more, and keeps the connection open.
    Stall,
}

/// The phases of a dialogue, as keys of a script: `greeting`, `EHLO`, `STARTTLS`, `AUTH`, `MAIL`, `RCPT`,
/// `DATA`, `content` (after the first line of the message), `dot`, `RSET`, `NOOP`.
type Script = BTreeMap<&'static str, Vec<Act>>;

/// A running peer.
#[derive(Debug)]
pub(super) struct Peer {
    pub(super) address: ServerAddress,
    seen: Arc<Mutex<Vec<u8>>>,
    connections: Arc<Mutex<usize>>,
    /// Ended when dropped.
    _task: JoinSet<()>,
}

impl Peer {
    /// Starts a peer. Each phase's acts are used up one after the other; then it behaves.
    pub(super) async fn start(security: Security, certificate: &str, script: &[(&'static str, Act)]) -> Peer {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = ServerAddress { host: "localhost".to_owned(), port: listener.local_addr().unwrap().port(), security };
        let mut acts = Script::new();
        for (phase, act) in script {
            acts.entry(phase).or_default().push(act.clone());
        }
        for acts in acts.values_mut() {
            acts.reverse();
        }
        let seen = Arc::new(Mutex::new(Vec::new()));
        let connections = Arc::new(Mutex::new(0));
        let server = Server { script: Arc::new(Mutex::new(acts)), seen: Arc::clone(&seen), tls: acceptor(certificate), security };
        let counter = Arc::clone(&connections);
        let mut task = JoinSet::new();
        task.spawn(async move {
            let mut open = JoinSet::new();
            while let Ok((tcp, _)) = listener.accept().await {
                *counter.lock().unwrap() += 1;
                open.spawn(server.clone().connection(tcp));
            }
        });
        Peer { address, seen, connections, _task: task }
    }

    /// Everything that was sent, inside TLS and outside.
    pub(super) fn seen(&self) -> String {
        String::from_utf8_lossy(&self.seen.lock().unwrap()).into_owned()
    }

    pub(super) fn connections(&self) -> usize {
        *self.connections.lock().unwrap()
    }
}

/// A client configuration that trusts the test CA.
pub(super) fn client_tls() -> Arc<rustls::ClientConfig> {
    Arc::new(crate::tls::client_config(Some(include_bytes!("../../../tests/tls/ca.pem"))).unwrap())
}

fn acceptor(certificate: &str) -> TlsAcceptor {
    let (chain, key): (&[u8], &[u8]) = match certificate {
        "server" => (include_bytes!("../../../tests/tls/server.pem"), include_bytes!("../../../tests/tls/server.key")),
        _ => (include_bytes!("../../../tests/tls/wrong.pem"), include_bytes!("../../../tests/tls/wrong.key")),
    };
    let chain = CertificateDer::pem_slice_iter(chain).collect::<Result<Vec<_>, _>>().unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let config = config.with_no_client_auth().with_single_cert(chain, PrivateKeyDer::from_pem_slice(key).unwrap()).unwrap();
    TlsAcceptor::from(Arc::new(config))
}

#[derive(Clone)]
struct Server {
    script: Arc<Mutex<Script>>,
    seen: Arc<Mutex<Vec<u8>>>,
    tls: TlsAcceptor,
    security: Security,
}

/// The connection is over.
struct Over;

impl Server {
    async fn connection(self, tcp: TcpStream) {
        let _ended = match self.security {
            Security::Plaintext => self.dialogue(&mut BufReader::new(tcp), true).await,
            Security::Implicit => match self.tls.accept(tcp).await {
                Ok(tls) => self.dialogue(&mut BufReader::new(tls), true).await,
                Err(_) => Err(Over),
            },
            Security::StartTls => {
                let mut plain = BufReader::new(tcp);
                if self.before_tls(&mut plain).await.is_err() {
                    return;
                }
                match self.tls.accept(plain.into_inner()).await {
                    Ok(tls) => self.dialogue(&mut BufReader::new(tls), false).await,
                    Err(_) => Err(Over),
                }
            }
        };
    }

    async fn before_tls(&self, stream: &mut BufReader<TcpStream>) -> Result<(), Over> {
        self.answer(stream, "greeting", "220 peer").await?;
        loop {
            match self.command(stream).await?.as_str() {
                "EHLO" => self.answer(stream, "EHLO", "250-peer\r\n250 STARTTLS").await.map(|_| ())?,
                "STARTTLS" => return self.answer(stream, "STARTTLS", "220 go").await.map(|_| ()),
                _ => self.answer(stream, "other", "530 must issue STARTTLS first").await.map(|_| ())?,
            }
        }
    }

    async fn dialogue<S: AsyncRead + AsyncWrite + Unpin>(&self, stream: &mut BufReader<S>, greet: bool) -> Result<(), Over> {
        if greet {
            self.answer(stream, "greeting", "220 peer").await?;
        }
        loop {
            let command = self.command(stream).await?;
            let good = match command.as_str() {
                "EHLO" => "250-peer\r\n250-AUTH PLAIN LOGIN XOAUTH2\r\n250 SIZE 100000",
                "AUTH" => "235 2.7.0 welcome",
                "MAIL" => "250 2.1.0 ok",
                "RCPT" => "250 2.1.5 ok",
                "RSET" | "NOOP" => "250 ok",
                "DATA" => "354 go ahead",
                "QUIT" => "221 bye",
                _ => "500 what",
            };
            let said = self.answer(stream, &command, good).await?;
            match command.as_str() {
                "DATA" if said == Said::Good => self.message(stream).await?,
                "QUIT" => return Ok(()),
                _ => {}
            }
        }
    }

    /// The first word of the next line.
    async fn command<S: AsyncRead + AsyncWrite + Unpin>(&self, stream: &mut BufReader<S>) -> Result<String, Over> {
        Ok(self.line(stream).await?.split_whitespace().next().unwrap_or_default().to_owned())
    }

    async fn message<S: AsyncRead + AsyncWrite + Unpin>(&self, stream: &mut BufReader<S>) -> Result<(), Over> {
        let mut first = true;
        loop {
            let line = self.line(stream).await?;
            if first && self.next("content").is_some() {
                return Err(Over);
            }
            first = false;
            if line == ".\r\n" {
                return self.answer(stream, "dot", "250 2.0.0 queued").await.map(|_| ());
            }
        }
    }

    async fn line<S: AsyncRead + AsyncWrite + Unpin>(&self, stream: &mut BufReader<S>) -> Result<String, Over> {
        let mut line = String::new();
        let count = stream.read_line(&mut line).await.map_err(|_| Over)?;
        self.seen.lock().unwrap().extend_from_slice(line.as_bytes());
        if count == 0 { Err(Over) } else { Ok(line) }
    }

    fn next(&self, phase: &str) -> Option<Act> {
        self.script.lock().unwrap().get_mut(phase).and_then(Vec::pop)
    }

    async fn answer<S: AsyncRead + AsyncWrite + Unpin>(&self, stream: &mut BufReader<S>, phase: &str, good: &str) -> Result<Said, Over> {
        let (words, said) = match self.next(phase) {
            None => (good, Said::Good),
            Some(Act::Say(words)) => (words, Said::Scripted),
            Some(Act::Cut) => return Err(Over),
            Some(Act::Stall) => {
                // Until the client gives up.
                let mut rest = Vec::new();
                drop(stream.read_to_end(&mut rest).await);
                return Err(Over);
            }
        };
        stream.write_all(format!("{words}\r\n").as_bytes()).await.map_err(|_| Over)?;
        stream.flush().await.map_err(|_| Over)?;
        Ok(said)
    }
}

#[derive(PartialEq)]
enum Said {
    Good,
    Scripted,
}
