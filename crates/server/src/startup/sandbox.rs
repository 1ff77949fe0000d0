//! `-o drop_privileges`: the kernel blocks everything that serving does not need. An attacker whose code runs in
//! larderd can then open no file, start no program and connect nowhere.
//!
//! There are two mechanisms. Seccomp allows the system calls of serving; all others fail with EPERM. Landlock closes
//! the file system, except reading in the directories of files that SIGHUP reads again (passwords, certificates, the
//! tokens), and all of the directories of a store and its backups. Without such files no file can be opened at all.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, Ruleset, RulesetAttr, RulesetCreatedAttr, RulesetStatus,
    Scope, path_beneath_rules,
};
use nix::libc;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
    TargetArch,
};

use crate::startup::options::{EXIT_OS_ERROR, Refusal};

/// Confines this process permanently. `reloaded` are the files that must stay readable. Their directories stay
/// readable, so that a file that replaces another is found. `written` are directories, which exist, whose files may be
/// changed. Call it before other threads start, because they inherit it. Errors: the kernel lacks a mechanism; exit
/// code 71.
pub fn sandbox(reloaded: &[PathBuf], written: &[PathBuf]) -> Result<(), Refusal> {
    let refuse = |error: &dyn std::fmt::Display| {
        Refusal::new(EXIT_OS_ERROR, format!("larderd: -o drop_privileges: {error}"))
    };
    let is_fenced = close_file_system(reloaded, written).map_err(|error| refuse(&error))?;
    let names = |paths: &[PathBuf]| {
        let names: Vec<_> = paths.iter().map(|path| path.display().to_string()).collect();
        names.join(", ")
    };
    // If no file can be opened anyway, a kernel without Landlock is enough.
    if !is_fenced && !written.is_empty() {
        return Err(refuse(&format!(
            "this kernel has no Landlock, and without it the store in {} would leave all files writable",
            names(written)
        )));
    }
    if !is_fenced && !reloaded.is_empty() {
        return Err(refuse(&format!(
            "this kernel has no Landlock, and without it reading {} again would leave all files readable",
            names(reloaded)
        )));
    }
    let files = match (written.is_empty(), reloaded.is_empty()) {
        (false, _) => FileAccess::Written,
        (true, false) => FileAccess::Read,
        (true, true) => FileAccess::None,
    };
    [no_clone3(), no_more_than_serving(files)]
        .into_iter()
        .try_for_each(|filter| seccompiler::apply_filter(&program(filter?)?))
        .map_err(|error| refuse(&error))
}

/// Which files Landlock leaves open, as far as system calls tell it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum FileAccess {
    None,
    Read,
    Written,
}

/// Closes the file system except for reading in the directories of `reloaded` and for files in `written`, and blocks
/// outgoing TCP connections. False if the kernel cannot.
fn close_file_system(reloaded: &[PathBuf], written: &[PathBuf]) -> Result<bool, landlock::RulesetError> {
    let status = Ruleset::default()
        .handle_access(AccessFs::from_all(ABI::V5))?
        .handle_access(AccessNet::from_all(ABI::V5))?
        .scope(Scope::from_all(ABI::V6))?
        .create()?
        .add_rules(path_beneath_rules(directories(reloaded), AccessFs::ReadFile))?
        .add_rules(path_beneath_rules(written, storing()))?
        .restrict_self()?;
    Ok(status.ruleset != RulesetStatus::NotEnforced)
}

/// What a store does in its directory.
fn storing() -> BitFlags<AccessFs> {
    AccessFs::ReadFile
        | AccessFs::ReadDir
        | AccessFs::WriteFile
        | AccessFs::Truncate
        | AccessFs::MakeReg
        | AccessFs::MakeDir
        | AccessFs::RemoveFile
        | AccessFs::RemoveDir
        | AccessFs::Refer
}

/// The directories of these files, and of the targets of links.
fn directories(files: &[PathBuf]) -> impl Iterator<Item = PathBuf> {
    files
        .iter()
        .flat_map(|file| [Some(file.clone()), file.canonicalize().ok()])
        .filter_map(|file| file.as_deref().and_then(Path::parent).map(Path::to_owned))
}

/// The arguments of clone3 are in memory, so the filter cannot tell a new process from a new thread. If the call does
/// not exist, the C library uses clone.
fn no_clone3() -> Result<SeccompFilter, seccompiler::BackendError> {
    let rules = BTreeMap::from([(libc::SYS_clone3, Vec::new())]);
    SeccompFilter::new(rules, SeccompAction::Allow, SeccompAction::Errno(libc::ENOSYS as u32), arch()?)
}

