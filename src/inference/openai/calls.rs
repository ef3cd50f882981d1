//! Which fragment of a tool call belongs to which call (harness W4). Servers disagree about index, id and name.

use std::collections::BTreeMap;

use serde_json::Value;

/// The calls of one response, in the order in which they began.
#[derive(Debug, Default)]
pub(super) struct Calls {
    slots: Vec<Slot>,
    /// Which slot an index means now. An index is a key, never a position: it may be negative or start at 1.
    by_index: BTreeMap<i64, usize>,
    /// The slots of the last delta that brought several calls without index or id.
    row: Vec<usize>,
}

/// One call so far.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(super) struct Slot {
    pub(super) id: String,
    pub(super) name: String,
    pub(super) arguments: String,
}

/// One element of `tool_calls`.
struct Fragment<'a> {
    index: Option<i64>,
    id: &'a str,
    name: &'a str,
    arguments: &'a Value,
}

impl Calls {
    /// Takes the `tool_calls` of one delta. `fragmented_names` says that names may come in pieces.
    pub(super) fn take(&mut self, fragments: &[Value], fragmented_names: bool) {
        let several = fragments.iter().filter(|fragment| index_of(fragment).is_none()).count() > 1;
        for (position, value) in fragments.iter().enumerate() {
            let fragment = Fragment::of(value);
            let slot = match fragment.index {
                Some(index) => self.by_index(index, &fragment),
                None if several && fragment.id.is_empty() => self.by_position(position, &fragment),
                None => self.by_name_and_id(&fragment, fragmented_names),
            };
            if let Some(slot) = self.slots.get_mut(slot) {
                slot.add(&fragment, fragmented_names);
            }
        }
    }

    /// Whether there is any.
    pub(super) fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// All that are more than an empty shell.
    pub(super) fn into_slots(self) -> impl Iterator<Item = Slot> {
        self.slots.into_iter().filter(|slot| *slot != Slot::default())
    }

    fn open(&mut self) -> usize {
        self.slots.push(Slot::default());
        self.slots.len() - 1
    }

    fn by_index(&mut self, index: i64, fragment: &Fragment<'_>) -> usize {
        let current = self.by_index.get(&index).copied();
        let another = |slot: &Slot| !slot.id.is_empty() && !fragment.id.is_empty() && slot.id != fragment.id && !fragment.name.is_empty();
        match current {
            // The same index is used again for another call.
            Some(at) if !self.slots.get(at).is_some_and(another) => at,
            _ => {
                let at = self.open();
                self.by_index.insert(index, at);
                at
            }
        }
    }

    fn by_position(&mut self, position: usize, fragment: &Fragment<'_>) -> usize {
        let current = self.row.get(position).copied();
        let goes_on = |slot: &Slot| fragment.name.is_empty() || (slot.name == fragment.name && !slot.is_complete());
        if let Some(at) = current.filter(|at| self.slots.get(*at).is_some_and(goes_on)) {
            return at;
        }
        let at = self.open();
        self.row.truncate(position);
        self.row.push(at);
        at
    }

    fn by_name_and_id(&mut self, fragment: &Fragment<'_>, fragmented_names: bool) -> usize {
        if !fragment.id.is_empty() {
            let known = self.slots.iter().rposition(|slot| slot.id == fragment.id);
            return known.unwrap_or_else(|| self.open());
        }
        let begins = |slot: &Slot| {
            let other_name = !slot.name.is_empty() && slot.name != fragment.name && !fragmented_names;
            !fragment.name.is_empty() && (slot.is_complete() || other_name)
        };
        match self.slots.last() {
            Some(slot) if !begins(slot) => self.slots.len() - 1,
            _ => self.open(),
        }
    }
}

impl<'a> Fragment<'a> {
    fn of(value: &'a Value) -> Fragment<'a> {
        let function = value.get("function").unwrap_or(value);
        let text = |from: &'a Value, key: &str| from.get(key).and_then(Value::as_str).unwrap_or_default();
        Fragment {
            index: index_of(value),
            id: text(value, "id"),
            name: text(function, "name"),
            arguments: function.get("arguments").unwrap_or(&Value::Null),
        }
    }
}

fn index_of(value: &Value) -> Option<i64> {
    value.get("index").and_then(Value::as_i64)
}

impl Slot {
    /// An empty string never overwrites; a repetition adds nothing.
    fn add(&mut self, fragment: &Fragment<'_>, fragmented_names: bool) {
        if self.id.is_empty() {
            fragment.id.clone_into(&mut self.id);
        }
        if self.name.is_empty() {
            fragment.name.clone_into(&mut self.name);
        } else if fragmented_names && self.name != fragment.name {
            self.name.push_str(fragment.name);
        }
        match fragment.arguments {
            Value::Null => {}
            // A last chunk may repeat all that was said.
            Value::String(text) if *text == self.arguments && self.is_complete() => {}
            Value::String(text) => self.arguments.push_str(text),
            object => self.arguments = object.to_string(),
        }
    }

    fn is_complete(&self) -> bool {
        self.arguments.trim_start().starts_with('{') && serde_json::from_str::<serde::de::IgnoredAny>(&self.arguments).is_ok()
    }
}

#[cfg(test)]
#[path = "calls_tests.rs"]
mod tests;
