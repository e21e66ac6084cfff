//! The values of a wheel's timers: stable indices, each use of one told apart by a serial number.

use core::mem;

/// End of the list of vacant entries.
const NIL: u32 = u32::MAX;

/// Values under an index and a serial. Serials count inserts and never repeat (64 bits), so a key
/// that outlived its value never finds another.
pub(super) struct Slab<T> {
    entries: Vec<Entry<T>>,
    vacant: u32,
    len: usize,
    next_serial: u64,
}

enum Entry<T> {
    Vacant { next: u32 },
    Occupied { serial: u64, value: T },
}

impl<T> Slab<T> {
    pub(super) fn new() -> Self {
        Self { entries: Vec::new(), vacant: NIL, len: 0, next_serial: 0 }
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Panics when every index is taken.
    pub(super) fn insert(&mut self, value: T) -> (u32, u64) {
        let serial = self.next_serial;
        self.next_serial = serial.wrapping_add(1);
        self.len += 1;
        let entry = Entry::Occupied { serial, value };
        let index = self.vacant;
        if let Some(place) = self.entries.get_mut(index as usize) {
            if let Entry::Vacant { next } = mem::replace(place, entry) {
                self.vacant = next;
            }
            return (index, serial);
        }
        let index = self.entries.len();
        assert!(index < NIL as usize, "a wheel holds fewer than 2^32 - 1 timers");
        self.entries.push(entry);
        (index as u32, serial)
    }

    #[inline]
    pub(super) fn contains(&self, index: u32, serial: u64) -> bool {
        matches!(self.entries.get(index as usize),
            Some(Entry::Occupied { serial: here, .. }) if *here == serial)
    }

    pub(super) fn get_mut(&mut self, index: u32, serial: u64) -> Option<&mut T> {
        match self.entries.get_mut(index as usize)? {
            Entry::Occupied { serial: here, value } if *here == serial => Some(value),
            Entry::Occupied { .. } | Entry::Vacant { .. } => None,
        }
    }

    pub(super) fn remove(&mut self, index: u32, serial: u64) -> Option<T> {
        let place = self.entries.get_mut(index as usize)?;
        if !matches!(place, Entry::Occupied { serial: here, .. } if *here == serial) {
            return None;
        }
        match mem::replace(place, Entry::Vacant { next: self.vacant }) {
            Entry::Occupied { value, .. } => {
                self.vacant = index;
                self.len -= 1;
                Some(value)
            }
            Entry::Vacant { .. } => None,
        }
    }

    /// Takes all values out. Serials go on where they were.
    pub(super) fn drain(&mut self) -> impl Iterator<Item = T> + use<T> {
        self.vacant = NIL;
        self.len = 0;
        mem::take(&mut self.entries).into_iter().filter_map(|entry| match entry {
            Entry::Occupied { value, .. } => Some(value),
            Entry::Vacant { .. } => None,
        })
    }
}
