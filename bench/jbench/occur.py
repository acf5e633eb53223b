"""Programs in which an event occurs on demand, so that the program itself counts what a profiler should see."""

import os
import subprocess
import time

from . import programs
from .jvm import Jvm

# The JVM compiles the loop in this time. A C program only fills its caches.
WARM_UP_S, JAVA_WARM_UP_S = 0.25, 3
PATIENCE_S = 60
NAME = "occur"
# Frame pointers are for perf, which reads stacks by them. The variable of the trace context must be exported.
FLAGS = ["-fno-omit-frame-pointer", "-Wl,--export-dynamic-symbol=otel_thread_ctx_v1"]


class Work:
    """How often the thing occurred, and the times, in nanoseconds, of the thread that did it."""

    def __init__(self, line):
        self.count, self.wall, self.cpu = map(int, line.split())


class Native:
    """bench/programs/occur.c in one of its modes; a context manager that ends the program."""

    def __init__(self, binary, mode):
        self.process = subprocess.Popen([binary, mode, str(cpu())], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.pid = self.process.pid

    def __enter__(self):
        self.work(WARM_UP_S)
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.communicate()

    def work(self, seconds):
        self.process.stdin.write(f"{seconds}\n")
        self.process.stdin.flush()
        return Work(self.process.stdout.readline())


class Java:
    """bench/programs/NativeMemory.java; a context manager that ends the JVM."""

    def __init__(self, cache, jdk, log):
        self.jvm = Jvm(jdk, cache.class_path(), log, "NativeMemory")
        self.pid, self.done = self.jvm.pid, 0

    def __enter__(self):
        self.jvm.wait_for("ready", 1, PATIENCE_S)
        self.work(JAVA_WARM_UP_S)
        return self

    def __exit__(self, *exception):
        self.jvm.__exit__(*exception)

    def work(self, seconds):
        self.jvm.process.stdin.write(f"{seconds}\n".encode())
        self.jvm.process.stdin.flush()
        time.sleep(seconds)
        self.done += 1
        return Work(self.jvm.wait_for(r"\d+ \d+ \d+$", self.done, PATIENCE_S)[-1][0])


def cpu():
    """The CPU on which the C program runs."""
    return min(os.sched_getaffinity(0))


def compiled(work):
    """The path of the C program, or None without a compiler."""
    return programs.compiled(NAME, work, *FLAGS)
