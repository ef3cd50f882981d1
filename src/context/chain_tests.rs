use std::path::Path;
use std::sync::Arc;

use super::*;
use crate::mail::{MessageId, NamedAddress};
use crate::run::{Identity, testing};
use crate::store::OpenOptions;

fn opening(text: &str) -> Opening {
    let letter = Inbound {
        message_id: MessageId::parse("<a@example.com>").unwrap(),
        in_reply_to: Vec::new(),
        references: Vec::new(),
        from: NamedAddress { name: Some("Alice".to_owned()), address: "alice@example.com".parse().unwrap() },
        reply_to: Vec::new(),
        to: Vec::new(),
        cc: Vec::new(),
        delivered_to: Vec::new(),
        subject: "Cake".to_owned(),
        text: text.to_owned(),
        remarks: Vec::new(),
        attachments: Vec::new(),
        date: None,
    };
    Opening::Letter { letter: Box::new(letter), nonce: "7f3a".to_owned(), received_at: DateTime::from_timestamp(1_800_000_000, 0).unwrap() }
}

fn now() -> DateTime<Utc> {
    DateTime::from_timestamp(1_800_000_060, 0).unwrap()
}

fn chain(resolvers: Vec<Box<dyn Resolver>>) -> Chain {
    Chain { resolvers, opening: opening("Two cakes, please.") }
}

fn menu(home: &Path, text: impl AsRef<[u8]>) -> Box<dyn Resolver> {
    std::fs::write(home.join("menu.md"), text).unwrap();
    Box::new(Document::new("menu.md"))
}

fn context(home: &Path, proven: Identity) -> RunContext {
    let mut context = testing::context(proven, Identity::Verified);
    context.settings = Arc::new(testing::settings(home));
    context
}

#[tokio::test]
async fn harness_pc1_what_changes_comes_last_in_one_user_message() {
    let home = tempfile::tempdir().unwrap();
    let resolvers: Vec<Box<dyn Resolver>> = vec![
        Box::new(Clock { now: now() }),
        Box::new(Persona),
        Box::new(Customer { nonce: "7f3a".to_owned() }),
        menu(home.path(), "Vanilla 2.50\n"),
    ];
    let assembled = chain(resolvers).assemble(&context(home.path(), Identity::Verified)).await.unwrap();
    assert!(assembled.system.starts_with("You answer for the shop.\n\nYour letters are sent in the name of Sundae.\n\nYou work by email."));
    assert!(assembled.system.ends_with("\n\nDocument \"menu.md\":\n\nVanilla 2.50"));
    assert_eq!(assembled.messages.len(), 1);
    assert_eq!(
        assembled.messages[0].text(),
        "Now: Friday, 2027-01-15, 08:01 UTC\n\n\
         Sender: alice@example.com, proven. Customer record:\n\
         <untrusted id=\"7f3a\" source=\"customer record\">\nname: Alice\ntier: gold\n</untrusted id=7f3a>\n\n\
         <untrusted id=\"7f3a\" source=\"email from=alice@example.com\">\nFrom: Alice <alice@example.com>\nSubject: Cake\n\
         Date: 2027-01-15 08:00 UTC\n\nTwo cakes, please.\n</untrusted id=7f3a>"
    );
    let given: Vec<(&str, &str)> = assembled.contributions.iter().map(|given| (given.resolver.as_str(), given.place.as_str())).collect();
    let expected = [("clock", "head"), ("persona", "system"), ("customer", "head"), ("document:menu.md", "system"), ("letter", "head")];
    assert_eq!(given, expected);
    assert_eq!((assembled.contributions[0].bytes, assembled.contributions[0].tokens), (34, 11));
}

#[tokio::test]
async fn security_s2_below_the_level_the_record_is_not_shown() {
    let home = tempfile::tempdir().unwrap();
    for proven in [Identity::Unverified, Identity::Thread] {
        let assembled = chain(vec![Box::new(Customer { nonce: "7f3a".to_owned() })]).assemble(&context(home.path(), proven)).await.unwrap();
        let text = assembled.messages[0].text();
        assert!(text.starts_with("Sender: not proven") && !text.contains("gold"), "{text}");
    }
}

#[tokio::test]
async fn a_document_is_cut_between_characters_and_a_missing_one_stops_the_run() {
    let home = tempfile::tempdir().unwrap();
    let run = context(home.path(), Identity::Verified);
    let long = chain(vec![menu(home.path(), format!("x{}", "ä".repeat(100_000)))]).assemble(&run).await.unwrap();
    assert!(long.system.ends_with("ä\n[only the first 102400 of 200001 bytes are shown]"));
    let empty = chain(vec![menu(home.path(), "\n")]).assemble(&run).await.unwrap();
    assert_eq!((empty.system.as_str(), empty.contributions[0].place.as_str()), ("", "none"));
    let missing = chain(vec![Box::new(Document::new("gone.md"))]).assemble(&run).await.unwrap_err();
    assert_eq!(missing.to_string(), "the resolver \"document:gone.md\" failed: gone.md does not exist");
}

#[tokio::test]
async fn harness_pc5_the_system_text_is_the_same_for_every_letter() {
    let home = tempfile::tempdir().unwrap();
    let one = chain(vec![Box::new(Persona), menu(home.path(), "m")]).assemble(&context(home.path(), Identity::Verified)).await.unwrap();
    let mut two = chain(vec![Box::new(Persona), menu(home.path(), "m")]);
    two.opening = opening("Something else.");
    let two = two.assemble(&context(home.path(), Identity::Unverified)).await.unwrap();
    assert_eq!(one.system, two.system);
}

#[tokio::test]
async fn a_reactive_chain_has_the_resolvers_of_the_agent_in_their_order() {
    let home = tempfile::tempdir().unwrap();
    let store = Store::open(&home.path().join("dutiful.db"), OpenOptions::default()).unwrap();
    let mut agent = testing::agent(Identity::Verified, &[]);
    agent.reactive = ["persona", "clock", "customer", "document:knowledge/menu.md", "history"].map(str::to_owned).to_vec();
    let chain = Chain::reactive(&agent, &store, opening("Hello"), now());
    assert_eq!(chain.resolvers.iter().map(|resolver| resolver.name().to_owned()).collect::<Vec<_>>(), agent.reactive);
    store.close().await;
}
