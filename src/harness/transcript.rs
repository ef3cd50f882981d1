//! The state of a run, folded from its steps. The live loop and recovery fold the same steps with the same
//! code (harness J2): nothing that the loop decides by stands anywhere else.

use std::collections::BTreeMap;

use sha2::{Digest, Sha256};

use super::accept::CUT_OFF;
use super::repeats::Repeats;
use crate::chat::{Block, Message, Reply, Source, StopReason, ToolCall, ToolResult, Usage, untrusted};
use crate::inference::ErrorKind;
use crate::run::{Outcome, Party};
use crate::store::{Opened, Purpose, ReplySource, Step, ToolStatus};
use crate::tools::{Whole, bound_round};

/// How often a vendor that pauses gets its own content back (harness S6).
const PAUSES: u32 = 3;

/// Bytes that all results of one round may have together, at most (harness B7).
const ROUND_RESULT_BYTES: u64 = 200 * 1024;

/// How many there are for a model with this context window: a quarter of it, a token taken as 3.2 bytes.
pub(super) fn round_result_bytes(context_window: u32) -> u64 {
    (u64::from(context_window) * 4 / 5).clamp(4096, ROUND_RESULT_BYTES)
}

/// The id under which a call's whole result is kept for `read_result`.
pub(super) fn result_id(round: u32, position: u32) -> String {
    format!("res_{round}_{position}")
}

/// A run as its journal tells it.
#[derive(Debug, Clone)]
pub struct Transcript {
    opened: Box<Opened>,
    messages: Vec<Message>,
    notes: Vec<String>,
    round: Option<Round>,
    rounds: u32,
    calls: u32,
    asked: Option<Purpose>,
    discards: u32,
    cut_calls: u32,
    pauses: u32,
    closing: bool,
    plain_text: Option<String>,
    latest_text: Option<String>,
    answer: Option<Answer>,
    failure: Option<Failure>,
    escalated: Option<String>,
    ready: Option<Ready>,
    closed: bool,
    usage: Usage,
    cost: u64,
    repeats: Repeats,
}

/// The calls of the latest response and what became of them.
#[derive(Debug, Clone)]
pub(super) struct Round {
    /// From 1.
    pub(super) number: u32,
    /// In the order of the response.
    pub(super) calls: Vec<ToolCall>,
    /// By position.
    pub(super) intended: BTreeMap<u32, Intent>,
    /// By position.
    pub(super) finished: BTreeMap<u32, ToolResult>,
}

/// A call that was about to run.
#[derive(Debug, Clone)]
pub(super) struct Intent {
    pub(super) call: ToolCall,
    pub(super) repeatable: bool,
    pub(super) effect_key: String,
}

/// The text that a run came to, with its outcome.
#[derive(Debug, Clone)]
pub(super) struct Ready {
    pub(super) body: String,
    pub(super) outcome: Outcome,
    pub(super) source: ReplySource,
}

/// A final response.
#[derive(Debug, Clone)]
pub(super) struct Answer {
    pub(super) text: String,
    pub(super) stop: StopReason,
}

/// The last model call gave nothing, after every attempt.
#[derive(Debug, Clone)]
pub(super) struct Failure {
    pub(super) error: String,
    pub(super) message: String,
}

impl Transcript {
    /// Folds a journal; none when it does not begin with an opening.
    pub fn fold(steps: Vec<Step>) -> Option<Transcript> {
        let mut steps = steps.into_iter();
        let Some(Step::Opened(opened)) = steps.next() else { return None };
        let mut transcript = Transcript::open(opened);
        for step in steps {
            transcript.apply(&step);
        }
        Some(transcript)
    }

    fn open(opened: Box<Opened>) -> Transcript {
        let messages = opened.messages.clone();
        Transcript {
            opened,
            messages,
            notes: Vec::new(),
            round: None,
            rounds: 0,
            calls: 0,
            asked: None,
            discards: 0,
            cut_calls: 0,
            pauses: 0,
            closing: false,
            plain_text: None,
            latest_text: None,
            answer: None,
            failure: None,
            escalated: None,
            ready: None,
            closed: false,
            usage: Usage::default(),
            cost: 0,
            repeats: Repeats::default(),
        }
    }

