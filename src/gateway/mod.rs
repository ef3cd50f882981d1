//! Mail in, mail out, and the rules at the border. Knows no harness, no tool, no model.

pub mod backoff;
pub mod health;
pub mod imap;
pub mod intake;
pub mod maildir;
pub mod receive;
pub mod sent_folder;
mod sweep;
