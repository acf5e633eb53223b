//! The only names under which the worker can open files: those of descriptors that it was given.
//!
//! Libraries open files by path. In the worker, no system call with a path reaches the kernel: seccomp raises SIGSYS
//! instead (`SECCOMP_RET_TRAP`, Linux 3.5), and the handler here answers from a table. `/proc/self/fd/N` opens a
//! duplicate of N if a door has that number, and `/proc/self/fd/N.dwp` opens the DWARF package that belongs to it. No
//! other path exists. Names that a file suggests, such as those of debug links, do not exist either.
//!
//! The handler allocates nothing, takes no lock, and calls only `dup` and `fstat`.
#![allow(unsafe_code)] // a signal handler that answers for the kernel

use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::ffi::{c_int, c_void};
use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::path::PathBuf;
use std::sync::atomic::{AtomicI32, Ordering};

use anyhow::Context as _;
use seccompiler::{BpfProgram, SeccompAction, SeccompFilter};

/// Descriptors that the worker may have.
pub(super) const MAX_DESCRIPTORS: usize = 4096;
/// Beginning of a door's name.
const PREFIX: &[u8] = b"/proc/self/fd/";
/// Suffix of a file's name by which blazesym looks for the file's DWARF package.
const PACKAGE: &[u8] = b".dwp";
/// Longest name that is examined, bytes.
const MAX_NAME: usize = 64;

/// By descriptor: the descriptor of the file's DWARF package, or one of the two values below.
static DOORS: [AtomicI32; MAX_DESCRIPTORS] = [const { AtomicI32::new(SHUT) }; MAX_DESCRIPTORS];
/// The descriptor is no door.
const SHUT: i32 = -1;
/// The descriptor is a door without a package. 0 can mean this, because 0 is the socket to the broker.
const ALONE: i32 = 0;

/// A descriptor that can be opened by name.
#[derive(Debug)]
pub(super) struct PathFd {
    fd: OwnedFd,
    package: OnceCell<OwnedFd>,
}

impl PathFd {
    /// Makes a door for a file. When the door is dropped, its name can become another file's. All caches that use the
    /// name must be dropped before. Fails if there are too many descriptors.
    pub(super) fn to(fd: OwnedFd) -> io::Result<PathFd> {
        set(&fd, ALONE)?;
        Ok(PathFd { fd, package: OnceCell::new() })
    }

    /// Adds the DWARF package of the file; a second package is ignored. Fails if there are too many descriptors.
    pub(super) fn add_package(&self, package: OwnedFd) -> io::Result<()> {
        set(&self.fd, self.package.get_or_init(|| package).as_raw_fd())
    }

    /// The path of the file, which leads to the same file outside of the sandbox.
    pub(super) fn name(&self) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}", self.fd.as_raw_fd()))
    }
}

impl Drop for PathFd {
    fn drop(&mut self) {
        // The descriptor was accepted before, so this cannot fail.
        let _ = set(&self.fd, SHUT);
    }
}

fn set(fd: &OwnedFd, state: i32) -> io::Result<()> {
    let place = place(fd.as_raw_fd()).ok_or(io::ErrorKind::InvalidInput)?;
    place.store(state, Ordering::Relaxed);
    Ok(())
}

fn place(fd: c_int) -> Option<&'static AtomicI32> {
    DOORS.get(usize::try_from(fd).ok()?)
}

/// System calls that take a path. The filter of allowed calls refuses all others of this kind.
const PATH_CALLS: &[i64] = &[
    libc::SYS_openat,
    libc::SYS_openat2,
    libc::SYS_newfstatat,
    libc::SYS_statx,
    libc::SYS_readlinkat,
    libc::SYS_faccessat,
    libc::SYS_faccessat2,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_open,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_stat,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_lstat,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_readlink,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_access,
];

