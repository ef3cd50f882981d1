//! What comes next in a run: decided by its transcript and its bounds alone, so that recovery decides as the
//! live loop did.

use super::transcript::Transcript;
use crate::store::Purpose;

/// Calls cut off in a row after which no more tools are offered (harness X1).
const CUT_CALLS: u32 = 2;

/// What the loop does next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Next {
    /// Ask the model.
    Ask(Purpose),
    /// Run the calls that have no result yet.
    Dispatch,
    /// Tell the model that it goes in circles, then ask again.
    Notice,
    /// Decide the reply.
    Finish,
}

/// What bounds a run, from its agent.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bounds {
    /// Rounds at most.
    pub(super) max_tool_turns: u32,
    /// Whether a closing call follows the last round.
    pub(super) closing_call: bool,
    /// Tokens at most, input and output.
    pub(super) run_tokens: Option<u64>,
    /// The wall clock ran out.
    pub(super) out_of_time: bool,
}

/// What comes next.
pub(super) fn next(transcript: &Transcript, bounds: Bounds) -> Next {
    let in_round = transcript.round().is_some();
    if transcript.ready().is_some() || transcript.is_closed() || transcript.escalated().is_some() && !in_round {
        return Next::Finish;
    }
    if in_round {
        return Next::Dispatch;
    }
    // A round that took all the time that there was leaves room for one last word.
    let last_word = bounds.closing_call && !transcript.was_closed_early();
    let failed = transcript.failure().is_some_and(|failure| !(failure.is_out_of_time() && last_word));
    if transcript.answer().is_some() || failed {
        return Next::Finish;
    }
    if transcript.was_closed_early() {
        // One retry of a closing call that gave nothing usable, then the fallback (harness L3).
        return if transcript.discards() >= 2 || bounds.out_of_time { Next::Finish } else { Next::Ask(Purpose::Closing) };
    }
    // Once unchanged, once nudged, then the fallback (harness E1).
    if transcript.discards() >= 3 && transcript.cut_calls() == 0 {
        return Next::Finish;
    }
    if has_no_more_rounds(transcript, bounds) || transcript.failure().is_some() {
        return if bounds.closing_call { Next::Ask(Purpose::Closing) } else { Next::Finish };
    }
    if transcript.repeats().is_notice_due() { Next::Notice } else { Next::Ask(Purpose::Round) }
}

fn has_no_more_rounds(transcript: &Transcript, bounds: Bounds) -> bool {
    let usage = transcript.usage();
    transcript.rounds() >= bounds.max_tool_turns
        || bounds.run_tokens.is_some_and(|most| usage.input_total() + usage.output >= most)
        || transcript.repeats().is_circling()
        || transcript.cut_calls() >= CUT_CALLS
        || bounds.out_of_time
}
