//! Mail in, mail out, and the rules at the border. Knows no harness, no tool, no model.

pub mod admit;
mod compose;
mod connect;
pub mod imap;
mod login;
mod mailbox;
mod outbox;
pub mod parse;
pub mod receive;
pub mod send;
#[cfg(test)]
mod test_letters;

pub use mailbox::{MailboxGateway, try_receiving};
pub use outbox::{GatewayOutbox, Notices, Told};
pub use parse::{ParseCaps, parse};
pub use receive::Health;
pub use send::try_sending;
