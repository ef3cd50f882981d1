//! The names of what can happen (DESIGN 2.7): said by the store's record and by the live bus alike.

macro_rules! kinds {
    ($($variant:ident => $name:literal),+ $(,)?) => {
        /// The kinds of events; the names are what an operator meets.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum EventKind {
            $(
                #[doc = concat!("`", $name, "`.")]
                $variant
            ),+
        }

        impl EventKind {
            /// The public name.
            pub fn as_str(self) -> &'static str {
                match self { $(EventKind::$variant => $name),+ }
            }
        }
    };
}

kinds! {
    LetterReceived => "letter.received",
    LetterAccepted => "letter.accepted",
    LetterIgnored => "letter.ignored",
    LetterHeld => "letter.held",
    LetterQuarantined => "letter.quarantined",
    RunStarted => "run.started",
    RunCompleted => "run.completed",
    RunFailed => "run.failed",
    RunPaused => "run.paused",
    RunResumed => "run.resumed",
    RunCancelled => "run.cancelled",
    ModelCalled => "model.called",
    ModelCompleted => "model.completed",
    ModelFailed => "model.failed",
    TextDelta => "text.delta",
    ToolCalled => "tool.called",
    ToolCompleted => "tool.completed",
    ToolFailed => "tool.failed",
    ToolSkipped => "tool.skipped",
    OutgoingQueued => "outgoing.queued",
    OutgoingHeld => "outgoing.held",
    OutgoingSent => "outgoing.sent",
    OutgoingUncertain => "outgoing.uncertain",
    OutgoingFailed => "outgoing.failed",
    OutgoingBounced => "outgoing.bounced",
    DutyFired => "duty.fired",
    DutyMissed => "duty.missed",
    DutySkipped => "duty.skipped",
    SwitchChanged => "switch.changed",
    ConfigReloaded => "config.reloaded",
}
