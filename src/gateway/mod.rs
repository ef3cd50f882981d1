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
#[cfg(test)]
mod smtp_peer;
mod smtp_starttls;
#[cfg(test)]
mod test_letters;

pub use outbox::{GatewayOutbox, Notices};
pub use send::{LookForSent, Sender, serve};
