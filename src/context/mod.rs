//! The resolver chain: what a model is shown, piece by piece, and where each piece stands.

mod chain;
mod clock;
mod customer;
mod customers;
mod document;
mod history;
mod opening;
mod persona;

pub use chain::{Assembled, Chain, Opening, Piece, ResolveError, Resolver};
pub use customers::look_up;
