"""Figures: measurements, their promised bounds, and whether they are within them."""

import math


class Figures:
    """A table that prints line by line."""

    def __init__(self):
        self.broken, self.weak, self.lacking = [], [], []
        self.title = ""

    def heading(self, text):
        self.title = text
        print(f"\n{text}\n{'-' * len(text)}", flush=True)

    def say(self, name, value, unit="", most=None, least=None):
        """Prints a figure, and checks its bound if it has one."""
        if not self._line(name, value, unit, "BROKEN", most, least):
            self.broken.append(f"{name.strip()} ({self.title})")

    def need(self, name, value, least):
        """Prints a figure without which others prove little, such as the number of samples; checks its size."""
        if not self._line(name, value, "", "TOO FEW", None, least):
            self.weak.append(f"{name.strip()} ({self.title})")

    def lack(self, what, why):
        """Notes a measurement that is left out."""
        self.lacking.append(what)
        self.note(f"LEFT OUT: {what}: {why}")

    def note(self, text):
        print(f"    {text}", flush=True)

    def verdict(self):
        """Prints broken promises, weak figures and missing measurements; returns whether all promises are kept."""
        print(f"\nbroken promises: {'; '.join(self.broken) or 'none'}")
        print(f"too little to prove what is promised: {'; '.join(self.weak) or 'nothing'}")
        print(f"left out: {'; '.join(self.lacking) or 'nothing'}")
        return not self.broken

    @staticmethod
    def _line(name, value, unit, otherwise, most, least):
        text = f"{value:.3f}" if isinstance(value, float) else str(value)
        kept, verdict = True, ""
        if most is not None or least is not None:
            bound = f"<= {rounded(most)}" if most is not None else f">= {rounded(least)}"
            kept = not (isinstance(value, float) and math.isnan(value))
            kept = kept and (value <= most if most is not None else value >= least)
            verdict = f"  {'ok' if kept else otherwise} ({bound})"
        print(f"  {name:<62}{text:>12} {unit:<4}{verdict}", flush=True)
        return kept


def rounded(bound):
    return f"{bound:.4g}" if isinstance(bound, float) else bound
