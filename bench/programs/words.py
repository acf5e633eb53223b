"""Counts, sorts, packs and hashes words again and again: the interpreter, its C functions, and libraries below them."""

import collections
import hashlib
import json
import random
import zlib

print("ready", flush=True)
generator = random.Random(1)
while True:
    words = [f"word-{generator.randrange(5000):x}" for _ in range(20000)]
    counts = collections.Counter(words)
    order = sorted(counts, key=lambda word: (-counts[word], word))
    hashlib.sha256(zlib.compress(json.dumps(order).encode())).hexdigest()
