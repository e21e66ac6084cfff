//! The lock that the rest of the crate uses, where it uses one: this room's own, except in models.
//!
//! | name       | as it ships       | in a model                                                          |
//! |------------|-------------------|---------------------------------------------------------------------|
//! | [`Mutex`]  | [`AdaptiveMutex`] | the model's lock: one step each way. The real one has models of its own |
//! | [`Unseen`] | [`AdaptiveMutex`] | `std`'s, which the model does not see: for what no schedule is decided by |
//!
//! [`AdaptiveMutex`]: super::AdaptiveMutex
//!
//! Below this room stand `sync` and `clock`; they, and an error that has to stay `UnwindSafe`, have a
//! lock of `std`'s.

#[cfg(not(any(tenure_loom, tenure_shuttle)))]
mod here {
    pub(crate) type Mutex<T> = crate::lock::AdaptiveMutex<T>;
    pub(crate) type Unseen<T> = crate::lock::AdaptiveMutex<T>;
    pub(crate) type UnseenGuard<'a, T> = crate::lock::AdaptiveMutexGuard<'a, T>;
}

#[cfg(any(tenure_loom, tenure_shuttle))]
mod here {
    pub(crate) use crate::sync::Mutex;
    pub(crate) type UnseenGuard<'a, T> = std::sync::MutexGuard<'a, T>;

    #[derive(Debug, Default)]
    pub(crate) struct Unseen<T>(std::sync::Mutex<T>);

    impl<T> Unseen<T> {
        pub(crate) const fn new(value: T) -> Self {
            Self(std::sync::Mutex::new(value))
        }

        pub(crate) fn lock(&self) -> UnseenGuard<'_, T> {
            self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
        }
    }
}

pub(crate) use here::{Mutex, Unseen, UnseenGuard};
