use std::os::unix::fs::PermissionsExt;

use expect_test::{Expect, expect};

use super::*;
use crate::config::{AfterProcessing, Audience, Fence, OnUncertain, Receive, Security, Send, SentCopy, ToolKind, Wire};
use crate::run::Identity;

const CANARY: &str = "canary-7f3a";

const SETTINGS_TEXT: &str = r#"
[mailboxes.shop]
address  = "sundae@shop.example"
aliases  = ["help@shop.example"]
receive  = "imaps://imap.shop.example"
send     = "submission://smtp.shop.example:2587"
username = "sundae@shop.example"
password = { file = "password" }
agent    = "sundae"
trusted_authserv_ids = ["mx.shop.example"]
poll     = "90s"
after_processing = "move:Done"

[models.kimi]
wire           = "openai"
base_url       = "https://router.huggingface.co/v1"
model          = "moonshotai/Kimi-K2-Instruct"
api_key        = { file = "password" }
context_window = 262144
max_output     = 65536
price          = { input = "0.60", output = "2.50", cache_read = "0.15" }
fallback       = "rules"
[models.kimi.quirks]
think_tags = false

[models.rules]
wire  = "script"
rules = "rules.toml"

[tools.order_status]
description = "Looks up one order of the customer who wrote"
command     = ["/bin/cat", "--show-all"]
input       = { type = "object", properties = { order = { type = "string" } }, required = ["order"] }
effect      = "pure"
timeout     = "5s"
env         = { DB_KEY = { file = "password" }, MODE = "fast" }

[contacts.supplier]
address = "orders@supplier.example"

[operator]
address = "owner@shop.example"

[customers]
file = "customers.csv"

[limits]
concurrent_runs = 32
letter_bytes = "1MB"
"#;

const AGENT_TEXT: &str = r#"
description  = "Answers customers"
mailbox      = "shop"
addresses    = ["sundae@shop.example", "sundae+cakes@shop.example"]
display_name = "Sundae"
model        = "kimi"
prompt       = "You are Sundae. The menu is at https://menu.example/today."
audience     = ["alice@example.com", "@Shop.example"]

[tools]
eager = ["order_status", "escalate"]

[context]
reactive = ["persona", "clock", "customer", "document:menu.md", "history"]

[outgoing]
recipients = ["thread", "operator", "contact:supplier"]
"#;

/// A home in a temporary folder.
struct Home(tempfile::TempDir);

impl Home {
    fn good() -> Home {
        let home = Home(tempfile::tempdir().unwrap());
        home.with("dutiful.toml", SETTINGS_TEXT)
            .with("agents/sundae.toml", AGENT_TEXT)
            .with("password", CANARY)
            .with("rules.toml", "")
            .with("customers.csv", "address,name\nalice@example.com,Alice\n")
            .with("menu.md", "Vanilla. See http://cones.example.")
    }

    fn with(self, path: &str, text: &str) -> Home {
        let path = self.0.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        self
    }

    /// The good home with one text of a file replaced by another.
    fn but(self, path: &str, old: &str, new: &str) -> Home {
        let text = std::fs::read_to_string(self.0.path().join(path)).unwrap();
        assert!(text.contains(old), "{path} has no {old}");
        self.with(path, &text.replace(old, new))
    }

    fn load(&self) -> Result<Config, Vec<Problem>> {
        load(self.0.path(), &|name| (name == "SHOP_PASSWORD").then(|| CANARY.to_owned()))
    }

    fn problems(&self) -> String {
        lines(&self.load().unwrap_err()).replace(self.0.path().to_str().unwrap(), "HOME")
    }

    fn warnings(&self) -> String {
        lines(&self.load().map_err(|problems| lines(&problems)).unwrap().warnings)
    }
}

fn lines(problems: &[Problem]) -> String {
    problems.iter().map(|problem| format!("{problem}\n")).collect()
}

/// The problems of a good home in which one text was replaced.
fn check(path: &str, old: &str, new: &str, expected: &Expect) {
    expected.assert_eq(&Home::good().but(path, old, new).problems());
}

#[test]
fn a_good_home_has_no_problem_and_no_warning() {
    expect![""].assert_eq(&Home::good().warnings());
}

