"""The memory of unwind tables on a machine with many processes."""

import contextlib
import os
import re
import shutil
import subprocess
import time

from .cache import BENCH

# Typical programs of hosts: how many of each, and command lines that wait.
PROCESSES = [
    (50, ["/bin/sh", "-c", "sleep 600; :"]),
    (20, ["/bin/bash", "-c", "sleep 600; :"]),
    (20, ["/usr/bin/python3", "-c", "import json, ssl, sqlite3, ctypes, time; time.sleep(600)"]),
    (20, ["/usr/bin/python3", "-c", "import zlib, lzma, bz2, decimal, asyncio, hashlib, time; time.sleep(600)"]),
    (20, ["/usr/bin/perl", "-e", "sleep 600"]),
    (30, ["/usr/bin/tail", "-f", "/dev/null"]),
    (30, ["/usr/bin/awk", 'BEGIN { system("sleep 600") }']),
    (5, ["node", "-e", "setTimeout(() => 0, 600000)"]),
    (2, ["gdb", "-q"]),
]
JVMS = 3
UNWINDING = re.compile(r"unwinding: (\d+) tables for (\d+) processes in (\d+) KiB; no room (\d+) times")


def measure(ours, jdks, figures):
    """Starts all of these, and records a profile of all processes."""
    commands = [command for count, command in PROCESSES if shutil.which(command[0]) for _ in range(count)]
    java = ["-XX:+UseSerialGC", "-Xmx64m", BENCH / "programs" / "Wait.java"]
    commands += [[*jdk.java, *java] for jdk in jdks if jdk.root is None for _ in range(JVMS)]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    with contextlib.ExitStack() as stack:
        for command in commands:
            child = subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True, **quiet)
            stack.callback(end, child)
        time.sleep(5)
        run = ours.start("tables", 99, "--all", "--java=off", "-v", seconds=5, formats=["folded"])
        _, report = ours.result(run)
    tables, spaces, kib, refused = map(int, UNWINDING.search(run.err).groups())
    figures.note(f"{len(commands)} processes of our own, {tables} tables")
    figures.say("processes whose code is known", spaces, least=200)
    figures.say("their tables", kib / 1024, "MiB", most=64)
    figures.say("tables for which there was no room", refused, most=0)
    figures.note(f"all maps: {report['cost']['maps_bytes'] / 2**20:.1f} MiB")


def end(child):
    """Ends a process and its children."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, 9)
    child.wait()
