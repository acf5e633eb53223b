//! `/proc/PID/cgroup`.

use jbpf_prof::process::cgroup::CgroupMembership;

pub(crate) fn run(data: &[u8]) {
    let found = CgroupMembership::parse(data);
    assert!(found.path().is_none_or(|path| path.is_absolute()));
    assert!(found.container().is_none_or(|id| id.len() == 64));
    assert!(found.pod().is_none_or(|uid| matches!(uid.len(), 32 | 36)));
}
