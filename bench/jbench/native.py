"""Programs without Java, with the flags of compilers and distributions: the share of whole stacks, beside perf's."""

import collections
import contextlib
import os
import pathlib
import pwd
import re
import shutil
import subprocess
import time

from .cache import BENCH
from .tools import Perf, children

TESTS = BENCH.parent / "tests" / "programs"
OPTIMIZED = ["-O2", "-g", "-fomit-frame-pointer"]
POSTGRES = pathlib.Path("/usr/lib/postgresql")
# Functions with which threads and programs begin: libc's for C, Rust and C++; Go has its own.
BEGINNINGS = re.compile(
    r"^(_start|main|_*libc_start_(call_)?main.*|_*(GI_+)?clone\d?|start_thread|thread_start"
    r"|runtime\.(goexit|mstart|main|mcall|systemstack|rt0_go)(\.abi0)?)$"
)


class Whole:
    """Counts the stacks of user code that begin where threads or programs begin."""

    def __init__(self, stacks):
        self.all, self.whole, self.missed = 0, 0, collections.Counter()
        for stack, n in stacks.counts.items():
            user = [frame for frame in stack if not frame.endswith("_[k]")]
            if not user:
                continue
            self.all += n
            # In a stripped program `_start` has no name: then its callees identify the beginning.
            if "[truncated]" not in user and any(BEGINNINGS.match(plain(frame)) for frame in user[:3]):
                self.whole += n
            else:
                self.missed[user[0]] += n

    def percent(self):
        return 100 * self.whole / self.all if self.all else float("nan")


def plain(frame):
    """A function's name without the additions of perf or a linker."""
    return frame.split("+0x")[0].split("@")[0]


def measure(ours, work, figures, rate, seconds):
    """Runs each program under both profilers at the same time, at the same rate."""
    for name, program in PROGRAMS:
        with contextlib.ExitStack() as stack:
            pid = program(work, stack)
            if pid is None:
                figures.lack(f"stacks of {name}", "it is not installed, or what compiles it")
                continue
            run = ours.start(f"native-{pid}", rate, "--pid", str(pid), "--children", seconds=seconds, formats=["folded"])
            time.sleep(1)
            perf = Perf(work)
            of = ["-p", ",".join(map(str, [pid, *children(pid)]))]
            theirs = perf.start(f"native-{pid}", rate, max(1, seconds - 1), of, call_graph="dwarf")
            stacks, _ = ours.result(run)
            theirs.wait()
        mine, reference = Whole(stacks), Whole(perf.stacks("--no-inline"))
        figures.say(f"{name}: whole stacks (%)", mine.percent(), least=98)
        figures.note(f"of {mine.all}; perf's: {reference.percent():.3f} % of {reference.all}")
        for profiler, stacks in (("jbpf-prof", mine), ("perf", reference)):
            for frame, n in stacks.missed.most_common(3):
                figures.note(f"{profiler}: {100 * n / stacks.all:7.3f} % end at {frame[:100]}")


def start(command, stack, **options):
    """Starts a program, and waits until it is ready. The exit stack ends it."""
    child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, **options)
    stack.callback(child.wait)
    stack.callback(child.kill)
    if child.stdout.readline() != "ready\n":
        raise RuntimeError(f"{command}: is not ready")
    return child.pid


def compiled(compiler, arguments, source, *words):
    """A program that must be compiled first; it is left out if its compiler is missing."""

    def run(work, stack):
        found = shutil.which(compiler) or shutil.which(compiler, path="/usr/local/go/bin")
        if not found:
            return None
        program = work / f"{source.name}.out"
        subprocess.run([found, *arguments, "-o", program, source], check=True, cwd=work)
        return start([program, *words], stack)

    return run


def python(_, stack):
    # The distribution's Python, not one that somebody has built.
    if not os.path.exists("/usr/bin/python3"):
        return None
    return start(["/usr/bin/python3", BENCH / "programs" / "words.py"], stack)


def postgres(work, stack):
    """Starts a PostgreSQL server with pgbench as load."""
    server = Postgres.start(work, stack)
    if not server:
        return None
    server.load("600", stack)
    time.sleep(1)
    return server.pid


class Postgres:
    """A PostgreSQL server with the tables of pgbench."""

    def __init__(self, pid, where, run):
        self.pid, self.where, self.run = pid, where, run

    @classmethod
    def start(cls, work, stack):
        """Starts a server, which the exit stack ends; None if PostgreSQL or pgbench is not installed."""
        versions = sorted(POSTGRES.glob("*/bin/postgres"))
        if not versions or not shutil.which("pgbench"):
            return None
        binaries, user = versions[-1].parent, pwd.getpwnam("postgres")
        data = work / "postgres"
        shutil.rmtree(data, ignore_errors=True)
        data.mkdir()
        os.chown(data, user.pw_uid, user.pw_gid)
        work.chmod(0o711)
        run = {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": [], "cwd": data}
        quiet = {**run, "check": True, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        subprocess.run([binaries / "initdb", "-D", data / "db", "-A", "trust", "--no-sync"], **quiet)
        options = f"-c listen_addresses= -c unix_socket_directories={data} -c fsync=off".split()
        server = subprocess.Popen([binaries / "postgres", "-D", data / "db", *options], stderr=subprocess.DEVNULL, **run)
        stack.callback(server.wait)
        stack.callback(server.terminate)
        found = cls(server.pid, ["-h", data, "-U", "postgres", "postgres"], run)
        while found.sql("select 1").wait():
            if server.poll() is not None:
                raise RuntimeError("postgres does not start")
            time.sleep(0.1)
        subprocess.run([shutil.which("pgbench"), "-i", "-s", "5", *found.where], **quiet)
        return found

    def sql(self, *commands):
        """A session that runs the commands, one after the other."""
        words = [word for command in commands for word in ("-c", command)]
        streams = {"stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
        return subprocess.Popen([shutil.which("psql"), "-q", "-t", *words, *self.where], text=True, **streams, **self.run)

    def load(self, seconds, stack):
        """Starts four sessions of pgbench, which the exit stack ends."""
        streams = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        load = subprocess.Popen([shutil.which("pgbench"), "-c", "4", "-T", seconds, *self.where], **streams, **self.run)
        stack.callback(load.wait)
        stack.callback(load.kill)


PROGRAMS = [
    ("C", compiled("cc", OPTIMIZED, TESTS / "frames.c", "chain")),
    ("C, signals on a stack of their own", compiled("cc", OPTIMIZED, TESTS / "frames.c", "signal", "stack")),
    ("C++ with exceptions", compiled("c++", OPTIMIZED, TESTS / "throw.cc")),
    ("Rust", compiled("rustc", ["-O", "--edition=2021"], BENCH / "programs" / "words.rs")),
    ("Go", compiled("go", ["build"], BENCH / "programs" / "words.go")),
    ("Python", python),
    ("PostgreSQL", postgres),
]
