//! Dead letters that keep their closures: replayed, purged, and the end of the runtime.
//!
//! The closure owns a loom cell that each attempt and each replay reads and its drop writes: the model fails
//! when the drop overlaps one of them, or does not see one. Three threads are explored at two preemptions.

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread::{JoinHandle, spawn};
use std::sync::atomic::{AtomicU32, Ordering};
use tenure::runtime::model::{Begun, Job, Post, job};

/// Something that must be dropped once, after all who saw it.
struct Watched {
    cell: UnsafeCell<u32>,
    drops: std::sync::Arc<AtomicU32>,
    _leak: Arc<()>,
}

// SAFETY: the cell is read by many and written by the drop alone; loom checks that.
unsafe impl Sync for Watched {}
// SAFETY: as above.
unsafe impl Send for Watched {}

impl Watched {
    fn see(&self) {
        // SAFETY: shared, and the drop comes after; loom checks that.
        self.cell.with(|c| unsafe { assert_eq!(*c, 7) });
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        // SAFETY: the last one; loom checks that.
        self.cell.with_mut(|c| unsafe { *c = 0 });
        self.drops.fetch_add(1, Ordering::Relaxed);
    }
}

/// A job that fails always, with one attempt inside; and how often its closure was dropped.
fn failing() -> (Job, Begun, std::sync::Arc<AtomicU32>) {
    let drops = std::sync::Arc::new(AtomicU32::new(0));
    let watched = Watched { cell: UnsafeCell::new(7), drops: drops.clone(), _leak: Arc::new(()) };
    let (job, handle) = job(true, move |_| {
        watched.see();
        Err::<(), _>("always")
    });
    drop(handle);
    let begun = job.begin().unwrap();
    (job, begun, drops)
}

/// The same, dead by now: there is a letter.
fn dead() -> (Arc<Post>, std::sync::Arc<AtomicU32>) {
    let post = Arc::new(Post::new(8));
    let (job, begun, drops) = failing();
    post.come_out(&job, begun);
    (post, drops)
}

fn with<R: 'static>(post: &Arc<Post>, f: impl FnOnce(&Post) -> R + 'static) -> JoinHandle<R> {
    let post = Arc::clone(post);
    spawn(move || f(&post))
}

/// What is left goes with the letters.
fn finish(post: &Post, drops: &AtomicU32) {
    for id in 1..=3 {
        post.purge(id);
    }
    assert!(post.is_empty());
    assert_eq!(drops.load(Ordering::Relaxed), 1, "the closure is dropped once");
}

crate::models! { "runtime_letters";
    /// Of two replays one has the letter; what it comes to is a letter again.
    replay_x_replay {
        let (post, drops) = dead();
        let two = [with(&post, |post| post.replay(1)), with(&post, |post| post.replay(1))];
        let got = two.map(|replay| replay.join().unwrap());
        assert_ne!(got[0], got[1]);
        assert_eq!(post.len(), 1);
        finish(&post, &drops);
    }
    /// A replay and a purge: one has the letter.
    replay_x_purge {
        let (post, drops) = dead();
        let (replay, purge) = (with(&post, |post| post.replay(1)), with(&post, |post| post.purge(1)));
        assert_ne!(replay.join().unwrap(), purge.join().unwrap());
        finish(&post, &drops);
    }
    /// A replay of a replay's letter, while that one is purged: the first closure is dropped by the last.
    replay_x_replay_again_x_purge [bound: 2] {
        let (post, drops) = dead();
        let replay = with(&post, |post| post.replay(1));
        let again = with(&post, |post| post.replay(2));
        let purge = with(&post, |post| post.purge(2));
        assert!(replay.join().unwrap());
        let (again, purge) = (again.join().unwrap(), purge.join().unwrap());
        assert!(!(again && purge));
        finish(&post, &drops);
    }
    /// The end of the runtime comes while a letter is replayed: the replay runs to its end, and what it
    /// leaves has no closure.
    replay_x_close {
        let (post, drops) = dead();
        let (replay, close) = (with(&post, |post| post.replay(1)), with(&post, Post::close));
        let got = replay.join().unwrap();
        close.join().unwrap();
        assert_eq!(drops.load(Ordering::Relaxed), 1, "no closure is kept after the end");
        assert_eq!(post.len(), 1, "the letter is, whatever was first");
        assert!(!post.replay(1) && !post.replay(2), "and is not replayed: {got}");
    }
    /// A job dies while its letter is replayed and purged: before its word is final, or after.
    die_x_replay_x_purge [bound: 2] {
        let post = Arc::new(Post::new(8));
        let (job, begun, drops) = failing();
        let worker = with(&post, move |post| {
            post.come_out(&job, begun);
        });
        let (replay, purge) = (with(&post, |post| post.replay(1)), with(&post, |post| post.purge(1)));
        worker.join().unwrap();
        let (replay, purge) = (replay.join().unwrap(), purge.join().unwrap());
        assert!(!(replay && purge));
        finish(&post, &drops);
    }
    /// The driver gives the last attempt up, which leaves while the letter is replayed.
    give_up_x_late_x_replay [bound: 2] {
        let post = Arc::new(Post::new(8));
        let (job, begun, drops) = failing();
        let late = job.clone();
        let driver = with(&post, move |post| {
            post.give_up(&job, begun);
        });
        let worker = with(&post, move |post| {
            post.come_out(&late, begun);
        });
        let replay = with(&post, |post| post.replay(1));
        driver.join().unwrap();
        worker.join().unwrap();
        replay.join().unwrap();
        finish(&post, &drops);
    }
}
