//! From the text of configuration files to checked values: every key read once, every mistake recorded.

mod agent;
mod duty;
mod entry;
mod mailbox;
mod model;
mod section;
mod server;
mod settings;
mod tool;
mod unacted;
mod units;

pub(super) use agent::{Surroundings, agent};
pub(super) use duty::duty;
pub(super) use entry::{Entry, quoted};
pub(super) use section::{File, Report, Section, nearest};
pub(super) use settings::{DEFAULT_STORE, settings};
pub(super) use units::duration_text;
