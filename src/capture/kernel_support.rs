//! What this kernel has for programs that come in several kinds.

use std::path::PathBuf;

use anyhow::Context;
use libbpf_rs::btf::Btf;
use libbpf_rs::btf::types::{Enum, EnumMember, FuncProto, Ptr, Struct, StructMember, Typedef};

use super::wait_source::SwitchHook;
use crate::sample::Event;

/// What this kernel has for the events of a run.
#[derive(Clone, Debug, Default)]
pub(super) struct KernelSupport {
    /// BPF has atomic operations that return the old value. `false` if no event needs to know.
    pub(super) atomics: bool,
    /// `None` unless waits are sampled.
    pub(super) switches: Option<AvailableSwitches>,
}

/// What this kernel has for waits.
#[derive(Clone, Debug)]
pub(super) struct AvailableSwitches {
    pub(super) hook: SwitchHook,
    /// `sched_switch` has the thread's state as an argument.
    pub(super) state: bool,
    /// The queue into which a wakeup puts a thread may be throttled.
    pub(super) throttled_queues: bool,
}

impl KernelSupport {
    /// Finds what this kernel has, by its symbols and its types (`btf`: a file of them).
    pub(super) fn of(events: &[Event], btf: Option<&PathBuf>) -> anyhow::Result<KernelSupport> {
        let waits = events.contains(&Event::Wait);
        if !waits && !events.contains(&Event::Rss) {
            return Ok(KernelSupport::default());
        }
        let types = btf.map_or_else(Btf::from_vmlinux, Btf::from_path).context("the kernel's types")?;
        let switches = || -> anyhow::Result<AvailableSwitches> {
            let (hook, state) = (SwitchHook::find()?, switch_has_state(&types));
            Ok(AvailableSwitches { hook, state, throttled_queues: !throttles_tasks(&types) })
        };
        let switches = if waits { Some(switches()?) } else { None };
        Ok(KernelSupport { atomics: has_atomics(&types), switches })
    }
}

/// Whether `sched_switch` has the state of the thread as its last argument (Linux 5.18 and backports).
fn switch_has_state(btf: &Btf<'_>) -> bool {
    let signature = || {
        let name: Typedef<'_> = btf.type_by_name("btf_trace_sched_switch")?;
        let pointer = Ptr::try_from(name.next_type()?).ok()?;
        FuncProto::try_from(pointer.next_type()?).ok()
    };
    // The probe's own data, preempt, prev, next, and the state.
    signature().is_some_and(|function| function.len() >= 5)
}

/// Whether the scheduler throttles tasks on their way to user mode (Linux 6.18 and later), and not whole queues.
fn throttles_tasks(btf: &Btf<'_>) -> bool {
    let task: Option<Struct<'_>> = btf.type_by_name("task_struct");
    let name = |member: StructMember<'_>| member.name.is_some_and(|name| name == "throttled");
    task.is_some_and(|task| task.iter().any(name))
}

/// Whether BPF programs have atomic operations that return the old value: from 5.18 on, which has this helper too.
fn has_atomics(btf: &Btf<'_>) -> bool {
    let helpers: Option<Enum<'_>> = btf.type_by_name("bpf_func_id");
    let name = |value: EnumMember<'_>| value.name.is_some_and(|name| name == "BPF_FUNC_copy_from_user_task");
    helpers.is_some_and(|helpers| helpers.iter().any(name))
}
