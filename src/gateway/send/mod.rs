//! Emptying the outbox: by SMTP, into a Maildir, or through `sendmail`.

mod deliver_local;
mod ladder;
mod probe;
mod serve;
mod smtp;
#[cfg(test)]
mod smtp_peer;
mod starttls;

pub use probe::try_sending;
pub use serve::{LookForSent, Sender, serve};
