"""Figures: what was measured, what is promised, and whether it is kept."""

import math


class Figures:
    """A table that fills line by line."""

    def __init__(self):
        self.broken = []

    def heading(self, text):
        print(f"\n{text}\n{'-' * len(text)}", flush=True)

    def say(self, name, value, unit="", most=None, least=None):
        """One figure, and its bound if there is one."""
        text = f"{value:.3f}" if isinstance(value, float) else str(value)
        verdict = ""
        if most is not None or least is not None:
            bound = f"<= {most}" if most is not None else f">= {least}"
            kept = not (isinstance(value, float) and math.isnan(value))
            kept = kept and (value <= most if most is not None else value >= least)
            verdict = f"  {'ok' if kept else 'BROKEN'} ({bound})"
            if not kept:
                self.broken.append(name)
        print(f"  {name:<62}{text:>12} {unit:<4}{verdict}", flush=True)

    def note(self, text):
        print(f"    {text}", flush=True)
