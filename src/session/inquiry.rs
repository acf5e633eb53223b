//! What is asked of a JVM when it is met: what its stacks are walked by, and its names. In a thread of its own, since it
//! takes as long as the JVM likes, up to a deadline.

use std::sync::mpsc::Sender;

use super::{AgentRule, Java, Node, Refused, agent_rule};
use crate::jvm::{self, AttachOptions, Attached, Failed, Jvm, Opened, Refusal};
use crate::process::MonoNs;

/// A JVM, by its pid, and what it says of itself.
pub(super) type Described = (u32, jvm::Described);

/// How a JVM was met.
pub(super) enum Met {
    /// It was there before sampling began.
    Found(Jvm),
    /// It mapped `libjvm.so` during the run, at this time.
    Begun(MonoNs),
}

impl Met {
    pub(super) fn is_late(&self) -> bool {
        matches!(self, Met::Begun(_))
    }
}

/// What to ask, and of whom.
pub(super) struct Inquiry {
    pub(super) tgid: u32,
    pub(super) met: Met,
    pub(super) java: Java,
    /// To whom the agent is attached where names are read out of memory.
    pub(super) agent_for: Vec<AgentRule>,
    pub(super) node: Node,
    pub(super) refused: Refused,
    pub(super) options: AttachOptions,
}

/// What came of it.
pub(super) struct Answer {
    pub(super) jvm: Option<Jvm>,
    /// Why its stacks are walked by frame pointers alone.
    pub(super) undescribed: Option<Refusal>,
    /// Why it has no agent, although it was asked.
    pub(super) refused: Option<Refusal>,
    pub(super) names: Result<Got, Failed>,
}

/// Where names come from.
pub(super) enum Got {
    Log(Box<Attached>),
    Memory(Box<Opened>),
    Nothing,
}

impl Inquiry {
    /// Asks. What stacks are walked by is told as soon as it is known.
    pub(super) fn answer(self, described: &Sender<Described>) -> Answer {
        let Inquiry { tgid, met, java, agent_for, node, refused, options } = self;
        let late = met.is_late();
        let jvm = match met {
            Met::Found(jvm) => Some(jvm),
            Met::Begun(at) => jvm::find(tgid).map(|jvm| jvm.mapped_at(at)),
        };
        let Some(jvm) = jvm else {
            let names = Err(Failed { refusal: Refusal::Exited, inspection: None });
            return Answer { jvm: None, undescribed: Some(Refusal::Exited), refused: None, names };
        };
        // Nobody listens any more when the session is over.
        let tell = |it| described.send((tgid, it)).unwrap_or_default();
        let describe = || jvm::describe(&jvm, &options).map(tell).err();
        // What opens its memory describes it too, but waits for a JVM that has just begun.
        let first = late.then(describe);
        let before = refused.why(&jvm);
        let is_allowed = || agent_for.iter().any(|rule| agent_rule::allows(rule, tgid, &node));
        let attaches = attaches(java, before.is_some(), is_allowed);
        let opens = java == Java::Vm && !attaches;
        let first = first.or_else(|| (!opens).then(describe));
        let open = |refused| match jvm::open(&jvm, &options) {
            Ok(opened) => {
                let again = opened.described().map(tell).err();
                (Some(again), refused, Ok(Got::Memory(Box::new(opened))))
            }
            Err(failed) => (None, refused, Err(failed)),
        };
        let (again, refused, names) = match attaches.then(|| attach(&jvm, before, &refused, &options)) {
            Some(Err(failed)) if java == Java::Vm && failed.refusal != Refusal::Interrupted => {
                open(Some(failed.refusal))
            }
            Some(attached) => (None, None, attached.map(Got::Log)),
            None if java == Java::Off => (None, None, Ok(Got::Nothing)),
            None => open(None),
        };
        // One that has just begun makes more of its stubs while it starts.
        let again = again.or_else(|| (late || first.is_none()).then(describe));
        let undescribed = [first, again].into_iter().flatten().reduce(Option::and).flatten();
        Answer { jvm: Some(jvm), undescribed, refused, names }
    }
}

/// Whether the agent is asked for; `is_allowed`: by a rule, although it is not the rule.
fn attaches(java: Java, has_refused: bool, is_allowed: impl FnOnce() -> bool) -> bool {
    match java {
        Java::Agent => true,
        Java::Vm => !has_refused && is_allowed(),
        Java::Off => false,
    }
}

/// Attaches the agent, unless the JVM has refused that before.
fn attach(
    jvm: &Jvm,
    before: Option<Refusal>,
    refused: &Refused,
    options: &AttachOptions,
) -> Result<Box<Attached>, Failed> {
    if let Some(refusal) = before {
        return Err(Failed { refusal, inspection: None });
    }
    let attached = jvm::attach(jvm, options).map(Box::new);
    attached.inspect_err(|failed| refused.note(jvm, &failed.refusal))
}

#[cfg(test)]
mod tests {
    use super::{Java, attaches};

    #[test]
    fn rules_are_for_where_memory_is_read() {
        for (java, has_refused, is_allowed, asked) in [
            (Java::Agent, false, false, true),
            (Java::Vm, false, true, true),
            (Java::Vm, false, false, false),
            (Java::Vm, true, true, false),
            (Java::Off, false, true, false),
        ] {
            assert_eq!(
                attaches(java, has_refused, || is_allowed),
                asked,
                "{java:?} {has_refused} {is_allowed}"
            );
        }
    }
}
