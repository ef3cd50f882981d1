//! From the text of configuration files to checked values: every key read once, every mistake recorded.

mod agent;
mod duty;
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
pub(super) use section::{Entry, File, Report, Section, nearest, quoted};
pub(super) use settings::settings;
pub(super) use units::duration_text;
