//! `document:PATH`: a file of the operator's, in the system text.

use std::io::ErrorKind;
use std::path::Path;

use anyhow::Context as _;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio::io::AsyncReadExt as _;

use super::{Piece, Resolver};
use crate::run::RunContext;

/// Bytes of one document.
const DOCUMENT: u64 = 100 * 1024;

/// One file, read when a run begins.
#[derive(Debug)]
pub(super) struct Document {
    name: String,
    path: String,
}

impl Document {
    pub(super) fn new(path: &str) -> Document {
        Document { name: format!("document:{path}"), path: path.to_owned() }
    }

    async fn read(&self, home: &Path) -> anyhow::Result<Option<Piece>> {
        let path = home.join(&self.path);
        let title = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let file = match tokio::fs::File::open(&path).await {
            Err(error) if error.kind() == ErrorKind::NotFound => anyhow::bail!("{} does not exist", self.path),
            file => file.with_context(|| self.path.clone())?,
        };
        let size = file.metadata().await.with_context(|| self.path.clone())?.len();
        let mut bytes = Vec::new();
        file.take(DOCUMENT).read_to_end(&mut bytes).await.with_context(|| self.path.clone())?;
        let text = whole_characters(&bytes);
        let text = text.trim_start_matches('\u{feff}').trim();
        let rest = if size > DOCUMENT { format!("\n[only the first {DOCUMENT} of {size} bytes are shown]") } else { String::new() };
        Ok((!text.is_empty()).then(|| Piece::System(format!("Document \"{title}\":\n\n{text}{rest}"))))
    }
}

/// The text of bytes that may have been cut inside their last character.
fn whole_characters(bytes: &[u8]) -> String {
    let whole = match std::str::from_utf8(bytes) {
        Err(error) if error.error_len().is_none() => bytes.get(..error.valid_up_to()).unwrap_or_default(),
        _ => bytes,
    };
    String::from_utf8_lossy(whole).into_owned()
}

impl Resolver for Document {
    fn name(&self) -> &str {
        &self.name
    }

    fn resolve<'a>(&'a self, context: &'a RunContext) -> BoxFuture<'a, anyhow::Result<Option<Piece>>> {
        self.read(&context.settings.home).boxed()
    }
}
