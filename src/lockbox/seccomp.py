"""The filter of system calls of a sandboxed program: a list of what is allowed, and nothing else (Linux `seccomp`).

The filter is a program of the kernel's classic BPF, written here as numbers, so no library is needed. It needs no
rights: `no_new_privs` is enough. A call that is not listed fails with EPERM. Calls that only an attack makes end the
process. Source: the kernel's `seccomp(2)` and its tables of system calls.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import struct
from typing import Any

_LIBRARY = ctypes.CDLL(None, use_errno=True)

_ALLOW, _ERRNO, _KILL = 0x7FFF0000, 0x00050000, 0x80000000
_DENY, _ABSENT, _PRETEND = _ERRNO | errno.EPERM, _ERRNO | errno.ENOENT, _ERRNO
"""An error of no permission, an error of no such file, and success without anything done."""

_LOAD, _EQUAL, _SET, _AT_LEAST, _RETURN = 0x20, 0x15, 0x45, 0x35, 0x06
"""Operations of classic BPF: load a word, jump if equal, if bits are set, if at least, and return."""

_NUMBER, _ARCHITECTURE, _ARGUMENTS = 0, 4, 16
"""Offsets in `struct seccomp_data`."""

_X32 = 0x40000000
"""Numbers from here on are those of the x32 interface, another door to the same kernel."""

_PR_SET_SECCOMP = 22
_PR_SET_NO_NEW_PRIVS = 38
_MODE_FILTER = 2

Instruction = tuple[int, int, int, int]
"""Operation, jump if true, jump if false, value."""


def words_of(text: str) -> tuple[str, ...]:
    """A long list of names, written as a text."""
    return tuple(text.split())


def _numbers(table: str) -> dict[str, int]:
    return {name: int(number) for name, number in (entry.split("=") for entry in table.split())}


_X86_64 = _numbers(
    """
    read=0 write=1 open=2 close=3 stat=4 fstat=5 lstat=6 poll=7 lseek=8 mmap=9 mprotect=10 munmap=11 brk=12
    rt_sigaction=13 rt_sigprocmask=14 rt_sigreturn=15 ioctl=16 pread64=17 pwrite64=18 readv=19 writev=20 access=21
    pipe=22 select=23 sched_yield=24 mremap=25 madvise=28 dup=32 dup2=33 pause=34 nanosleep=35 getitimer=36 alarm=37
    setitimer=38 getpid=39 sendto=44 recvfrom=45 shutdown=48 socketpair=53 clone=56 exit=60 uname=63 fcntl=72 getcwd=79
    readlink=89 gettimeofday=96 getrlimit=97 getrusage=98 sysinfo=99 times=100 ptrace=101 getuid=102 getgid=104
    geteuid=107 getegid=108 getppid=110 getpgrp=111 getgroups=115 getresuid=118 getresgid=120 capset=126
    rt_sigpending=127 rt_sigtimedwait=128 rt_sigsuspend=130 sigaltstack=131 pivot_root=155 chroot=161 mount=165
    umount2=166 swapon=167 reboot=169 init_module=175 delete_module=176 gettid=186 time=201 futex=202
    sched_getaffinity=204 epoll_create=213 set_tid_address=218 restart_syscall=219 clock_gettime=228 clock_getres=229
    clock_nanosleep=230 exit_group=231 epoll_wait=232 epoll_ctl=233 tgkill=234 kexec_load=246 add_key=248
    request_key=249 keyctl=250 openat=257 newfstatat=262 readlinkat=267 faccessat=269 pselect6=270 ppoll=271 unshare=272
    set_robust_list=273 epoll_pwait=281 eventfd2=290 epoll_create1=291 dup3=292 pipe2=293 perf_event_open=298
    prlimit64=302 open_by_handle_at=304 setns=308 process_vm_readv=310 process_vm_writev=311 kcmp=312 finit_module=313
    getrandom=318 kexec_file_load=320 bpf=321 userfaultfd=323 membarrier=324 statx=332 rseq=334 io_uring_setup=425
    io_uring_enter=426 io_uring_register=427 open_tree=428 move_mount=429 fsopen=430 fsconfig=431 fsmount=432 clone3=435
    openat2=437 pidfd_getfd=438 faccessat2=439
    """
)

_AARCH64 = _numbers(
    """
    getcwd=17 eventfd2=19 epoll_create1=20 epoll_ctl=21 epoll_pwait=22 dup=23 dup3=24 fcntl=25 ioctl=29 umount2=39
    mount=40 pivot_root=41 faccessat=48 chroot=51 openat=56 close=57 pipe2=59 lseek=62 read=63 write=64 readv=65
    writev=66 pread64=67 pwrite64=68 pselect6=72 ppoll=73 readlinkat=78 newfstatat=79 fstat=80 capset=91 exit=93
    exit_group=94 set_tid_address=96 unshare=97 futex=98 set_robust_list=99 nanosleep=101 getitimer=102 setitimer=103
    kexec_load=104 init_module=105 delete_module=106 clock_gettime=113 clock_getres=114 clock_nanosleep=115 ptrace=117
    sched_getaffinity=123 sched_yield=124 restart_syscall=128 tgkill=131 sigaltstack=132 rt_sigsuspend=133
    rt_sigaction=134 rt_sigprocmask=135 rt_sigpending=136 rt_sigtimedwait=137 rt_sigreturn=139 reboot=142 getresuid=148
    getresgid=150 times=153 getgroups=158 uname=160 getrlimit=163 getrusage=165 gettimeofday=169 getpid=172 getppid=173
    getuid=174 geteuid=175 getgid=176 getegid=177 gettid=178 sysinfo=179 socketpair=199 sendto=206 recvfrom=207
    shutdown=210 brk=214 munmap=215 mremap=216 add_key=217 request_key=218 keyctl=219 clone=220 mmap=222 swapon=224
    mprotect=226 madvise=233 perf_event_open=241 prlimit64=261 open_by_handle_at=265 setns=268 process_vm_readv=270
    process_vm_writev=271 kcmp=272 finit_module=273 getrandom=278 bpf=280 userfaultfd=282 membarrier=283 statx=291
    rseq=293 kexec_file_load=294 io_uring_setup=425 io_uring_enter=426 io_uring_register=427 open_tree=428
    move_mount=429 fsopen=430 fsconfig=431 fsmount=432 clone3=435 openat2=437 pidfd_getfd=438 faccessat2=439
    """
)

_AUDIT, CALLS = {"x86_64": (0xC000003E, _X86_64), "aarch64": (0xC00000B7, _AARCH64)}.get(platform.machine(), (0, {}))
"""This processor's architecture as the filter sees it (`AUDIT_ARCH_*`), and its system calls by their numbers.

