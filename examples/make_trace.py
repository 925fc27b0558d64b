"""Writes the zipfian trace of this folder: `python3 examples/make_trace.py`.

Keys are drawn from a zipfian distribution (theta 0.99), so a few are hot and most are cold; then
each rank is given a key of its own by a fixed shuffle, so that hot keys lie anywhere in key order.
A record is the key as 8 bytes, big-endian.
"""

import bisect
import itertools
import lzma
import pathlib
import random

KEYS = 40_000
RECORDS = 90_000
THETA = 0.99

rng = random.Random(1)
weights = itertools.accumulate((rank + 1) ** -THETA for rank in range(KEYS))
cumulative = list(weights)
keys = list(range(KEYS))
rng.shuffle(keys)

records = bytearray()
for _ in range(RECORDS):
    rank = bisect.bisect_left(cumulative, rng.random() * cumulative[-1])
    records += keys[rank].to_bytes(8, "big")

path = pathlib.Path(__file__).with_name("zipfian.u64be.xz")
# A dictionary no larger than the trace, so that reading it takes little memory.
filters = [{"id": lzma.FILTER_LZMA2, "preset": 9, "dict_size": 1 << 20}]
path.write_bytes(lzma.compress(bytes(records), filters=filters))
