//! Mail in, mail out, and the rules at the border. Knows no harness, no tool, no model.

pub mod admit;
pub mod backoff;
mod compose;
mod connect;
mod deliver_local;
pub mod health;
pub mod imap;
pub mod intake;
mod ladder;
mod login;
mod mailbox;
pub mod maildir;
mod markdown;
mod outbox;
pub mod parse;
mod read_back;
pub mod receive;
mod send;
mod sent_folder;
mod smtp;
mod smtp_starttls;
mod sweep;
#[cfg(test)]
mod test_letters;

pub use health::Health;
pub use intake::Alert;
pub use mailbox::{MailboxGateway, try_receiving, try_sending};
pub use outbox::{GatewayOutbox, Notices};
pub use parse::{ParseCaps, parse};
