//! `customer`: who writes, and the shop's record of them, if the sender is proven well enough for it.

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use serde_json::{Map, Value};

use super::{Piece, Resolver};
use crate::chat::{Source, untrusted};
use crate::run::{Party, RunContext};

/// The record that the front door put into the run, or why there is none.
#[derive(Debug)]
pub(super) struct Customer {
    /// The delimiter of what the run's sender wrote; a record is data like it (harness UC1).
    pub(super) nonce: String,
}

impl Resolver for Customer {
    fn name(&self) -> &'static str {
        "customer"
    }

    fn resolve<'a>(&'a self, context: &'a RunContext) -> BoxFuture<'a, anyhow::Result<Option<Piece>>> {
        let text = self.text(&context.party, context.party.identity >= context.agent.identity);
        async { Ok(text.map(|text| Piece::Head { text, source: Source::Operator })) }.boxed()
    }
}

impl Customer {
    fn text(&self, party: &Party, trusted: bool) -> Option<String> {
        let address = party.address.as_ref()?;
        Some(match &party.customer {
            _ if !trusted => {
                "Sender: not proven to own the address. Give general help only: show nothing of any customer and do nothing in a \
                 customer's name."
                    .to_owned()
            }
            None => format!("Sender: {address}, proven. No customer record is known for this address."),
            Some(record) => {
                format!("Sender: {address}, proven. Customer record:\n{}", untrusted::wrap(&self.nonce, "customer record", &lines(record)))
            }
        })
    }
}

fn lines(record: &Map<String, Value>) -> String {
    let line = |(name, value): (&String, &Value)| match value {
        Value::String(text) => format!("{name}: {text}"),
        other => format!("{name}: {other}"),
    };
    record.iter().map(line).collect::<Vec<_>>().join("\n")
}
