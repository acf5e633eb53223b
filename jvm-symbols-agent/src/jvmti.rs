//! The JVM's functions, called through numbered slots.
//!
//! Slots and layouts are those of the JVM TI specification ("Function Table") and of the JNI specification ("Interface
//! Function Table"). They never change; new functions are only appended. `tests/end_to_end/agent` runs them on real
//! JVMs. Except the environments, no pointer of the JVM is kept beyond the call that gave it.
#![allow(unsafe_code)]

use core::ffi::{c_char, c_void};
use core::ptr::{NonNull, null, null_mut};

use crate::capabilities::Capabilities;

/// `jmethodID`: a key; during its event also an argument.
pub type MethodId = usize;
/// `jint jvmtiError`; 0 is success.
pub type Error = i32;

/// JVM TI 1.2, which JDK 6 to 26 support.
const JVMTI_VERSION: i32 = 0x3001_0200;
/// JVM TI of JDK 11, the first one with samples of allocations.
const JVMTI_VERSION_11: i32 = 0x300b_0000;
const JNI_VERSION_1_6: i32 = 0x0001_0006;

/// Numbers of JVM TI functions, counted from 1.
mod slot {
    pub(super) const SET_EVENT_NOTIFICATION_MODE: usize = 2;
    pub(super) const DEALLOCATE: usize = 47;
    pub(super) const GET_CLASS_SIGNATURE: usize = 48;
    pub(super) const GET_SOURCE_FILE_NAME: usize = 50;
    pub(super) const IS_ARRAY_CLASS: usize = 56;
    pub(super) const GET_METHOD_NAME: usize = 64;
    pub(super) const GET_METHOD_DECLARING_CLASS: usize = 65;
    pub(super) const GET_LINE_NUMBER_TABLE: usize = 70;
    pub(super) const SET_EVENT_CALLBACKS: usize = 122;
    pub(super) const GENERATE_EVENTS: usize = 123;
    pub(super) const ADD_CAPABILITIES: usize = 142;
    pub(super) const RELINQUISH_CAPABILITIES: usize = 143;
    /// The last function of JDK 11 to 25, which earlier JVMs do not have.
    pub(super) const SET_HEAP_SAMPLING_INTERVAL: usize = 156;
}

/// Indices of JNI functions, counted from 0.
mod jni_index {
    /// In the invocation interface.
    pub(super) const GET_ENV: usize = 6;
    /// In the native interface.
    pub(super) const DELETE_LOCAL_REF: usize = 23;
}

/// The events that the agent enables, with their numbers in `jvmtiEvent`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum Event {
    /// `CompiledMethodLoad`: HotSpot installed the code of a method.
    Load = 68,
    /// `CompiledMethodUnload`: HotSpot removed the code of a method.
    Unload = 69,
    /// `DynamicCodeGenerated`: HotSpot generated code that belongs to no method.
    Stub = 70,
    /// `SampledObjectAlloc`: a thread allocated the object that the JVM's sampler chose (JDK 11 and later).
    Allocation = 86,
}

/// `jvmtiAddrLocationMap`: the bytecode index of an address in compiled code.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct AddressLocation {
    /// An address in the code.
    pub address: usize,
    /// Bytecode index in the compiled method itself.
    pub location: i64,
}

/// `PCStackInfo` of jvmticmlr.h: a debug record and its inline chain.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct PcStack {
    /// Address of the debug record.
    pub pc: usize,
    /// Length of the two arrays.
    pub frames: i32,
    /// Array of `frames` methods, the innermost first.
    pub methods: *const MethodId,
    /// Array of `frames` bytecode indices, in the order of `methods`.
    pub bcis: *const i32,
}

