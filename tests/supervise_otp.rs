//! Supervisors against what OTP's documentation says of its own (`supervisor`, "Supervisor Behaviour" in the
//! design principles): a table of scenarios, each run against a real tree.
//!
//! A scenario is a line of children, and steps. A child is `name:type`: `p`ermanent, `t`ransient, temporary
//! (`x`); `*` makes it significant; `s` before the type makes it a supervisor, whose end is a shutdown. A step
//! is what happens, what is seen of it, and how all stand then.
//!
//! | event | what happens |
//! |---|---|
//! | `a!` | `a` fails |
//! | `a.` | `a` comes to a normal end |
//! | `a~` | `a` (a supervisor) shuts down by itself |
//! | `@3` | three seconds pass |
//!
//! Seen is, in order: `+a` when `a` starts, `-a` when it is told to stop. Then each child that is in the list
//! stands with the number of its incarnation, and a `-` if it is down; or the supervisor's exit.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tenure::clock::ManualClock;
use tenure::runtime::Runtime;
use tenure::supervise::{
    Actor, Address, AutoShutdown, ChildSpec, ChildState, Ctx, Exit, Handled, Restart, Strategy,
    Supervisor,
};

use AutoShutdown::{AllSignificant, AnySignificant, Never};
use Strategy::{Dynamic, OneForAll, OneForOne, RestForOne};

const LONG: Duration = Duration::from_secs(30);

