from collections.abc import MutableMapping

import pytest
import terracedb


def test_it_is_a_mutable_mapping(db):
    assert isinstance(db, MutableMapping)
    assert not db and len(db) == 0
    db[b"a"] = b"1"
    db[bytearray(b"b")] = memoryview(b"2")
    assert db[b"a"] == b"1" and db[b"b"] == b"2" and b"a" in db and b"c" not in db
    assert db and len(db) == 2 and list(db) == [b"a", b"b"]
    assert dict(db) == {b"a": b"1", b"b": b"2"}
    assert list(db.items()) == [(b"a", b"1"), (b"b", b"2")]
    assert list(db.values()) == [b"1", b"2"] and b"2" in db.values()
    assert db.keys() & {b"a", b"x"} == {b"a"}
    with pytest.raises(KeyError) as missing:
        db[b"c"]
    assert missing.value.args == (b"c",)
    del db[b"a"]
    with pytest.raises(KeyError):
        del db[b"a"]
    assert db.pop(b"b") == b"2" and db.pop(b"b", None) is None
    with pytest.raises(KeyError):
        db.pop(b"b")
    assert db.setdefault(b"k", b"v") == b"v" == db.setdefault(b"k", b"w")
    db.update({b"x": b"1"}, )
    db.update([(b"y", b"2")])
    assert db.popitem() == (b"k", b"v")
    db.clear()
    assert list(db) == []
    with pytest.raises(KeyError):
        db.popitem()


def test_many_keys_are_read_at_once(db):
    db.update((b"%04d" % n, b"v%d" % n) for n in range(0, 2000, 2))
    keys = [b"%04d" % n for n in range(2000)]
    expected = [b"v%d" % n if n % 2 == 0 else None for n in range(2000)]
    assert db[keys] == expected == db.multi_get(keys) == db.multi_get(iter(keys))
    db.flush()
    assert db[tuple(keys)] == expected
    values = db.multi_get_buffers(keys)
    assert list(values) == expected and len(values) == 2000
    assert values[-1] is None and values[-2] == b"v1998" and values[4:7] == expected[4:7]
    with pytest.raises(IndexError):
        values[2000]


def test_values_are_arrow_and_numpy_arrays(db):
    numpy = pytest.importorskip("numpy")
    db[b"a"], db[b"c"] = b"xyz", b""
    values = db.multi_get_buffers([b"a", b"b", b"c"])
    data, offsets, valid = values.to_numpy()
    assert bytes(data) == b"xyz" and list(offsets) == [0, 3, 3, 3]
    assert list(valid) == [True, False, True] and valid.dtype == numpy.bool_
    pytest.importorskip("pyarrow")
    assert values.to_arrow().to_pylist() == [b"xyz", None, b""]


def test_wrong_types_are_refused_by_name(db):
    with pytest.raises(TypeError, match="key must be bytes, not str: encode it"):
        db["a"] = b"1"
    with pytest.raises(TypeError, match="value must be bytes-like, not int"):
        db[b"a"] = 1
    with pytest.raises(TypeError, match="keys are bytes"):
        db.update(a=b"1")
    with pytest.raises(ValueError, match="durability must be"):
        db.put(b"a", b"1", durability="always")
    with pytest.raises(terracedb.InvalidError):
        db[b""] = b"1"
    with pytest.raises(ValueError, match="ttl"):
        db.put(b"a", b"1", ttl=-1)
    assert not db


def test_iterators_have_the_arguments_of_plyvel(db):
    db.update((key, key.upper()) for key in (b"a", b"b1", b"b2", b"c"))
    assert list(db.iterator(include_value=False)) == [b"a", b"b1", b"b2", b"c"]
    assert list(db.iterator(prefix=b"b")) == [(b"b1", b"B1"), (b"b2", b"B2")]
    assert list(db.iterator(start=b"b1", stop=b"c", include_key=False)) == [b"B1", b"B2"]
    bounds = dict(start=b"a", stop=b"c", include_start=False, include_stop=True)
    assert list(db.iterator(**bounds, include_value=False)) == [b"b1", b"b2", b"c"]
    assert list(db.iterator(prefix=b"b", reverse=True, include_value=False)) == [b"b2", b"b1"]
    with pytest.raises(ValueError, match="not both"):
        db.iterator(prefix=b"a", start=b"b")
    entries = db.iterator()
    db[b"d"] = b"later"
    assert len(list(entries)) == 4 and next(entries, None) is None
    with db.iterator() as entries:
        assert next(entries) == (b"a", b"A")
    assert next(entries, None) is None


def test_an_iterator_returns_more_entries_than_a_batch_has(db):
    expected = [(b"%06d" % n, b"v" * 100) for n in range(5000)]
    db.update(expected)
    assert list(db.iterator()) == expected
    assert list(db.iterator(reverse=True)) == expected[::-1]


def test_ranges_are_deleted(db):
    db.update((key, b"v") for key in (b"a", b"b", b"b\xff", b"c", b"\xff", b"\xff\xff"))
    db.delete_range(prefix=b"b")
    assert list(db) == [b"a", b"c", b"\xff", b"\xff\xff"]
    db.delete_range(prefix=b"\xff")
    assert list(db) == [b"a", b"c"]
    db.delete_range(start=b"a", stop=b"c")
    assert list(db) == [b"c"]