/// `jvmtiCompiledMethodLoadRecordHeader` and what follows it in a record of kind 2.
#[derive(Debug)]
#[repr(C)]
pub struct InlineRecord {
    /// 2: inline information; other kinds end before `pc_count`.
    pub kind: i32,
    /// Version 1 is known.
    pub major: i32,
    /// Minor version, which the agent does not check.
    pub minor: i32,
    /// The next record of the list; null at its end.
    pub next: *const InlineRecord,
    /// Length of the array.
    pub pc_count: i32,
    /// In ascending order of pc.
    pub pcs: *const PcStack,
}

/// `jvmtiLineNumberEntry`: the first bytecode index of a source line, and the line.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
struct LineNumber {
    start: i64,
    line: i32,
}

/// Pointers of `jvmtiEventCallbacks` from event 50 to `DynamicCodeGenerated`, event 70.
pub type Callbacks = [Option<NonNull<c_void>>; 21];
/// Pointers of `jvmtiEventCallbacks` from event 50 to `SampledObjectAlloc`, event 86.
pub type AllocationCallbacks = [Option<NonNull<c_void>>; 37];

/// The functions of an interface: a pointer to a table of pointers.
type Table = *const *const c_void;

/// A `JavaVM*` that is not null and stays valid.
#[derive(Clone, Copy, Debug)]
pub struct Vm(NonNull<Table>);

impl Vm {
    /// Checks the JVM's pointer.
    ///
    /// # Safety
    /// `raw` is null or a `JavaVM*` that stays valid.
    #[must_use]
    pub unsafe fn new(raw: *mut c_void) -> Option<Vm> {
        NonNull::new(raw.cast()).map(Vm)
    }

    /// The `JavaVM*` itself, the first argument of its functions.
    #[must_use]
    pub fn raw(self) -> *mut c_void {
        self.0.as_ptr().cast()
    }

    /// Creates a JVM TI environment.
    #[must_use]
    pub fn jvmti(self) -> Option<Env> {
        self.environment(JVMTI_VERSION).map(|env| Env(env.cast()))
    }

    /// Creates a JVM TI environment that has all functions of JDK 11; `None` on earlier JVMs.
    #[must_use]
    pub fn jvmti_11(self) -> Option<Env> {
        self.environment(JVMTI_VERSION_11).map(|env| Env(env.cast()))
    }

    /// This thread's JNI environment.
    #[must_use]
    pub fn jni(self) -> Option<Jni> {
        self.environment(JNI_VERSION_1_6).map(|env| Jni(env.cast()))
    }

    fn environment(self, version: i32) -> Option<NonNull<c_void>> {
        type GetEnv = unsafe extern "C" fn(*mut c_void, *mut *mut c_void, i32) -> i32;
        let mut env = null_mut();
        // SAFETY: the JavaVM is valid; GetEnv has this type and writes one pointer.
        let result = unsafe {
            let get: GetEnv = function(self.0, jni_index::GET_ENV)?;
            get(self.raw(), &raw mut env, version)
        };
        NonNull::new(env).filter(|_| result == 0)
    }
}

/// Reads a function from a table.
///
/// # Safety
/// `interface` is valid, its table has more than `index` entries, and `F` is the type of that function.
unsafe fn function<F: Copy>(interface: NonNull<Table>, index: usize) -> Option<F> {
    const { assert!(size_of::<F>() == size_of::<usize>()) };
    // SAFETY: the caller guarantees it; both types have the same size, and null is excluded.
    unsafe {
        let entry = *(*interface.as_ptr()).add(index);
        if entry.is_null() { None } else { Some(core::mem::transmute_copy(&entry)) }
    }
}

/// `JNIEnv*` of the current thread.
#[derive(Clone, Copy, Debug)]
pub struct Jni(NonNull<Table>);

impl Jni {
    fn delete_local_ref(self, object: NonNull<c_void>) {
        type Delete = unsafe extern "C" fn(*mut c_void, *mut c_void);
        // SAFETY: a valid JNIEnv of this thread, and a local reference that is not used afterwards.
        unsafe {
            if let Some(delete) = function::<Delete>(self.0, jni_index::DELETE_LOCAL_REF) {
                delete(self.0.as_ptr().cast(), object.as_ptr());
            }
        }
    }
}

