"""Java programs that run while they are measured."""

import pathlib
import re
import socket
import subprocess
import time

from . import jdks

FLAGS = ["-Xmx2g"]
# Debug records for every instruction, not only for calls and safepoints: then profilers agree on inlining.
EXACT = ["-XX:+UnlockDiagnosticVMOptions", "-XX:+DebugNonSafepoints"]

# A program is in steady state when its JVM's compilers use less than this share of a core for this time.
WARM_SECONDS, WARM_SHARE = 10, 0.05
COMPILERS = ["C1 CompilerThre", "C2 CompilerThre"]


class Jvm:
    """A running JVM; a context manager that ends it."""

    def __init__(self, jdk, class_path, log, *program, flags=()):
        self.jdk = jdk
        self.log = pathlib.Path(log)
        command = [*jdk.java, *FLAGS, *flags, "-cp", class_path, *program]
        with open(self.log, "w", encoding="utf-8") as out:
            # A pipe: some programs run until the end of their input.
            self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=out, stderr=subprocess.STDOUT)
        self.pid = self.process.pid

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.stdin.close()
        self.process.kill()
        self.process.wait()

    def lines(self):
        """The complete lines that the program has printed."""
        return self.log.read_text(encoding="utf-8").split("\n")[:-1]

    def wait_for(self, pattern, count, seconds):
        """Waits until `count` lines of the output match, and returns the matches."""
        end = time.monotonic() + seconds
        while True:
            found = [m for m in map(re.compile(pattern).match, self.lines()) if m]
            if len(found) >= count:
                return found
            if self.process.poll() is not None or time.monotonic() > end:
                raise RuntimeError(f"{self.log}: {len(found)} of {count} lines like {pattern}")
            time.sleep(0.2)

    def jcmd(self, *arguments):
        command = [jdks.tool("jcmd"), str(self.pid), *arguments]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    def load(self, library, options):
        """Loads an agent by its path. Uses the attach protocol, which JDK 8 supports, too."""
        self.jcmd("VM.version")  # makes the JVM listen
        with socket.socket(socket.AF_UNIX) as stream:
            stream.connect(f"/tmp/.java_pid{self.pid}")
            stream.sendall("\0".join(["1", "load", str(library), "true", options, ""]).encode())
            status, _, said = b"".join(iter(lambda: stream.recv(4096), b"")).decode().partition("\n")
        if status != "0" or said.split()[-1:] != ["0"]:
            raise RuntimeError(f"{library}: {options}: {status}: {said}")

    def compiled_methods(self):
        """The number of compiled methods; None for JDK 8, which does not report them."""
        if jdks.major(self.jdk.version) == "8":
            return None
        return len(self.jcmd("Compiler.codelist").splitlines())

    def wait_until_warm(self, seconds):
        """Waits until the compilers have little work left, at most `seconds`; returns whether that happened."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            before = self.cpu_seconds(*COMPILERS)
            time.sleep(WARM_SECONDS)
            if self.cpu_seconds(*COMPILERS) - before < WARM_SHARE * WARM_SECONDS:
                return True
        return False

    def cpu_seconds(self, *threads):
        """CPU time of all threads so far, or of those with these names, in seconds with nanosecond precision."""
        total = 0
        for task in pathlib.Path(f"/proc/{self.pid}/task").iterdir():
            try:
                if threads and (task / "comm").read_text(encoding="utf-8").strip() not in threads:
                    continue
                total += int((task / "schedstat").read_text(encoding="ascii").split()[0])
            except (FileNotFoundError, ProcessLookupError):
                pass
        return total / 1e9
