"""Java programs that run while they are measured."""

import pathlib
import re
import subprocess
import time

FLAGS = ["-XX:+UnlockDiagnosticVMOptions", "-XX:+DebugNonSafepoints", "-Xmx2g"]


class Jvm:
    """A running JVM; a context manager that ends it."""

    def __init__(self, java_home, class_path, log, *program, flags=()):
        self.java_home = pathlib.Path(java_home)
        self.log = pathlib.Path(log)
        command = [self.java_home / "bin/java", *FLAGS, *flags, "-cp", class_path, *program]
        with open(self.log, "w", encoding="utf-8") as out:
            self.process = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT)
        self.pid = self.process.pid

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()

    def lines(self):
        return self.log.read_text(encoding="utf-8").splitlines()

    def wait_for(self, pattern, count, seconds):
        """Waits until `count` lines of its output match, and gives them."""
        end = time.monotonic() + seconds
        while True:
            found = [m for m in map(re.compile(pattern).match, self.lines()) if m]
            if len(found) >= count:
                return found
            if self.process.poll() is not None or time.monotonic() > end:
                raise RuntimeError(f"{self.log}: {len(found)} of {count} lines like {pattern}")
            time.sleep(0.2)

    def jcmd(self, *arguments):
        command = [self.java_home / "bin/jcmd", str(self.pid), *arguments]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    def compiled_methods(self):
        return len(self.jcmd("Compiler.codelist").splitlines())

    def cpu_seconds(self, thread=None):
        """CPU time of all its threads so far, or of those of a name, in nanosecond-exact seconds."""
        total = 0
        for task in pathlib.Path(f"/proc/{self.pid}/task").iterdir():
            try:
                if thread and (task / "comm").read_text(encoding="utf-8").strip() != thread:
                    continue
                total += int((task / "schedstat").read_text(encoding="ascii").split()[0])
            except (FileNotFoundError, ProcessLookupError):
                pass
        return total / 1e9