/// A `jvmtiEnv*` that is not null and stays valid.
#[derive(Clone, Copy, Debug)]
pub struct Env(NonNull<Table>);

impl Env {
    /// Checks the JVM's pointer.
    ///
    /// # Safety
    /// `raw` is null or a `jvmtiEnv*` that stays valid.
    #[must_use]
    pub unsafe fn new(raw: *mut c_void) -> Option<Env> {
        NonNull::new(raw.cast()).map(Env)
    }

    /// The `jvmtiEnv*` itself, the first argument of its functions.
    #[must_use]
    pub fn raw(self) -> *mut c_void {
        self.0.as_ptr().cast()
    }

    /// # Safety
    /// `F` is the type of the function with this number.
    unsafe fn function<F: Copy>(self, number: usize) -> Option<F> {
        // SAFETY: environments are valid as long as the JVM; functions are counted from 1.
        unsafe { function(self.0, number.wrapping_sub(1)) }
    }

    /// Adds capabilities to the environment; `false` if the JVM does not have them or has given them away.
    #[must_use]
    pub fn add_capabilities(self, wanted: Capabilities) -> bool {
        // SAFETY: the number of `AddCapabilities`.
        unsafe { self.change_capabilities(slot::ADD_CAPABILITIES, wanted) }
    }

    /// Gives capabilities back, so that other environments can have them.
    pub fn relinquish_capabilities(self, unwanted: Capabilities) {
        // SAFETY: the number of `RelinquishCapabilities`.
        let _ = unsafe { self.change_capabilities(slot::RELINQUISH_CAPABILITIES, unwanted) };
    }

    /// # Safety
    /// The number is that of `AddCapabilities` or `RelinquishCapabilities`.
    unsafe fn change_capabilities(self, number: usize, capabilities: Capabilities) -> bool {
        type Change = unsafe extern "C" fn(*mut c_void, *const [u32; 4]) -> Error;
        let bits = capabilities.bits();
        // SAFETY: the type of functions 142 and 143; the JVM reads the struct during the call.
        unsafe {
            self.function::<Change>(number).is_some_and(|change| change(self.raw(), &raw const bits) == 0)
        }
    }

    /// Sets the functions that the JVM calls for events, from event 50 on; `false` if the JVM refuses.
    #[must_use]
    pub fn set_callbacks<const N: usize>(self, callbacks: &[Option<NonNull<c_void>>; N]) -> bool {
        type Set = unsafe extern "C" fn(*mut c_void, *const c_void, i32) -> Error;
        let bytes = size_of::<[Option<NonNull<c_void>>; N]>() as i32;
        // SAFETY: the type of function 122; the JVM copies no more bytes than the size.
        unsafe {
            self.function::<Set>(slot::SET_EVENT_CALLBACKS)
                .is_some_and(|set| set(self.raw(), callbacks.as_ptr().cast(), bytes) == 0)
        }
    }

    /// Enables an event for all threads.
    #[must_use]
    pub fn enable(self, event: Event) -> bool {
        self.set_mode(event, true)
    }

    /// Disables an event for all threads.
    pub fn disable(self, event: Event) {
        let _ = self.set_mode(event, false);
    }

    /// The last parameter of the JVM's function is variadic in the header, and not used.
    fn set_mode(self, event: Event, is_enabled: bool) -> bool {
        type Mode = unsafe extern "C" fn(*mut c_void, i32, i32, *const c_void, ...) -> Error;
        // SAFETY: the type of function 2; the thread is null. `JVMTI_ENABLE` is 1, `JVMTI_DISABLE` 0.
        unsafe {
            self.function::<Mode>(slot::SET_EVENT_NOTIFICATION_MODE)
                .is_some_and(|set| set(self.raw(), i32::from(is_enabled), event as i32, null()) == 0)
        }
    }

