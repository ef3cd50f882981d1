//! Bytes of a response in, events out: server-sent events first, then the dialect (harness W1-W3). Pure.

use super::failure::failure;
use super::sse::{Item, Reader, TooLong};
use crate::inference::anthropic::AnthropicStream;
use crate::inference::openai::OpenaiStream;
use crate::inference::{ErrorKind, ModelError, ModelEvent, Phase};

/// The reader of one response. Nothing is decoded after a `Finished`.
#[derive(Debug)]
pub(super) struct Decoder {
    reader: Reader,
    stream: Dialected,
}

/// The reader of a dialect's events.
#[derive(Debug)]
pub(super) enum Dialected {
    Openai(OpenaiStream),
    Anthropic(AnthropicStream),
}

impl Decoder {
    /// A reader of a response in this dialect.
    pub(super) fn new(stream: Dialected) -> Decoder {
        Decoder { reader: Reader::default(), stream }
    }

    /// Takes bytes, however they are cut; says whether they carried meaning. Events before an error count.
    pub(super) fn push(&mut self, bytes: &[u8], events: &mut Vec<ModelEvent>) -> Result<bool, ModelError> {
        let mut items = Vec::new();
        let read = self.reader.push(bytes, &mut items);
        let said = self.decode(items, events)?;
        read.map_err(too_long)?;
        Ok(said)
    }

    /// The input ended as it should: the last event may lack its blank line, the answer its end marker.
    pub(super) fn finish(&mut self, events: &mut Vec<ModelEvent>) -> Result<(), ModelError> {
        let mut items = Vec::new();
        let read = self.reader.finish(&mut items);
        self.decode(items, events)?;
        read.map_err(too_long)?;
        self.end(events)
    }

    /// The input broke off: an error, unless all had been said and only the end marker was missing.
    pub(super) fn end(&mut self, events: &mut Vec<ModelEvent>) -> Result<(), ModelError> {
        match &mut self.stream {
            Dialected::Openai(stream) => stream.end(events),
            Dialected::Anthropic(stream) => stream.end(events),
        }
    }

    /// Reads a response that came whole; a stream under a false name is read as one.
    pub(super) fn whole(&mut self, body: &[u8], events: &mut Vec<ModelEvent>) -> Result<(), ModelError> {
        let text = String::from_utf8_lossy(body);
        if !text.trim_start().starts_with(['{', '[']) {
            self.push(body, events)?;
            return self.finish(events);
        }
        match &mut self.stream {
            Dialected::Openai(stream) => stream.whole(&text, events),
            Dialected::Anthropic(stream) => stream.whole(&text, events),
        }
    }

    fn decode(&mut self, items: Vec<Item>, events: &mut Vec<ModelEvent>) -> Result<bool, ModelError> {
        let mut said = false;
        for item in items {
            said |= match (item, &mut self.stream) {
                (Item::Comment, _) => {
                    if !is_ended(events) {
                        events.push(ModelEvent::Heartbeat);
                    }
                    false
                }
                (Item::Event { name, data }, Dialected::Openai(stream)) => stream.event(&name, &data, events)?,
                (Item::Event { name, data }, Dialected::Anthropic(stream)) => stream.event(&name, &data, events)?,
            };
        }
        Ok(said)
    }
}

/// Whether the end is among the events.
pub(super) fn is_ended(events: &[ModelEvent]) -> bool {
    matches!(events.last(), Some(ModelEvent::Finished { .. }))
}

fn too_long(_: TooLong) -> ModelError {
    failure(ErrorKind::Protocol, Phase::MidStream, "a line of the stream is longer than 8 MB")
}

#[cfg(test)]
#[path = "decoder_tests.rs"]
mod tests;
