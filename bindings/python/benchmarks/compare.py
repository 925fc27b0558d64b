"""TerraceDB beside rocksdict, plyvel, lmdb and diskcache, from Python: `compare.py [--num N] [--rounds R]`.

Each store runs in a process of its own, by turns, with keys of 16 bytes and values of 100 bytes of which half
compresses, all in memory. No write is synced; after a kill of the process every store but diskcache has its
writes. Prints a Markdown table of operations a second: the best of the rounds, and the ratio of TerraceDB to
the store.
"""

import argparse
import json
import random
import resource
import subprocess
import sys
import tempfile
import time

MEMORY = 512 << 20
BATCH = 1000
MANY = 100


def key(number):
    return b"%016d" % (number * 0x9E3779B1 % (1 << 32))


def value(number):
    return random.Random(number).randbytes(50) + b"v" * 50


class TerraceDb:
    def __init__(self, path):
        import terracedb

        self.db = terracedb.open(path, memory=MEMORY)
        self.get, self.close = self.db.get, self.db.close
        self.put, self.get_many = self.db.put, self.db.multi_get

    def write(self, pairs):
        with self.db.write_batch() as batch:
            for each, content in pairs:
                batch.put(each, content)

    def scan(self):
        return self.db.iterator()


class Rocksdict:
    def __init__(self, path):
        import rocksdict

        options = rocksdict.Options(raw_mode=True)
        table = rocksdict.BlockBasedOptions()
        table.set_block_cache(rocksdict.Cache(MEMORY // 2))
        table.set_bloom_filter(10, False)
        options.set_block_based_table_factory(table)
        self.batch, self.db = rocksdict.WriteBatch, rocksdict.Rdict(path, options)
        self.get, self.close, self.put = self.db.get, self.db.close, self.db.put
        # A list of keys is a lookup of many.
        self.get_many = self.db.get

    def write(self, pairs):
        batch = self.batch(raw_mode=True)
        for each, content in pairs:
            batch.put(each, content)
        self.db.write(batch)

    def scan(self):
        return self.db.items()


class Plyvel:
    def __init__(self, path):
        import plyvel

        self.db = plyvel.DB(
            path, create_if_missing=True, lru_cache_size=MEMORY // 2, bloom_filter_bits=10, write_buffer_size=64 << 20
        )
        self.get, self.close, self.put = self.db.get, self.db.close, self.db.put

    def get_many(self, keys):
        return [self.get(each) for each in keys]

    def write(self, pairs):
        with self.db.write_batch() as batch:
            for each, content in pairs:
                batch.put(each, content)

    def scan(self):
        return self.db.iterator()


class Lmdb:
    def __init__(self, path):
        import lmdb

        self.db = lmdb.open(path, map_size=8 << 30, sync=False, metasync=False)
        self.close = self.db.close

    def get(self, each):
        with self.db.begin() as transaction:
            return transaction.get(each)

    def put(self, each, content):
        with self.db.begin(write=True) as transaction:
            transaction.put(each, content)

    def get_many(self, keys):
        with self.db.begin() as transaction:
            return [transaction.get(each) for each in keys]

    def write(self, pairs):
        with self.db.begin(write=True) as transaction:
            for each, content in pairs:
                transaction.put(each, content)

    def scan(self):
        with self.db.begin() as transaction:
            yield from transaction.cursor()


class Diskcache:
    def __init__(self, path):
        import diskcache

        self.db = diskcache.Cache(path, eviction_policy="none", size_limit=1 << 40)
        self.get, self.close, self.put = self.db.get, self.db.close, self.db.set

    def get_many(self, keys):
        return [self.get(each) for each in keys]

    def write(self, pairs):
        with self.db.transact():
            for each, content in pairs:
                self.put(each, content)

    def scan(self):
        return ((each, self.db[each]) for each in self.db)


STORES = {
    "terracedb": TerraceDb,
    "rocksdict": Rocksdict,
    "plyvel": Plyvel,
    "lmdb": Lmdb,
    "diskcache": Diskcache,
}
# SQLite and pickle: a tenth of the entries is enough to know its rates.
FEWER = {"diskcache": 10}


def run(name, count):
    """The rates of one store."""
    count //= FEWER.get(name, 1)
    pairs = [(key(number), value(number)) for number in range(count)]
    random.Random(1).shuffle(pairs)
    chosen = random.Random(2).choices([each for each, _ in pairs], k=count // 2)
    missing = [each[:-1] + b"x" for each in chosen]
    rates = {}

    def timed(what, operations, work):
        began = time.perf_counter()
        work()
        rates[what] = operations / (time.perf_counter() - began)

    with tempfile.TemporaryDirectory() as path:
        store = STORES[name](path + "/store")

        def load():
            for at in range(0, count, BATCH):
                store.write(pairs[at : at + BATCH])

        def gets():
            get = store.get
            for each in chosen:
                if get(each) is None:
                    raise AssertionError(each)

        def misses():
            get = store.get
            for each in missing:
                if get(each) is not None:
                    raise AssertionError(each)

        def many():
            for at in range(0, len(chosen), MANY):
                got = store.get_many(chosen[at : at + MANY])
                if None in got:
                    raise AssertionError(at)

        def puts():
            put = store.put
            for each, content in pairs[: count // 4]:
                put(each, content)

        def scan():
            found = sum(1 for _ in store.scan())
            if found != count:
                raise AssertionError(f"{found} of {count}")

        timed("load, batches of 1000", count, load)
        timed("get", len(chosen), gets)
        timed("get, missing", len(missing), misses)
        timed("get of 100 keys", len(chosen), many)
        timed("put", count // 4, puts)
        timed("scan", count, scan)
        store.close()
    rates["peak RSS, MiB"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return rates


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--num", type=int, default=500_000, help="entries (default: 500000)")
    parser.add_argument("--rounds", type=int, default=3, help="rounds, by turns (default: 3)")
    parser.add_argument("--store", choices=STORES, help="this store only, as JSON")
    arguments = parser.parse_args()
    if arguments.store:
        print(json.dumps(run(arguments.store, arguments.num)))
        return
    best = {name: {} for name in STORES}
    for _ in range(arguments.rounds):
        for name in STORES:
            words = [sys.executable, __file__, "--store", name, "--num", str(arguments.num)]
            done = subprocess.run(words, stdout=subprocess.PIPE, check=True)
            for what, rate in json.loads(done.stdout).items():
                pick = min if what.startswith("peak") else max
                best[name][what] = pick(rate, best[name].get(what, rate))
    print("| entries a second | " + " | ".join(STORES) + " |")
    print("|---" * (len(STORES) + 1) + "|")
    for what in best["terracedb"]:
        ours = best["terracedb"][what]
        cells = [f"{best[name][what]:,.0f} ({ours / best[name][what]:.2f})" for name in STORES]
        cells[0] = f"{ours:,.0f}"
        print(f"| {what} | " + " | ".join(cells) + " |")


main()
