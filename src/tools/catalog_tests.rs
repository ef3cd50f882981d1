use std::path::Path;
use std::time::Duration;

use serde_json::json;

use super::super::permitted;
use super::*;
use crate::config::{CommandTool, Effect, HttpTool, OperatorTool};
use crate::run::{Identity, testing};
use crate::store::Switch;

fn operator_tool(name: &str) -> OperatorTool {
    OperatorTool {
        name: name.to_owned(),
        description: "Looks up one order".to_owned(),
        input: json!({ "type": "object", "properties": { "order": { "type": "string" } }, "required": ["order"] }),
        effect: Effect::Pure,
        timeout: Duration::from_secs(1),
        approval: false,
        untainted: false,
        kind: ToolKind::Command(CommandTool { command: vec!["bin/x".to_owned()], env: BTreeMap::new() }),
    }
}

fn settings(tools: impl IntoIterator<Item = OperatorTool>) -> Settings {
    let mut settings = testing::settings(Path::new("/nowhere"));
    settings.tools = tools.into_iter().map(|tool| (tool.name.clone(), tool)).collect();
    settings
}

fn names(toolset: &Toolset) -> Vec<&str> {
    toolset.names().into_iter().map(ToolName::as_str).collect()
}

#[test]
fn harness_d1_every_bad_definition_is_told_by_name() {
    let mut bad = operator_tool("lookup");
    bad.description = String::new();
    let taken = operator_tool("Escalate");
    let later = operator_tool("todo");
    let problems = Catalog::build(&settings([bad, taken, later])).unwrap_err();
    let lines: Vec<String> = problems.iter().map(ToString::to_string).collect();
    assert_eq!(lines.len(), 3, "{lines:?}");
    for (line, part) in lines.iter().zip(["tools.Escalate: another tool", "tools.lookup: `description`", "tools.todo: this is the name"]) {
        assert!(line.starts_with(&format!("dutiful.toml: {part}")), "{line}");
    }
}

#[test]
fn an_agent_gets_what_it_was_granted_and_what_can_run() {
    let mut refund = operator_tool("refund");
    refund.approval = true;
    let mut web = operator_tool("web");
    let url = "https://shop.example/".parse().unwrap();
    web.kind = ToolKind::Http(HttpTool { method: "POST".to_owned(), url, headers: BTreeMap::new() });
    let catalog = Catalog::build(&settings([operator_tool("order_status"), operator_tool("other"), refund, web])).unwrap();
    let granted = ["order_status", "refund", "web", "todo", "nothing", "crm__find"];
    let agent = testing::agent(Identity::Verified, &granted);
    assert_eq!(names(&catalog.toolset(&agent)), ["order_status", "read_result"]);
    let told = catalog.explain(&agent);
    let reasons =
        [None, Some(NEEDS_APPROVAL), Some(NOT_IN_THIS_VERSION), Some(NOT_IN_THIS_VERSION), Some(NO_SUCH_TOOL), Some(NOT_IN_THIS_VERSION)];
    for (Granted { name, off: reason, .. }, (granted, expected)) in told.iter().zip(granted.iter().zip(reasons)) {
        assert_eq!((name.as_str(), reason.as_deref()), (*granted, expected));
    }
    assert_eq!(told.last().map(|last| (last.name.as_str(), &last.off)), Some(("read_result", &None)));
    let bare = testing::agent(Identity::Verified, &["todo"]);
    assert!(names(&catalog.toolset(&bare)).is_empty() && catalog.explain(&bare).len() == 1);
}

#[test]
fn harness_d1_all_built_in_tools_pass_and_are_small() {
    let catalog = Catalog::build(&settings([])).unwrap();
    let agent = testing::agent(Identity::Verified, &["send_email", "read_thread", "escalate"]);
    let toolset = catalog.toolset(&agent);
    assert_eq!(names(&toolset), ["escalate", "read_result", "read_thread", "send_email"]);
    let bytes = serde_json::to_string(&toolset.definitions()).unwrap().len();
    assert!(bytes < 2200, "{bytes}");
}

#[test]
fn security_s9_no_built_in_tool_takes_a_customer() {
    for tool in builtin::tools() {
        let fields = tool.spec().input["properties"].as_object().unwrap().clone();
        for (name, _) in fields {
            assert!(!["customer", "address", "email", "tenant", "user", "from", "cc", "bcc", "headers"].contains(&name.as_str()), "{name}");
        }
    }
}

#[tokio::test]
async fn security_s17_a_switched_off_tool_is_refused_when_called() {
    let (_folder, store) = crate::tools::test_store::temporary();
    let catalog = Catalog::build(&settings([operator_tool("order_status")])).unwrap();
    let spec = catalog.tools.get("order_status").unwrap().tool.spec();
    let context = testing::context(Identity::Verified, Identity::Verified);
    for agent in [None, Some("sundae".to_owned())] {
        let switch = Switch::Tool { name: "order_status".to_owned(), agent };
        assert!(permitted(spec, &context, &store, false).is_ok());
        store.set_switch(&switch, true).await.unwrap();
        assert!(permitted(spec, &context, &store, false).is_err(), "{switch}");
        store.set_switch(&switch, false).await.unwrap();
    }
    let other = Switch::Tool { name: "order_status".to_owned(), agent: Some("scout".to_owned()) };
    store.set_switch(&other, true).await.unwrap();
    assert!(permitted(spec, &context, &store, false).is_ok());
}
