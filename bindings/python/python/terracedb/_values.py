"""`Values`: the values of a multi-get in one buffer."""

from collections.abc import Sequence


class Values(Sequence):
    """Values in the layout of an Arrow `large_binary` array, without a Python object for each.

    valid: bit number `i` (least significant first) is 1 if key `i` has a value.
    offsets: 64-bit little-endian integers, one more than there are keys.
    data: all values, one after the other.
    """

    __slots__ = ("_length", "valid", "offsets", "data")

    def __init__(self, length: int, valid: bytes, offsets: bytes, data: bytes):
        self._length = length
        self.valid = valid
        self.offsets = offsets
        self.data = data

    def __len__(self):
        return self._length

    def __getitem__(self, index):
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(self._length))]
        if index < 0:
            index += self._length
        if not 0 <= index < self._length:
            raise IndexError(index)
        if not self.valid[index // 8] >> (index % 8) & 1:
            return None
        start, stop = (
            int.from_bytes(self.offsets[8 * at : 8 * at + 8], "little") for at in (index, index + 1)
        )
        return self.data[start:stop]

    def to_arrow(self):
        """A `pyarrow.LargeBinaryArray` over the same memory."""
        import pyarrow

        buffers = [pyarrow.py_buffer(part) for part in (self.valid, self.offsets, self.data)]
        return pyarrow.Array.from_buffers(pyarrow.large_binary(), self._length, buffers)

    def to_numpy(self):
        """`(data, offsets, valid)` as numpy arrays of uint8, int64 and bool; the first two over the same
        memory."""
        import numpy

        bits = numpy.unpackbits(numpy.frombuffer(self.valid, numpy.uint8), bitorder="little")
        return (
            numpy.frombuffer(self.data, numpy.uint8),
            numpy.frombuffer(self.offsets, "<i8"),
            bits[: self._length].astype(bool),
        )
