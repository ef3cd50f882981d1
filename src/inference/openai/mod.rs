//! The dialect of `BASE/chat/completions`, with what its many servers do differently. Pure: values in, values out.

mod calls;
mod request;
mod stream;
mod think;

pub(super) use request::body;
pub(super) use stream::OpenaiStream;
