//! The dialect of `BASE/v1/messages` (harness W8, W8b, PC2). Pure: values in, values out.

mod request;
mod stream;

pub(super) use request::body;
pub(super) use stream::AnthropicStream;
