//! The inference loop: ask the model, run its tools, feed the results back, until it is done. It knows a
//! job and a journal, and nothing of where the job came from or where its text goes.

mod accept;
mod cancel;
mod dispatch;
mod job;
mod journal;
mod next;
mod repeats;
mod reply;
mod run;
mod transcript;

pub use cancel::Cancelled;
pub use job::{Job, Stop};
pub use run::{Ended, Finish, Harness};
pub use transcript::Transcript;

#[cfg(test)]
mod tests;