#[test]
fn a_mailbox_is_read_with_its_defaults() {
    let config = Home::good().load().unwrap();
    let mailbox = &config.settings.mailboxes["shop"];
    let Receive::Imap(server) = &mailbox.receive else { panic!("{:?}", mailbox.receive) };
    assert_eq!((server.host.as_str(), server.port, server.security), ("imap.shop.example", 993, Security::Implicit));
    let Send::Smtp(server) = &mailbox.send else { panic!("{:?}", mailbox.send) };
    assert_eq!((server.host.as_str(), server.port, server.security), ("smtp.shop.example", 2587, Security::StartTls));
    assert_eq!(mailbox.password.as_ref().unwrap().reveal(), CANARY);
    assert_eq!(mailbox.after_processing, AfterProcessing::Move("Done".into()));
    assert_eq!((mailbox.folder.as_str(), mailbox.poll.as_secs()), ("INBOX", 90));
    assert_eq!((mailbox.sent_copy, mailbox.on_uncertain), (SentCopy::Auto, OnUncertain::ResendOnce));
}

#[test]
fn a_model_is_read_with_its_profile_and_its_own_flags() {
    let config = Home::good().load().unwrap();
    let kimi = &config.settings.models["kimi"];
    assert!(kimi.quirks.kimi_call_ids && kimi.quirks.fixed_sampling && kimi.quirks.replay_reasoning && !kimi.quirks.think_tags);
    let price = &kimi.price;
    assert_eq!((price.input, price.output, price.cache_read, price.cache_write), (600_000, 2_500_000, 150_000, 600_000));
    let rules = &config.settings.models["rules"];
    assert_eq!((rules.wire, rules.model.as_str()), (Wire::Script, "script"));
    assert!(!rules.quirks.kimi_call_ids);
}

#[test]
fn a_tool_is_read_with_its_schema_and_environment() {
    let config = Home::good().load().unwrap();
    let tool = &config.settings.tools["order_status"];
    let ToolKind::Command(command) = &tool.kind else { panic!("{:?}", tool.kind) };
    assert_eq!(command.command, ["/bin/cat", "--show-all"]);
    assert_eq!((command.env["DB_KEY"].reveal(), command.env["MODE"].reveal()), (CANARY, "fast"));
    assert_eq!(tool.input["properties"]["order"]["type"], "string");
    assert_eq!(tool.input["required"][0], "order");
}

#[test]
fn an_agent_is_read_with_its_defaults() {
    let config = Home::good().load().unwrap();
    let agent = &config.agents["sundae"];
    assert_eq!((agent.max_tool_turns, agent.identity), (8, Identity::Verified));
    assert!(matches!(&agent.audience, Audience::Listed(listed) if listed.len() == 2));
    assert_eq!(agent.proactive, ["persona", "clock", "duty"]);
    assert!(agent.outgoing.recipients.contains(&Fence::Contact("supplier".into())));
    let links: Vec<&str> = agent.outgoing.links.iter().map(String::as_str).collect();
    assert_eq!(links, ["cones.example", "menu.example", "shop.example"]);
    assert!(agent.fallback_reply.contains("Thank you"));
}

#[test]
fn an_agents_hash_changes_with_its_file_and_with_the_settings() {
    let hash = |home: Home| home.load().unwrap().hashes["sundae"].clone();
    let first = hash(Home::good());
    assert_eq!(first, hash(Home::good()));
    assert_ne!(first, hash(Home::good().but("agents/sundae.toml", "Answers customers", "Answers")));
    assert_ne!(first, hash(Home::good().but("dutiful.toml", "concurrent_runs = 32", "concurrent_runs = 31")));
}

#[test]
fn security_s38_no_debug_text_of_a_loaded_home_holds_a_secret() {
    let config = Home::good().load().unwrap();
    assert!(!format!("{config:?}").contains(CANARY));
}

