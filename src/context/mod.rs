//! The resolver chain: what a model is shown, piece by piece, and where each piece stands.

mod chain;

pub use chain::{Assembled, Chain, Opening, Piece, ResolveError, Resolver};
