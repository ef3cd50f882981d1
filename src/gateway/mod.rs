//! Mail in, mail out: the rules at the border. Knows no harness, no tool, no model.

pub mod admit;
pub mod parse;
