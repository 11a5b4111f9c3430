//! [`Table`]: what handles of C's stand for. A handle is a slot's number and generation dressed as a pointer.

use crate::{
    sys::{fork, per_process::PerProcess},
    types::{Error, Result},
};
use std::{
    convert::Infallible,
    ptr,
    sync::{Arc, PoisonError, RwLock},
};

const SLOT_BITS: u32 = 24;
const GENERATION_BITS: u32 = 24;
const PROCESS_BITS: u32 = 8;

/// Values that C refers to by handles.
///
/// A handle's top 8 bits are the table's tag, which makes it no address that a program can have; then come 8 bits that
/// tell the process from the one that forked it, 24 bits of generation and 24 of slot. A slot gets a new generation with
/// each value, so that the handle of a destroyed one is recognised, and is retired when its generations are used up: no
/// handle ever comes again.
///
/// A forked child begins with an empty table: another thread may have held the parent's lock at the fork, and what its
/// values own is not there.
pub(super) struct Table<T> {
    tag: u8,
    /// What a good handle is, for messages.
    noun: &'static str,
    slots: PerProcess<RwLock<Vec<Slot<T>>>>,
}

struct Slot<T> {
    generation: u64,
    value: Option<Arc<T>>,
}

impl<T: Send + Sync + 'static> Table<T> {
    /// An empty table whose handles begin with `tag`; no address begins so, nor does NULL.
    pub(super) const fn new(tag: u8, noun: &'static str) -> Self {
        assert!(tag != 0 && tag != u8::MAX, "a handle could be NULL or an address");
        let slots = PerProcess::new();
        Table { tag, noun, slots }
    }

    fn slots(&self) -> &'static RwLock<Vec<Slot<T>>> {
        let made = self
            .slots
            .get_or_try_init(|| Ok::<_, Infallible>(RwLock::default()));
        made.unwrap_or_else(|never| match never {})
    }

    /// Keeps `value` and returns its handle.
    ///
    /// # Errors
    /// [`Error::Usage`] when 2^24 values live.
    pub(super) fn insert<P>(&self, value: T) -> Result<*mut P> {
        let mut slots = self.slots().write().unwrap_or_else(PoisonError::into_inner);
        // A scan: values come and go with communicators, whose making takes far longer.
        let free = |slot: &Slot<T>| slot.value.is_none() && slot.generation < (1 << GENERATION_BITS) - 1;
        let index = match slots.iter().position(free) {
            Some(index) => index,
            None if slots.len() < 1 << SLOT_BITS => {
                slots.push(Slot {
                    generation: 0,
                    value: None,
                });
                slots.len() - 1
            }
            None => {
                return Err(Error::usage(format!(
                    "too many handles: there is no room for {}",
                    self.noun
                )));
            }
        };
        let slot = &mut slots[index];
        slot.generation += 1;
        slot.value = Some(Arc::new(value));
        Ok(ptr::without_provenance_mut(
            self.number(index, slot.generation) as usize
        ))
    }

    /// What `handle` stands for. The table is not locked while the caller uses it.
    ///
    /// # Errors
    /// [`Error::Invalid`] for NULL, a destroyed handle, and anything that never was one; [`Error::Usage`] for a handle of
    /// the process that forked this one.
    pub(super) fn get<P>(&self, handle: *const P) -> Result<Arc<T>> {
        let slots = self.slots().read().unwrap_or_else(PoisonError::into_inner);
        let slot = self.index(handle).and_then(|index| slots.get(index));
        let value = slot.filter(|slot| self.names(handle, slot));
        value
            .and_then(|slot| slot.value.clone())
            .ok_or_else(|| self.unknown(handle))
    }

    /// Takes what `handle` stands for out of the table: from now on the handle is refused.
    ///
    /// # Errors
    /// As [`Table::get`].
    pub(super) fn take<P>(&self, handle: *const P) -> Result<Arc<T>> {
        let mut slots = self.slots().write().unwrap_or_else(PoisonError::into_inner);
        let slot = self.index(handle).and_then(|index| slots.get_mut(index));
        let value = slot.filter(|slot| self.names(handle, slot));
        value
            .and_then(|slot| slot.value.take())
            .ok_or_else(|| self.unknown(handle))
    }

    fn number(&self, index: usize, generation: u64) -> u64 {
        self.prefix() << (SLOT_BITS + GENERATION_BITS) | generation << SLOT_BITS | index as u64
    }

    /// What all handles of this process begin with.
    fn prefix(&self) -> u64 {
        (u64::from(self.tag) << PROCESS_BITS) | (u64::from(fork::generation()) % (1 << PROCESS_BITS))
    }

    fn index<P>(&self, handle: *const P) -> Option<usize> {
        (!handle.is_null()).then(|| handle.addr() & ((1 << SLOT_BITS) - 1))
    }

    /// Whether `handle`, whose slot is `slot`, has the table's tag and the slot's present generation.
    fn names<P>(&self, handle: *const P, slot: &Slot<T>) -> bool {
        self.number(0, slot.generation) == handle.addr() as u64 >> SLOT_BITS << SLOT_BITS
    }

    fn unknown<P>(&self, handle: *const P) -> Error {
        let prefix = handle.addr() as u64 >> (SLOT_BITS + GENERATION_BITS);
        if (u64::from(self.tag) << PROCESS_BITS..self.prefix()).contains(&prefix) {
            return Error::usage(format!(
                "{handle:p} belongs to the parent process: make a new one after the fork"
            ));
        }
        Error::invalid(match handle.is_null() {
            true => format!("the handle is NULL: it must be {}", self.noun),
            false => format!(
                "{handle:p} is not {}: it was destroyed, or never was one",
                self.noun
            ),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handle_finds_its_value_until_it_is_taken() {
        let table = Table::new(0xc1, "a number");
        let (a, b): (*mut u8, *mut u8) = (table.insert(1).unwrap(), table.insert(2).unwrap());
        assert_eq!((*table.get(a).unwrap(), *table.get(b).unwrap()), (1, 2));
        assert_eq!(*table.take(a).unwrap(), 1);
        let gone = table.get(a).unwrap_err().to_string();
        assert!(gone.contains("is not a number: it was destroyed"), "{gone}");
        assert!(table.take(a).is_err());
        let c: *mut u8 = table.insert(3).unwrap();
        assert_ne!(a, c);
        assert!(table.get(a).is_err());
        assert_eq!((*table.get(b).unwrap(), *table.get(c).unwrap()), (2, 3));
    }

    #[test]
    fn anything_else_is_refused() {
        let (table, other) = (Table::new(0xc1, "a number"), Table::new(0xc2, "a word"));
        let handle: *mut u8 = table.insert(1).unwrap();
        let strange: *mut u8 = other.insert("one").unwrap();
        let on_stack = 0u8;
        let neighbours =
            [1, 1 << SLOT_BITS, 1 << (SLOT_BITS + GENERATION_BITS)].map(|d| handle.wrapping_byte_add(d));
        for garbage in [
            ptr::null(),
            &raw const on_stack,
            ptr::without_provenance(1),
            ptr::without_provenance(usize::MAX),
        ]
        .into_iter()
        .chain(neighbours.map(|p| p.cast_const()))
        .chain([strange.cast_const()])
        {
            assert!(table.get(garbage).is_err(), "{garbage:p}");
            assert!(table.take(garbage).is_err(), "{garbage:p}");
        }
        assert!(table.get(handle).is_ok());
    }

    #[test]
    fn a_child_begins_anew_even_if_the_lock_was_held() {
        fork::watch().unwrap();
        static TABLE: Table<u8> = Table::new(0xc1, "a number");
        let handle: *mut u8 = TABLE.insert(1).unwrap();
        let held = TABLE.slots().write().unwrap();
        let child = fork::child(|| {
            let refused =
                [TABLE.get(handle), TABLE.take(handle)].map(|r| matches!(r, Err(Error::Usage { .. })));
            let own: *mut u8 = TABLE.insert(2).unwrap();
            refused == [true, true] && own != handle && *TABLE.take(own).unwrap() == 2
        });
        let status = rustix::process::waitpid(Some(child), rustix::process::WaitOptions::empty()).unwrap();
        assert_eq!(status.unwrap().1.exit_status(), Some(0));
        drop(held);
        assert_eq!(*TABLE.get(handle).unwrap(), 1);
    }

    #[test]
    fn a_slot_whose_generations_are_used_up_is_retired() {
        let table = Table::new(0xc1, "a number");
        let first: *mut u8 = table.insert(1).unwrap();
        table.take(first).unwrap();
        table.slots().write().unwrap()[0].generation = (1 << GENERATION_BITS) - 1;
        let second: *mut u8 = table.insert(2).unwrap();
        assert_eq!(second.addr() & ((1 << SLOT_BITS) - 1), 1);
    }
}
