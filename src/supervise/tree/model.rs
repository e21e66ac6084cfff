//! A supervisor whose one child is the model's.

use std::sync::Arc;

use super::Builder;
use super::kinds::{ChildKind, Kind, Reporter, Run, Site};
use super::spec::{AnyChild, ChildSpec, Shutdown};
use super::supervisor::{self, Chief};
use crate::supervise::actor::Exit;
use crate::supervise::actor::core::Order;
use crate::supervise::model::{Puppet, nowhere, strings};

#[derive(Clone)]
pub(crate) struct Strings(Reporter);

impl Strings {
    pub(crate) fn ready(&self) {
        self.0.ready();
    }

    pub(crate) fn end(&self, fails: bool) {
        self.0.exited(if fails { Exit::failed("told to") } else { Exit::Normal }, 0);
    }
}

struct Child(Arc<dyn Puppet>);

struct Running(Arc<dyn Puppet>, u64);

impl Run for Running {
    fn stop(&self, _: Order) {
        self.0.stop(self.1);
    }
}

impl Kind for Child {
    fn kind(&self) -> ChildKind {
        ChildKind::Actor
    }

    fn start(&self, _: Site, reporter: Reporter) -> Result<Arc<dyn Run>, Exit> {
        let incarnation = reporter.incarnation;
        self.0.start(incarnation, strings(Strings(reporter)));
        Ok(Arc::new(Running(Arc::clone(&self.0), incarnation)))
    }
}

pub(crate) fn chief(puppet: Arc<dyn Puppet>) -> Chief {
    let kind = AnyChild(Arc::new(Child(puppet)));
    let child = ChildSpec::of("child", Shutdown::Infinity, kind);
    let builder =
        Builder::new("model").intensity(2, core::time::Duration::MAX).seed(1).child(child);
    let name = builder.name();
    let site = Site { runtime: nowhere(), path: Arc::clone(&name), name, on_fault: None };
    supervisor::chief(&builder, site, Box::new(|_| ())).0
}
