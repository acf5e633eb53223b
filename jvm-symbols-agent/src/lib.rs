//! A JVMTI agent that logs what HotSpot compiled and where. It runs inside other people's JVMs: freestanding
//! (no libc, no allocation by name, no reachable panic), it never exits, blocks or prints.
#![cfg_attr(feature = "freestanding", no_std)]

#[cfg(feature = "freestanding")]
#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    loop {}
}
