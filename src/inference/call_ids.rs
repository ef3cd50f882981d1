//! Ids of tool calls that we make ourselves: unique over the whole conversation, the same on each build (harness N6).

use std::collections::BTreeSet;

use crate::chat::Message;

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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chat::{Block, CallId, Origin, ToolCall};

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
}
