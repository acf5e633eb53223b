"""A cgroup with a CPU quota."""

import contextlib
import os
import pathlib

ROOT = pathlib.Path("/sys/fs/cgroup")
PERIOD_US = 100_000


class Quota:
    """A cgroup of the hierarchy that limits CPU time."""

    def __init__(self, path):
        self.path = path

    def enter(self, pid):
        (self.path / "cgroup.procs").write_text(str(pid), encoding="ascii")

    def throttled(self):
        """Throttled time until now, in seconds: the sum over CPUs on which threads of the group could not run."""
        stat = dict(line.split() for line in (self.path / "cpu.stat").read_text(encoding="ascii").splitlines())
        return int(stat["throttled_time"]) / 1e9 if "throttled_time" in stat else int(stat["throttled_usec"]) / 1e6


@contextlib.contextmanager
def limited(cpus):
    """A context manager with a cgroup that has this many CPUs; None if no hierarchy limits CPU time."""
    v1 = ROOT / "cpu"
    above = v1 if (v1 / "cgroup.procs").exists() else ROOT
    if above == ROOT and "cpu" not in (ROOT / "cgroup.subtree_control").read_text(encoding="ascii").split():
        yield None
        return
    path = above / f"jbpf-prof-bench-{os.getpid()}"
    path.mkdir()
    try:
        us = round(cpus * PERIOD_US)
        if above == v1:
            (path / "cpu.cfs_quota_us").write_text(str(us), encoding="ascii")
        else:
            (path / "cpu.max").write_text(f"{us} {PERIOD_US}", encoding="ascii")
        yield Quota(path)
    finally:
        path.rmdir()