/// The filter that traps these calls. In the kernel, a trap takes precedence over the other filter's allow and refuse.
pub(super) fn filter() -> anyhow::Result<BpfProgram> {
    let rules: BTreeMap<i64, _> = PATH_CALLS.iter().map(|&call| (call, Vec::new())).collect();
    let arch = std::env::consts::ARCH.try_into().context("seccomp for this processor")?;
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, SeccompAction::Trap, arch);
    filter.context("seccomp rules")?.try_into().context("seccomp program")
}

/// Installs the handler that answers SIGSYS from the table. Must be called before [`filter`] is applied. Fails if the
/// kernel refuses.
pub(super) fn answer_path_calls() -> io::Result<()> {
    // SAFETY: the struct is plain data, for which zeros are valid.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = on_sigsys as *const () as usize;
    action.sa_flags = libc::SA_SIGINFO;
    // SAFETY: the handler has the signature that SA_SIGINFO asks for and does only what a handler may; the struct is
    // whole.
    match unsafe { libc::sigaction(libc::SIGSYS, &raw const action, std::ptr::null_mut()) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

struct Call {
    number: i64,
    arguments: [u64; 5],
}

extern "C" fn on_sigsys(_: c_int, _: *mut libc::siginfo_t, context: *mut c_void) {
    let context = context.cast::<libc::ucontext_t>();
    // SAFETY: the kernel gives a handler with SA_SIGINFO a valid context, which only this thread uses until it returns.
    let registers = unsafe { &mut (*context).uc_mcontext };
    let result = answer(&call(registers));
    give(registers, result);
}

/// Seccomp restores the registers to their values before the call (`syscall_rollback`).
#[cfg(target_arch = "x86_64")]
fn call(registers: &libc::mcontext_t) -> Call {
    let of = |register: c_int| registers.gregs[register as usize];
    let arguments = [libc::REG_RDI, libc::REG_RSI, libc::REG_RDX, libc::REG_R10, libc::REG_R8];
    Call { number: of(libc::REG_RAX), arguments: arguments.map(|register| of(register) as u64) }
}

#[cfg(target_arch = "x86_64")]
fn give(registers: &mut libc::mcontext_t, result: i64) {
    registers.gregs[libc::REG_RAX as usize] = result;
}

#[cfg(target_arch = "aarch64")]
fn call(registers: &libc::mcontext_t) -> Call {
    let [a, b, c, d, e, ..] = registers.regs;
    Call { number: registers.regs[8] as i64, arguments: [a, b, c, d, e] }
}

#[cfg(target_arch = "aarch64")]
fn give(registers: &mut libc::mcontext_t, result: i64) {
    registers.regs[0] = result as u64;
}

/// The result that the kernel would give if only the doors existed.
fn answer(call: &Call) -> i64 {
    let [first, second, third, fourth, fifth] = call.arguments;
    let done = match call.number {
        libc::SYS_openat | libc::SYS_openat2 => find(second).and_then(duplicate),
        libc::SYS_newfstatat => meant(first, second, fourth).and_then(|fd| Ok(give_stat(third, &stat(fd)?))),
        libc::SYS_statx => meant(first, second, third).and_then(|fd| Ok(give_statx(fifth, &stat(fd)?))),
        #[cfg(target_arch = "x86_64")]
        libc::SYS_open => find(first).and_then(duplicate),
        #[cfg(target_arch = "x86_64")]
        libc::SYS_stat | libc::SYS_lstat => find(first).and_then(|fd| Ok(give_stat(second, &stat(fd)?))),
        _ => Err(libc::ENOENT),
    };
    done.unwrap_or_else(|errno| -i64::from(errno))
}

/// The descriptor that a path names, relative to a directory: the directory itself if the path is empty.
fn meant(directory: u64, path: u64, flags: u64) -> Result<c_int, c_int> {
    if flags & libc::AT_EMPTY_PATH as u64 != 0 && is_empty(path) {
        Ok(directory as c_int)
    } else {
        find(path)
    }
}

fn duplicate(fd: c_int) -> Result<i64, c_int> {
    // SAFETY: `dup` takes a number and touches no memory.
    let copy = unsafe { libc::syscall(libc::SYS_dup, fd) };
    if copy < 0 { Err(errno()) } else { Ok(copy) }
}

fn stat(fd: c_int) -> Result<libc::stat, c_int> {
    // SAFETY: the struct is plain data, for which zeros are valid.
    let mut found: libc::stat = unsafe { std::mem::zeroed() };
    // SAFETY: `fstat` writes the struct that it is given, which is the kernel's on both architectures.
    if unsafe { libc::syscall(libc::SYS_fstat, fd, &raw mut found) } < 0 { Err(errno()) } else { Ok(found) }
}

/// Writes metadata to the address that the call gave.
fn give_stat(out: u64, found: &libc::stat) -> i64 {
    // SAFETY: the caller of the system call gives the address of such a struct. For a wrong one the kernel would return
    // EFAULT; here it is a bug of our own.
    unsafe { (out as *mut libc::stat).write_unaligned(*found) };
    0
}

fn give_statx(out: u64, found: &libc::stat) -> i64 {
    if out == 0 {
        return -i64::from(libc::EFAULT);
    }
    // SAFETY: the struct is plain data, for which zeros are valid.
    let mut all: libc::statx = unsafe { std::mem::zeroed() };
    let time = |seconds: i64, nanoseconds: i64| {
        let mut time = all.stx_atime;
        (time.tv_sec, time.tv_nsec) = (seconds, nanoseconds as u32);
        time
    };
    let [atime, mtime, ctime] = [
        time(found.st_atime, found.st_atime_nsec),
        time(found.st_mtime, found.st_mtime_nsec),
        time(found.st_ctime, found.st_ctime_nsec),
    ];
    (all.stx_atime, all.stx_mtime, all.stx_ctime) = (atime, mtime, ctime);
    all.stx_mask = libc::STATX_BASIC_STATS;
    all.stx_blksize = found.st_blksize as u32;
    // A u64 here, a u32 on AArch64.
    all.stx_nlink = found.st_nlink as _;
    (all.stx_uid, all.stx_gid) = (found.st_uid, found.st_gid);
    all.stx_mode = found.st_mode as u16;
    (all.stx_ino, all.stx_size, all.stx_blocks) =
        (found.st_ino, found.st_size as u64, found.st_blocks as u64);
    // SAFETY: as above.
    unsafe { (out as *mut libc::statx).write_unaligned(all) };
    0
}

fn errno() -> c_int {
    // SAFETY: glibc gives the address of this thread's errno. The interrupted code sees a change only after a failed
    // call, which it made itself.
    unsafe { *libc::__errno_location() }
}

fn is_empty(path: u64) -> bool {
    // SAFETY: a path is the address of a text with a zero at its end.
    path != 0 && unsafe { *(path as *const u8) } == 0
}

/// The descriptor that the path at this address leads to.
fn find(path: u64) -> Result<c_int, c_int> {
    if path == 0 {
        return Err(libc::EFAULT);
    }
    let (mut name, mut length) = ([0_u8; MAX_NAME], 0);
    loop {
        // SAFETY: a path is a text with a zero at its end, before which the loop ends.
        let byte = unsafe { *((path as *const u8).add(length)) };
        if byte == 0 {
            break;
        }
        *name.get_mut(length).ok_or(libc::ENOENT)? = byte;
        length += 1;
    }
    door(&name[..length]).ok_or(libc::ENOENT)
}

fn door(name: &[u8]) -> Option<c_int> {
    let name = name.strip_prefix(PREFIX)?;
    let (number, is_package) = match name.strip_suffix(PACKAGE) {
        Some(number) => (number, true),
        None => (name, false),
    };
    if number.is_empty() || number.len() > 4 || (number[0] == b'0' && number.len() > 1) {
        return None;
    }
    let digit =
        |sum: Option<c_int>, &byte: &u8| Some(sum? * 10 + c_int::from(char::from(byte).to_digit(10)? as u8));
    let number = number.iter().fold(Some(0), digit)?;
    match place(number)?.load(Ordering::Relaxed) {
        SHUT => None,
        _ if !is_package => Some(number),
        ALONE => None,
        package => Some(package),
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};
    use std::io::{Read as _, Write as _};
    use std::path::Path;

    use super::*;

    fn file(text: &str) -> OwnedFd {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(text.as_bytes()).unwrap();
        file.into()
    }

    /// Runs a test in a thread that can open only doors: a filter applies to one thread.
    fn walled(test: impl FnOnce() + Send) {
        answer_path_calls().unwrap();
        std::thread::scope(|scope| {
            let thread = scope.spawn(|| {
                rustix::thread::set_no_new_privs(true).unwrap();
                seccompiler::apply_filter(&filter().unwrap()).unwrap();
                test();
            });
            thread.join().unwrap();
        });
    }

    fn text(path: &Path) -> io::Result<String> {
        use std::os::unix::fs::FileExt as _;
        // A duplicate shares the file position.
        let file = File::open(path)?;
        let mut bytes = vec![0; usize::try_from(file.metadata()?.len()).unwrap()];
        file.read_exact_at(&mut bytes, 0)?;
        Ok(String::from_utf8(bytes).unwrap())
    }

    #[test]
    fn a_door_opens_and_nothing_else_does() {
        let door = PathFd::to(file("one")).unwrap();
        let (other, of_package) = (file("other"), file("package"));
        let shut = format!("/proc/self/fd/{}", other.as_raw_fd());
        walled(|| {
            let name = door.name();
            assert_eq!(text(&name).unwrap(), "one");
            let package = PathBuf::from(format!("{}.dwp", name.display()));
            let missing = |path: &Path| {
                let error = File::open(path).err().map(|error| error.raw_os_error());
                assert_eq!(error, Some(Some(libc::ENOENT)), "{}", path.display());
                assert!(fs::metadata(path).is_err() && fs::read_link(path).is_err(), "{}", path.display());
            };
            missing(&package);
            door.add_package(of_package).unwrap();
            assert_eq!(text(&package).unwrap(), "package");
            for path in [
                &shut,
                "/etc/passwd",
                "/proc/self/maps",
                "/proc/self/fd/0",
                "/proc/self/fd/",
                "/proc/self/fd/../maps",
                "/proc/self/fd/4095",
                "/proc/self/fd/99999999999999999999",
                "/proc/self/fd/1x",
                "",
                ".",
                "..",
                "lib.so.debug",
                &format!("{}/../../root", name.display()),
                &format!("{}\u{20}", name.display()),
                &format!("/proc/self/fd/0{}", name.file_name().unwrap().display()),
                &"x".repeat(5000),
            ] {
                missing(Path::new(path));
            }
            assert_eq!(fs::metadata(&name).unwrap().len(), 3);
            drop(door);
            missing(&name);
            missing(&package);
        });
        // The process's other threads are not affected.
        assert!(fs::metadata("/").is_ok());
    }

    #[test]
    fn every_call_with_a_path_is_answered_here() {
        walled(|| {
            for &number in PATH_CALLS {
                // SAFETY: the path is a text of this program; nothing is written, since there is no such file.
                let result = unsafe {
                    libc::syscall(number, c"/etc/passwd".as_ptr(), c"/etc/passwd".as_ptr(), 0, 0, 0)
                };
                let error = io::Error::last_os_error().raw_os_error();
                assert_eq!((result, error), (-1, Some(libc::ENOENT)), "call {number}");
            }
            let mut text = String::new();
            assert!(File::open("/etc/hostname").and_then(|mut file| file.read_to_string(&mut text)).is_err());
        });
    }
}
