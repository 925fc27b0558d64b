import datetime
import multiprocessing
import pickle
import subprocess
import sys
import textwrap
import threading
import time

import pytest
import terracedb


def test_entries_survive_a_close(path):
    with terracedb.open(path, memory="64MiB") as db:
        db[b"k"] = b"v"
        users = db.keyspace("users")
        users[b"ada"] = b"London"
    assert db.closed
    with pytest.raises(terracedb.ClosedError):
        db[b"k"]
    with pytest.raises(terracedb.ClosedError):
        users[b"ada"]
    db.close()
    with terracedb.open(path, memory=64 << 20) as db:
        assert db[b"k"] == b"v" and db.keyspaces() == ["default", "users"]
        assert db.keyspace("users", create=False)[b"ada"] == b"London"


def test_a_close_unlocks_the_directory_although_objects_are_left(path):
    db = terracedb.open(path)
    db[b"k"] = b"v"
    left = db.iterator(), db.snapshot(), db.transaction(), db.write_batch(), db.keyspace("other")
    with pytest.raises(terracedb.LockedError):
        terracedb.open(path)
    db.close()
    with terracedb.open(path) as again:
        assert again[b"k"] == b"v"
    with pytest.raises(terracedb.ClosedError):
        next(left[0])
    with pytest.raises(terracedb.ClosedError):
        left[1].get(b"k")


def test_other_processes_read_a_store_that_is_open(path):
    script = """
import sys, terracedb
with terracedb.open(sys.argv[1], memory="64MiB", read_only=True) as db:
    try:
        db[b"k"] = b"w"
    except terracedb.InvalidError:
        print(db[b"k"].decode())
"""
    with terracedb.open(path, memory="64MiB") as db:
        db[b"k"] = b"v"
        readers = [
            subprocess.Popen([sys.executable, "-c", script, str(path)], stdout=subprocess.PIPE)
            for _ in range(3)
        ]
        assert [reader.communicate()[0] for reader in readers] == [b"v\n"] * 3
        with terracedb.open(path, memory="64MiB", read_only=True) as reader:
            db[b"k"] = b"w"
            assert reader[b"k"] == b"v"
            with reader.refresh() as later:
                assert later[b"k"] == b"w"
            assert reader[b"k"] == b"v"
            with pytest.raises(terracedb.InvalidError):
                db.refresh()


def test_a_store_that_is_missing_is_not_found(path):
    with pytest.raises(terracedb.Error):
        terracedb.open(path, create=False)
    assert not path.exists()


def test_keyspaces_of_all_kinds(db):
    keep = db.keyspace("photos", hashed="keep", base_filter_bits=8)
    window = db.keyspace("seen", hashed="window=16MiB")
    assert keep.hashed.startswith("keep") and window.hashed.startswith("window") and db.hashed is None
    keep[b"a"], window[b"b"] = b"1", b"2"
    window.put(b"c", b"3", durability="unlogged")
    assert keep[b"a"] == b"1" and window[[b"b", b"c"]] == [b"2", b"3"]
    assert sorted(window.items()) == [(b"b", b"2"), (b"c", b"3")]
    with pytest.raises(terracedb.InvalidError, match="order"):
        keep.iterator(start=b"a")
    with pytest.raises(terracedb.InvalidError, match="order"):
        next(keep.iterator(reverse=True))
    with pytest.raises(terracedb.InvalidError):
        db.keyspace("photos", hashed="window=1GiB")
    with pytest.raises(KeyError) as missing:
        db.keyspace("photso", create=False)
    assert isinstance(missing.value, terracedb.NotFoundError) and "photso" in str(missing.value)
    assert db.drop_keyspace("seen") and not db.drop_keyspace("seen")
    with pytest.raises(terracedb.ClosedError):
        window[b"b"]


def test_merge_operators(db):
    counters = db.keyspace("counters", merge_operator="i64-add")
    for _ in range(3):
        counters.merge(b"visits", (5).to_bytes(8, "little", signed=True))
    assert int.from_bytes(counters[b"visits"], "little") == 15
    with pytest.raises(terracedb.InvalidError):
        counters.merge(b"visits", b"xyz")
    with pytest.raises(terracedb.InvalidError):
        db.merge(b"visits", b"1")


