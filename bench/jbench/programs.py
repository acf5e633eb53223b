"""The Java programs that profilers are compared on: how each is started, and when it is warm."""

import contextlib
import shutil
import subprocess
import time

from .jvm import Jvm

SCALA, WEB, CHURN = "scala", "web", "churn"
ALL = [SCALA, WEB, CHURN]
TITLES = {SCALA: "Scala compiler", WEB: "web service under load", CHURN: "classes that come and go"}
# Of programs that do the same all the time, until their code is compiled.
WARM_SECONDS = 20
# The load ends by itself, whatever becomes of us.
LOAD_SECONDS = 900


def missing(name):
    """Why a program cannot run here."""
    return "no wrk for its load: apt-get install wrk" if name == WEB and not shutil.which("wrk") else None


@contextlib.contextmanager
def running(name, cache, jdk, log, flags, warm_rounds):
    """The JVM, warm; a context manager that ends it."""
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
    command = ["wrk", "-t", "1", "-c", "16", "-d", str(LOAD_SECONDS), f"http://127.0.0.1:{port}/items"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as wrk:
        try:
            yield
        finally:
            wrk.terminate()