    /// Folds one more step.
    pub(super) fn apply(&mut self, step: &Step) {
        match step {
            Step::Opened(_) => {}
            Step::ModelRequested { purpose, .. } => {
                self.asked = Some(*purpose);
                self.failure = None;
                if *purpose == Purpose::Closing {
                    self.close_rounds();
                }
            }
            Step::ModelResponded { purpose, reply, cost, .. } => {
                self.bill(&reply.usage, *cost);
                self.respond(*purpose, reply);
            }
            Step::ModelDiscarded { reason, reply, cost, .. } => {
                self.bill(&reply.usage, *cost);
                self.asked = None;
                self.discards += 1;
                self.cut_calls = if reason == CUT_OFF { self.cut_calls + 1 } else { 0 };
            }
            Step::ModelFailed { error, message, cost, .. } => {
                self.bill(&Usage::default(), *cost);
                self.asked = None;
                self.failure = Some(Failure { error: error.clone(), message: message.clone() });
            }
            Step::Noted { text } => {
                self.notes.push(text.clone());
                self.repeats.note_notice();
            }
            Step::ToolIntended { position, call, effect, effect_key, .. } => {
                if let Some(round) = &mut self.round {
                    let intent = Intent { call: call.clone(), repeatable: effect.is_repeatable(), effect_key: effect_key.clone() };
                    round.intended.insert(*position, intent);
                }
            }
            Step::ToolFinished { position, call, result, status, .. } => self.finish_call(*position, call, result, *status),
            Step::Escalated { reason } => self.escalated = Some(reason.clone()),
            Step::ReplyReady { body, outcome, source } => {
                self.ready = Some(Ready { body: body.clone(), outcome: *outcome, source: *source });
            }
            Step::Closed(_) => self.closed = true,
        }
    }

    fn bill(&mut self, usage: &Usage, cost: u64) {
        self.usage.input = self.usage.input.saturating_add(usage.input);
        self.usage.cache_read = self.usage.cache_read.saturating_add(usage.cache_read);
        self.usage.cache_write = self.usage.cache_write.saturating_add(usage.cache_write);
        self.usage.output = self.usage.output.saturating_add(usage.output);
        self.usage.reasoning = self.usage.reasoning.saturating_add(usage.reasoning);
        self.usage.estimated |= usage.estimated;
        self.cost = self.cost.saturating_add(cost);
    }

    fn respond(&mut self, purpose: Purpose, reply: &Reply) {
        self.asked = None;
        self.discards = 0;
        self.cut_calls = 0;
        self.notes.clear();
        let text = reply.message.text().trim().to_owned();
        let calls: Vec<ToolCall> = reply.message.calls().into_iter().cloned().collect();
        self.messages.push(reply.message.clone());
        if !text.is_empty() {
            self.latest_text = Some(text.clone());
        }
        if reply.stop == StopReason::PauseTurn && purpose == Purpose::Round && calls.is_empty() && self.pauses < PAUSES {
            self.pauses += 1;
            return;
        }
        if calls.is_empty() {
            if !text.is_empty() {
                self.plain_text = Some(text.clone());
            }
            self.answer = Some(Answer { text, stop: reply.stop.clone() });
        } else {
            self.rounds += 1;
            self.calls += u32::try_from(calls.len()).unwrap_or(u32::MAX);
            self.round = Some(Round { number: self.rounds, calls, intended: BTreeMap::new(), finished: BTreeMap::new() });
        }
    }

    fn finish_call(&mut self, position: u32, call: &ToolCall, result: &ToolResult, status: ToolStatus) {
        self.repeats.note_call(call, result, status);
        let Some(round) = &mut self.round else { return };
        round.finished.insert(position, result.clone());
        if round.finished.len() < round.calls.len() {
            return;
        }
        self.repeats.note_round(round.intended.is_empty());
        // Results go in call order, whatever the order of completion (harness T2); together they are bounded
        // once more (B7).
        let ids: Vec<String> = round.finished.keys().map(|position| result_id(round.number, *position)).collect();
        let whole: Vec<Whole<'_>> = (round.finished.values().zip(&ids))
            .map(|(result, id)| Whole { text: &result.text, limit: usize::MAX, result_id: id })
            .collect();
        let bounded = bound_round(&whole, usize::try_from(self.opened.round_result_bytes).unwrap_or(usize::MAX));
        let shown = round.finished.iter().zip(bounded).map(|((position, result), bounded)| {
            // What a tool said is data; what the harness says about a call that did not run is not (T7).
            let text = match round.intended.get(position) {
                Some(intent) => {
                    let nonce = derived(&self.opened.nonce, round.number, *position);
                    untrusted::wrap(&nonce, &format!("tool {}", intent.call.name), &bounded.text)
                }
                None => bounded.text,
            };
            ToolResult { text, ..result.clone() }
        });
        let results = shown.collect();
        // From here on the model is shown its calls under their canonical names (harness R2).
        if let Some(Message::Assistant { blocks, .. }) = self.messages.last_mut() {
            let calls = blocks.iter_mut().filter_map(|block| if let Block::Call(call) = block { Some(call) } else { None });
            for (position, call) in (0..).zip(calls) {
                if let Some(intent) = round.intended.get(&position) {
                    call.name = intent.call.name.clone();
                }
            }
        }
        self.messages.push(Message::Results { results });
        self.round = None;
    }

