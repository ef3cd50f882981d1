//! Server-sent events: bytes in, events out (harness W1). Pure; a line is decoded only once it is whole.

use std::mem;

/// Bytes of one line, and of the data of one event, at most.
const LONGEST: usize = 8 * 1024 * 1024;

/// What the bytes held.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Item {
    /// A dispatched event.
    Event {
        /// `event:`, empty when there is none.
        name: String,
        /// The `data:` lines, joined by newlines.
        data: String,
    },
    /// A comment: the connection lives.
    Comment,
}

/// A line or an event passed the limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TooLong;

/// The reader of one stream.
#[derive(Debug, Default)]
pub(super) struct Reader {
    line: Vec<u8>,
    name: String,
    data: Option<String>,
    /// The last line ended with a carriage return: a line feed right after belongs to it.
    after_return: bool,
    past_first_line: bool,
}

impl Reader {
    /// Takes bytes, however they are cut.
    pub(super) fn push(&mut self, bytes: &[u8], items: &mut Vec<Item>) -> Result<(), TooLong> {
        for &byte in bytes {
            let after_return = mem::replace(&mut self.after_return, byte == b'\r');
            match byte {
                b'\n' if after_return => {}
                b'\n' | b'\r' => self.end_line(items)?,
                _ if self.line.len() >= LONGEST => return Err(TooLong),
                _ => self.line.push(byte),
            }
        }
        Ok(())
    }

    /// The input is over: a last event without its blank line is delivered too.
    pub(super) fn finish(&mut self, items: &mut Vec<Item>) -> Result<(), TooLong> {
        if !self.line.is_empty() {
            self.end_line(items)?;
        }
        self.dispatch(items);
        Ok(())
    }

    fn end_line(&mut self, items: &mut Vec<Item>) -> Result<(), TooLong> {
        let bytes = mem::take(&mut self.line);
        let text = String::from_utf8_lossy(&bytes);
        let mut line = text.as_ref();
        if !mem::replace(&mut self.past_first_line, true) {
            line = line.strip_prefix('\u{feff}').unwrap_or(line);
        }
        if line.is_empty() {
            self.dispatch(items);
            return Ok(());
        }
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "" => items.push(Item::Comment),
            "event" => value.clone_into(&mut self.name),
            "data" => self.add_data(value)?,
            _ => {}
        }
        Ok(())
    }

    fn add_data(&mut self, value: &str) -> Result<(), TooLong> {
        match &mut self.data {
            Some(data) if data.len() + value.len() >= LONGEST => return Err(TooLong),
            Some(data) => {
                data.push('\n');
                data.push_str(value);
            }
            None => self.data = Some(value.to_owned()),
        }
        Ok(())
    }

    fn dispatch(&mut self, items: &mut Vec<Item>) {
        let name = mem::take(&mut self.name);
        if let Some(data) = self.data.take() {
            items.push(Item::Event { name, data });
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(pieces: &[&[u8]]) -> Vec<Item> {
        let mut reader = Reader::default();
        let mut items = Vec::new();
        for piece in pieces {
            reader.push(piece, &mut items).unwrap();
        }
        reader.finish(&mut items).unwrap();
        items
    }

    fn event(name: &str, data: &str) -> Item {
        Item::Event { name: name.into(), data: data.into() }
    }

    const STREAM: &str =
        "event: a\ndata: {\"x\":\"grüße 🍦\"}\n\n: ping\ndata:one\ndata:  two\nid: 7\nretry: 1\nwhat\n\ndata\n\ndata: [DONE]";

    fn expected() -> Vec<Item> {
        vec![event("a", "{\"x\":\"grüße 🍦\"}"), Item::Comment, event("", "one\n two"), event("", ""), event("", "[DONE]")]
    }

    #[test]
    fn harness_w1_fields_comments_and_the_unfinished_last_event() {
        assert_eq!(read(&[STREAM.as_bytes()]), expected());
    }

    #[test]
    fn harness_dr4_every_split_and_line_ending_gives_the_same_events() {
        for ending in ["\n", "\r\n", "\r"] {
            for bom in ["", "\u{feff}"] {
                let text = format!("{bom}{}", STREAM.replace('\n', ending));
                let bytes = text.as_bytes();
                for at in 0..=bytes.len() {
                    let (left, right) = bytes.split_at(at);
                    assert_eq!(read(&[left, right]), expected(), "split at {at} with {ending:?}");
                }
                let single: Vec<&[u8]> = bytes.chunks(1).collect();
                assert_eq!(read(&single), expected());
            }
        }
    }

    #[test]
    fn harness_w1_an_endless_line_is_refused() {
        let mut reader = Reader::default();
        let block = vec![b'x'; 1024 * 1024];
        let results: Vec<_> = (0..9).map(|_| reader.push(&block, &mut Vec::new())).collect();
        assert_eq!(results[7], Ok(()));
        assert_eq!(results[8], Err(TooLong));
    }

    proptest! {
        #[test]
        fn any_bytes_in_any_pieces_read_alike(bytes in proptest::collection::vec(any::<u8>(), 0..200), size in 1_usize..9) {
            let pieces: Vec<&[u8]> = bytes.chunks(size).collect();
            prop_assert_eq!(read(&pieces), read(&[&bytes]));
        }
    }
}