A call that the architecture lacks is missing."""

_PLAIN = words_of(
    """
    read write close fstat poll lseek mmap mprotect munmap brk rt_sigaction rt_sigprocmask rt_sigreturn pread64
    pwrite64 readv writev pipe pipe2 select pselect6 sched_yield mremap madvise dup dup2 dup3 pause nanosleep
    getitimer setitimer alarm getpid recvfrom shutdown exit exit_group uname getcwd gettimeofday getrlimit getrusage
    sysinfo times time getuid getgid geteuid getegid getppid getpgrp getgroups getresuid getresgid rt_sigpending
    rt_sigtimedwait rt_sigsuspend sigaltstack gettid futex sched_getaffinity epoll_create epoll_create1 epoll_wait
    epoll_pwait epoll_ctl eventfd2 set_tid_address restart_syscall clock_gettime clock_getres clock_nanosleep ppoll
    set_robust_list getrandom membarrier rseq
    """
)
"""Calls that work on what the process already has. None opens a file, makes a process or reaches another one."""

_ATTACKS = words_of(
    """
    ptrace process_vm_readv process_vm_writev kcmp pidfd_getfd mount umount2 pivot_root chroot unshare setns
    open_by_handle_at open_tree move_mount fsopen fsconfig fsmount init_module finit_module delete_module kexec_load
    kexec_file_load reboot swapon bpf perf_event_open userfaultfd io_uring_setup io_uring_enter io_uring_register
    add_key request_key keyctl
    """
)
"""Calls that end the process."""

_PATHS = words_of("open openat openat2 stat lstat newfstatat statx access faccessat faccessat2 readlink readlinkat")
"""Calls that name a file. For them the file system is empty."""

_CLONE_THREAD = 0x00010000
_AF_UNIX, _RLIMIT_STACK = 1, 3
_REQUESTS = (0x5401, 0x5421, 0x5450, 0x5451)
"""The `ioctl` requests TCGETS (is this a terminal?), FIONBIO, FIONCLEX and FIOCLEX."""
_DESCRIPTOR_FLAGS = (0, 1, 2, 3, 4, 1030)
"""The `fcntl` commands F_DUPFD, F_GETFD, F_SETFD, F_GETFL, F_SETFL and F_DUPFD_CLOEXEC."""


def supported() -> bool:
    """Whether the numbers of this processor's system calls are known."""
    return platform.system() == "Linux" and bool(CALLS)