    /// Sets the mean number of allocated bytes between two events [`Event::Allocation`], of the whole JVM.
    ///
    /// # Safety
    /// The environment is from [`Vm::jvmti_11`]: others may not have the function.
    #[must_use]
    pub unsafe fn set_heap_sampling_interval(self, bytes: i32) -> bool {
        type Set = unsafe extern "C" fn(*mut c_void, i32) -> Error;
        // SAFETY: the type of function 156, which the table has.
        unsafe {
            self.function::<Set>(slot::SET_HEAP_SAMPLING_INTERVAL)
                .is_some_and(|set| set(self.raw(), bytes) == 0)
        }
    }

    /// Makes the JVM read the class behind a `jclass`, so that the memory of its `java.lang.Class` object is present.
    ///
    /// # Safety
    /// `class` is a valid reference of this thread.
    pub unsafe fn touch_class(self, class: *mut c_void) {
        type Is = unsafe extern "C" fn(*mut c_void, *mut c_void, *mut u8) -> Error;
        let mut is_array = 0;
        // SAFETY: the type of function 56, which writes one byte; the caller guarantees the rest.
        unsafe {
            if let Some(is) = self.function::<Is>(slot::IS_ARRAY_CLASS) {
                let _ = is(self.raw(), class, &raw mut is_array);
            }
        }
    }

    /// Makes the JVM send the event, on this thread, for all code that exists already.
    #[must_use]
    pub fn generate(self, event: Event) -> bool {
        type Generate = unsafe extern "C" fn(*mut c_void, i32) -> Error;
        // SAFETY: the type of function 123.
        unsafe {
            self.function::<Generate>(slot::GENERATE_EVENTS)
                .is_some_and(|generate| generate(self.raw(), event as i32) == 0)
        }
    }

    /// The name of a method.
    #[must_use]
    pub fn method_name(self, method: MethodId) -> Option<Text> {
        type Get = unsafe extern "C" fn(
            *mut c_void,
            MethodId,
            *mut *mut c_char,
            *mut *mut c_char,
            *mut *mut c_char,
        ) -> Error;
        let mut name = null_mut();
        // SAFETY: the type of function 64; the method is one of the current event.
        let ok = unsafe {
            let get: Get = self.function(slot::GET_METHOD_NAME)?;
            get(self.raw(), method, &raw mut name, null_mut(), null_mut()) == 0
        };
        let name = Text::new(self, name);
        ok.then_some(name)
    }

    /// The class of a method.
    #[must_use]
    pub fn declaring_class(self, jni: Jni, method: MethodId) -> Option<Class> {
        type Get = unsafe extern "C" fn(*mut c_void, MethodId, *mut *mut c_void) -> Error;
        let mut class = null_mut();
        // SAFETY: the type of function 65; the method is one of the current event.
        let ok = unsafe {
            let get: Get = self.function(slot::GET_METHOD_DECLARING_CLASS)?;
            get(self.raw(), method, &raw mut class) == 0
        };
        NonNull::new(class).filter(|_| ok).map(|class| Class { env: self, jni, class })
    }

    /// The line table of a method.
    #[must_use]
    pub fn line_table(self, method: MethodId) -> Option<Lines> {
        type Get = unsafe extern "C" fn(*mut c_void, MethodId, *mut i32, *mut *mut LineNumber) -> Error;
        let (mut count, mut table) = (0, null_mut());
        // SAFETY: the type of function 70; the method is one of the current event.
        let ok = unsafe {
            let get: Get = self.function(slot::GET_LINE_NUMBER_TABLE)?;
            get(self.raw(), method, &raw mut count, &raw mut table) == 0
        };
        let count = if ok { usize::try_from(count).unwrap_or(0) } else { 0 };
        NonNull::new(table).map(|table| Lines { env: self, table, count })
    }

