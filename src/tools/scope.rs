//! Whether a call may run here and now: decided when it is executed, by code alone (harness T9, security
//! S14, S17; DESIGN 2.5).

use super::{ToolError, ToolSpec};
use crate::config::Effect;
use crate::run::RunContext;
use crate::store::{Store, Switch};

/// Refuses a call that the operator's switches, the sender's identity, a third party's text in the run
/// (`tainted`) or a wanted approval forbid. A store that cannot be read refuses too.
///
/// # Errors
/// [`ToolError::Refused`], with words for the model.
pub fn permitted(spec: &ToolSpec, context: &RunContext, store: &Store, tainted: bool) -> Result<(), ToolError> {
    switched_on(spec, context, store)?;
    within_run(spec, context, tainted)
}

fn switched_on(spec: &ToolSpec, context: &RunContext, store: &Store) -> Result<(), ToolError> {
    let name = spec.name.as_str();
    for agent in [None, Some(context.agent.name.clone())] {
        match store.is_off(&Switch::Tool { name: name.to_owned(), agent }) {
            Ok(false) => {}
            Ok(true) => return Err(refused(name, "the operator switched it off; go on without it")),
            Err(error) => {
                tracing::error!(tool = name, %error, "the switches could not be read: the call is refused");
                return Err(refused(name, "whether it may run could not be read; go on without it"));
            }
        }
    }
    Ok(())
}

/// What the run itself decides. Pure tools run at every level: they are told of no customer below it.
fn within_run(spec: &ToolSpec, context: &RunContext, tainted: bool) -> Result<(), ToolError> {
    let name = spec.name.as_str();
    if spec.effect != Effect::Pure && !trusts_sender(context) {
        return Err(refused(name, "nothing proves who wrote this letter well enough for it; answer without it, or escalate"));
    }
    if spec.untainted && tainted {
        return Err(refused(name, "this run has read a third party's text; go on without it"));
    }
    if spec.approval {
        return Err(refused(name, "it needs a person's approval, which cannot be asked for; go on without it, or escalate"));
    }
    Ok(())
}

/// Whether the sender is proven as far as the agent wants for acting in the sender's name (DESIGN 2.5).
pub(super) fn trusts_sender(context: &RunContext) -> bool {
    context.party.identity >= context.agent.identity
}

fn refused(name: &str, why: &str) -> ToolError {
    ToolError::Refused(format!("{name} was not run: {why}."))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::json;

    use super::*;
    use crate::run::Identity;
    use crate::run::testing;

    fn spec(effect: Effect, untainted: bool, approval: bool) -> ToolSpec {
        ToolSpec {
            name: "refund".into(),
            description: "Refunds".to_owned(),
            input: json!({}),
            effect,
            timeout: Duration::from_secs(1),
            untainted,
            approval,
            result_bytes: None,
        }
    }

    #[test]
    fn security_s14_source_tool_and_level_decide_together() {
        use Effect::{Effectful, Idempotent, Pure};
        let levels = [Identity::Unverified, Identity::Thread, Identity::Verified];
        for wanted in [Identity::Thread, Identity::Verified] {
            for level in levels {
                for effect in [Pure, Idempotent, Effectful] {
                    for untainted in [false, true] {
                        for tainted in [false, true] {
                            let context = testing::context(level, wanted);
                            let allowed = within_run(&spec(effect, untainted, false), &context, tainted).is_ok();
                            let expected = (effect == Pure || level >= wanted) && !(untainted && tainted);
                            assert_eq!(allowed, expected, "{wanted} {level} {effect:?} {untainted} {tainted}");
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn a_tool_that_needs_approval_never_runs() {
        let context = testing::context(Identity::Verified, Identity::Verified);
        assert!(within_run(&spec(Effect::Pure, false, true), &context, false).is_err());
    }
}
