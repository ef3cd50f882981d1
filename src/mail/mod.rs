//! A letter as plain values: addresses, ids, what came in, what goes out. No I/O.

mod address;
mod clean;
mod inbound;
mod message_id;
mod outgoing;
mod readable;
mod reply;

pub use address::{Address, AddressError, NamedAddress};
pub use clean::{clean_file_name, clean_line, clean_text, is_invisible};
pub use inbound::{Attachment, Inbound};
pub use message_id::MessageId;
pub use outgoing::{Draft, OutgoingKind, Sealed};
pub use reply::{reply_references, reply_subject};
