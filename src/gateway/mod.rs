//! Mail in, mail out, and the rules at the border. Knows no harness, no tool, no model.

mod compose;
mod connect;
mod deliver_local;
mod ladder;
mod login;
mod markdown;
mod outbox;
mod read_back;
mod send;
mod smtp;
mod smtp_starttls;
#[cfg(test)]
mod test_letters;

pub use outbox::{GatewayOutbox, Notices};
pub use send::{LookForSent, Sender, serve};
pub mod backoff;
pub mod health;
pub mod imap;
pub mod intake;
pub mod maildir;
pub mod receive;
//! Mail in, mail out: the rules at the border. Knows no harness, no tool, no model.

pub mod admit;
pub mod parse;
pub mod sent_folder;
mod sweep;
