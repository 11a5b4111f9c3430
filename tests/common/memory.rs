//! Buffers of either kind: a process's own memory, and memory that peers can read.

use ccl::{Element, SharedMemory};
use std::ops::{Deref, DerefMut};

pub(crate) enum Memory<T: Element> {
    Own(Vec<T>),
    Shared(SharedMemory<T>),
}

impl<T: Element> Memory<T> {
    pub(crate) fn of(is_shared: bool, data: &[T]) -> Self {
        if !is_shared {
            return Memory::Own(data.to_vec());
        }
        let mut memory = SharedMemory::new(data.len()).unwrap();
        memory.copy_from_slice(data);
        Memory::Shared(memory)
    }
}

impl<T: Element> Deref for Memory<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        match self {
            Memory::Own(data) => data,
            Memory::Shared(data) => data,
        }
    }
}

impl<T: Element> DerefMut for Memory<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        match self {
            Memory::Own(data) => data,
            Memory::Shared(data) => data,
        }
    }
}
