//! A JVMTI agent that logs the addresses and names of code that HotSpot compiles. The agent runs inside JVMs of other
//! people. So it is freestanding (no libc, no allocator, no reachable panic), and never exits, blocks or prints.
//!
//! Every attach creates its own log, a sealed memfd that the profiler finds under `/proc/PID/fd` by the nonce of the
//! options. Callbacks write to each log that has a lease; without any lease, they return at once.
#![cfg_attr(feature = "freestanding", no_std)]
#![allow(unsafe_code)] // the JVM calls these functions; all code behind them is safe, except in files that allow it

pub mod agent;
pub mod allocations;
pub mod capabilities;
pub mod debug;
pub mod dict;
pub mod handles;
pub mod jvmti;
#[cfg(feature = "freestanding")]
mod mem;
pub mod method;
pub mod options;
pub mod scratch;
pub mod slot;
pub mod sys;

use core::ffi::{c_char, c_void};
use core::ptr::NonNull;

use agent::Agent;
use allocations::SampledObject;
use debug::Source;
use jvmti::{AddressLocation, AllocationCallbacks, Callbacks, MethodId, Vm};
use options::Options;

/// The path of this file. The build script of the profiler compiles it, also from a registry.
pub const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/src/lib.rs");

/// The panic handler calls a function that does not exist: a reachable panic becomes a linker error.
#[cfg(feature = "freestanding")]
#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    unsafe extern "C" {
        fn jvm_symbols_agent_can_panic() -> !;
    }
    // SAFETY: never linked.
    unsafe { jvm_symbols_agent_can_panic() }
}

/// Longest options string; HotSpot's attach protocol carries 1,024 bytes.
const MAX_OPTIONS: usize = 4096;

static AGENT: Agent = Agent::new();

/// The JVM calls this for `-agentpath`. Always returns 0, so that the program starts even if the agent fails.
///
/// # Safety
/// `vm` is a valid `JavaVM*`, `options` null or a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn Agent_OnLoad(vm: *mut c_void, options: *const c_char, _: *mut c_void) -> i32 {
    // SAFETY: the JVM guarantees it.
    unsafe {
        let options = Options::parse(jvmti::c_bytes(options, MAX_OPTIONS));
        AGENT.on_load(Vm::new(vm), &options, &callbacks());
    }
    0
}

/// The JVM calls this for each late attach. Always returns 0: after an error newer JVMs unmap the library, and a
/// running event would jump to an unmapped address (jvmtiAgent.cpp).
///
/// # Safety
/// `vm` is a valid `JavaVM*`, `options` null or a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn Agent_OnAttach(vm: *mut c_void, options: *const c_char, _: *mut c_void) -> i32 {
    // SAFETY: the JVM guarantees it.
    unsafe {
        let options = Options::parse(jvmti::c_bytes(options, MAX_OPTIONS));
        AGENT.on_attach(Vm::new(vm), &options, &callbacks(), &allocation_callbacks());
    }
    0
}

/// The agent's functions at their indices: `jvmtiEventCallbacks` begins with event 50.
fn callbacks() -> Callbacks {
    let mut callbacks = [None; 21];
    for (event, function) in [
        (jvmti::Event::Load, compiled as *const () as *mut c_void),
        (jvmti::Event::Unload, unloaded as *const () as *mut c_void),
        (jvmti::Event::Stub, generated as *const () as *mut c_void),
    ] {
        if let Some(place) = callbacks.get_mut((event as i32 as usize).wrapping_sub(50)) {
            *place = NonNull::new(function);
        }
    }
    callbacks
}

/// The function for samples of allocations: the last event of its environment's table.
fn allocation_callbacks() -> AllocationCallbacks {
    let mut callbacks: AllocationCallbacks = [None; 37];
    if let Some(place) = callbacks.last_mut() {
        *place = NonNull::new(allocated as *const () as *mut c_void);
    }
    callbacks
}

/// The callback `jvmtiEventCompiledMethodLoad` of the JVM TI specification.
unsafe extern "C" fn compiled(
    _: *mut c_void,
    method: MethodId,
    size: i32,
    start: *const c_void,
    map_length: i32,
    map: *const AddressLocation,
    info: *const c_void,
) {
    let size = u32::try_from(size).unwrap_or(0);
    // SAFETY: the JVM's arguments, used during this call only.
    let source = unsafe { Source::new(method, start as usize, size, (map, map_length), info) };
    AGENT.on_compiled(&source);
}

/// The callback `jvmtiEventCompiledMethodUnload` of the JVM TI specification.
unsafe extern "C" fn unloaded(_: *mut c_void, _: MethodId, start: *const c_void) {
    AGENT.on_unload(start as usize);
}

/// The callback `jvmtiEventDynamicCodeGenerated` of the JVM TI specification.
unsafe extern "C" fn generated(_: *mut c_void, name: *const c_char, start: *const c_void, size: i32) {
    // SAFETY: the JVM's string, used during this call only.
    let name = unsafe { jvmti::c_bytes(name, MAX_OPTIONS) };
    AGENT.on_stub(name, start as usize, u32::try_from(size).unwrap_or(0));
}

/// The callback `jvmtiEventSampledObjectAlloc` of the JVM TI specification. It calls the probed function last: then its own
/// frame is mostly gone there, and the stack goes on in `libjvm.so`.
unsafe extern "C" fn allocated(
    _: *mut c_void,
    _: *mut c_void,
    _: *mut c_void,
    _: *mut c_void,
    class: *mut c_void,
    size: i64,
) {
    let size = u64::try_from(size).unwrap_or(0);
    // SAFETY: the JVM's reference, valid during this call.
    let SampledObject { klass, bytes } = unsafe { sampled(class, size) };
    if bytes > 0 {
        jvm_symbols_agent_allocated(class, klass, bytes, size);
    }
}

/// What a sampled object stands for; 0 bytes if no profiler wants to know. Not inlined, and with a result in registers:
/// otherwise `allocated` would have variables on its stack, and could not end with a jump.
///
/// # Safety
/// `class` is a valid `jclass` of this thread.
#[inline(never)]
unsafe fn sampled(class: *mut c_void, size: u64) -> SampledObject {
    let Some(sampled) = AGENT.on_allocation(size) else { return SampledObject { klass: 0, bytes: 0 } };
    // SAFETY: the caller guarantees it.
    unsafe { AGENT.allocations.touch(class) };
    sampled
}

/// The place for the profiler's probe: a sampled object. `class`: the `jclass`. `klass`: where a `java.lang.Class` object has
/// the address of its class. `bytes`: how many bytes the object stands for. `size`: its own bytes.
#[unsafe(no_mangle)]
#[inline(never)]
pub extern "C" fn jvm_symbols_agent_allocated(class: *mut c_void, klass: u64, bytes: u64, size: u64) {
    core::hint::black_box((class, klass, bytes, size));
}
