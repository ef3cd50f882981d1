//! The bytes of one connection, plain or through TLS, with a limit on what is read.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, BufWriter, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

/// A connection to a server.
#[derive(Debug)]
pub struct Stream {
    wire: Wire,
    /// Bytes that may still be read before the limit is raised again: the IMAP parser keeps a whole
    /// response in memory, so a server that sends without end must be cut off here (email J1).
    allowance: u64,
}

/// Buffered, since the crate writes a command in four pieces and then flushes: one packet, one TLS record.
#[derive(Debug)]
enum Wire {
    Plain(BufWriter<TcpStream>),
    Tls(Box<BufWriter<TlsStream<TcpStream>>>),
}

impl Stream {
    /// Without protection: loopback only (email A1).
    pub(super) fn plain(tcp: TcpStream) -> Stream {
        Stream { wire: Wire::Plain(BufWriter::new(tcp)), allowance: u64::MAX }
    }

    /// Through TLS.
    pub(super) fn tls(tls: TlsStream<TcpStream>) -> Stream {
        Stream { wire: Wire::Tls(Box::new(BufWriter::new(tls))), allowance: u64::MAX }
    }

    /// From here on so many bytes may be read.
    pub(super) fn allow(&mut self, bytes: u64) {
        self.allowance = bytes;
    }
}

impl AsyncRead for Stream {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if self.allowance == 0 {
            return Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, "the server sends more than was asked for")));
        }
        let before = buf.filled().len();
        let polled = match &mut self.wire {
            Wire::Plain(tcp) => Pin::new(tcp).poll_read(cx, buf),
            Wire::Tls(tls) => Pin::new(tls).poll_read(cx, buf),
        };
        let read = u64::try_from(buf.filled().len().saturating_sub(before)).unwrap_or(u64::MAX);
        self.allowance = self.allowance.saturating_sub(read);
        polled
    }
}

impl AsyncWrite for Stream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        match &mut self.wire {
            Wire::Plain(tcp) => Pin::new(tcp).poll_write(cx, buf),
            Wire::Tls(tls) => Pin::new(tls).poll_write(cx, buf),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.wire {
            Wire::Plain(tcp) => Pin::new(tcp).poll_flush(cx),
            Wire::Tls(tls) => Pin::new(tls).poll_flush(cx),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.wire {
            Wire::Plain(tcp) => Pin::new(tcp).poll_shutdown(cx),
            Wire::Tls(tls) => Pin::new(tls).poll_shutdown(cx),
        }
    }
}
