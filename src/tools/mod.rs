//! What a model may call: the contract, the catalog of all tools, an agent's own set, repair, bounds.

mod catalog;
mod tool;
mod toolset;

pub use catalog::Catalog;
pub use tool::{Invocation, Tool, ToolError, ToolOutput, ToolSpec};
pub use toolset::{Resolved, Toolset};
