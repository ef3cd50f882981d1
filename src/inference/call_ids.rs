//! Ids of tool calls on the wire: those that we make, and those of another provider made fit (harness N6).
//! Unique over the whole conversation, the same on each build.

use std::collections::{BTreeMap, BTreeSet};

use crate::chat::{CallId, Message, Origin, ToolCall};

/// Every id the conversation has used, and a source of fresh ones.
#[derive(Debug, Clone, Default)]
pub(super) struct CallIds {
    taken: BTreeSet<String>,
    next: usize,
}

impl CallIds {
    /// The ids of a conversation. A per-response counter would repeat each round and break the pairing of
    /// calls and results, so counting starts after all calls so far.
    pub(super) fn of(messages: &[Message]) -> CallIds {
        let taken: BTreeSet<String> = messages.iter().flat_map(Message::calls).map(|call| call.id.0.clone()).collect();
        let next = messages.iter().map(|message| message.calls().len()).sum();
        CallIds { taken, next }
    }

    /// Keeps a provider's own id verbatim; a missing one, or one that was used before in this response or
    /// conversation, is replaced by `fresh`.
    pub(super) fn settle(&mut self, id: &str, fresh: impl Fn(usize) -> String) -> String {
        if !id.is_empty() && self.taken.insert(id.to_owned()) {
            self.next += 1;
            return id.to_owned();
        }
        loop {
            let made = fresh(self.next);
            self.next += 1;
            if self.taken.insert(made.clone()) {
                return made;
            }
        }
    }
}

/// The ordinary form of an id made by us: every wire accepts it.
pub(super) fn plain_id(number: usize) -> String {
    format!("call_{number}")
}

/// What ids a wire takes from a foreign conversation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum IdRule {
    /// `[A-Za-z0-9_-]`, of a length.
    Plain {
        /// Characters at most.
        longest: usize,
    },
    /// `functions.NAME:INDEX`, which these models were trained on.
    Kimi,
}

/// The ids of a conversation as one target takes them. Own ids stay verbatim; foreign ones are rewritten.
/// Walk the messages in order: results are looked up among the calls of the message entered last.
#[derive(Debug)]
pub(super) struct WireIds {
    target: Origin,
    rule: IdRule,
    taken: BTreeSet<String>,
    entered: BTreeMap<String, String>,
    count: usize,
}

impl WireIds {
    /// Own ids are taken from the start, so that no rewritten one can collide with them.
    pub(super) fn new(messages: &[Message], target: &Origin, rule: IdRule) -> WireIds {
        let own = messages.iter().filter(|message| matches!(message, Message::Assistant { origin, .. } if is_same_side(origin, target)));
        let taken = own.flat_map(Message::calls).map(|call| call.id.0.clone()).collect();
        WireIds { target: target.clone(), rule, taken, entered: BTreeMap::new(), count: 0 }
    }

    /// Enters the calls of the next assistant message.
    pub(super) fn enter(&mut self, calls: &[&ToolCall], author: &Origin) {
        self.entered.clear();
        let own = is_same_side(author, &self.target);
        for call in calls {
            let id = if own { call.id.0.clone() } else { self.rewritten(call) };
            self.entered.insert(call.id.0.clone(), id);
            self.count += 1;
        }
    }

    /// The id to send for a call, or for its result.
    pub(super) fn id<'a>(&'a self, id: &'a CallId) -> &'a str {
        self.entered.get(&id.0).map_or(id.0.as_str(), String::as_str)
    }

    fn rewritten(&mut self, call: &ToolCall) -> String {
        let first = match self.rule {
            IdRule::Kimi => format!("functions.{}:{}", call.name, self.count),
            IdRule::Plain { longest } => clean(&call.id.0).filter(|id| id.len() <= longest).unwrap_or_else(|| plain_id(self.count)),
        };
        let mut number = self.count;
        let mut candidate = first;
        while !self.taken.insert(candidate.clone()) {
            number += 1;
            candidate = match self.rule {
                IdRule::Kimi => format!("functions.{}:{number}", call.name),
                IdRule::Plain { .. } => plain_id(number),
            };
        }
        candidate
    }
}

/// Whether reasoning, opaque blocks and ids of `author` may go to `target` verbatim (harness N3).
pub(super) fn is_same_side(author: &Origin, target: &Origin) -> bool {
    author.provider == target.provider && author.wire == target.wire
}

/// ASCII only, hence as many bytes as characters.
fn clean(id: &str) -> Option<String> {
    let kept = |letter: char| if letter.is_ascii_alphanumeric() || letter == '-' { letter } else { '_' };
    (!id.is_empty()).then(|| id.chars().map(kept).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chat::Block;

    fn assistant(ids: &[&str]) -> Message {
        let blocks =
            ids.iter().map(|id| Block::Call(ToolCall { id: CallId((*id).into()), name: "t".into(), arguments: "{}".into() })).collect();
        Message::Assistant { blocks, origin: Origin { provider: "p".into(), wire: "openai".into(), model: "m".into() } }
    }

    #[test]
    fn harness_n6_made_ids_are_unique_over_the_thread() {
        let mut ids = CallIds::of(&[assistant(&["call_2", "x"]), assistant(&["functions.a:0"])]);
        assert_eq!(ids.settle("", plain_id), "call_3");
        assert_eq!(ids.settle("functions.b:1", plain_id), "functions.b:1");
        assert_eq!(ids.settle("functions.b:1", plain_id), "call_5", "a duplicate inside a response gets a fresh one");
        assert_eq!(ids.settle("x", plain_id), "call_6", "so does an id of an earlier response");
    }

    fn sent(messages: &[Message], rule: IdRule) -> Vec<String> {
        let target = Origin { provider: "b".into(), wire: "openai".into(), model: "m".into() };
        let mut ids = WireIds::new(messages, &target, rule);
        let mut out = Vec::new();
        for message in messages {
            if let Message::Assistant { origin, .. } = message {
                ids.enter(&message.calls(), origin);
                out.extend(message.calls().iter().map(|call| ids.id(&call.id).to_owned()));
            }
        }
        out
    }

    #[test]
    fn harness_n6_foreign_ids_are_made_fit_without_collision() {
        let long = "x".repeat(400);
        let mut messages = vec![assistant(&["a|b", "a/b", &long]), assistant(&["a|b", ""])];
        let mut own = assistant(&["a_b", "kept.verbatim:3"]);
        if let Message::Assistant { origin, .. } = &mut own {
            origin.provider = "b".into();
        }
        messages.push(own);
        let ids = sent(&messages, IdRule::Plain { longest: 40 });
        assert_eq!(ids, ["call_1", "call_2", "call_3", "call_4", "call_5", "a_b", "kept.verbatim:3"]);
        let unique: BTreeSet<_> = ids.iter().collect();
        assert_eq!(unique.len(), ids.len());
    }

    #[test]
    fn harness_n6_kimi_gets_its_own_form_with_a_global_index() {
        let messages = [assistant(&["toolu_1", "toolu_2"]), assistant(&["toolu_3"])];
        assert_eq!(sent(&messages, IdRule::Kimi), ["functions.t:0", "functions.t:1", "functions.t:2"]);
    }
}
