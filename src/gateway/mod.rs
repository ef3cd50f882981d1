//! Mail in, mail out, and the rules at the border. Knows no harness, no tool, no model.

pub mod admit;
pub mod backoff;
mod compose;
mod connect;
pub mod health;
pub mod imap;
pub mod intake;
mod login;
mod mailbox;
pub mod maildir;
mod outbox;
pub mod parse;
pub mod receive;
mod send;
mod sent_folder;
mod sweep;
#[cfg(test)]
mod test_letters;

pub use health::Health;
pub use intake::Alert;
pub use mailbox::{MailboxGateway, try_receiving};
pub use outbox::{GatewayOutbox, Notices};
pub use parse::{ParseCaps, parse};
pub use send::try_sending;
