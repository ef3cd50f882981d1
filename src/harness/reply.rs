//! Which text a run came to (harness L4), and the last pass over a conversation before it is sent (L8).

use std::collections::BTreeSet;

use super::transcript::{Ready, Transcript};
use crate::chat::{Block, Message, StopReason, ToolResult};
use crate::run::{Outcome, RunContext};
use crate::store::ReplySource;

/// Said under a text that the model could not finish (harness X5).
const CUT_MARK: &str = "\n\n[The reply was cut here because of length.]";

/// Said when an agent hands a thread over without a word of its own.
const ESCALATED: &str = "Thank you for your message. I have passed it on to a colleague, who will get back to you.";

/// Chooses the reply. Never empty: the last resort is the agent's own fallback text.
pub(super) fn choose(transcript: &Transcript, context: &RunContext) -> Ready {
    let agent = &context.agent;
    if transcript.escalated().is_some() {
        let body = transcript.latest_text().unwrap_or(ESCALATED).to_owned();
        return Ready { body, outcome: Outcome::Escalated, source: ReplySource::Earlier };
    }
    let fallback = |outcome| Ready { body: agent.fallback_reply.clone(), outcome, source: ReplySource::Fallback };
    if let Some(answer) = transcript.answer() {
        let early = transcript.was_closed_early();
        let outcome = if early { Outcome::LimitReached } else { Outcome::Answered };
        let source = if early { ReplySource::Closing } else { ReplySource::Final };
        match answer.stop {
            StopReason::Refusal => return fallback(Outcome::Refused),
            StopReason::MaxTokens | StopReason::ContextFull if !answer.text.is_empty() => {
                return Ready { body: format!("{}{CUT_MARK}", answer.text), outcome, source };
            }
            _ if !answer.text.is_empty() => return Ready { body: answer.text.clone(), outcome, source },
            _ => {}
        }
    }
    if transcript.failure().is_some_and(super::transcript::Failure::is_refusal) {
        return fallback(Outcome::Refused);
    }
    // `return_last` is "the last text as it is", a preamble included: what the operator asked for.
    let earlier = if agent.has_closing_call() { transcript.plain_text() } else { transcript.latest_text() };
    match earlier {
        Some(text) => Ready { body: text.to_owned(), outcome: Outcome::LimitReached, source: ReplySource::Earlier },
        None => fallback(Outcome::Fallback),
    }
}

/// Makes every call have exactly one result right after it: orphan results go, orphan calls get a fixed
/// error, so that a retry sends the same bytes (harness L8).
pub(super) fn paired(messages: Vec<Message>) -> Vec<Message> {
    let mut paired: Vec<Message> = Vec::with_capacity(messages.len());
    let mut messages = messages.into_iter().peekable();
    while let Some(message) = messages.next() {
        let calls: Vec<_> = message.calls().into_iter().map(|call| call.id.clone()).collect();
        match message {
            Message::Results { .. } => {}
            message if calls.is_empty() => paired.push(message),
            message => {
                let given = match messages.next_if(|next| matches!(next, Message::Results { .. })) {
                    Some(Message::Results { results }) => results,
                    _ => Vec::new(),
                };
                let mut taken = BTreeSet::new();
                let results = calls
                    .iter()
                    .map(|id| {
                        let found = given.iter().enumerate().find(|(index, result)| result.call == *id && !taken.contains(index));
                        match found {
                            Some((index, result)) => {
                                taken.insert(index);
                                result.clone()
                            }
                            None => ToolResult { call: id.clone(), text: "not completed: interrupted".to_owned(), is_error: true },
                        }
                    })
                    .collect();
                paired.push(message);
                paired.push(Message::Results { results });
            }
        }
    }
    paired.retain(|message| match message {
        Message::User { blocks } | Message::Assistant { blocks, .. } => blocks.iter().any(is_substance),
        Message::Results { results } => !results.is_empty(),
    });
    paired
}

fn is_substance(block: &Block) -> bool {
    match block {
        Block::Text { text, .. } => !text.is_empty(),
        Block::Reasoning { .. } | Block::Call(_) | Block::Opaque { .. } => true,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::chat::{CallId, Origin, Source, ToolCall};

    fn assistant(ids: &[u8]) -> Message {
        let call = |id: &u8| Block::Call(ToolCall { id: CallId(id.to_string()), name: "look".into(), arguments: "{}".into() });
        let origin = Origin { provider: "p".into(), wire: "script".into(), model: "m".into() };
        Message::Assistant { blocks: ids.iter().map(call).collect(), origin }
    }

    fn results(ids: &[u8]) -> Message {
        let result = |id: &u8| ToolResult { call: CallId(id.to_string()), text: "ok".into(), is_error: false };
        Message::Results { results: ids.iter().map(result).collect() }
    }

    /// An independent validator: calls and results pair up, adjacent, in order, once each.
    fn is_valid(messages: &[Message]) -> bool {
        let mut open: Vec<CallId> = Vec::new();
        for message in messages {
            match message {
                Message::Results { results } => {
                    let ids: Vec<CallId> = results.iter().map(|result| result.call.clone()).collect();
                    if ids != open || ids.is_empty() {
                        return false;
                    }
                    open.clear();
                }
                other => {
                    if !open.is_empty() {
                        return false;
                    }
                    open = other.calls().into_iter().map(|call| call.id.clone()).collect();
                }
            }
        }
        open.is_empty()
    }

    fn any_message() -> impl Strategy<Value = Message> {
        prop_oneof![
            Just(Message::user("hello", Source::Customer)),
            prop::collection::vec(0u8..5, 0..4).prop_map(|ids| assistant(&ids)),
            prop::collection::vec(0u8..5, 0..4).prop_map(|ids| results(&ids)),
        ]
    }

    proptest! {
        #[test]
        fn harness_l8_any_history_comes_out_valid_and_stays_as_it_is(messages in prop::collection::vec(any_message(), 0..12)) {
            let once = paired(messages);
            prop_assert!(is_valid(&once));
            prop_assert_eq!(paired(once.clone()), once);
        }
    }

    #[test]
    fn harness_l8_a_legal_history_is_untouched() {
        let legal =
            vec![Message::user("hi", Source::Customer), assistant(&[1, 2]), results(&[1, 2]), Message::user("more", Source::Customer)];
        assert_eq!(paired(legal.clone()), legal);
    }
}
