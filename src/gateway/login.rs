//! How a mailbox proves itself to its servers: a password, or an access token made fresh by the operator's
//! program for each connection.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use crate::config::{Mailbox, Secret};
use crate::process::Program;

/// How long the operator's program may take to print a token.
const TOKEN_TIME: Duration = Duration::from_secs(30);

/// The longest token.
const TOKEN_BYTES: usize = 64 * 1024;

/// A name and what proves it.
#[derive(Debug, Clone)]
pub(super) struct Login {
    /// Whose account.
    pub(super) username: String,
    /// A password, or an access token.
    pub(super) secret: Secret,
    /// Whether the secret is an access token (XOAUTH2).
    pub(super) token: bool,
}

/// The login of a mailbox; none when it needs none.
///
/// # Errors
/// Why there is no token, in words that hold nothing secret.
pub(super) async fn login_for(mailbox: &Mailbox, home: &Path) -> Result<Option<Login>, String> {
    let username = || mailbox.username.clone().unwrap_or_else(|| mailbox.address.as_str().to_owned());
    match (&mailbox.token_command, &mailbox.password) {
        (Some(argv), _) => {
            let secret = fresh_token(argv, home).await?;
            Ok(Some(Login { username: username(), secret, token: true }))
        }
        (None, Some(password)) => Ok(Some(Login { username: username(), secret: password.clone(), token: false })),
        (None, None) => Ok(None),
    }
}

/// An access token, made now; it stands in no error.
pub(super) async fn fresh_token(argv: &[String], home: &Path) -> Result<Secret, String> {
    let program = Program {
        argv: argv.to_vec(),
        folder: home.to_owned(),
        env: BTreeMap::new(),
        input: Vec::new(),
        timeout: TOKEN_TIME,
        output_limit: TOKEN_BYTES,
    };
    let finished = program.run().await.map_err(|error| error.to_string())?;
    if finished.code != Some(0) {
        return Err("the token command failed".to_owned());
    }
    let token = String::from_utf8(finished.output).map_err(|_| "the token command prints no text".to_owned())?;
    match token.trim() {
        "" => Err("the token command prints nothing".to_owned()),
        token if token.chars().any(|c| c.is_control() || c.is_whitespace()) => Err("the token command prints no token".to_owned()),
        token => Ok(Secret::new(token.to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Send;
    use crate::gateway::test_letters::mailbox;

    #[tokio::test]
    async fn a_token_is_made_fresh_and_a_command_that_fails_shows_nothing_of_it() {
        let mut mailbox = mailbox(Send::Maildir("/nowhere".into()));
        assert!(login_for(&mailbox, Path::new("/")).await.unwrap().is_none());
        mailbox.password = Some(Secret::new("password".to_owned()));
        let login = login_for(&mailbox, Path::new("/")).await.unwrap().unwrap();
        assert_eq!((login.username.as_str(), login.secret.reveal(), login.token), ("sundae@shop.example", "password", false));
        let command = |script: &str| Some(["/bin/sh", "-c", script].map(str::to_owned).to_vec());
        mailbox.token_command = command("echo t0ken");
        let login = login_for(&mailbox, Path::new("/")).await.unwrap().unwrap();
        assert_eq!((login.secret.reveal(), login.token), ("t0ken", true));
        for broken in ["echo t0ken; exit 1", "true", "echo t0ken t0ken", "printf 't0ken\\r\\nAUTH'", "printf '\\377t0ken'"] {
            mailbox.token_command = command(broken);
            let error = login_for(&mailbox, Path::new("/")).await.unwrap_err();
            assert!(!error.contains("t0ken"), "{error}");
        }
    }
}
