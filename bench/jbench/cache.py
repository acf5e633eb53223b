"""Files that the benchmark needs and the repository does not have: downloaded once, kept outside the repository."""

import os
import pathlib
import shutil
import subprocess
import zipfile

from . import jdks

BENCH = pathlib.Path(__file__).resolve().parent.parent
# Parts of the Scala compiler that the Scala compiler compiles: 24,000 lines, some seconds a round when warm.
SOURCES = ["ast", "parsing", "util", "reporting"]


class Cache:
    """Directories of downloaded and built files."""

    def __init__(self, directory=None):
        home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
        self.directory = pathlib.Path(directory or os.environ.get("JBPF_PROF_CACHE") or f"{home}/jbpf-prof") / "bench"
        self.jars, self.classes, self.sources = (self.directory / d for d in ("lib", "classes", "sources"))
        self.scala_out = self.directory / "scala-out"
        self.agent = self.directory / "libasyncProfiler.so"

    def fill(self):
        """Downloads and builds missing files."""
        for directory in (self.jars, self.classes, self.sources, self.scala_out):
            directory.mkdir(parents=True, exist_ok=True)
        if not all(list(self.jars.glob(wanted)) for wanted in ("scala3-compiler_3-*-sources.jar", "vertx-core-*.jar")):
            goal = ["dependency:copy-dependencies", f"-DoutputDirectory={self.jars}"]
            subprocess.run(["mvn", "-q", "-B", "-f", BENCH / "pom.xml", *goal], check=True)
        self._unpack("scala3-compiler_3-*-sources.jar", self._source_file)
        self._unpack("async-profiler-*-linux-x64.jar", self._agent_file)
        programs = sorted((BENCH / "programs").glob("*.java"))
        built = [self.classes / f"{p.stem}.class" for p in programs]
        if any(not b.exists() or b.stat().st_mtime < p.stat().st_mtime for p, b in zip(programs, built)):
            subprocess.run(
                [*jdks.builds(), "-cp", self.class_path(), "-d", self.classes, *programs], check=True
            )

    def class_path(self):
        jars = [str(jar) for jar in sorted(self.jars.glob("*.jar")) if not jar.name.endswith("-sources.jar")]
        return ":".join([str(self.classes), *jars])

    def _unpack(self, pattern, place):
        (jar,) = self.jars.glob(pattern)
        with zipfile.ZipFile(jar) as archive:
            for entry in archive.namelist():
                target = place(entry)
                if target and not target.exists():
                    target.parent.mkdir(parents=True, exist_ok=True)
                    with archive.open(entry) as source, open(target, "wb") as out:
                        shutil.copyfileobj(source, out)

    def _source_file(self, entry):
        parts = entry.split("/")
        wanted = entry.endswith(".scala") and parts[:3] == ["dotty", "tools", "dotc"] and parts[3] in SOURCES
        return self.sources / entry if wanted else None

    def _agent_file(self, entry):
        return self.agent if entry.endswith("/libasyncProfiler.so") else None
