//! Whether a model's answer may be used: decided from its content first, from its stop reason second.

use crate::chat::{Reply, StopReason};
use crate::store::Purpose;

/// What is done with an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Fate {
    /// It becomes part of the conversation.
    Keep,
    /// It is recorded and forgotten; the same request is made again, with this note when there is one.
    Discard {
        /// For the record.
        reason: &'static str,
        /// For the model.
        note: Option<&'static str>,
    },
}

/// Why a cut call was discarded.
pub(super) const CUT_OFF: &str = "tool call cut off";

const CUT_CALL: &str = "Your tool request was cut off at the output limit and discarded. Make one smaller request, or answer without it.";
const EMPTY: &str = "Your last answer was empty. Write the reply to the customer now.";

/// Decides. `discards` counts the answers in a row that could not be used before this one.
pub(super) fn fate(purpose: Purpose, reply: &Reply, discards: u32) -> Fate {
    let has_calls = !reply.message.calls().is_empty();
    let has_text = !reply.message.text().trim().is_empty();
    match reply.stop {
        // No tools of a refused answer run; its text may be cut by a filter (harness S5).
        StopReason::Refusal => Fate::Keep,
        // A truncated answer runs no tools, not even the calls that parse (harness, point 2).
        StopReason::MaxTokens | StopReason::ContextFull if has_calls => Fate::Discard { reason: CUT_OFF, note: Some(CUT_CALL) },
        StopReason::PauseTurn if purpose == Purpose::Round => Fate::Keep,
        _ if has_calls && purpose == Purpose::Closing => Fate::Discard { reason: "tool call in the closing call", note: None },
        _ if has_calls || has_text => Fate::Keep,
        // Empty, or reasoning only: once unchanged, then with a nudge that nobody keeps (harness E1, S2).
        _ => Fate::Discard { reason: "empty answer", note: (discards > 0).then_some(EMPTY) },
    }
}

/// Takes the calls out of a refused answer, so that no fold ever runs them.
pub(super) fn without_calls(mut reply: Reply) -> Reply {
    if let crate::chat::Message::Assistant { blocks, .. } = &mut reply.message {
        blocks.retain(|block| !matches!(block, crate::chat::Block::Call(_)));
    }
    reply
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chat::{Block, CallId, Message, Origin, Source, ToolCall, Usage};

    fn reply(text: &str, calls: usize, stop: StopReason) -> Reply {
        let mut blocks = Vec::new();
        if !text.is_empty() {
            blocks.push(Block::Text { text: text.into(), source: Source::Model });
        }
        for index in 0..calls {
            blocks.push(Block::Call(ToolCall { id: CallId(format!("c{index}")), name: "look".into(), arguments: "{}".into() }));
        }
        let origin = Origin { provider: "p".into(), wire: "script".into(), model: "m".into() };
        Reply { message: Message::Assistant { blocks, origin }, stop, raw_stop: None, usage: Usage::default(), response_id: None }
    }

    #[test]
    fn harness_s1_complete_calls_are_kept_whatever_the_stop_reason_says() {
        for stop in [StopReason::EndTurn, StopReason::ToolUse, StopReason::Unknown, StopReason::StopSequence] {
            assert_eq!(fate(Purpose::Round, &reply("", 1, stop), 0), Fate::Keep);
        }
    }

    #[test]
    fn a_cut_tool_call_never_runs() {
        let cut = fate(Purpose::Round, &reply("Let me look.", 2, StopReason::MaxTokens), 0);
        assert_eq!(cut, Fate::Discard { reason: "tool call cut off", note: Some(CUT_CALL) });
    }

    #[test]
    fn harness_e1_an_empty_answer_is_asked_for_again_then_nudged() {
        let empty = reply("", 0, StopReason::ToolUse);
        assert_eq!(fate(Purpose::Round, &empty, 0), Fate::Discard { reason: "empty answer", note: None });
        assert_eq!(fate(Purpose::Round, &empty, 1), Fate::Discard { reason: "empty answer", note: Some(EMPTY) });
    }

    #[test]
    fn harness_l3_calls_in_the_closing_call_are_not_kept() {
        let closing = fate(Purpose::Closing, &reply("Let me see", 1, StopReason::ToolUse), 0);
        assert_eq!(closing, Fate::Discard { reason: "tool call in the closing call", note: None });
    }

    #[test]
    fn harness_s5_a_refusal_keeps_no_call() {
        let refused = without_calls(reply("no", 1, StopReason::Refusal));
        assert!(refused.message.calls().is_empty());
    }
}
