"""The methods of a mapping that follow from the others, with fewer device reads than the ones of
`collections.abc` would need."""

from collections.abc import ItemsView, KeysView, Mapping, ValuesView

_MISSING = object()
_UPDATE_BATCH_BYTES = 1 << 20


class _Items(ItemsView):
    def __iter__(self):
        return self._mapping.iterator()


class _Values(ValuesView):
    def __iter__(self):
        return self._mapping.iterator(include_key=False)

    def __contains__(self, value):
        return any(value == other for other in self)


def keys(self):
    """A set-like view of the keys."""
    return KeysView(self)


def items(self):
    """A set-like view of the entries."""
    return _Items(self)


def values(self):
    """A view of the values."""
    return _Values(self)


def pop(self, key, default=_MISSING, /):
    """Deletes `key` and returns its value, or `default`. Not atomic beside other writers."""
    value = self.get(key)
    if value is None:
        if default is _MISSING:
            raise KeyError(key)
        return default
    self.delete(key)
    return value


def popitem(self):
    """Deletes the first entry and returns it."""
    with self.iterator() as entries:
        entry = next(entries, None)
    if entry is None:
        raise KeyError("popitem(): no entries")
    self.delete(entry[0])
    return entry


def setdefault(self, key, default=None, /):
    """The value of `key`, which becomes `default` (bytes; none is as empty) if there is none. Not atomic
    beside other writers."""
    value = self.get(key)
    if value is None:
        self.put(key, b"" if default is None else default)
        # As it was stored: `default` may be any bytes-like object.
        value = self.get(key)
    return value


def update(self, other=(), /, **named):
    """Puts every entry of a mapping or of an iterable of pairs, in batches of about 1 MiB."""
    if named:
        raise TypeError("keys are bytes: keyword arguments cannot be keys")
    pairs = other.items() if isinstance(other, Mapping) or hasattr(other, "items") else other
    batch = self.write_batch()
    for key, value in pairs:
        batch.put(key, value)
        if batch.nbytes >= _UPDATE_BATCH_BYTES:
            batch.write()
    batch.write()


def clear(self):
    """Deletes every entry, by one range delete."""
    self.delete_range()


def multi_get_buffers(self, keys):
    """As `multi_get`, with all values in one buffer: see `Values`."""
    from ._values import Values

    return Values(*self._multi_get_buffers(keys))


def install(cls):
    """Adds the methods above to `cls`."""
    for method in (keys, items, values, pop, popitem, setdefault, update, clear, multi_get_buffers):
        setattr(cls, method.__name__, method)
