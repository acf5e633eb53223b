//! Functions that compiled Rust calls by name. They are hidden, so that no other library calls them, and ours calls no
//! others. They are assembly, because the compiler could turn loops into calls of the functions themselves.

/// Defines functions by their instructions. Each has its own section, so that the linker drops those that are not
/// called.
macro_rules! functions {
    ($($name:literal: [$($instruction:literal),* $(,)?])*) => {
        core::arch::global_asm!($(
            concat!(".pushsection .text.", $name, ",\"ax\",@progbits"),
            concat!(".globl ", $name),
            concat!(".hidden ", $name),
            concat!(".type ", $name, ",@function"),
            concat!($name, ":"),
            $($instruction,)*
            concat!(".size ", $name, ", . - ", $name),
            ".popsection",
        )*);
    };
}

#[cfg(target_arch = "x86_64")]
functions! {
    "memcpy": [
        "mov rax, rdi",
        "mov rcx, rdx",
        "rep movsb",
        "ret",
    ]
    "memmove": [
        "mov rax, rdi",
        "mov rcx, rdx",
        "mov r8, rdi",
        "sub r8, rsi",
        "cmp r8, rdx",
        "jb 2f",
        "rep movsb",
        "ret",
        "2: lea rdi, [rdi + rdx - 1]",
        "lea rsi, [rsi + rdx - 1]",
        "std",
        "rep movsb",
        "cld",
        "ret",
    ]
    "memset": [
        "mov r8, rdi",
        "mov eax, esi",
        "mov rcx, rdx",
        "rep stosb",
        "mov rax, r8",
        "ret",
    ]
    "memcmp": [
        "xor ecx, ecx",
        "2: cmp rcx, rdx",
        "je 3f",
        "movzx eax, byte ptr [rdi + rcx]",
        "movzx r8d, byte ptr [rsi + rcx]",
        "inc rcx",
        "sub eax, r8d",
        "je 2b",
        "ret",
        "3: xor eax, eax",
        "ret",
    ]
    "bcmp": [
        "jmp memcmp",
    ]
}

#[cfg(target_arch = "aarch64")]
functions! {
    "memcpy": [
        "mov x3, x0",
        "cbz x2, 3f",
        "2: ldrb w4, [x1], #1",
        "strb w4, [x3], #1",
        "subs x2, x2, #1",
        "b.ne 2b",
        "3: ret",
    ]
    "memmove": [
        "sub x3, x0, x1",
        "cmp x3, x2",
        "b.hs memcpy",
        "2: cbz x2, 3f",
        "sub x2, x2, #1",
        "ldrb w4, [x1, x2]",
        "strb w4, [x0, x2]",
        "b 2b",
        "3: ret",
    ]
    "memset": [
        "mov x3, x0",
        "2: cbz x2, 3f",
        "strb w1, [x3], #1",
        "sub x2, x2, #1",
        "b 2b",
        "3: ret",
    ]
    "memcmp": [
        "mov x3, x0",
        "2: cbz x2, 3f",
        "ldrb w4, [x3], #1",
        "ldrb w5, [x1], #1",
        "sub x2, x2, #1",
        "subs w0, w4, w5",
        "b.eq 2b",
        "ret",
        "3: mov w0, #0",
        "ret",
    ]
    "bcmp": [
        "b memcmp",
    ]
}
