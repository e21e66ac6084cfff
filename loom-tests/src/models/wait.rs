//! The parker: a token is neither lost nor doubled.

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;
use std::time::Duration;
use tenure::wait::{Deadline, Parker};

/// What the unparker writes and the parker reads.
struct Mail(UnsafeCell<u32>);

// SAFETY: written before an unpark, read after the park that took its token; loom checks that.
unsafe impl Sync for Mail {}

fn mail() -> Arc<Mail> {
    Arc::new(Mail(UnsafeCell::new(0)))
}

models! { "wait";
    /// What came before an unpark is seen after the park.
    park_x_unpark {
        let parker = Parker::new();
        let unparker = parker.unparker();
        let mail = mail();
        let writer = thread::spawn({
            let mail = Arc::clone(&mail);
            move || {
                // SAFETY: nobody reads before the unpark.
                mail.0.with_mut(|value| unsafe { *value = 1 });
                unparker.unpark();
            }
        });
        let reader = thread::spawn(move || {
            parker.park();
            // SAFETY: the writer is done.
            assert_eq!(mail.0.with(|value| unsafe { *value }), 1);
        });
        writer.join().unwrap();
        reader.join().unwrap();
    }

    /// Two unparks leave one token or two parks' worth, and a park sees what came before an unpark
    /// that found a token already there.
    park_x_unpark_x_unpark {
        let parker = Parker::new();
        let unparkers = [parker.unparker(), parker.unparker()];
        let unparks: Vec<_> =
            unparkers.into_iter().map(|u| thread::spawn(move || u.unpark())).collect();
        let reader = thread::spawn(move || {
            parker.park();
            parker
        });
        unparks.into_iter().for_each(|t| t.join().unwrap());
        let parker = reader.join().unwrap();
        // Both unparks are over: a second token is there or it is not; a third is not.
        let second = parker.park_until(Deadline::after(Duration::ZERO));
        assert!(!(second && parker.park_until(Deadline::after(Duration::ZERO))));
    }

    /// An unpark while the deadline passes: its token is taken now or kept.
    park_until_x_unpark [fires] {
        let parker = Parker::new();
        let unparker = parker.unparker();
        let mail = mail();
        let writer = thread::spawn({
            let mail = Arc::clone(&mail);
            move || {
                // SAFETY: nobody reads before the unpark.
                mail.0.with_mut(|value| unsafe { *value = 1 });
                unparker.unpark();
            }
        });
        let reader = thread::spawn(move || {
            if !parker.park_until(Deadline::after(Duration::from_secs(1))) {
                parker.park();
            }
            // SAFETY: the token was taken, so the writer is done.
            assert_eq!(mail.0.with(|value| unsafe { *value }), 1);
        });
        writer.join().unwrap();
        reader.join().unwrap();
    }

    /// A deadline that does not pass is not taken for one that did.
    park_until_never_x_unpark {
        let parker = Parker::new();
        let unparker = parker.unparker();
        let writer = thread::spawn(move || unparker.unpark());
        let reader =
            thread::spawn(move || parker.park_until(Deadline::after(Duration::from_secs(1))));
        writer.join().unwrap();
        assert!(reader.join().unwrap());
    }

    /// A token is taken, not looked at: after the park that it ended nothing is left.
    park_x_unpark_leaves_nothing {
        let parker = Parker::new();
        let unparker = parker.unparker();
        let unpark = thread::spawn(move || unparker.unpark());
        let reader = thread::spawn(move || {
            parker.park();
            parker
        });
        unpark.join().unwrap();
        let parker = reader.join().unwrap();
        assert!(!parker.park_until(Deadline::after(Duration::ZERO)));
    }
}