    /// From the closing call on there is no way back to rounds (harness L2).
    fn close_rounds(&mut self) {
        if !self.closing {
            self.closing = true;
            self.discards = 0;
            self.cut_calls = 0;
            self.notes.clear();
        }
    }

    /// The messages for the next request, helper notes last.
    pub(super) fn request_messages(&self, purpose: Purpose) -> Vec<Message> {
        let mut messages = self.messages.clone();
        // What was said to get another round has no place in the first closing call.
        if purpose == Purpose::Round || self.closing {
            messages.extend(self.notes.iter().map(|note| Message::user(note.clone(), Source::Operator)));
        }
        messages
    }

    /// Whether a request was journaled and nothing came of it yet.
    pub(super) fn asked(&self) -> Option<Purpose> {
        self.asked
    }

    /// Answers in a row that could not be used.
    pub(super) fn discards(&self) -> u32 {
        self.discards
    }

    /// Answers in a row of which a call was cut off.
    pub(super) fn cut_calls(&self) -> u32 {
        self.cut_calls
    }

    /// Failing calls that repeat themselves.
    pub(super) fn repeats(&self) -> &Repeats {
        &self.repeats
    }

    /// The round in work.
    pub(super) fn round(&self) -> Option<&Round> {
        self.round.as_ref()
    }

    /// Rounds so far.
    pub(super) fn rounds(&self) -> u32 {
        self.rounds
    }

    /// Bytes that all results of one round may have together.
    pub(super) fn round_result_bytes(&self) -> u64 {
        self.opened.round_result_bytes
    }

    /// Calls of earlier rounds and of this one.
    pub(super) fn calls(&self) -> u32 {
        self.calls
    }

    /// Whether a third party's text is in the run.
    pub(super) fn tainted(&self) -> bool {
        self.messages.iter().any(|message| match message {
            Message::User { blocks } | Message::Assistant { blocks, .. } => {
                blocks.iter().any(|block| matches!(block, Block::Text { source: Source::ThirdParty, .. }))
            }
            Message::Results { .. } => false,
        })
    }

    /// What was fixed when the run began.
    pub fn opened(&self) -> &Opened {
        &self.opened
    }

    /// Who wrote, and how proven.
    pub fn party(&self) -> &Party {
        &self.opened.party
    }

    /// All tokens.
    pub(super) fn usage(&self) -> Usage {
        self.usage
    }

    /// All money, in millionths.
    pub(super) fn cost(&self) -> u64 {
        self.cost
    }

    pub(super) fn answer(&self) -> Option<&Answer> {
        self.answer.as_ref()
    }

    pub(super) fn failure(&self) -> Option<&Failure> {
        self.failure.as_ref()
    }

    pub(super) fn escalated(&self) -> Option<&str> {
        self.escalated.as_deref()
    }

    pub(super) fn ready(&self) -> Option<&Ready> {
        self.ready.as_ref()
    }

    /// Whether the run has ended.
    pub(super) fn is_closed(&self) -> bool {
        self.closed
    }

    /// The last text that came without calls.
    pub(super) fn plain_text(&self) -> Option<&str> {
        self.plain_text.as_deref()
    }

    /// The last text at all, narration beside calls included.
    pub(super) fn latest_text(&self) -> Option<&str> {
        self.latest_text.as_deref()
    }

    /// Whether the answer had to be given without more tools.
    pub(super) fn was_closed_early(&self) -> bool {
        self.closing
    }

    /// A model that could not be reached is asked again later: the failure is no longer the last word.
    pub(super) fn forget_failure(&mut self) {
        self.failure = None;
    }

    /// A request that an earlier daemon made is made again (harness J8).
    pub(super) fn forget_request(&mut self) {
        self.asked = None;
    }
}

/// A delimiter of its own for each result, the same in each fold.
fn derived(nonce: &str, round: u32, position: u32) -> String {
    format!("{:.16x}", Sha256::digest(format!("{nonce}:{round}:{position}")))
}

impl Failure {
    /// The run's own clock ended the call.
    pub(super) fn is_out_of_time(&self) -> bool {
        self.error == ErrorKind::Cancelled.as_str()
    }

    /// A filter took the answer: that is a refusal (harness S5).
    pub(super) fn is_refusal(&self) -> bool {
        self.error == ErrorKind::ContentFiltered.as_str()
    }
}