def call(name: str, *arguments: Any) -> int:
    """A function of the C library. Numbers are widened to the 64 bits that the kernel reads. Raises OSError."""
    wide = (ctypes.c_ulong(each) if isinstance(each, int) else each for each in arguments)
    result = int(getattr(_LIBRARY, name)(*wide))
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")
    return result


def filter_program(pid: int) -> list[Instruction]:
    """The filter for the process `pid`, which may signal its own threads alone."""
    allow = [(_RETURN, 0, 0, _ALLOW)]
    program: list[Instruction] = [
        (_LOAD, 0, 0, _ARCHITECTURE),
        (_EQUAL, 1, 0, _AUDIT),
        (_RETURN, 0, 0, _KILL),
        (_LOAD, 0, 0, _NUMBER),
        (_AT_LEAST, 0, 1, _X32),
        (_RETURN, 0, 0, _KILL),
    ]
    for names, answer in ((_PLAIN, _ALLOW), (_ATTACKS, _KILL), (_PATHS, _ABSENT)):
        for name in names:
            program += _on(CALLS[name], [(_RETURN, 0, 0, answer)]) if name in CALLS else []
    # Its flags are in memory that a filter cannot read. The C library then uses clone.
    program += _on(CALLS["clone3"], [(_RETURN, 0, 0, _ERRNO | errno.ENOSYS)])
    for name, argument, values in (
        ("ioctl", 1, _REQUESTS),
        ("fcntl", 1, _DESCRIPTOR_FLAGS),
        ("tgkill", 0, (pid,)),
        ("socketpair", 0, (_AF_UNIX,)),
        ("sendto", 4, (0,)),
    ):
        program += _on(CALLS[name], [step for value in values for step in _where(argument, value, allow)])
    # Programs of contests ask for a deep stack, which they have. Every other limit can be read only.
    stack = _where(0, 0, _where(1, _RLIMIT_STACK, [(_RETURN, 0, 0, _PRETEND)]))
    program += _on(CALLS["prlimit64"], [*_where(2, 0, allow), *stack])
    # Threads share the memory and the limits of the process.
    program += _on(CALLS["clone"], [(_LOAD, 0, 0, _ARGUMENTS), (_SET, 0, 1, _CLONE_THREAD), *allow])
    return [*program, (_RETURN, 0, 0, _DENY)]


def _on(number: int, body: list[Instruction]) -> list[Instruction]:
    """On this call, what `body` decides. What it leaves undecided is denied."""
    return [(_EQUAL, 0, len(body) + 1, number), *body, (_RETURN, 0, 0, _DENY)]


def _where(argument: int, value: int, body: list[Instruction]) -> list[Instruction]:
    """`body` if an argument has this value, below 2^32. The upper half must be 0."""
    low, skip = _ARGUMENTS + 8 * argument, len(body)
    upper = [(_LOAD, 0, 0, low + 4), (_EQUAL, 0, skip + 2, 0)]
    return [*upper, (_LOAD, 0, 0, low), (_EQUAL, 0, skip, value), *body]


def install(program: list[Instruction]) -> None:
    """Give up gaining rights, and put the filter on this process. It cannot be taken off. Raises OSError."""
    instructions = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *each) for each in program))
    call("prctl", _PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    compiled = struct.pack("HxxxxxxQ", len(program), ctypes.addressof(instructions))
    call("prctl", _PR_SET_SECCOMP, _MODE_FILTER, compiled, 0, 0)
