//! What a model may call: the contract, the catalog of all tools, an agent's own set, repair, bounds.

mod bound;
mod builtin;
mod catalog;
mod command;
mod definition;
mod repair;
mod scope;
#[cfg(test)]
mod test_store;
mod tool;
mod toolset;
mod validate;

pub use bound::{Bounded, NO_OUTPUT, Whole, bound, bound_round, clean, sent_bytes};
pub use catalog::{Catalog, Granted};
pub use scope::permitted;
pub use tool::{Invocation, Tool, ToolError, ToolOutput, ToolSpec};
pub use toolset::{Resolved, Toolset};
