//! What one subscriber has received, and what keeps late attempts from it.

use std::collections::HashMap;

use tenure::lease::{FencedCell, FencedCellError, FencingToken};

/// A subscriber's side of the story. Each write to it needs a token that is not stale: the cell
/// remembers the greatest it has seen, and admits and writes under one lock.
#[derive(Debug)]
pub(crate) struct Inbox {
    cell: FencedCell<Taken>,
}

/// What was taken.
#[derive(Debug, Default)]
pub(crate) struct Taken {
    /// Each delivery once, in the order in which they came, with the token of the attempt.
    pub(crate) order: Vec<(String, FencingToken)>,
    known: HashMap<String, usize>,
    /// The greatest token that came, kept apart from the cell's: what the cell did is checked by it.
    greatest: Option<FencingToken>,
    /// Deliveries taken although a greater token had come before: there must be none.
    pub(crate) stale: u64,
}

/// What became of a delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Receipt {
    Taken,
    /// It was taken before: another attempt of the same delivery.
    Duplicate,
}

impl Inbox {
    pub(crate) fn new() -> Self {
        Self { cell: FencedCell::new(Taken::default()) }
    }

    /// A request came: whoever has a smaller token is late from now on.
    pub(crate) fn announce(&self, token: FencingToken) -> Result<(), FencedCellError> {
        self.cell.write(token, |taken| taken.greatest = taken.greatest.max(Some(token)))
    }

    /// Takes a delivery, once.
    pub(crate) fn take(&self, token: FencingToken, id: &str) -> Result<Receipt, FencedCellError> {
        self.cell.write(token, |taken| {
            if taken.greatest > Some(token) {
                taken.stale += 1;
            }
            if taken.known.contains_key(id) {
                return Receipt::Duplicate;
            }
            taken.known.insert(id.to_owned(), taken.order.len());
            taken.order.push((id.to_owned(), token));
            Receipt::Taken
        })
    }

    /// What was taken so far.
    pub(crate) fn read<R>(&self, read: impl FnOnce(&Taken) -> R) -> Option<R> {
        self.cell.read(read).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(n: u64) -> FencingToken {
        FencingToken::from_bytes(n.to_be_bytes()).unwrap()
    }

    #[test]
    fn who_comes_back_after_his_successor_came_takes_nothing() {
        let inbox = Inbox::new();
        inbox.announce(token(1)).unwrap();
        inbox.announce(token(2)).unwrap();
        assert!(matches!(inbox.take(token(1), "a"), Err(FencedCellError::Fenced(_))));
        assert_eq!(inbox.take(token(2), "a"), Ok(Receipt::Taken));
        assert_eq!(inbox.take(token(2), "a"), Ok(Receipt::Duplicate));
        assert_eq!(inbox.read(|taken| (taken.order.len(), taken.stale)), Some((1, 0)));
    }
}
