//! Mail in, mail out, and the rules at the border. Knows no harness, no tool, no model.

mod compose;
mod connect;
mod login;
mod outbox;
mod send;
#[cfg(test)]
mod test_letters;

pub use outbox::{GatewayOutbox, Notices};
pub use send::{LookForSent, Sender, serve};
