//! How a part of the daemon tells the operator that a person has to look.

use std::sync::Arc;

/// Tells the operator: a key (what is told once under it is not told again for a while), a subject, a text.
/// It neither blocks nor fails.
pub type Alert = Arc<dyn Fn(String, String, String) + Send + Sync>;
