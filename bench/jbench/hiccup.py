"""How long a program pauses while the agent is attached."""

import statistics
import subprocess

from . import jdks
from .jvm import EXACT, Jvm

CLASSES, METHODS = 120, 100
WINDOWS = 20
EXCESS = "excess (ms)"


def generate(cache):
    """Compiles classes with 12,000 methods that allocate nothing."""
    directory = cache.directory / "hiccup"
    if (directory / f"Methods{CLASSES - 1}.class").exists():
        return directory
    sources = directory / "src"
    sources.mkdir(parents=True, exist_ok=True)
    for c in range(CLASSES):
        methods = "".join(
            f"  static int m{m}(int x) {{ int y = x; for (int i = 0; i < {3 + m % 7}; i++)"
            f" y = y * {2 * (c * METHODS + m) + 3} + (y >>> {1 + m % 13}); return y; }}\n"
            for m in range(METHODS)
        )
        calls = "".join(f"    x = m{m}(x);\n" for m in range(METHODS))
        run = f"  public int run(int x) {{\n{calls}    return x;\n  }}\n"
        text = f"public final class Methods{c} implements Hiccup.Step {{\n{methods}{run}}}\n"
        (sources / f"Methods{c}.java").write_text(text, encoding="ascii")
    files = sorted(sources.glob("*.java"))
    subprocess.run([*jdks.builds(), "-cp", cache.classes, "-d", directory, *files], check=True)
    return directory


def measure(cache, jdk, attach, work, attaches=5):
    """Measures windows without attaching, then windows during `attach(pid)`, which runs a profiler for a moment."""
    classes = generate(cache)
    path = f"{classes}:{cache.classes}"
    # Each method must be compiled by itself, as in a large program, and not inlined.
    flags = [*EXACT, "-XX:CompileCommand=quiet", "-XX:CompileCommand=dontinline,Methods*::m*", "-XX:+UseSerialGC"]
    with Jvm(jdk, path, work / "hiccup.log", "Hiccup", str(CLASSES), flags=flags) as jvm:
        jvm.wait_for("warm", 1, 300)
        compiled = jvm.compiled_methods()
        before = len(jvm.lines())
        quiet = jvm.wait_for(r"worst (\d+)", before + WINDOWS, 120)[before:]
        during = []
        for _ in range(attaches):
            begin = len(jvm.lines()) - 1
            attach(jvm.pid)
            during.append(max(windows(jvm.wait_for(r"worst (\d+)", len(jvm.lines()), 30)[max(0, begin - 1):])))
    quiet = windows(quiet)
    return {
        "compiled methods": compiled,
        "worst pause of a window, median of 20 (ms)": statistics.median(quiet),
        "worst pause of 20 windows (ms)": max(quiet),
        "worst pause during attach, median (ms)": statistics.median(during),
        "worst pause during attach (ms)": max(during),
        EXCESS: max(during) - statistics.median(quiet),
    }


def windows(matches):
    return [int(m.group(1)) / 1000 for m in matches]
