//! The retry budget: nothing is spent twice, nothing paid in is lost.

use loom::sync::Arc;
use loom::thread::spawn;
use std::time::Duration;
use tenure::clock::ManualClock;
use tenure::retry::RetryBudget;

/// Holds two, is paid half a retry by each success, and `per_second` by time.
fn budget(per_second: u32, burst: u32) -> (ManualClock, Arc<RetryBudget<ManualClock>>) {
    let clock = ManualClock::new();
    let builder = RetryBudget::builder().ratio(0.5).per_second(per_second).burst(burst);
    let budget = builder.clock(clock.clone()).build().unwrap();
    (clock, Arc::new(budget))
}

crate::models! { "retry";
    /// Three want two retries: two get one each.
    withdraw_x_withdraw [bound: 3] {
        let (_, budget) = budget(0, 2);
        let callers: Vec<_> = (0..3)
            .map(|_| {
                let budget = Arc::clone(&budget);
                spawn(move || budget.withdraw())
            })
            .collect();
        let got = callers.into_iter().map(|caller| caller.join().unwrap());
        assert_eq!(got.filter(|got| *got).count(), 2);
        assert_eq!(budget.balance(), 0);
    }

    /// Two successes pay for one retry, whatever is withdrawn meanwhile.
    deposit_x_withdraw [bound: 3] {
        let (_, budget) = budget(0, 2);
        assert!(budget.withdraw() && budget.withdraw());
        let payers: Vec<_> = (0..2)
            .map(|_| {
                let budget = Arc::clone(&budget);
                spawn(move || budget.deposit())
            })
            .collect();
        let spender = {
            let budget = Arc::clone(&budget);
            spawn(move || budget.withdraw())
        };
        for payer in payers {
            payer.join().unwrap();
        }
        let spent = spender.join().unwrap();
        assert_eq!(budget.balance(), u32::from(!spent));
    }

    /// A deposit meets a full budget that is being drawn on: at most the deposit is forgone.
    deposit_x_full {
        let (_, budget) = budget(0, 2);
        let payer = {
            let budget = Arc::clone(&budget);
            spawn(move || budget.deposit())
        };
        let spender = {
            let budget = Arc::clone(&budget);
            spawn(move || budget.withdraw())
        };
        payer.join().unwrap();
        assert!(spender.join().unwrap());
        assert_eq!(budget.balance(), 1);
        budget.deposit();
        budget.deposit();
        assert_eq!(budget.balance(), 2);
    }

    /// Time pays for one retry while two want it: one gets it, or none that looked too early.
    advance_x_withdraw {
        let (clock, budget) = budget(1, 1);
        assert!(budget.withdraw());
        let mover = spawn(move || clock.advance(Duration::from_secs(1)));
        let callers: Vec<_> = (0..2)
            .map(|_| {
                let budget = Arc::clone(&budget);
                spawn(move || budget.withdraw())
            })
            .collect();
        mover.join().unwrap();
        let got: u32 = callers.into_iter().map(|c| u32::from(c.join().unwrap())).sum();
        assert!(got <= 1);
        assert_eq!(budget.balance(), 1 - got);
    }
}