def test_entries_expire(db):
    db.put(b"soon", b"v", ttl=0.05)
    db.put(b"late", b"v", ttl=datetime.timedelta(hours=1))
    db[b"never"] = b"v"
    assert db.expires_at(b"never") is None and db.expires_at(b"missing") is None
    assert db.expires_at(b"late") > time.time() + 3000
    while b"soon" in db:
        time.sleep(0.01)
    assert list(db) == [b"late", b"never"]


def test_a_batch_is_written_whole_or_not_at_all(db):
    other = db.keyspace("other")
    with db.write_batch(durability="sync") as batch:
        batch.put(b"a", b"1")
        batch[b"b"] = b"2"
        batch.put(b"c", b"3", keyspace=other, ttl=3600)
        assert len(batch) == 3 and b"a" not in db
    assert db[[b"a", b"b"]] == [b"1", b"2"] and other[b"c"] == b"3"
    with pytest.raises(RuntimeError):
        with db.write_batch() as batch:
            batch.delete(b"a")
            batch.delete_range(start=b"b")
            raise RuntimeError
    assert len(db) == 2
    with db.write_batch() as batch:
        del batch[b"a"]
        batch.delete_range(start=b"b", stop=b"c")
    assert len(db) == 0


def test_a_batch_of_another_store_is_refused(db, tmp_path):
    with terracedb.open(tmp_path / "second") as second:
        with pytest.raises(terracedb.InvalidError):
            db.write_batch().put(b"a", b"1", keyspace=second)


def test_transactions_conflict_and_are_repeated(db):
    db[b"n"] = b"1"
    with pytest.raises(terracedb.ConflictError) as conflict:
        with db.transaction() as transaction:
            value = transaction[b"n"]
            db[b"n"] = b"5"
            transaction[b"n"] = value + b"0"
    assert conflict.value.retry == "now" and db[b"n"] == b"5"
    with pytest.raises(RuntimeError):
        with db.transaction() as transaction:
            transaction[b"n"] = b"9"
            raise RuntimeError
    assert db[b"n"] == b"5"
    calls = []

    def increment(transaction):
        value = int(transaction[b"n"])
        if not calls:
            db[b"n"] = b"6"
        calls.append(value)
        transaction[b"n"] = b"%d" % (value + 1)
        return value

    assert db.transact(increment) == 6 and calls == [5, 6] and db[b"n"] == b"7"
    with db.transaction() as transaction:
        transaction.put(b"m", b"1")
        assert list(transaction.iterator(prefix=b"m")) == [(b"m", b"1")] and b"m" not in db
        assert transaction.multi_get([b"n", b"m", b"x"]) == [b"7", b"1", None]
        transaction.rollback()
    assert b"m" not in db
    with pytest.raises(terracedb.ClosedError):
        transaction.commit()


def test_snapshots_read_one_state(db):
    other = db.keyspace("other")
    db[b"a"], other[b"b"] = b"1", b"2"
    with db.snapshot() as snapshot:
        db[b"a"] = b"9"
        db[b"c"] = b"9"
        del other[b"b"]
        assert snapshot.get(b"a") == b"1" and snapshot.get(b"b", keyspace=other) == b"2"
        assert snapshot.multi_get([b"a", b"c"]) == [b"1", None]
        assert list(snapshot.iterator()) == [(b"a", b"1")]
    with pytest.raises(terracedb.ClosedError):
        snapshot.get(b"a")


def test_backups_and_checkpoints(db, tmp_path):
    db[b"k"] = b"v"
    first = db.backup(tmp_path / "backups", label="one")
    db[b"k"] = b"w"
    second = db.backup(tmp_path / "backups")
    listed = terracedb.list_backups(tmp_path / "backups")
    assert [it["id"] for it in listed] == [first, second] and listed[0]["label"] == "one"
    terracedb.restore(tmp_path / "backups", tmp_path / "newest")
    terracedb.restore(tmp_path / "backups", tmp_path / "first", id=first)
    db.checkpoint(tmp_path / "checkpoint")
    for name, value in [("newest", b"w"), ("first", b"v"), ("checkpoint", b"w")]:
        with terracedb.open(tmp_path / name, create=False) as copy:
            assert copy[b"k"] == value