#[test]
fn every_mistake_of_every_file_is_told_at_once_with_its_line() {
    let settings = r#"[stor]
path = "x.db"

[mailboxes.shop]
adress   = "sundae@shop.example"
receive  = "http://imap.shop.example"
send     = "submissions://smtp.shop.example"
username = "sundae"
password = "canary-7f3a"
agent    = "sunday"
poll     = "often"
sent_copy = "perhaps"

[models.kimi]
wire     = "openai"
base_url = "http://router.example/v1"
api_key  = { env = "NOT_SET" }
price    = { input = 0.60 }
fallback = "claude"

[tools.order_status]
description = ""
effect = "harmless"
input = { type = "string" }

[operator]
address = "nobody"

[limits]
concurrent_runs = 0
"#;
    let agent = r#"mailbox = "shop"
model = "kimmi"
max_tool_turns = 65

[tools]
eager = ["order_statsu", "send_mail"]

[context]
reactive = ["persona", "clok", "document:none.md"]

[outgoing]
recipients = ["everybody", "contact:nobody"]
"#;
    let home = Home::good()
        .with("dutiful.toml", settings)
        .with("agents/sundae.toml", agent)
        .with("agents/broken.toml", "model = \nprompt = \"x\"")
        .with("duties/report.toml", "agent = \"scout\"\ncron = \"0 7 * * *\"\nevry = 1\n");
    let problems = home.problems();
    assert!(!problems.contains(CANARY));
    expect![[r#"
        agents/broken.toml:1: not TOML: string values must be quoted, expected literal string; correct the syntax of this line
        agents/sundae.toml:1: the file has neither prompt nor prompt_file; write prompt = """…"""
        agents/sundae.toml:2: `model` names "kimmi", which is no [models.NAME]; did you mean "kimi"?
        agents/sundae.toml:3: `max_tool_turns` is 65; write an integer from 1 to 64
        agents/sundae.toml:6: `eager` grants "order_statsu", which is no tool; did you mean "order_status"?
        agents/sundae.toml:6: `eager` grants "send_mail", which is no tool; did you mean "send_email"?
        agents/sundae.toml:9: `reactive` names "clok", which is no resolver; did you mean "clock"?
        agents/sundae.toml:9: `reactive` names the document "none.md", which cannot be read; write the path of a UTF-8 text of at most 4 MB, relative to home
        agents/sundae.toml:12: `recipients` holds "everybody"; write "thread", "operator" or "contact:NAME"
        agents/sundae.toml:12: `recipients` names "nobody", which is no [contacts.NAME]; add [contacts.nobody] or name one that exists
        duties/report.toml:1: `agent` names "scout", which is no agents/NAME.toml; add agents/scout.toml or name one that exists
        duties/report.toml:1: the file has no `instructions`; write instructions = """…"""
        duties/report.toml:1: the file has no `timezone`; write timezone = "Europe/Berlin"
        duties/report.toml:3: unknown key `evry`; did you mean `every`?
        dutiful.toml:1: unknown key `stor`; did you mean `store`?
        dutiful.toml:4: [mailboxes.shop] has no `address`; write address = "NAME@DOMAIN"
        dutiful.toml:5: unknown key `adress` in [mailboxes.shop]; did you mean `address`?
        dutiful.toml:6: `receive` is "http://imap.shop.example"; write imaps://HOST (implicit TLS), imap://HOST (STARTTLS required) or maildir:PATH; a port may follow the host
        dutiful.toml:9: `password` is a secret written into the file; write { env = "NAME" }, { file = "PATH" }, { credential = "NAME" } or { command = ["PROGRAM"] }
        dutiful.toml:10: `agent` names "sunday", which is no agents/NAME.toml; did you mean "sundae"?
        dutiful.toml:11: `poll` is not a duration: "often"; write a duration such as "30s", "10m", "2h", "14d", "24mo"
        dutiful.toml:12: `sent_copy` is "perhaps"; write one of "auto", "on", "off"
        dutiful.toml:14: [models.kimi] has no `model`; write the vendor's id of it
        dutiful.toml:16: `base_url` is "http://router.example/v1"; write https://HOST/PATH; http:// is only for a loopback host
        dutiful.toml:17: `api_key`: the environment variable NOT_SET is not set; set it for the service
        dutiful.toml:18: `input` has a value of the kind float; write an amount in quotes such as "0.60", with at most six decimals
        dutiful.toml:19: `fallback` names "claude", which is no [models.NAME]; add [models.claude] or name one that exists
        dutiful.toml:21: [tools.order_status] has neither command nor http; write command = ["bin/tool"]
        dutiful.toml:22: `description` is empty; write some text
        dutiful.toml:23: `effect` is "harmless"; write one of "pure", "idempotent", "effectful"
        dutiful.toml:24: `input` is not the schema of an object; write { type = "object", properties = { NAME = { type = "string" } } }
        dutiful.toml:27: `address`: "nobody" is not an address; write local@domain
        dutiful.toml:30: `concurrent_runs` is 0; write an integer from 1 to 1024
    "#]].assert_eq(&problems);
}

#[test]
fn security_s37_a_secret_written_into_a_file_is_refused() {
    let inline = "password = \"canary-7f3a\"";
    check(
        "dutiful.toml",
        "password = { file = \"password\" }",
        inline,
        &expect![[r#"
        dutiful.toml:8: `password` is a secret written into the file; write { env = "NAME" }, { file = "PATH" }, { credential = "NAME" } or { command = ["PROGRAM"] }
    "#]],
    );
    check(
        "dutiful.toml",
        "api_key        = { file = \"password\" }",
        "api_key = \"canary-7f3a\"",
        &expect![[r#"
        dutiful.toml:18: `api_key` is a secret written into the file; write { env = "NAME" }, { file = "PATH" }, { credential = "NAME" } or { command = ["PROGRAM"] }
    "#]],
    );
    check(
        "dutiful.toml",
        "DB_KEY = { file = \"password\" }",
        "DB_KEY = \"canary-7f3a\"",
        &expect![[r#"
        dutiful.toml:36: `DB_KEY` is a secret written into the file; write { env = "NAME" }, { file = "PATH" }, { credential = "NAME" } or { command = ["PROGRAM"] }
    "#]],
    );
    check(
        "dutiful.toml",
        "imaps://imap",
        "imaps://me:canary-7f3a@imap",
        &expect![[r#"
        dutiful.toml:5: `receive` holds a user name or password, or is no address of a server; write imaps://HOST (implicit TLS), imap://HOST (STARTTLS required) or maildir:PATH; a port may follow the host
    "#]],
    );
}

#[test]
fn security_s37_a_secret_file_that_its_group_can_read_is_refused() {
    let home = Home::good();
    std::fs::set_permissions(home.0.path().join("password"), std::fs::Permissions::from_mode(0o640)).unwrap();
    expect![[r#"
        dutiful.toml:8: `password`: the secret file HOME/password may be read or changed by others (mode 0640); run chmod 600 on it
        dutiful.toml:18: `api_key`: the secret file HOME/password may be read or changed by others (mode 0640); run chmod 600 on it
        dutiful.toml:36: `DB_KEY`: the secret file HOME/password may be read or changed by others (mode 0640); run chmod 600 on it
    "#]]
    .assert_eq(&home.problems());
}

#[test]
fn security_s32_plaintext_is_for_loopback_alone() {
    let plain = |host: &str| {
        let home = Home::good().but("dutiful.toml", "imaps://imap.shop.example\"", &format!("imap://{host}\"\nplaintext = true"));
        home.but("dutiful.toml", "submission://smtp.shop.example:2587", "submissions://smtp.shop.example")
    };
    expect![[r#"
        dutiful.toml:6: `plaintext` would send the password to imap.shop.example in the clear; take it out; it is only for a loopback host
    "#]]
    .assert_eq(&plain("imap.shop.example").problems());
    for host in ["127.0.0.1:1143", "[::1]:1143", "localhost"] {
        let config = plain(host).load().unwrap();
        let Receive::Imap(server) = &config.settings.mailboxes["shop"].receive else { panic!("{host}") };
        assert_eq!(server.security, Security::Plaintext, "{host}");
    }
}

#[test]
fn names_that_point_nowhere_or_in_circles_are_refused() {
    check(
        "dutiful.toml",
        "rules = \"rules.toml\"",
        "rules = \"rules.toml\"\nfallback = \"kimi\"",
        &expect![[r#"
        dutiful.toml:22: `fallback` leads back to this model; let the last model of the chain have none
        dutiful.toml:29: `fallback` leads back to this model; let the last model of the chain have none
    "#]],
    );
    check(
        "dutiful.toml",
        "agent    = \"sundae\"",
        "agent = \"sunda\"",
        &expect![[r#"
        dutiful.toml:9: `agent` names "sunda", which is no agents/NAME.toml; did you mean "sundae"?
    "#]],
    );
    check(
        "agents/sundae.toml",
        "mailbox      = \"shop\"",
        "mailbox = \"office\"",
        &expect![[r#"
        agents/sundae.toml:3: `mailbox` names "office", which is no [mailboxes.NAME]; add [mailboxes.office] or name one that exists
    "#]],
    );
    check(
        "agents/sundae.toml",
        "document:menu.md",
        "document:menu.txt",
        &expect![[r#"
        agents/sundae.toml:14: `reactive` names the document "menu.txt", which cannot be read; write the path of a UTF-8 text of at most 4 MB, relative to home
    "#]],
    );
}

#[test]
fn an_address_belongs_to_the_mailbox_and_to_one_agent() {
    check(
        "agents/sundae.toml",
        "sundae+cakes@shop.example",
        "cakes@shop.example",
        &expect![[r#"
        agents/sundae.toml:4: `addresses` holds cakes@shop.example, which is no address of the mailbox "shop"; add it to the aliases of [mailboxes.shop], or use a plus address of sundae@shop.example
    "#]],
    );
    let twin = AGENT_TEXT.replace("\"sundae@shop.example\", ", "");
    expect![[r#"
        agents/twin.toml:4: `addresses` holds sundae+cakes@shop.example, which the agent "sundae" owns; let one agent own it
    "#]]
    .assert_eq(&Home::good().with("agents/twin.toml", &twin).problems());
    let aliased = Home::good().but("agents/sundae.toml", "sundae+cakes@", "HELP+cakes@");
    assert!(aliased.load().is_ok());
}

#[test]
fn a_tool_has_one_way_to_be_called_and_a_name_of_its_own() {
    check(
        "dutiful.toml",
        "command     = [",
        "http = { url = \"https://x.example\" }\ncommand = [",
        &expect![[r#"
        dutiful.toml:32: `http` stands beside command; keep one of the two
    "#]],
    );
    check(
        "dutiful.toml",
        "command     = [\"/bin/cat\", \"--show-all\"]",
        "",
        &expect![[r#"
        dutiful.toml:30: [tools.order_status] has neither command nor http; write command = ["bin/tool"]
    "#]],
    );
    check(
        "dutiful.toml",
        "[tools.order_status]",
        "[tools.send_email]\ncommand=[\"x\"]\neffect=\"pure\"\ndescription=\"d\"\n[tools.order_status]",
        &expect![[r#"
            dutiful.toml:30: `send_email` is the name of a built-in tool; choose another name
        "#]],
    );
    check(
        "dutiful.toml",
        "[tools.order_status]",
        "[tools.ORDER_status]\ncommand=[\"x\"]\neffect=\"pure\"\ndescription=\"d\"\n[tools.order_status]",
        &expect![[r#"
            dutiful.toml:34: `order_status` differs from the tool ORDER_status by case alone; choose another name
        "#]],
    );
}

#[test]
fn the_customers_table_has_a_column_for_the_address() {
    expect![[r#"
        dutiful.toml:45: `file` names a file without a column `address`; name its columns in the first line, such as address,name,orders
    "#]]
    .assert_eq(&Home::good().with("customers.csv", "email,name\n").problems());
}

#[test]
fn a_home_that_is_none_says_so() {
    let empty = Home(tempfile::tempdir().unwrap());
    expect![[r#"
        dutiful.toml: there is no such file in HOME; name the home folder, or make one with `dutiful init DIR`
    "#]]
    .assert_eq(&empty.problems());
}

#[test]
fn what_this_version_does_not_act_upon_is_checked_and_told() {
    let later = r#"
[mcp.crm]
command = ["crm"]
effect = "effectful"
pure = ["lookup"]
[hooks.audit]
on = ["run.failed"]
url = "https://hooks.example/x"
[panel]
listen = "off"
token = { file = "data/panel-token" }
[retention]
raw = "30d"
[telemetry]
log = "info,dutiful=debug"
otlp = "http://127.0.0.1:4317"
"#;
    let home = Home::good()
        .with("dutiful.toml", &format!("{SETTINGS_TEXT}{later}"))
        .with("duties/report.toml", "agent = \"sundae\"\nevery = \"2h\"\ninstructions = \"Report.\"\n")
        .but("agents/sundae.toml", "\"escalate\"", "\"escalate\", \"todo\", \"crm__*\"")
        .but("agents/sundae.toml", "\"history\"", "\"history\", \"notes\"");
    expect![[r#"
        agents/sundae.toml:11: the tool todo is not acted upon by this version yet; the tool is not offered
        agents/sundae.toml:14: the resolver notes is not acted upon by this version yet; it adds nothing
        duties/report.toml:1: duties are not run by this version yet; "report" is checked and waits for one that does
        dutiful.toml:51: [mcp.crm] is not acted upon by this version yet; the server's tools are not offered
        dutiful.toml:55: [hooks.audit] is not acted upon by this version yet; nothing is told to it
        dutiful.toml:58: [panel] is not acted upon by this version yet; no panel is opened
        dutiful.toml:65: `telemetry.otlp` is not acted upon by this version yet; nothing is exported
    "#]]
    .assert_eq(&home.warnings());
    let wrong = home.but("dutiful.toml", "run.failed", "run.faild").but("dutiful.toml", "listen = \"off\"", "listen = \"any\"");
    expect![[r#"
        dutiful.toml:56: `on` is "run.faild"; did you mean "run.failed"?
        dutiful.toml:59: `listen` is "any"; write "127.0.0.1:8025" or "off"
    "#]]
    .assert_eq(&wrong.problems());
}

#[test]
fn rows_that_limits_are_counted_from_are_kept_and_that_is_told() {
    let with = |audit: &str| Home::good().with("dutiful.toml", &format!("{SETTINGS_TEXT}\n[retention]\naudit = \"{audit}\"\n"));
    expect![[r#"
        dutiful.toml:52: `audit` is shorter than 30d; rows are kept that long all the same, since limits are counted from them
    "#]]
    .assert_eq(&with("29d").warnings());
    expect![""].assert_eq(&with("30d").warnings());
}

#[test]
fn security_s12_the_rule_of_two_is_warned_of_in_24_fixtures() {
    let mut warned = Vec::new();
    for audience in ["public", "verified"] {
        for identity in ["thread", "verified"] {
            for effect in ["pure", "idempotent", "effectful"] {
                for approval in [true, false] {
                    let home = Home::good()
                        .but("dutiful.toml", "effect      = \"pure\"", &format!("effect = \"{effect}\"\napproval = {approval}"))
                        .but("agents/sundae.toml", "[\"alice@example.com\", \"@Shop.example\"]", &format!("\"{audience}\""))
                        .but("agents/sundae.toml", "mailbox ", &format!("identity = \"{identity}\"\nmailbox "));
                    let warnings = home.warnings();
                    if warnings.contains("anybody may make") {
                        warned.push(format!("{audience} {identity} {effect} approval={approval}\n{warnings}"));
                    }
                }
            }
        }
    }
    expect![[r#"
        public thread effectful approval=false
        agents/sundae.toml:11: anybody may make this agent act through order_status: its audience is public and its identity "thread"; write identity = "verified", or approval = true for the tool, or narrow the audience
    "#]].assert_eq(&warned.join("\n"));
}

#[test]
fn an_agent_that_answers_a_mailbox_names_one() {
    let without = Home::good().but("agents/sundae.toml", "mailbox      = \"shop\"", "");
    expect![[r#"
        agents/sundae.toml:1: the file has no `mailbox`, yet the agent answers the mailbox "shop"; write mailbox = "shop"
        agents/sundae.toml:4: `addresses` stands without a mailbox; write mailbox = "NAME"
    "#]]
    .assert_eq(&without.problems());
}

#[test]
fn two_mailboxes_do_not_share_an_address() {
    let second =
        "[mailboxes.second]\naddress = \"help@shop.example\"\nreceive = \"maildir:in\"\nsend = \"maildir:out\"\ntrust = \"verified\"\n";
    let home = Home::good().with("dutiful.toml", &format!("{SETTINGS_TEXT}{second}"));
    expect![[r#"
        dutiful.toml:2: `shop` has the address help@shop.example, which [mailboxes.second] has too; let one mailbox have it
    "#]]
    .assert_eq(&home.problems());
}

#[test]
fn a_maildir_needs_no_login_and_lies_in_home() {
    let second =
        "[mailboxes.second]\naddress = \"b@shop.example\"\nreceive = \"maildir:in\"\nsend = \"maildir:/var/out\"\ntrust = \"verified\"\n";
    let home = Home::good().with("dutiful.toml", &format!("{SETTINGS_TEXT}{second}"));
    let config = home.load().unwrap();
    let mailbox = &config.settings.mailboxes["second"];
    assert_eq!(mailbox.receive, Receive::Maildir(home.0.path().join("in")));
    assert_eq!(mailbox.send, Send::Maildir("/var/out".into()));
    expect![""].assert_eq(&home.warnings());
}

#[test]
fn a_prompt_may_stand_in_a_file_of_its_own() {
    let home = Home::good().with("prompt.md", "You are Sundae.");
    let prompt = "prompt       = \"You are Sundae. The menu is at https://menu.example/today.\"";
    let home = home.but("agents/sundae.toml", prompt, "prompt_file = \"prompt.md\"");
    assert_eq!(home.load().unwrap().agents["sundae"].prompt, "You are Sundae.");
    let both = home.but("agents/sundae.toml", "prompt_file", "prompt = \"x\"\nprompt_file");
    expect![[r#"
        agents/sundae.toml:8: `prompt_file` stands beside prompt; keep one of the two
    "#]]
    .assert_eq(&both.problems());
}

#[test]
fn weak_choices_of_a_mailbox_are_told() {
    let home = Home::good()
        .but("dutiful.toml", "trusted_authserv_ids = [\"mx.shop.example\"]", "")
        .but("dutiful.toml", "submission://smtp.shop.example:2587", "sendmail:/bin/cat")
        .but("dutiful.toml", "password = { file = \"password\" }", "password = { env = \"SHOP_PASSWORD\" }");
    expect![[r#"
        dutiful.toml:2: nobody is ever verified here: everybody is answered and conversations are held, but nothing is done for a customer on the strength of a From line; name your receiver in trusted_authserv_ids
        dutiful.toml:6: `sendmail:` cannot work under systemd's NoNewPrivileges, which the shipped unit sets; use submission:// or submissions://
        dutiful.toml:8: `password` comes from the environment variable SHOP_PASSWORD, which /proc and crash reports may show; a systemd credential is safer: { credential = "NAME" }
    "#]].assert_eq(&home.warnings());
}

#[test]
fn a_file_cut_anywhere_is_refused_or_read_and_never_a_panic() {
    let mut refused = 0;
    for cut in (0..SETTINGS_TEXT.len()).step_by(23) {
        let home = Home::good().with("dutiful.toml", SETTINGS_TEXT.split_at(cut).0);
        if let Err(problems) = home.load() {
            assert!(!problems.is_empty(), "cut at {cut}");
            assert!(!lines(&problems).contains(CANARY), "cut at {cut}");
            refused += 1;
        }
    }
    assert!(refused > 50, "{refused}");
}

#[test]
fn a_syntax_error_in_the_settings_accuses_no_agent() {
    let home = Home::good().but("dutiful.toml", "[models.kimi]", "[models.kimi").but("agents/sundae.toml", "eager", "eagre");
    expect![[r#"
        agents/sundae.toml:11: unknown key `eagre` in [tools]; did you mean `eager`?
        dutiful.toml:14: not TOML: unclosed table, expected `]`; correct the syntax of this line
    "#]]
    .assert_eq(&home.problems());
}

#[test]
fn an_oauth2_token_takes_the_place_of_a_password() {
    let token = "oauth2 = { token_command = [\"bin/token\", \"shop\"] }";
    let home = Home::good().but("dutiful.toml", "password = { file = \"password\" }\nagent", &format!("{token}\nagent"));
    let config = home.load().unwrap();
    let mailbox = &config.settings.mailboxes["shop"];
    assert_eq!(mailbox.token_command.as_deref(), Some(["bin/token".to_owned(), "shop".to_owned()].as_slice()));
    assert!(mailbox.password.is_none());
    check(
        "dutiful.toml",
        "password = { file",
        &format!("{token}\npassword = {{ file"),
        &expect![[r#"
        dutiful.toml:8: `oauth2` stands beside a password; keep one of the two
    "#]],
    );
    check(
        "dutiful.toml",
        "password = { file = \"password\" }\nagent",
        "agent",
        &expect![[r#"
        dutiful.toml:2: [mailboxes.shop] has no `password`; its servers want one: write password = { credential = "NAME" }
    "#]],
    );
}

#[test]
fn hostile_names_and_values_are_shown_escaped_and_short() {
    let long = "x".repeat(5000);
    let text = format!("\"\\u001b[31m{long}\" = 1\n[operator]\naddress = \"a\\u0007\\n{long}\"\n");
    let problems = Home::good().with("dutiful.toml", &text).problems();
    assert!(problems.len() < 2000 && problems.lines().all(|line| !line.contains(char::is_control)), "{problems}");
}
