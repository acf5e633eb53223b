//! Which JVMs may get the agent where the default is to read names from memory.

use std::os::fd::AsFd as _;

use crate::plan::AgentRule;
use crate::process::TimedCalls;
use crate::process::cgroup::CgroupMembership;
use crate::process::container::{Container, Node};
use crate::process::hierarchies::Hierarchies;
use crate::process::process_dir::ProcessDir;
use crate::process::procfs::{self, MAX_ARGUMENTS};
use crate::process::timed_calls::CALL_TIMEOUT;

/// Whether a rule applies to a process. No rule applies to a process that cannot be read in time.
pub(super) fn allows(rule: &AgentRule, tgid: u32, node: &Node) -> bool {
    match rule {
        AgentRule::Env(name, value) => {
            let environ = TimedCalls::new(CALL_TIMEOUT).run(tgid, move || environment_of(tgid));
            has_variable(&environ.ok().flatten().unwrap_or_default(), name, value)
        }
        AgentRule::Cgroup(like) => {
            let Ok(of) = CgroupMembership::of(tgid) else { return false };
            of.path().and_then(|path| path.to_str()).is_some_and(|path| like.matches(path))
        }
        AgentRule::Pod(like) => {
            let of = container(tgid, node).filter(|of| !of.pod.is_empty());
            of.is_some_and(|of| like.matches(&format!("{}/{}", of.namespace, of.pod)))
        }
        AgentRule::OptedIn(pods) => {
            let of = container(tgid, node).filter(|of| !of.pod_uid.is_empty());
            of.is_some_and(|of| pods.opts_in(&of.pod_uid))
        }
    }
}

fn container(tgid: u32, node: &Node) -> Option<Container> {
    let hierarchies = Hierarchies::mounted();
    let group = hierarchies.group_of(hierarchies.naming(), tgid)?;
    node.names().container(&group.dir)
}

fn environment_of(tgid: u32) -> Option<Vec<u8>> {
    let thread = ProcessDir::open(tgid).ok()?.live_thread().ok()?;
    procfs::read_start(thread.dir.as_fd(), "environ", MAX_ARGUMENTS).ok()
}

fn has_variable(environment: &[u8], name: &str, value: &str) -> bool {
    environment.split(|&b| b == 0).any(|variable| {
        let mut parts = variable.splitn(2, |&b| b == b'=');
        parts.next() == Some(name.as_bytes()) && parts.next() == Some(value.as_bytes())
    })
}

#[cfg(test)]
mod tests {
    use super::{AgentRule, Node, allows, has_variable};
    use crate::profile::filter::Glob;

    #[test]
    fn a_variable_has_its_whole_name_and_its_whole_value() {
        let environment = b"PATH=/bin\0JBPF_PROF_AGENT=1\0EMPTY=\0ODD";
        assert!(has_variable(environment, "JBPF_PROF_AGENT", "1") && has_variable(environment, "EMPTY", ""));
        for (name, value) in [("PROF_AGENT", "1"), ("JBPF_PROF_AGENT", ""), ("ODD", ""), ("PATH", "/")] {
            assert!(!has_variable(environment, name, value), "{name}={value}");
        }
    }

    #[test]
    fn exited_processes_belong_to_no_container() {
        let node = Node::at("/nowhere");
        assert!(!allows(&AgentRule::Env("A".into(), "1".into()), 0, &node));
        assert!(!allows(&AgentRule::Pod(Glob::new("*")), 0, &node));
    }
}