    fn deallocate(self, memory: *mut c_void) {
        type Deallocate = unsafe extern "C" fn(*mut c_void, *mut c_void) -> Error;
        // SAFETY: the type of function 47; the JVM allocated the memory for us, and it is freed once.
        unsafe {
            if let Some(deallocate) = self.function::<Deallocate>(slot::DEALLOCATE) {
                let _ = deallocate(self.raw(), memory);
            }
        }
    }
}

/// A local reference to a class, deleted on drop.
#[derive(Debug)]
pub struct Class {
    env: Env,
    jni: Jni,
    class: NonNull<c_void>,
}

impl Class {
    /// The signature, as `Lpackage/Class;`.
    #[must_use]
    pub fn signature(&self) -> Option<Text> {
        type Get =
            unsafe extern "C" fn(*mut c_void, *mut c_void, *mut *mut c_char, *mut *mut c_char) -> Error;
        let mut text = null_mut();
        // SAFETY: the type of function 48; the class is a valid local reference.
        let ok = unsafe {
            let get: Get = self.env.function(slot::GET_CLASS_SIGNATURE)?;
            get(self.env.raw(), self.class.as_ptr(), &raw mut text, null_mut()) == 0
        };
        let text = Text::new(self.env, text);
        ok.then_some(text)
    }

    /// The source file, as `Class.java`.
    #[must_use]
    pub fn source_file(&self) -> Option<Text> {
        type Get = unsafe extern "C" fn(*mut c_void, *mut c_void, *mut *mut c_char) -> Error;
        let mut text = null_mut();
        // SAFETY: the type of function 50; the class is a valid local reference.
        let ok = unsafe {
            let get: Get = self.env.function(slot::GET_SOURCE_FILE_NAME)?;
            get(self.env.raw(), self.class.as_ptr(), &raw mut text) == 0
        };
        let text = Text::new(self.env, text);
        ok.then_some(text)
    }
}

impl Drop for Class {
    fn drop(&mut self) {
        self.jni.delete_local_ref(self.class);
    }
}

/// A string that the JVM allocated; freed on drop.
#[derive(Debug)]
pub struct Text {
    env: Env,
    text: *mut c_char,
}

impl Text {
    fn new(env: Env, text: *mut c_char) -> Text {
        Text { env, text }
    }

    /// The bytes before the NUL, at most `max`.
    #[must_use]
    pub fn bytes(&self, max: usize) -> &[u8] {
        // SAFETY: the JVM's strings end in NUL and are valid until they are freed.
        unsafe { c_bytes(self.text, max) }
    }
}

impl Drop for Text {
    fn drop(&mut self) {
        if !self.text.is_null() {
            self.env.deallocate(self.text.cast());
        }
    }
}

/// The bytes of a C string, at most `max`; empty for null.
///
/// # Safety
/// `text` is null or readable up to its NUL, as long as the result is used.
#[must_use]
pub unsafe fn c_bytes<'a>(text: *const c_char, max: usize) -> &'a [u8] {
    if text.is_null() {
        return &[];
    }
    // SAFETY: no byte after the NUL is read.
    unsafe {
        let mut len = 0;
        while len < max && *text.add(len) != 0 {
            len = len.wrapping_add(1);
        }
        core::slice::from_raw_parts(text.cast(), len)
    }
}

/// A line table that the JVM allocated; freed on drop.
#[derive(Debug)]
pub struct Lines {
    env: Env,
    table: NonNull<LineNumber>,
    count: usize,
}

impl Lines {
    /// (bci, line) pairs in the order of the class file, at most `max`.
    pub fn entries(&self, max: usize) -> impl Iterator<Item = (u32, u32)> + '_ {
        // SAFETY: the JVM returned a table of this many entries.
        let table = unsafe { core::slice::from_raw_parts(self.table.as_ptr(), self.count) };
        table.iter().take(max).map(|entry| (entry.start as u32, entry.line as u32))
    }
}

impl Drop for Lines {
    fn drop(&mut self) {
        self.env.deallocate(self.table.as_ptr().cast());
    }
}
