//! Secrets: named by reference in the files, read once, never shown (security S37, S38).

use std::collections::BTreeMap;
use std::fmt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::process::Program;

/// Bytes of a secret.
const LONGEST: usize = 64 * 1024;

/// How long a command may take to print a secret.
const COMMAND_LIMIT: Duration = Duration::from_secs(30);

/// The environment, or what a test puts in its place.
pub(crate) type Variables<'a> = &'a dyn Fn(&str) -> Option<String>;

/// A variable of the daemon's own environment.
pub(crate) fn variable(name: &str) -> Option<String> {
    #[expect(clippy::disallowed_methods, reason = "the one reader of the environment")]
    std::env::var(name).ok()
}

/// A secret's value. It has no `Display` and no `Serialize`, and `Debug` prints nothing of it.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Wraps a value.
    pub fn new(value: String) -> Secret {
        Secret(value)
    }

    /// The value, for the one place that must send it.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

/// Where a secret stands: `{ env = … }`, `{ file = … }`, `{ credential = … }`, `{ command = […] }`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SecretSource {
    /// A variable of the daemon's environment.
    Env(String),
    /// A file, trailing newline removed; readable by its owner only.
    File(PathBuf),
    /// A systemd credential, a file in `$CREDENTIALS_DIRECTORY`.
    Credential(String),
    /// A program's standard output, trailing newline removed.
    Command(Vec<String>),
}

/// Why a secret could not be read. Never holds its value.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{0}")]
pub struct SecretError(pub String);

impl SecretSource {
    /// Reads the secret; one newline at its end is taken off. Messages name the place, never the value.
    pub(crate) fn read(&self, home: &Path, variables: Variables<'_>) -> Result<Secret, SecretError> {
        let value = match self {
            SecretSource::Env(name) => variables(name).ok_or_else(|| {
                SecretError(format!("the environment variable {} is not set; set it for the service", name.escape_debug()))
            })?,
            SecretSource::File(path) => from_file(path, variables)?,
            SecretSource::Credential(name) => from_credential(name, variables)?,
            SecretSource::Command(argv) => from_command(argv, home)?,
        };
        let value = value.strip_suffix('\n').map(|value| value.strip_suffix('\r').unwrap_or(value)).unwrap_or(&value);
        if value.is_empty() {
            return Err(SecretError("the secret is empty; put a value there".into()));
        }
        Ok(Secret::new(value.to_owned()))
    }
}

fn from_file(path: &Path, variables: Variables<'_>) -> Result<String, SecretError> {
    let shown = path.display();
    let unreadable = |error: std::io::Error| {
        SecretError(format!("the secret file {shown} cannot be read ({}); create it, readable by the service's user only", error.kind()))
    };
    let credentials = variables("CREDENTIALS_DIRECTORY").is_some_and(|folder| path.starts_with(folder));
    let mode = std::fs::metadata(path).map_err(unreadable)?.permissions().mode();
    if !credentials && mode & 0o077 != 0 {
        return Err(SecretError(format!(
            "the secret file {shown} may be read or changed by others (mode {:04o}); run chmod 600 on it",
            mode & 0o7777
        )));
    }
    text(std::fs::read(path).map_err(unreadable)?)
}

fn from_credential(name: &str, variables: Variables<'_>) -> Result<String, SecretError> {
    let shown = name.escape_debug();
    if name.contains(['/', '\0']) || name.starts_with('.') {
        return Err(SecretError(format!("\"{shown}\" is no name of a credential; write the name that LoadCredential= gives it")));
    }
    let Some(folder) = variables("CREDENTIALS_DIRECTORY") else {
        return Err(SecretError(format!(
            "the credential {shown} is missing, since $CREDENTIALS_DIRECTORY is not set; start under systemd with LoadCredential={shown}:PATH"
        )));
    };
    match std::fs::read(Path::new(&folder).join(name)) {
        Ok(bytes) => text(bytes),
        Err(error) => Err(SecretError(format!(
            "the credential {shown} cannot be read ({}); add LoadCredential={shown}:PATH to the unit",
            error.kind()
        ))),
    }
}

