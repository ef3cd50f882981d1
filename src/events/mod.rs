//! What happened, for whoever watches. The bus may lose; the journal is the record and may not.

mod bus;
mod event;

pub use bus::Events;
pub use event::Event;
