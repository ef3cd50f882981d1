//! The few words of SMTP before TLS, said by hand: a client library that keeps what it has read would take
//! injected plaintext for the server's word (security S32).

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::config::ServerAddress;
use crate::gateway::connect::DialError;

/// The longest reply that is read.
const REPLY_BYTES: usize = 16 * 1024;

/// Greeting, EHLO, STARTTLS; the socket comes back with the server's consent read and not a byte more.
pub(super) async fn agree(address: &ServerAddress, hello: &str, mut tcp: TcpStream) -> Result<TcpStream, DialError> {
    exchange(address, &mut tcp, None, "220").await?;
    exchange(address, &mut tcp, Some(&format!("EHLO {hello}\r\n")), "250").await?;
    exchange(address, &mut tcp, Some("STARTTLS\r\n"), "220").await?;
    Ok(tcp)
}

/// Says `line`, reads exactly one reply, which must have this code.
async fn exchange(address: &ServerAddress, tcp: &mut TcpStream, line: Option<&str>, code: &str) -> Result<(), DialError> {
    if let Some(line) = line {
        tcp.write_all(line.as_bytes()).await.map_err(|error| DialError::lost(address, &error))?;
    }
    let mut read = Vec::new();
    loop {
        match reply_end(&read) {
            Some(end) if end < read.len() => return Err(DialError::untrusted(address, &"it speaks out of turn before TLS")),
            Some(_) => break,
            None if read.len() > REPLY_BYTES => return Err(DialError::untrusted(address, &"its reply has no end")),
            None => {}
        }
        let count = tcp.read_buf(&mut read).await.map_err(|error| DialError::lost(address, &error))?;
        if count == 0 {
            return Err(DialError::lost(address, &"it hung up before TLS"));
        }
    }
    let reply = String::from_utf8_lossy(&read);
    if reply.starts_with(code) {
        return Ok(());
    }
    let shown: String = reply.chars().filter(|c| !c.is_control()).take(200).collect();
    match line {
        Some("STARTTLS\r\n") => Err(DialError::untrusted(address, &format!("it refuses STARTTLS: {shown}"))),
        _ => Err(DialError::lost(address, &shown)),
    }
}

/// Where the first whole reply ends: after the line whose fourth byte is no hyphen.
fn reply_end(read: &[u8]) -> Option<usize> {
    let mut end = 0;
    for line in read.split_inclusive(|&byte| byte == b'\n') {
        end += line.len();
        if line.ends_with(b"\n") && line.get(3) != Some(&b'-') {
            return Some(end);
        }
    }
    None
}
