//! From a draft to final bytes, and the proof that they say what was meant.

mod letter;
mod markdown;
mod read_back;

pub(super) use letter::{Letterhead, compose};
pub(super) use read_back::{draft_of, message_id};
