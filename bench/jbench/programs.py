"""The Java programs on which profilers are compared: how each starts, and when it is warm."""

import contextlib
import shutil
import subprocess
import time

from .cache import BENCH
from .jvm import Jvm

SCALA, WEB, CHURN = "scala", "web", "churn"
ALL = [SCALA, WEB, CHURN]
TITLES = {SCALA: "Scala compiler", WEB: "web service under load", CHURN: "classes that come and go"}
# Warm-up of programs whose work does not change, until their code is compiled.
WARM_SECONDS = 20
# The load ends by itself, even if the benchmark is killed.
LOAD_SECONDS = 900
NO_COMPILER = "no C compiler: apt-get install gcc"


def missing(name):
    """Why a program cannot run here, or None."""
    return "no wrk for its load: apt-get install wrk" if name == WEB and not shutil.which("wrk") else None


def compiled(name, work, *flags):
    """Compiles a C program of the benchmark, and returns its path; None without a compiler."""
    compiler, binary = shutil.which("cc"), work / name
    if not compiler:
        return None
    subprocess.run([compiler, "-O2", *flags, "-o", binary, BENCH / f"programs/{name}.c"], check=True)
    return binary


@contextlib.contextmanager
def running(name, cache, jdk, log, flags, warm_rounds):
    """A context manager with the warm JVM, which it ends."""
    arguments = {
        SCALA: ["CompileLoop", str(cache.sources), str(cache.scala_out), cache.class_path()],
        WEB: ["Web"],
        CHURN: ["Churn", "0"],
    }[name]
    with Jvm(jdk, cache.class_path(), log, *arguments, flags=flags) as jvm, contextlib.ExitStack() as more:
        if name == SCALA:
            jvm.wait_for(r"round", warm_rounds, 1800)
        elif name == WEB:
            more.enter_context(load(jvm.wait_for(r"port (\d+)", 1, 120)[0][1]))
        if name != SCALA:
            time.sleep(WARM_SECONDS)
        yield jvm


@contextlib.contextmanager
def load(port):
    with subprocess.Popen(wrk(url(port), LOAD_SECONDS), stdout=subprocess.DEVNULL) as child:
        try:
            yield
        finally:
            child.terminate()


@contextlib.contextmanager
def serving(cache, jdk, log):
    """A context manager with the URL of the warm web service, without load."""
    with Jvm(jdk, cache.class_path(), log, "Web") as jvm:
        address = url(jvm.wait_for(r"port (\d+)", 1, 120)[0][1])
        subprocess.run(wrk(address, WARM_SECONDS), check=True, stdout=subprocess.DEVNULL)
        yield address


def url(port):
    return f"http://127.0.0.1:{port}/items"


def wrk(address, seconds, *options):
    """The command of the load."""
    return ["wrk", "-t", "1", "-c", "16", "-d", str(seconds), *options, address]
