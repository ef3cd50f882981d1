use std::sync::Arc;

use super::*;
use crate::run::testing::{self, Drafts};
use crate::run::{Identity, Outbox};

async fn call(to: &str, drafts: &Arc<Drafts>) -> Result<ToolOutput, ToolError> {
    let mut context = testing::context(Identity::Verified, Identity::Verified);
    context.outbox = Arc::clone(drafts) as Arc<dyn Outbox>;
    let arguments = json!({ "to": to, "subject": "Two\r\nBcc: x@y.example", "body": "Cones" });
    let (_folder, store) = crate::tools::test_store::temporary();
    SendEmail::new().call(arguments, Invocation { context: &context, store: &store, effect_key: "k1" }).await
}

#[tokio::test]
async fn a_name_inside_the_fence_gets_the_letter_once() {
    let drafts = Arc::new(Drafts::default());
    for _ in 0..2 {
        assert_eq!(call("supplier", &drafts).await, Ok(ToolOutput::Text("The letter to supplier is on its way.".to_owned())));
    }
    let kept = drafts.0.lock().unwrap();
    let draft = kept.first().unwrap();
    assert_eq!(kept.len(), 1);
    assert_eq!(draft.to, ["orders@supplier.example".parse().unwrap()]);
    assert_eq!((draft.from.as_str(), draft.subject.as_str()), ("sundae+cakes@shop.example", "Two Bcc: x@y.example"));
    assert_eq!((draft.kind, draft.effect_key.as_str()), (OutgoingKind::Tool, "k1"));
}

#[tokio::test]
async fn security_s15_addresses_and_names_outside_the_fence_are_refused_alike() {
    let drafts = Arc::new(Drafts::default());
    for to in ["rival", "nobody", "alice@example.com", "orders@supplier.example", "thread", ""] {
        let refused = Err(ToolError::Refused("That is nobody this agent may write to. `to` is one of: operator, supplier.".to_owned()));
        assert_eq!(call(to, &drafts).await, refused, "{to}");
    }
    assert!(drafts.0.lock().unwrap().is_empty());
}

#[test]
fn security_s15_the_schema_has_no_address_and_no_header() {
    let spec = SendEmail::new().spec;
    let fields: Vec<&String> = spec.input["properties"].as_object().unwrap().keys().collect();
    assert_eq!(fields, ["to", "subject", "body"]);
}
