//! An attempt's turn: what it may know about itself, and how it shows that it is alive.

use tenure::lease::FencingToken;
use tenure::runtime::JobCtx;

use crate::failure::Failure;
use crate::run::Run;

/// One attempt's view of the runtime.
#[derive(Debug)]
pub(crate) struct Turn<'a> {
    ctx: &'a JobCtx,
    run: &'a Run,
}

impl<'a> Turn<'a> {
    /// The turn of the attempt that `ctx` was given to.
    pub(crate) fn new(ctx: &'a JobCtx, run: &'a Run) -> Self {
        Self { ctx, run }
    }

    /// Which attempt this is, from 1.
    pub(crate) fn number(&self) -> u32 {
        self.ctx.attempt()
    }

    /// Greater than the tokens of all earlier attempts.
    pub(crate) fn token(&self) -> FencingToken {
        self.ctx.token()
    }

    /// Whether the lease is this attempt's at this moment.
    pub(crate) fn is_current(&self) -> bool {
        self.ctx.is_current()
    }

    /// Shows that the attempt gets on, and asks whether it should.
    pub(crate) fn beat(&self) -> Result<(), Failure> {
        if self.run.is_stopping() {
            return Err(Failure::Cancelled);
        }
        self.ctx.heartbeat().map_err(|_| Failure::Fenced)
    }
}
