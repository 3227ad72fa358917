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


_COLUMN = {"x86_64": 0, "aarch64": 1}.get(platform.machine())
_AUDIT = (0xC000003E, 0xC00000B7)[_COLUMN or 0]
"""This processor's architecture as the filter sees it (`AUDIT_ARCH_*`)."""


def _numbers(table: str) -> dict[str, int]:
    """System calls by their names, from their numbers on x86-64 and aarch64. One that is missing here is left out."""
    entries = (entry.split("=") for entry in table.split())
    numbers = {name: both.split(",")[_COLUMN or 0] for name, both in entries}
    return {name: int(number) for name, number in numbers.items() if number != "-"}


_PLAIN = _numbers(
    """
    read=0,63 write=1,64 close=3,57 fstat=5,80 poll=7,- lseek=8,62 mmap=9,222 mprotect=10,226 munmap=11,215 brk=12,214
    rt_sigaction=13,134 rt_sigprocmask=14,135 rt_sigreturn=15,139 pread64=17,67 pwrite64=18,68 readv=19,65 writev=20,66
    pipe=22,- pipe2=293,59 select=23,- pselect6=270,72 sched_yield=24,124 mremap=25,216 madvise=28,233 dup=32,23
    dup2=33,- dup3=292,24 pause=34,- nanosleep=35,101 getitimer=36,102 setitimer=38,103 alarm=37,- getpid=39,172
    recvfrom=45,207 shutdown=48,210 exit=60,93 exit_group=231,94 uname=63,160 getcwd=79,17 gettimeofday=96,169
    getrlimit=97,163 getrusage=98,165 sysinfo=99,179 times=100,153 time=201,- getuid=102,174 getgid=104,176
    geteuid=107,175 getegid=108,177 getppid=110,173 getpgrp=111,- getgroups=115,158 getresuid=118,148 getresgid=120,150
    rt_sigpending=127,136 rt_sigtimedwait=128,137 rt_sigsuspend=130,133 sigaltstack=131,132 gettid=186,178 futex=202,98
    sched_getaffinity=204,123 epoll_create=213,- epoll_create1=291,20 epoll_wait=232,- epoll_pwait=281,22
    epoll_ctl=233,21 eventfd2=290,19 set_tid_address=218,96 restart_syscall=219,128 clock_gettime=228,113
    clock_getres=229,114 clock_nanosleep=230,115 ppoll=271,73 set_robust_list=273,99 getrandom=318,278
    membarrier=324,283 rseq=334,293
    """
)
"""Calls that work on what the process already has. None opens a file, makes a process or reaches another one."""

ATTACKS = _numbers(
    """
    ptrace=101,117 process_vm_readv=310,270 process_vm_writev=311,271 kcmp=312,272 pidfd_getfd=438,438 mount=165,40
    umount2=166,39 pivot_root=155,41 chroot=161,51 unshare=272,97 setns=308,268 open_by_handle_at=304,265
    open_tree=428,428 move_mount=429,429 fsopen=430,430 fsconfig=431,431 fsmount=432,432 init_module=175,105
    finit_module=313,273 delete_module=176,106 kexec_load=246,104 kexec_file_load=320,294 reboot=169,142 swapon=167,224
    bpf=321,280 perf_event_open=298,241 userfaultfd=323,282 io_uring_setup=425,425 io_uring_enter=426,426
    io_uring_register=427,427 add_key=248,217 request_key=249,218 keyctl=250,219
    """
)
"""Calls that end the process."""

_PATHS = _numbers(
    """
    open=2,- openat=257,56 openat2=437,437 stat=4,- lstat=6,- newfstatat=262,79 statx=332,291 access=21,-
    faccessat=269,48 faccessat2=439,439 readlink=89,- readlinkat=267,78
    """
)
"""Calls that name a file. For them the file system is empty."""

CALLS = _numbers(
    "ioctl=16,29 fcntl=72,25 tgkill=234,131 socketpair=53,199 sendto=44,206 prlimit64=302,261 clone=56,220 "
    "clone3=435,435 capset=126,91"
)
"""Calls that are allowed with some arguments, or that the sandbox itself makes."""

_CLONE_THREAD = 0x00010000
_AF_UNIX, _RLIMIT_STACK = 1, 3
_REQUESTS = (0x5401, 0x5421, 0x5450, 0x5451)
"""The `ioctl` requests TCGETS (is this a terminal?), FIONBIO, FIONCLEX and FIOCLEX."""
_DESCRIPTOR_FLAGS = (0, 1, 2, 3, 4, 1030)
"""The `fcntl` commands F_DUPFD, F_GETFD, F_SETFD, F_GETFL, F_SETFL and F_DUPFD_CLOEXEC."""


def supported() -> bool:
    """Whether the numbers of this processor's system calls are known."""
    return platform.system() == "Linux" and _COLUMN is not None


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
    for calls, answer in ((_PLAIN, _ALLOW), (ATTACKS, _KILL), (_PATHS, _ABSENT)):
        for number in calls.values():
            program += _on(number, [(_RETURN, 0, 0, answer)])
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
