//! Failing calls that repeat themselves: the model is told once, and if it goes on, it gets no more rounds
//! (harness L6).

use crate::chat::{ToolCall, ToolResult};
use crate::store::ToolStatus;

/// How often one and the same failing call is repeated before the model is told.
const BEFORE_NOTICE: u32 = 3;

/// What is counted, over the whole run.
#[derive(Debug, Clone, Default)]
pub(super) struct Repeats {
    /// Name, arguments and result of the latest failing call.
    last: Option<(String, String, String)>,
    /// The same call failed the same way, so often in a row.
    same: u32,
    /// Rounds in a row of which no call could run.
    barren: u32,
    noticed: bool,
}

impl Repeats {
    /// Counts a call that ended. One that succeeds shows that the model gets somewhere.
    pub(super) fn note_call(&mut self, call: &ToolCall, result: &ToolResult, status: ToolStatus) {
        if status == ToolStatus::Completed {
            *self = Repeats::default();
            return;
        }
        let this = (call.name.0.clone(), call.arguments.clone(), result.text.clone());
        self.same = if self.last.as_ref() == Some(&this) { self.same + 1 } else { 1 };
        self.last = Some(this);
    }

    /// Counts a round that ended.
    pub(super) fn note_round(&mut self, barren: bool) {
        self.barren = if barren { self.barren + 1 } else { 0 };
    }

    /// The model was told something: of this, if it was due.
    pub(super) fn note_notice(&mut self) {
        self.noticed |= self.most() >= BEFORE_NOTICE;
    }

    /// Whether the model is to be told now.
    pub(super) fn is_notice_due(&self) -> bool {
        self.most() >= BEFORE_NOTICE && !self.noticed
    }

    /// Whether the model was told and went on.
    pub(super) fn is_circling(&self) -> bool {
        self.noticed && self.most() > BEFORE_NOTICE
    }

    fn most(&self) -> u32 {
        self.same.max(self.barren)
    }
}
