//! What happened, for whoever watches, and what the operator has to be told. The bus may lose; the journal is the
//! record and may not.

mod alert;
mod bus;
mod event;

pub use alert::Alert;
pub use bus::Events;
pub use event::Event;
