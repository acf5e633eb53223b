//! Samples of allocations for one profiler: the JVM chooses objects (JEP 331), and the profiler has a probe at the function
//! that the callback calls for each of them.
//!
//! Only one environment of a JVM can have the event, so only one log at a time: the log whose options asked for it first. A
//! callback that finds the lease of that log over disables the event and gives the capability back. No callback waits.
#![allow(unsafe_code)]

use core::ffi::c_void;
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use crate::capabilities::Capabilities;
use crate::jvmti::{AllocationCallbacks, Env, Event, Vm};

const OFF: u32 = 0;
const CHANGING: u32 = 1;
const ON: u32 = 2;

/// The JVM's own interval, bytes (threadHeapSampler.cpp), which later users of the event may rely on.
const DEFAULT_INTERVAL: i32 = 512 << 10;

/// The state of the event `SampledObjectAlloc`.
#[derive(Debug)]
pub struct Allocations {
    state: AtomicU32,
    /// A `jvmtiEnv*` of its own: the other one has the version of older JVMs. Created once.
    env: AtomicPtr<c_void>,
    /// The index of the log whose profiler wants the samples.
    log: AtomicUsize,
    interval: AtomicU64,
    klass: AtomicU64,
}

/// One sampled object, as the probe gets it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SampledObject {
    /// Where the class's mirror has the address of the class, bytes.
    pub klass: u64,
    /// Bytes of all objects that this one stands for.
    pub bytes: u64,
}

impl Allocations {
    /// The event is off.
    #[must_use]
    pub const fn new() -> Allocations {
        Allocations {
            state: AtomicU32::new(OFF),
            env: AtomicPtr::new(core::ptr::null_mut()),
            log: AtomicUsize::new(0),
            interval: AtomicU64::new(0),
            klass: AtomicU64::new(0),
        }
    }

    /// Enables the event for the log with this index, unless another log has it. Returns whether it is enabled.
    pub fn start(
        &self,
        vm: Vm,
        log: usize,
        (interval, klass): (u64, u64),
        callbacks: &AllocationCallbacks,
    ) -> bool {
        if !self.change(OFF) {
            return false;
        }
        self.log.store(log, Ordering::Relaxed);
        self.interval.store(interval, Ordering::Relaxed);
        self.klass.store(klass, Ordering::Relaxed);
        let enabled = self.environment(vm).is_some_and(|env| enable(env, interval, callbacks));
        self.state.store(if enabled { ON } else { OFF }, Ordering::Release);
        enabled
    }

    /// Disables the event, if it is enabled.
    pub fn stop(&self) {
        if !self.change(ON) {
            return;
        }
        if let Some(env) = self.env() {
            disable(env);
        }
        self.state.store(OFF, Ordering::Release);
    }

    /// The index of the log whose profiler wants the samples; `None` if the event is off.
    #[must_use]
    pub fn log(&self) -> Option<usize> {
        let is_on = self.state.load(Ordering::Acquire) == ON;
        is_on.then(|| self.log.load(Ordering::Relaxed))
    }

    /// What an object of `size` bytes stands for.
    #[must_use]
    pub fn sampled(&self, size: u64) -> SampledObject {
        SampledObject {
            klass: self.klass.load(Ordering::Relaxed),
            bytes: bytes_of_sample(size, self.interval.load(Ordering::Relaxed)),
        }
    }

    /// Makes the memory of a class's mirror present.
    ///
    /// # Safety
    /// `class` is a valid `jclass` of this thread.
    pub unsafe fn touch(&self, class: *mut c_void) {
        if let Some(env) = self.env() {
            // SAFETY: the caller guarantees it.
            unsafe { env.touch_class(class) };
        }
    }

    fn change(&self, from: u32) -> bool {
        self.state.compare_exchange(from, CHANGING, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    fn env(&self) -> Option<Env> {
        // SAFETY: null or from `environment`.
        unsafe { Env::new(self.env.load(Ordering::Acquire)) }
    }

    fn environment(&self, vm: Vm) -> Option<Env> {
        let env = self.env().or_else(|| vm.jvmti_11())?;
        self.env.store(env.raw(), Ordering::Release);
        Some(env)
    }
}

impl Default for Allocations {
    fn default() -> Allocations {
        Allocations::new()
    }
}

fn enable(env: Env, interval: u64, callbacks: &AllocationCallbacks) -> bool {
    if !env.add_capabilities(Capabilities::Allocations) {
        return false;
    }
    // SAFETY: the environment has the functions of JDK 11.
    let is_set = unsafe { env.set_heap_sampling_interval(i32::try_from(interval).unwrap_or(i32::MAX)) };
    let enabled = is_set && env.set_callbacks(callbacks) && env.enable(Event::Allocation);
    if !enabled {
        disable(env);
    }
    enabled
}

/// Leaves the JVM as it was.
fn disable(env: Env) {
    env.disable(Event::Allocation);
    // SAFETY: as in `enable`.
    let _ = unsafe { env.set_heap_sampling_interval(DEFAULT_INTERVAL) };
    env.relinquish_capabilities(Capabilities::Allocations);
}

/// How many bytes a sampled object of `size` bytes stands for. The distances of samples are exponential, so an object is
/// sampled with the probability p = 1 - e^(-size / interval), and stands for size / p bytes. (There is no libm.)
#[must_use]
pub fn bytes_of_sample(size: u64, interval: u64) -> u64 {
    /// From here on p is 1, as far as the result has digits.
    const CERTAIN: f64 = 32.0;
    /// e^(-x) is computed as (e^(-x / 64))^64.
    const SQUARES: u32 = 6;
    if size == 0 || interval == 0 {
        return size.max(interval);
    }
    let x = size as f64 / interval as f64;
    if x >= CERTAIN {
        return size;
    }
    let y = -x / f64::from(1u32 << SQUARES);
    let (mut power, mut term, mut n) = (1.0, 1.0, 1.0);
    while n < 12.0 {
        term *= y / n;
        power += term;
        n += 1.0;
    }
    for _ in 0..SQUARES {
        power *= power;
    }
    (size as f64 / (1.0 - power)) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_stands_for_its_size_by_its_probability() {
        const INTERVAL: u64 = 512 << 10;
        for size in [16_u64, 32, 4112, 100_016, INTERVAL, 3 * INTERVAL, 16 * INTERVAL, 31 * INTERVAL, 1 << 40]
        {
            let probability = -(-(size as f64) / INTERVAL as f64).exp_m1();
            let right = size as f64 / probability;
            let found = bytes_of_sample(size, INTERVAL) as f64;
            assert!((found / right - 1.0).abs() < 1e-5, "{size}: {found}, not {right}");
        }
        assert_eq!(bytes_of_sample(0, 4096), 4096);
        assert_eq!(bytes_of_sample(48, 0), 48);
        assert_eq!(bytes_of_sample(u64::MAX, 1), u64::MAX);
    }

    #[test]
    fn an_event_that_is_off_has_no_log() {
        let allocations = Allocations::new();
        assert_eq!(allocations.log(), None);
        allocations.stop();
        assert_eq!(allocations.log(), None);
    }
}
