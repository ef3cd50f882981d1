//! `read_result`: a page of a result of this very run that was cut for the model (harness B4).

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use serde_json::{Value, json};

use super::{READ_RESULT, spec, text};
use crate::config::Effect;
use crate::tools::bound::head_of;
use crate::tools::validate::excerpt;
use crate::tools::{Invocation, Tool, ToolError, ToolOutput, ToolSpec, clean};

/// Bytes of a page's first line, as sent.
const HEADING: usize = 128;
/// A page is never smaller, however small the operator made results.
const SMALLEST_PAGE: usize = 64;

#[derive(Debug)]
pub(super) struct ReadResult {
    spec: ToolSpec,
}

impl ReadResult {
    pub(super) fn new() -> ReadResult {
        let input = json!({
            "type": "object",
            "properties": {
                "id": { "type": "string", "description": "As named where a result was cut" },
                "offset": { "type": "integer", "minimum": 0, "description": "Byte to begin at; 0 if left out" },
            },
            "required": ["id"],
        });
        let spec = spec(READ_RESULT, "Reads on in a tool result of this run that was cut.", input, Effect::Pure);
        ReadResult { spec }
    }

    async fn read(&self, arguments: Value, invocation: Invocation<'_>) -> Result<ToolOutput, ToolError> {
        let context = invocation.context;
        let id = text(&arguments, "id").trim();
        let offset = arguments.get("offset").and_then(Value::as_u64).unwrap_or(0);
        let kept = invocation.store.kept_result(&context.run, id).await.map_err(|error| {
            tracing::error!(run = context.run.as_str(), %error, "a kept result could not be read");
            ToolError::Failed("The result could not be read.".to_owned())
        })?;
        let kept = kept.ok_or_else(|| ToolError::Failed(format!("No result \"{}\" is kept for this run.", excerpt(&clean(id), 80))))?;
        let limit = usize::try_from(context.settings.limits.tool_result_bytes).unwrap_or(usize::MAX);
        Ok(ToolOutput::Text(page(&clean(&kept), offset, limit.saturating_sub(HEADING).max(SMALLEST_PAGE))))
    }
}

/// The characters from `offset` on that take at most `room` bytes as sent, under a line that says which
/// they are.
fn page(kept: &str, offset: u64, room: usize) -> String {
    let total = kept.len();
    let start = kept.floor_char_boundary(usize::try_from(offset).unwrap_or(usize::MAX).min(total));
    let shown = head_of(kept.get(start..).unwrap_or_default(), room);
    let end = start + shown.len();
    let next = if end < total { format!("go on at offset {end}") } else { "this is the end".to_owned() };
    format!("[bytes {start}-{end} of {total}; {next}]\n{shown}")
}

impl Tool for ReadResult {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn call<'a>(&'a self, arguments: Value, invocation: Invocation<'a>) -> BoxFuture<'a, Result<ToolOutput, ToolError>> {
        self.read(arguments, invocation).boxed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::{Door, Identity, RunId, testing};
    use crate::store::{NewRun, OpenOptions, Store};
    use crate::tools::sent_bytes;

    fn new_run(id: &RunId) -> NewRun {
        NewRun {
            id: id.clone(),
            door: Door::Console,
            agent: "sundae".to_owned(),
            thread: None,
            letter: None,
            model: "kimi".to_owned(),
            started_at: chrono::DateTime::UNIX_EPOCH,
        }
    }

    #[tokio::test]
    async fn security_s11_only_results_of_this_very_run_are_read() {
        let home = tempfile::tempdir().unwrap();
        let store = Store::open(&home.path().join("dutiful.db"), OpenOptions::default()).unwrap();
        for (run, id, text) in [("r1", "res_1", "mine"), ("r2", "res_2", "another's")] {
            let run = RunId(run.to_owned());
            assert!(store.open_run(new_run(&run), Vec::new()).await.unwrap());
            store.keep_result(&run, id, text.to_owned()).await.unwrap();
        }
        let tool = ReadResult::new();
        let context = testing::context(Identity::Verified, Identity::Verified);
        let read = async |id: &str| {
            tool.call(json!({ "id": id, "offset": 1 }), Invocation { context: &context, store: &store, effect_key: "k" }).await
        };
        assert_eq!(read("res_1").await, Ok(ToolOutput::Text("[bytes 1-4 of 4; this is the end]\nine".to_owned())));
        assert_eq!(read("res_2").await, Err(ToolError::Failed("No result \"res_2\" is kept for this run.".to_owned())));
        store.close().await;
    }

    #[test]
    fn harness_b4_pages_together_are_the_whole() {
        let kept = "ä\"日本\n👩‍👩‍👧".repeat(40);
        let (mut offset, mut whole) = (0, String::new());
        loop {
            let page = page(&kept, offset, 100);
            let (heading, shown) = page.split_once('\n').unwrap();
            assert!(sent_bytes(shown) <= 100 && heading.len() < HEADING);
            whole.push_str(shown);
            match heading.rsplit_once("offset ") {
                Some((_, next)) => offset = next.trim_end_matches(']').parse().unwrap(),
                None => break,
            }
        }
        assert_eq!(whole, kept);
    }

    #[test]
    fn an_offset_past_the_end_or_inside_a_character_is_no_panic() {
        assert_eq!(page("äb", 1, 64), "[bytes 0-3 of 3; this is the end]\näb");
        assert_eq!(page("äb", u64::MAX, 64), "[bytes 3-3 of 3; this is the end]\n");
    }
}
