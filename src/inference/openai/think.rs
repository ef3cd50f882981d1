//! Think tags in the content (harness R13): some servers leave a model's reasoning in its text.

/// Splits a whole text into reasoning and answer. Only tags at the start count, or a stray closing tag whose
/// opening one the chat template has swallowed.
pub(super) fn split(text: &str) -> (&str, &str) {
    let start = text.trim_start();
    let opened = start.strip_prefix("<think>");
    match (opened.unwrap_or(start).split_once("</think>"), opened) {
        (Some((reasoning, answer)), _) => (reasoning.trim(), answer.trim_start()),
        // Cut while thinking: no answer was begun.
        (None, Some(reasoning)) => (reasoning.trim(), ""),
        (None, None) => ("", text),
    }
}

#[cfg(test)]
mod tests {
    use super::split;

    #[test]
    fn harness_r13_think_tags_become_reasoning() {
        assert_eq!(split("\n<think>a < b</think>\n\nHello"), ("a < b", "Hello"));
        assert_eq!(split("left over</think>Hello"), ("left over", "Hello"));
        assert_eq!(split("<think>cut off"), ("cut off", ""));
        assert_eq!(split("Write <think> as you like"), ("", "Write <think> as you like"));
        assert_eq!(split(""), ("", ""));
    }
}