def test_statistics_are_plain_values(db):
    db.update((b"%d" % n, b"v") for n in range(100))
    db.flush()
    db[b"1"]
    stats = db.stats()
    assert stats["writes"] == 100 and stats["flushes"] >= 1 and stats["memory"]["limit"] == 64 << 20
    assert stats["keyspaces"]["default"]["table_entries"] == 100
    pickle.dumps(stats)
    assert all(0 <= ratio <= 1 for _, ratio in db.miss_ratio())
    assert db.set_memory("128MiB") == 0 and db.stats()["memory"]["limit"] == 128 << 20


def test_the_miss_ratio_is_drawn(db):
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("agg")
    db.update((b"%06d" % n, b"v" * 500) for n in range(20_000))
    db.compact()
    for n in range(0, 20_000, 7):
        db[b"%06d" % n]
    axes = db.plot_miss_ratio()
    (line,) = axes.get_lines()
    assert len(line.get_xdata()) == len(db.miss_ratio()) > 1


def test_errors_are_pickled_whole(db):
    with pytest.raises(terracedb.NotFoundError) as caught:
        db.keyspace("missing", create=False)
    again = pickle.loads(pickle.dumps(caught.value))
    assert (type(again), str(again)) == (terracedb.NotFoundError, str(caught.value))
    assert again.retry == "never"


def test_threads_share_a_store(db):
    def work(number):
        for n in range(500):
            db[b"%d/%d" % (number, n)] = b"v"
            assert db[b"%d/%d" % (number, n)] == b"v"

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(db) == 2000


def test_a_close_beside_readers_ends_them_with_an_error(path):
    db = terracedb.open(path)
    db.update((b"%d" % n, b"v") for n in range(1000))
    started, ends = threading.Barrier(5), []

    def read():
        started.wait()
        try:
            while True:
                assert db[b"7"] == b"v"
                list(db.iterator())
        except terracedb.ClosedError as error:
            ends.append(error)

    threads = [threading.Thread(target=read) for _ in range(4)]
    for thread in threads:
        thread.start()
    started.wait()
    db.close()
    for thread in threads:
        thread.join()
    assert len(ends) == 4


def _child(queue, db):
    try:
        db[b"k"]
        queue.put("read")
    except terracedb.InvalidError as error:
        queue.put(str(error))


def test_a_forked_child_is_refused_and_harms_nothing(db, path):
    db[b"k"] = b"v"
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    child = context.Process(target=_child, args=(queue, db))
    child.start()
    assert "fork" in queue.get(timeout=60)
    child.join()
    assert child.exitcode == 0
    db[b"l"] = b"w"
    assert db[b"k"] == b"v"


def run(code, *arguments):
    code = textwrap.dedent(code)
    return subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True)


def test_an_exit_without_a_close_is_clean(path):
    code = """
        import sys, terracedb
        db = terracedb.open(sys.argv[1], durability="none")
        users = db.keyspace("users")
        users[b"k"] = b"v"
        left = db.iterator()
    """
    ended = run(code, str(path))
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "")
    with terracedb.open(path) as db:
        assert db.keyspace("users", create=False)[b"k"] == b"v"


def test_a_killed_process_loses_no_write(path):
    code = """
        import os, signal, sys, terracedb
        db = terracedb.open(sys.argv[1], durability="none")
        db.update((b"%d" % n, b"v") for n in range(1000))
        os.kill(os.getpid(), signal.SIGKILL)
    """
    assert run(code, str(path)).returncode == -9
    with terracedb.open(path) as db:
        assert len(db) == 1000


def test_an_exception_leaves_the_store_usable(db):
    entries = db.iterator()
    for bad in (lambda: db[b""], lambda: db.put(b"k", b"v", ttl="x"), lambda: db.keyspace("")):
        with pytest.raises((terracedb.Error, TypeError)):
            bad()
    db[b"k"] = b"v"
    assert db[b"k"] == b"v" and list(entries) == []
