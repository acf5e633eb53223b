"""`jbpf-prof diff` on the Scala compiler while it compiles one source file in two versions.

Version 1 passes type class instances by hand. In version 2 the compiler searches for them; the rest of the file is
equal. Each run has a JVM of its own.
"""

import json
import subprocess

from .jvm import EXACT, Jvm

METHODS = 60
TYPES = ["List[(Int, String)]", "List[(String, List[Int])]", "(List[Int], List[(Int, Int)])"]
BY_HAND = [
    "showList(using showPair(using showInt, showString))",
    "showList(using showPair(using showString, showList(using showInt)))",
    "showPair(using showList(using showInt), showList(using showPair(using showInt, showInt)))",
]
INSTANCES = """package prices
trait Show[A] { def show(a: A): String }
given showInt: Show[Int] = new Show[Int] { def show(a: Int) = a.toString }
given showString: Show[String] = new Show[String] { def show(a: String) = a }
given showList: [A] => (s: Show[A]) => Show[List[A]] = new Show[List[A]] { def show(a: List[A]) = a.map(s.show).mkString(",") }
given showPair: [A, B] => (s: Show[A], t: Show[B]) => Show[(A, B)] =
  new Show[(A, B)] { def show(a: (A, B)) = s.show(a._1) + t.show(a._2) }
object Prices {
"""
# Rounds until most of the compiler's code is compiled.
WARM = 25


def source(version):
    """One file, whose last methods differ between the versions."""
    methods = []
    for at in range(METHODS):
        of, by_hand = TYPES[at % len(TYPES)], BY_HAND[at % len(TYPES)]
        instance = by_hand if version == 1 else f"summon[Show[{of}]]"
        methods.append(f"  def show{at}(a: {of}): String = {{ val n = {at}; {instance}.show(a) + n.toString }}\n")
    return INSTANCES + "".join(methods) + "}\n"


def profile(bench, jdk, version, name, seconds):
    """A page of a compiler that compiles this version again and again."""
    home = bench.work / f"diff-{name}"
    (home / "classes").mkdir(parents=True)
    (home / "Prices.scala").write_text(source(version), encoding="utf-8")
    cache, page = bench.cache, home.with_suffix(".html")
    loop = ["CompileLoop", str(home), str(home / "classes"), cache.class_path()]
    with Jvm(jdk, cache.class_path(), bench.work / f"diff-{name}.log", *loop, flags=EXACT) as jvm:
        jvm.wait_for("round", WARM, 600)
        options = ["-F", "99", "-d", str(seconds), "-p", str(jvm.pid), "--report", "none", "-o", str(page)]
        subprocess.run([bench.ours.binary, "-q", *options], check=True)
    return page


def compare(bench, name, before, after):
    out = bench.work / f"diff-{name}.json"
    done = subprocess.run([bench.ours.binary, "diff", "-o", out, *before, "--", *after], stdout=subprocess.PIPE, text=True)
    if done.returncode not in (0, 5):
        raise RuntimeError(f"diff: exit code {done.returncode}")
    found = json.loads(out.read_text(encoding="utf-8"))
    bench.figures.note(f"{name}: {found['sentence']}")
    return done.returncode, [one for one in found["functions"] if one["finding"]]


def measure(bench, jdk):
    """Two sides of runs of version 1, then version 1 against version 2."""
    runs, seconds = bench.args.turns, bench.args.seconds
    bench.figures.heading(f"diff on {jdk.name}: {runs} runs of {seconds} s a side")
    # In turns, so that a change of the machine's load is on all sides.
    sides = {"before": 1, "again": 1, "after": 2}
    pages = {side: [] for side in sides}
    for run in range(runs):
        for side, version in sides.items():
            pages[side].append(profile(bench, jdk, version, f"{side}-{run}", seconds))
    code, _ = compare(bench, "version 1 with itself", pages["before"], pages["again"])
    bench.figures.say("exit code of version 1 with itself", code, most=0)
    code, functions = compare(bench, "version 1 with version 2", pages["before"], pages["after"])
    bench.figures.say("exit code of version 1 with version 2", code, least=5)
    for one in functions[:5]:
        total = one["total"]
        bench.figures.note(f"{one['name']}: {total['points']:+.1f} points ±{total['interval_points']:.1f}")
    search = [one for one in functions if "Implicit" in one["name"] and one["total"]["points"] > 0]
    bench.figures.say("functions of the search for instances among the findings", len(search), least=1)