fn no_more_than_serving(files: FileAccess) -> Result<SeccompFilter, seccompiler::BackendError> {
    let mut rules: BTreeMap<_, _> = SERVING.iter().map(|call| (*call, Vec::new())).collect();
    // A thread, not a process.
    rules.insert(libc::SYS_clone, vec![has_bits(0, libc::CLONE_THREAD, libc::CLONE_THREAD)?]);
    // Memory holds code or data; none becomes executable.
    for call in [libc::SYS_mmap, libc::SYS_mprotect] {
        rules.insert(call, vec![has_bits(2, libc::PROT_EXEC, 0)?]);
    }
    rules.insert(libc::SYS_prctl, vec![has_bits(0, !0, libc::PR_SET_NAME)?]);
    match files {
        FileAccess::None => {}
        FileAccess::Read => {
            let writing = libc::O_ACCMODE | libc::O_CREAT | libc::O_TRUNC;
            rules.insert(libc::SYS_openat, vec![has_bits(2, writing, libc::O_RDONLY)?]);
        }
        FileAccess::Written => {
            rules.extend(STORING.iter().map(|call| (*call, Vec::new())));
        }
    }
    SeccompFilter::new(rules, SeccompAction::Errno(libc::EPERM as u32), SeccompAction::Allow, arch()?)
}

/// The condition that these bits of argument number `argument` have this value.
fn has_bits(argument: u8, bits: i32, value: i32) -> Result<SeccompRule, seccompiler::BackendError> {
    let comparison = SeccompCmpOp::MaskedEq(u64::from(bits.cast_unsigned()));
    let value = u64::from(value.cast_unsigned());
    SeccompRule::new(vec![SeccompCondition::new(argument, SeccompCmpArgLen::Dword, comparison, value)?])
}

fn arch() -> Result<TargetArch, seccompiler::BackendError> {
    std::env::consts::ARCH.try_into()
}

fn program(filter: SeccompFilter) -> Result<BpfProgram, seccompiler::Error> {
    Ok(filter.try_into()?)
}

/// System calls of a store, beside those of serving.
const STORING: &[libc::c_long] = &[
    libc::SYS_openat,
    libc::SYS_pread64,
    libc::SYS_preadv2,
    libc::SYS_pwrite64,
    libc::SYS_pwritev,
    libc::SYS_fsync,
    libc::SYS_fdatasync,
    libc::SYS_ftruncate,
    libc::SYS_flock,
    libc::SYS_copy_file_range,
    libc::SYS_fadvise64,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_rename,
    libc::SYS_renameat,
    libc::SYS_renameat2,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_unlink,
    libc::SYS_unlinkat,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_mkdir,
    libc::SYS_mkdirat,
];

/// System calls of workers and of the control thread while they run. Not obvious: threads and memory of the C library
/// (rseq to madvise), memory of the file of `-e` (fallocate), abort after a panic (tgkill), `stats` (getrusage), the
/// number of open descriptors (getdents64).
const SERVING: &[libc::c_long] = &[
    libc::SYS_read,
    libc::SYS_readv,
    libc::SYS_write,
    libc::SYS_writev,
    libc::SYS_recvfrom,
    libc::SYS_recvmsg,
    libc::SYS_recvmmsg,
    libc::SYS_sendto,
    libc::SYS_sendmsg,
    libc::SYS_sendmmsg,
    libc::SYS_accept4,
    libc::SYS_shutdown,
    libc::SYS_close,
    libc::SYS_getsockname,
    libc::SYS_getpeername,
    libc::SYS_getsockopt,
    libc::SYS_setsockopt,
    libc::SYS_fcntl,
    libc::SYS_lseek,
    libc::SYS_fallocate,
    libc::SYS_getdents64,
    libc::SYS_fstat,
    libc::SYS_newfstatat,
    libc::SYS_statx,
    libc::SYS_epoll_create1,
    libc::SYS_epoll_ctl,
    libc::SYS_epoll_pwait,
    libc::SYS_epoll_pwait2,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_epoll_wait,
    libc::SYS_ppoll,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_poll,
    libc::SYS_eventfd2,
    libc::SYS_timerfd_create,
    libc::SYS_timerfd_settime,
    libc::SYS_clone3,
    libc::SYS_set_robust_list,
    libc::SYS_rseq,
    libc::SYS_futex,
    libc::SYS_sched_getaffinity,
    libc::SYS_sched_yield,
    libc::SYS_membarrier,
    libc::SYS_brk,
    libc::SYS_munmap,
    libc::SYS_mremap,
    libc::SYS_madvise,
    libc::SYS_sigaltstack,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigreturn,
    libc::SYS_restart_syscall,
    libc::SYS_gettid,
    libc::SYS_getpid,
    libc::SYS_tgkill,
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_clock_gettime,
    libc::SYS_clock_nanosleep,
    libc::SYS_nanosleep,
    libc::SYS_gettimeofday,
    libc::SYS_getrandom,
    libc::SYS_getrusage,
    libc::SYS_prlimit64,
];
