"""Writes 200,000 distinct stacks to files: a worst case for the outputs."""

import random

from .tools import Finished

STACKS, DEPTH, METHODS = 200_000, 40, 20_000


def generate(path):
    """Generates stacks that share their roots and differ at their leaves, like real ones."""
    dice = random.Random(7)
    names = [f"com.example.p{i % 97}.Class{i % 1999}.method{i}_[j]" for i in range(METHODS)]
    seen = set()
    while len(seen) < STACKS:
        walk, at = [], dice.randrange(40)
        for _ in range(dice.randint(8, DEPTH)):
            at = (at * 31 + dice.choice((1, 2, 3, 5))) % METHODS
            walk.append(names[at])
        seen.add(";".join(["java", "start_thread", *walk]))
    with open(path, "w", encoding="ascii") as out:
        out.writelines(f"{stack} {dice.randint(1, 9)}\n" for stack in sorted(seen))


def measure(binary, work, figures):
    figures.heading("200,000 distinct stacks")
    source = work / "many.folded"
    generate(source)
    for extension in ("svg", "pb.gz"):
        run = Finished([binary, "convert", source, work / f"many.{extension}"], work).wait()
        figures.say(f"to {extension}", run.wall, "s", most=2)
        figures.say(f"to {extension}, memory", run.peak_kib / 1024, "MiB", most=250)
