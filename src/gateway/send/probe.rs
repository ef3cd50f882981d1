//! Trying the way out without sending anything.

use std::path::Path;
use std::sync::Arc;

use super::smtp::{Outcome, Patience, Server, Session};
use crate::config::{Mailbox, Send};
use crate::gateway::login::login_for;

/// Logs in where letters go, and out again (`check --online`).
///
/// # Errors
/// What the server, or the way to it, says.
pub async fn try_sending(mailbox: &Mailbox, home: &Path, tls: &Arc<rustls::ClientConfig>) -> anyhow::Result<()> {
    match &mailbox.send {
        Send::Maildir(path) => {
            // What is missing, `serve` makes.
            anyhow::ensure!(path.is_dir() || !path.exists(), "{} is no folder", path.display());
            Ok(())
        }
        Send::Sendmail(program) => {
            anyhow::ensure!(program.is_file(), "there is no program {}", program.display());
            Ok(())
        }
        Send::Smtp(address) => {
            let login = login_for(mailbox, home).await.map_err(anyhow::Error::msg)?;
            let server = Server { address, tls, hello: mailbox.address.domain(), patience: Patience::default() };
            let session = Box::pin(Session::open(&server, login.as_ref())).await.map_err(told)?;
            session.quit().await;
            Ok(())
        }
    }
}

fn told(outcome: Outcome) -> anyhow::Error {
    match outcome {
        Outcome::Unreachable(reason) | Outcome::Broken(reason) | Outcome::Uncertain(reason) => anyhow::Error::msg(reason),
        Outcome::LoginRefused(reason) => anyhow::anyhow!("login refused: {reason}"),
        Outcome::Refused(refusal) => anyhow::anyhow!("refused: {}", refusal.text),
        Outcome::Accepted => anyhow::anyhow!("no session came of it"),
    }
}