type Step = (&'static str, &'static str, &'static str);

struct Scenario {
    says: &'static str,
    strategy: Strategy,
    auto: AutoShutdown,
    intensity: (u32, u64),
    children: &'static str,
    steps: &'static [Step],
}

const fn plain(
    says: &'static str,
    strategy: Strategy,
    children: &'static str,
    steps: &'static [Step],
) -> Scenario {
    Scenario { says, strategy, auto: Never, intensity: (10, 5), children, steps }
}

const fn intense(
    says: &'static str,
    strategy: Strategy,
    intensity: (u32, u64),
    children: &'static str,
    steps: &'static [Step],
) -> Scenario {
    Scenario { says, strategy, auto: Never, intensity, children, steps }
}

const fn auto(
    says: &'static str,
    strategy: Strategy,
    auto: AutoShutdown,
    children: &'static str,
    steps: &'static [Step],
) -> Scenario {
    Scenario { says, strategy, auto, intensity: (10, 5), children, steps }
}

const TABLE: &[Scenario] = &[
    // --- restart types: "a permanent child process is always restarted" ...
    plain(
        "a permanent child is restarted after each kind of end",
        OneForOne,
        "a:p b:p c:sp",
        &[("b!", "+b", "a1 b2 c1"), ("b.", "+b", "a1 b3 c1"), ("c~", "+c", "a1 b3 c2")],
    ),
    // ... "a transient child process is restarted only if it terminates abnormally, that is, with an exit reason
    // other than normal, shutdown, or {shutdown,Term}" ...
    plain(
        "a transient child only after an abnormal one",
        OneForOne,
        "a:t b:t c:st",
        &[
            ("a!", "+a", "a2 b1 c1"),
            ("b.", "", "a2 b1- c1"),
            ("c~", "", "a2 b1- c1-"),
            ("a.", "", "a2- b1- c1-"),
        ],
    ),
    // ... "a temporary child process is never restarted (even when the supervisor's restart strategy is
    // rest_for_one or one_for_all and a sibling's death causes the temporary process to be terminated)".
    plain(
        "a temporary child never, and it leaves the list",
        OneForOne,
        "a:x b:x c:sx d:p",
        &[("a!", "", "b1 c1 d1"), ("b.", "", "c1 d1"), ("c~", "", "d1"), ("d!", "+d", "d2")],
    ),
    plain(
        "a temporary sibling that is taken down is not restarted",
        OneForAll,
        "a:x b:p c:x",
        &[("b!", "-c -a +b", "b2")],
    ),
    plain(
        "the same behind the one that failed",
        RestForOne,
        "a:x b:p c:x d:p",
        &[("b!", "-d -c +b +d", "a1 b2 d2")],
    ),
    // --- strategies
    plain(
        "one for one: only that process is restarted",
        OneForOne,
        "a:p b:p c:p",
        &[("b!", "+b", "a1 b2 c1"), ("a!", "+a", "a2 b2 c1"), ("c!", "+c", "a2 b2 c2")],
    ),
    plain(
        "one for all: all others are terminated, then all restarted",
        OneForAll,
        "a:p b:p c:p",
        &[
            ("b!", "-c -a +a +b +c", "a2 b2 c2"),
            ("a!", "-c -b +a +b +c", "a3 b3 c3"),
            ("c!", "-b -a +a +b +c", "a4 b4 c4"),
        ],
    ),
    plain(
        "rest for one: those after it in start order",
        RestForOne,
        "a:p b:p c:p",
        &[
            ("b!", "-c +b +c", "a1 b2 c2"),
            ("a!", "-c -b +a +b +c", "a2 b3 c3"),
            ("c!", "+c", "a2 b3 c4"),
        ],
    ),
    plain(
        "an end that causes no restart takes nobody along",
        OneForAll,
        "a:t b:p c:x",
        &[("a.", "", "a1- b1 c1"), ("c!", "", "a1- b1")],
    ),
    plain(
        "one for all restarts a transient child that had finished, too",
        OneForAll,
        "a:t b:p",
        &[("a.", "", "a1- b1"), ("b!", "+a +b", "a2 b2")],
    ),
    plain(
        "rest for one restarts a finished one behind, and none before",
        RestForOne,
        "a:t b:p c:t",
        &[("a.", "", "a1- b1 c1"), ("c.", "", "a1- b1 c1-"), ("b!", "+b +c", "a1- b2 c2")],
    ),
    plain(
        "a supervisor among the others is stopped and started like them",
        OneForAll,
        "a:p b:sp c:p",
        &[("a!", "-c -b +a +b +c", "a2 b2 c2"), ("b~", "-c -a +a +b +c", "a3 b3 c3")],
    ),
    plain(
        "dynamic children are restarted by themselves",
        Dynamic,
        "a:p b:t c:x",
        &[
            ("b!", "+b", "a1 b2 c1"),
            ("c!", "", "a1 b2"),
            ("b.", "", "a1 b2-"),
            ("a.", "+a", "a2 b2-"),
        ],
    ),
    // --- intensity: "if more than MaxR number of restarts occur in the last MaxT seconds, the supervisor
    // terminates all the child processes and then itself. The termination reason for the supervisor itself in
    // that case will be shutdown."
    intense(
        "one restart is allowed, the second within the period is one too many",
        OneForOne,
        (1, 5),
        "a:p b:p c:p",
        &[("b!", "+b", "a1 b2 c1"), ("b!", "-c -a", "shutdown: too many restarts")],
    ),
    intense(
        "the limit is the supervisor's, not the child's",
        OneForOne,
        (1, 5),
        "a:p b:p c:p",
        &[("a!", "+a", "a2 b1 c1"), ("c!", "-b -a", "shutdown: too many restarts")],
    ),
    intense(
        "normal ends of permanent children count",
        OneForOne,
        (1, 5),
        "a:p",
        &[("a.", "+a", "a2"), ("a.", "", "shutdown: too many restarts")],
    ),
    intense(
        "ends that cause no restart do not count",
        OneForOne,
        (1, 5),
        "a:x b:x c:t d:p",
        &[
            ("a!", "", "b1 c1 d1"),
            ("b!", "", "c1 d1"),
            ("c.", "", "c1- d1"),
            ("d!", "+d", "c1- d2"),
        ],
    ),
    intense(
        "one failure counts once, however many are restarted",
        OneForAll,
        (1, 5),
        "a:p b:p c:p",
        &[("a!", "-c -b +a +b +c", "a2 b2 c2"), ("b!", "-c -a", "shutdown: too many restarts")],
    ),
    intense(
        "the same for the rest",
        RestForOne,
        (1, 5),
        "a:p b:p c:p",
        &[("b!", "-c +b +c", "a1 b2 c2"), ("b!", "-c -a", "shutdown: too many restarts")],
    ),
    intense(
        "none at all",
        OneForOne,
        (0, 5),
        "a:p b:p",
        &[("a!", "-b", "shutdown: too many restarts")],
    ),
    intense(
        "what lies further back is forgotten",
        OneForOne,
        (1, 5),
        "a:p",
        &[
            ("a!", "+a", "a2"),
            ("@6", "", "a2"),
            ("a!", "+a", "a3"),
            ("@6", "", "a3"),
            ("a!", "+a", "a4"),
        ],
    ),
    intense(
        "the window slides: quiet time before does not reset it",
        OneForOne,
        (2, 5),
        "a:p",
        &[
            ("a!", "+a", "a2"),
            ("@4", "", "a2"),
            ("a!", "+a", "a3"),
            ("@2", "", "a3"),
            ("a!", "+a", "a4"),
            ("@2", "", "a4"),
            ("a!", "", "shutdown: too many restarts"),
        ],
    ),
    // --- auto shutdown
    auto(
        "any significant: as soon as one terminates",
        OneForOne,
        AnySignificant,
        "a:p b:t* c:t*",
        &[("b.", "-c -a", "shutdown: its significant children have ended")],
    ),
    auto(
        "a significant child that is restarted has not terminated",
        OneForOne,
        AnySignificant,
        "a:p b:t* c:t*",
        &[("b!", "+b", "a1 b2 c1"), ("c!", "+c", "a1 b2 c2")],
    ),
    auto(
        "a temporary one counts after any end",
        OneForOne,
        AnySignificant,
        "a:p b:x*",
        &[("b!", "-a", "shutdown: its significant children have ended")],
    ),
    auto(
        "children that are not significant do not count",
        OneForOne,
        AnySignificant,
        "a:x b:t c:x*",
        &[
            ("a!", "", "b1 c1"),
            ("b.", "", "b1- c1"),
            ("c.", "", "shutdown: its significant children have ended"),
        ],
    ),
    auto(
        "all significant: when the last of them does",
        OneForOne,
        AllSignificant,
        "a:p b:t* c:x* d:t*",
        &[
            ("b.", "", "a1 b1- c1 d1"),
            ("d!", "+d", "a1 b1- c1 d2"),
            ("c!", "", "a1 b1- d2"),
            ("d.", "-a", "shutdown: its significant children have ended"),
        ],
    ),
    auto(
        "a significant supervisor that shuts down",
        OneForOne,
        AnySignificant,
        "a:p b:st*",
        &[("b~", "-a", "shutdown: its significant children have ended")],
    ),
    auto(
        "one that the supervisor itself terminates does not count",
        RestForOne,
        AnySignificant,
        "a:p b:x* c:t*",
        &[
            ("a!", "-c -b +a +c", "a2 c2"),
            ("c.", "-a", "shutdown: its significant children have ended"),
        ],
    ),
    auto(
        "a significant one is restarted as often as others",
        OneForOne,
        AnySignificant,
        "a:t*",
        &[("a!", "+a", "a2"), ("@9", "", "a2"), ("a!", "+a", "a3")],
    ),
];

#[derive(Clone, Copy)]
enum How {
    Fails,
    Ends,
}

/// A child that says when it starts, and when it is told to stop.
struct Probe {
    name: String,
    log: Arc<Mutex<Vec<String>>>,
}

impl Actor for Probe {
    type Message = How;

    fn started(&mut self, _: &mut Ctx<How>) -> Handled {
        self.log.lock().unwrap().push(format!("+{}", self.name));
        Ok(())
    }

    fn handle(&mut self, how: How, ctx: &mut Ctx<How>) -> Handled {
        match how {
            How::Fails => Err("told to fail".into()),
            How::Ends => {
                ctx.stop();
                Ok(())
            }
        }
    }

    fn stopped(&mut self, exit: &Exit) {
        if matches!(exit, Exit::Shutdown(_)) {
            self.log.lock().unwrap().push(format!("-{}", self.name));
        }
    }
}

fn standing(tree: &Supervisor) -> String {
    if let Some(down) = tree.down() {
        return down.exit.to_string();
    }
    let children = tree.snapshot().children;
    let each = children.iter().map(|child| match child.state {
        ChildState::Up => format!("{}{}", child.name, child.incarnation),
        ChildState::Down => format!("{}{}-", child.name, child.incarnation),
        other => format!("{}{}({other})", child.name, child.incarnation),
    });
    each.collect::<Vec<_>>().join(" ")
}

fn run(scenario: &Scenario) -> Result<(), String> {
    let clock = ManualClock::new();
    let runtime = Runtime::builder().workers(2).clock(clock.clone()).build().unwrap();
    let log = Arc::new(Mutex::new(Vec::new()));
    let (restarts, seconds) = scenario.intensity;
    let mut builder = Supervisor::builder("tree")
        .strategy(scenario.strategy)
        .auto_shutdown(scenario.auto)
        .intensity(restarts, Duration::from_secs(seconds));
    let mut addresses = Vec::new();
    for child in scenario.children.split(' ') {
        let (name, kind) = child.split_once(':').unwrap();
        let address = Address::new();
        let probe = {
            let (name, log) = (name.to_owned(), Arc::clone(&log));
            move || Probe { name: name.clone(), log: Arc::clone(&log) }
        };
        let actor = ChildSpec::actor(name, probe).at(&address);
        let mut spec: ChildSpec = if kind.contains('s') {
            let inner = actor.restart(Restart::Transient).significant();
            let inner = Supervisor::builder(name).auto_shutdown(AnySignificant).child(inner);
            ChildSpec::supervisor(inner)
        } else {
            actor.into()
        };
        spec = spec.restart(match kind.trim_matches(['s', '*']) {
            "p" => Restart::Permanent,
            "t" => Restart::Transient,
            "x" => Restart::Temporary,
            other => panic!("what is {other}?"),
        });
        if kind.contains('*') {
            spec = spec.significant();
        }
        addresses.push((name, address));
        builder = builder.child(spec);
    }
    let tree = builder.start(&runtime).map_err(|error| error.to_string())?;
    let started: Vec<_> = addresses.iter().map(|(name, _)| format!("+{name}")).collect();
    if *log.lock().unwrap() != started {
        return Err(format!("started as {:?}", log.lock().unwrap()));
    }
    log.lock().unwrap().clear();
    for (event, seen, stands) in scenario.steps {
        if let Some(seconds) = event.strip_prefix('@') {
            clock.advance(Duration::from_secs(seconds.parse().unwrap()));
        } else {
            let (name, how) = event.split_at(1);
            let (_, address) = addresses.iter().find(|(its, _)| *its == name).unwrap();
            let how = if how == "!" { How::Fails } else { How::Ends };
            address.try_tell(how).map_err(|refused| format!("{event}: {refused}"))?;
        }
        let began = Instant::now();
        while standing(&tree) != *stands {
            if began.elapsed() > LONG {
                return Err(format!("{event}: stands {:?}, not {stands:?}", standing(&tree)));
            }
            std::thread::yield_now();
        }
        let happened = core::mem::take(&mut *log.lock().unwrap()).join(" ");
        if happened != *seen {
            return Err(format!("{event}: saw {happened:?}, not {seen:?}"));
        }
    }
    // What is up at the end is stopped in reverse order (dynamic children in any).
    if tree.down().is_none() {
        let up = tree.snapshot().children;
        let up = up.iter().filter(|child| child.state == ChildState::Up);
        let mut expected: Vec<_> = up.rev().map(|child| format!("-{}", child.name)).collect();
        let down = tree.shutdown(LONG).ok_or("does not stop")?;
        if !matches!(down.exit, Exit::Normal) {
            return Err(format!("stopped with {}", down.exit));
        }
        let mut stopped = core::mem::take(&mut *log.lock().unwrap());
        if scenario.strategy == Dynamic {
            expected.sort();
            stopped.sort();
        }
        if stopped != expected {
            return Err(format!("stopped as {stopped:?}, not {expected:?}"));
        }
    }
    Ok(())
}

#[test]
fn as_otp_documents_it() {
    let mut wrong = Vec::new();
    for scenario in TABLE {
        if let Err(error) = run(scenario) {
            wrong.push(format!("{:?}: {}: {error}", scenario.strategy, scenario.says));
        }
    }
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), TABLE.len(), wrong.join("\n"));
}
