//! `Slot`: a core of one's own, used again and again.

use core::fmt;
use core::marker::PhantomData;
use core::mem::MaybeUninit;

use super::core::{CorePtr, Home};
use super::eventual::Eventual;
use super::writer::Promise;

/// A core that its owner uses again and again: a loop that makes one promise at a time allocates
/// once.
///
/// [`pair`](Slot::pair) gives a promise and an eventual like any others: they may go to other
/// threads, and outlive the slot. While the last pair is still in use, the next comes from the pool
/// instead, so that `pair` never waits.
///
/// # Examples
///
/// ```
/// let mut slot = tenure::promise::Slot::<u32, ()>::new();
/// for n in 0..3 {
///     let (promise, eventual) = slot.pair();
///     promise.set(n)?;
///     assert_eq!(eventual.get().ok(), Some(n));
/// }
/// # Ok::<(), tenure::promise::SetError<u32>>(())
/// ```
pub struct Slot<T, E> {
    home: Home<T, E>,
    owns: PhantomData<MaybeUninit<(T, E)>>,
}

// SAFETY: what an idle slot holds is empty memory; a pair in use is its handles' business.
unsafe impl<T: Send, E: Send> Send for Slot<T, E> {}
// SAFETY: a shared reference to a slot gives nothing.
unsafe impl<T: Send, E: Send> Sync for Slot<T, E> {}

impl<T, E> Slot<T, E> {
    /// A slot; this allocates, `pair` does not.
    #[must_use]
    pub fn new() -> Self {
        Self { home: Home::new(), owns: PhantomData }
    }

    /// A promise and its eventual, in the slot's core if that is free.
    pub fn pair(&mut self) -> (Promise<T, E>, Eventual<T, E>) {
        let core = self.home.occupy().unwrap_or_else(CorePtr::allocate);
        (Promise::new(core), Eventual::new(core))
    }

    /// Whether the last pair from the slot's core is gone.
    pub fn is_free(&self) -> bool {
        self.home.is_free()
    }
}

impl<T, E> Default for Slot<T, E> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T, E> fmt::Debug for Slot<T, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Slot").field("is_free", &self.is_free()).finish()
    }
}
