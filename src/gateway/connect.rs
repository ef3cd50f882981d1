//! Connections to mail servers, for IMAP and SMTP alike: TCP, then TLS before anything secret is said
//! (security S32). Each step is bounded in time.

use std::fmt::Display;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use rustls::ClientConfig;
use rustls_pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpSocket, TcpStream, lookup_host};
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::config::{Security, ServerAddress};

/// How long one address of a server may take to answer; a name may have several.
const TCP_TIME: Duration = Duration::from_secs(15);

/// How long a name may take to resolve.
const NAME_TIME: Duration = Duration::from_secs(15);

/// How long the dialogue before STARTTLS and the TLS handshake may take, each.
const HANDSHAKE_TIME: Duration = Duration::from_secs(30);

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
pub(super) enum DialError {
    /// No such name, nobody there, or lost on the way.
    #[error("{host} cannot be reached: {reason}")]
    Unreachable {
        /// The server.
        host: String,
        /// What was seen.
        reason: String,
    },
    /// The server is there, but nothing secret may be said to it: no TLS, a wrong certificate, or an
    /// unprotected connection that would leave this machine.
    #[error("{host} is not to be trusted: {reason}")]
    Untrusted {
        /// The server.
        host: String,
        /// What was seen.
        reason: String,
    },
}

impl DialError {
    fn unreachable(address: &ServerAddress, reason: &dyn Display) -> DialError {
        DialError::Unreachable { host: address.host.clone(), reason: reason.to_string() }
    }

    /// For the dialogue before STARTTLS.
    pub(super) fn untrusted(address: &ServerAddress, reason: &dyn Display) -> DialError {
        DialError::Untrusted { host: address.host.clone(), reason: reason.to_string() }
    }

    /// For the dialogue before STARTTLS.
    pub(super) fn lost(address: &ServerAddress, reason: &dyn Display) -> DialError {
        DialError::unreachable(address, reason)
    }
}

/// A connection to a mail server, protected as configured.
#[derive(Debug)]
pub(super) enum MailStream {
    /// To this very machine.
    Plain(TcpStream),
    /// Everywhere else.
    Tls(Box<TlsStream<TcpStream>>),
}

impl MailStream {
    /// The other side.
    pub(super) fn peer_addr(&self) -> io::Result<SocketAddr> {
        match self {
            MailStream::Plain(tcp) => tcp.peer_addr(),
            MailStream::Tls(tls) => tls.get_ref().0.peer_addr(),
        }
    }
}

/// Connects as the address says. `starttls` is the dialogue of the protocol up to and including the server's
/// consent to STARTTLS; it gives the socket back with nothing read beyond that. It is used only where the
/// address wants STARTTLS, and nothing but TLS follows it.
pub(super) async fn dial<F, Dialogue>(address: &ServerAddress, tls: &Arc<ClientConfig>, starttls: F) -> Result<MailStream, DialError>
where
    F: FnOnce(TcpStream) -> Dialogue,
    Dialogue: Future<Output = Result<TcpStream, DialError>>,
{
    let tcp = reach(address).await?;
    match address.security {
        Security::Implicit => Ok(MailStream::Tls(Box::new(secure(address, tls, tcp).await?))),
        Security::StartTls => {
            let agreed = timeout(HANDSHAKE_TIME, starttls(tcp)).await;
            let tcp = agreed.map_err(|_| DialError::unreachable(address, &"no answer before STARTTLS"))??;
            Ok(MailStream::Tls(Box::new(secure(address, tls, tcp).await?)))
        }
        Security::Plaintext => Ok(MailStream::Plain(tcp)),
    }
}

/// The bare connection. One that stays bare is made to this very machine only (email A1).
pub(super) async fn reach(address: &ServerAddress) -> Result<TcpStream, DialError> {
    let found = timeout(NAME_TIME, lookup_host((address.host.as_str(), address.port))).await;
    let found = found.map_err(|_| DialError::unreachable(address, &"its name does not resolve in time"))?;
    let mut reason = "its name has no address".to_owned();
    for candidate in found.map_err(|error| DialError::unreachable(address, &error))? {
        if address.security == Security::Plaintext && !candidate.ip().is_loopback() {
            return Err(DialError::untrusted(address, &"it is not on this machine, and plaintext was configured"));
        }
        match timeout(TCP_TIME, connect_to(candidate)).await {
            Ok(Ok(tcp)) => return Ok(tcp),
            Ok(Err(error)) => reason = error.to_string(),
            Err(_) => reason = "no answer in time".to_owned(),
        }
    }
    Err(DialError::unreachable(address, &reason))
}

async fn connect_to(candidate: SocketAddr) -> io::Result<TcpStream> {
    let socket = if candidate.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    socket.set_keepalive(true)?;
    let tcp = socket.connect(candidate).await?;
    // Each command waits for its reply: without this, every small one waits for the other side's delayed ACK.
    tcp.set_nodelay(true)?;
    Ok(tcp)
}

/// TLS over a bare connection, with a server that proves its name.
pub(super) async fn secure(address: &ServerAddress, tls: &Arc<ClientConfig>, tcp: TcpStream) -> Result<TlsStream<TcpStream>, DialError> {
    let name = ServerName::try_from(address.host.clone()).map_err(|error| DialError::untrusted(address, &error))?;
    match timeout(HANDSHAKE_TIME, TlsConnector::from(Arc::clone(tls)).connect(name, tcp)).await {
        Ok(Ok(stream)) => Ok(stream),
        // rustls reports what it refuses as InvalidData; everything else is the network.
        Ok(Err(error)) if error.kind() == io::ErrorKind::InvalidData => Err(DialError::untrusted(address, &error)),
        Ok(Err(error)) => Err(DialError::unreachable(address, &error)),
        Err(_) => Err(DialError::unreachable(address, &"no TLS handshake in time")),
    }
}

impl AsyncRead for MailStream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            MailStream::Plain(tcp) => Pin::new(tcp).poll_read(cx, buffer),
            MailStream::Tls(tls) => Pin::new(tls).poll_read(cx, buffer),
        }
    }
}

impl AsyncWrite for MailStream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            MailStream::Plain(tcp) => Pin::new(tcp).poll_write(cx, bytes),
            MailStream::Tls(tls) => Pin::new(tls).poll_write(cx, bytes),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            MailStream::Plain(tcp) => Pin::new(tcp).poll_flush(cx),
            MailStream::Tls(tls) => Pin::new(tls).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            MailStream::Plain(tcp) => Pin::new(tcp).poll_shutdown(cx),
            MailStream::Tls(tls) => Pin::new(tls).poll_shutdown(cx),
        }
    }
}
