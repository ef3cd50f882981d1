//! Receiving: one task for each mailbox, from the wake-up to the committed letter.

pub mod backoff;
mod health;
mod intake;
mod maildir;
mod sent_folder;
mod serve;
mod sweep;

pub use health::{Activity, Health, MailboxHealth};
pub use intake::{Intake, Judge, RawLetter};
pub use sent_folder::SentFolder;
pub use serve::{Receiver, Timing, serve};
