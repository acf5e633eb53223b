//! The JVM's pointers that the agent keeps.
#![allow(unsafe_code)]

use core::ffi::c_void;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, Ordering};

use crate::jvmti::{Env, Vm};

/// A `JavaVM*` and a `jvmtiEnv*`, set once and valid as long as the JVM.
#[derive(Debug)]
pub struct JvmHandles {
    vm: AtomicPtr<c_void>,
    env: AtomicPtr<c_void>,
}

impl JvmHandles {
    /// Both pointers null, until the first call of [`JvmHandles::set`].
    #[must_use]
    pub const fn new() -> JvmHandles {
        JvmHandles { vm: AtomicPtr::new(null_mut()), env: AtomicPtr::new(null_mut()) }
    }

    /// Stores both pointers, when the environment has its capabilities and callbacks.
    pub fn set(&self, vm: Vm, env: Env) {
        self.vm.store(vm.raw(), Ordering::Release);
        self.env.store(env.raw(), Ordering::Release);
    }

    /// The stored `JavaVM*`; `None` before [`JvmHandles::set`].
    #[must_use]
    pub fn vm(&self) -> Option<Vm> {
        // SAFETY: null or from a `Vm`.
        unsafe { Vm::new(self.vm.load(Ordering::Acquire)) }
    }

    /// The stored `jvmtiEnv*`; `None` before [`JvmHandles::set`].
    #[must_use]
    pub fn env(&self) -> Option<Env> {
        // SAFETY: null or from an `Env`.
        unsafe { Env::new(self.env.load(Ordering::Acquire)) }
    }
}

impl Default for JvmHandles {
    fn default() -> JvmHandles {
        JvmHandles::new()
    }
}