fn from_command(argv: &[String], home: &Path) -> Result<String, SecretError> {
    let program = Program {
        argv: argv.to_vec(),
        folder: home.to_owned(),
        env: BTreeMap::new(),
        input: Vec::new(),
        timeout: COMMAND_LIMIT,
        output_limit: LONGEST + 1,
    };
    let name = argv.first().map(String::as_str).unwrap_or_default();
    let right = "it must print the secret and exit with 0";
    match program.run_blocking() {
        Ok(finished) if finished.code == Some(0) => text(finished.output),
        Ok(finished) => {
            let code = finished.code.map_or_else(|| "a signal".to_owned(), |code| format!("exit code {code}"));
            Err(SecretError(format!("the secret's command {name} ended with {code}; {right}")))
        }
        Err(error) => Err(SecretError(format!("the secret's command failed: {error}; {right}"))),
    }
}

fn text(bytes: Vec<u8>) -> Result<String, SecretError> {
    if bytes.len() > LONGEST {
        return Err(SecretError("the secret is longer than 64 KB; name the right file".into()));
    }
    String::from_utf8(bytes).map_err(|_| SecretError("the secret is not UTF-8; name the right file".into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const CANARY: &str = "canary-7f3a";

    fn file(mode: u32, text: &str) -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("secret");
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        (folder, path)
    }

    fn read(source: SecretSource) -> Result<String, String> {
        let variables = |name: &str| (name == "SHOP").then(|| CANARY.to_owned());
        source.read(Path::new("/"), &variables).map(|secret| secret.reveal().to_owned()).map_err(|error| error.to_string())
    }

    #[test]
    fn each_source_gives_the_value_without_its_newline() {
        let (_folder, path) = file(0o600, "canary-7f3a\n");
        let command = ["printf", "canary-7f3a\\n"].map(str::to_owned).to_vec();
        for source in [SecretSource::Env("SHOP".into()), SecretSource::File(path), SecretSource::Command(command)] {
            assert_eq!(read(source.clone()).as_deref(), Ok(CANARY), "{source:?}");
        }
    }

    #[test]
    fn security_s37_a_secret_file_that_others_can_read_is_refused() {
        for mode in [0o640, 0o604, 0o660, 0o644] {
            let (_folder, path) = file(mode, CANARY);
            let error = read(SecretSource::File(path)).unwrap_err();
            assert!(error.contains("chmod 600") && !error.contains(CANARY), "{error}");
        }
    }

    #[test]
    fn a_systemd_credential_is_read_as_systemd_made_it() {
        let (folder, path) = file(0o440, CANARY);
        let at = folder.path().to_str().unwrap().to_owned();
        let variables = move |name: &str| (name == "CREDENTIALS_DIRECTORY").then(|| at.clone());
        for source in [SecretSource::Credential("secret".into()), SecretSource::File(path)] {
            assert_eq!(source.read(Path::new("/"), &variables).unwrap().reveal(), CANARY);
        }
        let error = SecretSource::Credential("../secret".into()).read(Path::new("/"), &variables).unwrap_err();
        assert!(error.to_string().contains("no name of a credential"));
    }

    #[test]
    fn security_s38_no_message_and_no_debug_text_holds_the_value() {
        let argv = ["sh", "-c", "echo canary-7f3a; echo canary-7f3a >&2; exit 4"].map(str::to_owned).to_vec();
        let error = read(SecretSource::Command(argv)).unwrap_err();
        assert_eq!(error, "the secret's command sh ended with exit code 4; it must print the secret and exit with 0");
        assert_eq!(format!("{:?}", Secret::new(CANARY.into())), "Secret(…)");
    }

    #[test]
    fn a_missing_or_empty_secret_says_what_to_do() {
        assert!(read(SecretSource::Env("OTHER".into())).unwrap_err().contains("OTHER is not set; set it"));
        let (_folder, path) = file(0o600, "\n");
        assert!(read(SecretSource::File(path)).unwrap_err().contains("empty"));
        assert!(read(SecretSource::Credential("x".into())).unwrap_err().contains("LoadCredential=x:PATH"));
    }
}
