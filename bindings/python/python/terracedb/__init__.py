"""TerraceDB: a key-value store for machines with little DRAM.

>>> import tempfile, terracedb
>>> path = tempfile.mkdtemp()
>>> with terracedb.open(path, memory="64MiB") as db:
...     db[b"k"] = b"v"
...     db[b"k"], db.get(b"missing"), db[[b"k", b"missing"]]
(b'v', None, [b'v', None])
"""

from collections.abc import MutableMapping

from ._errors import (
    AlreadyExistsError,
    ClosedError,
    ConflictError,
    CorruptError,
    Error,
    InvalidError,
    LockedError,
    NoSpaceError,
    NotFoundError,
    PermissionDeniedError,
    PoisonedError,
    RetryError,
)
from ._terracedb import (
    Database,
    EntryIterator,
    Keyspace,
    Snapshot,
    Transaction,
    WriteBatch,
    __version__,
    list_backups,
    open,
    restore,
)
from ._mapping import install
from ._values import Values

install(Keyspace)
MutableMapping.register(Keyspace)

__all__ = [
    "AlreadyExistsError",
    "ClosedError",
    "ConflictError",
    "CorruptError",
    "Database",
    "EntryIterator",
    "Error",
    "InvalidError",
    "Keyspace",
    "LockedError",
    "NoSpaceError",
    "NotFoundError",
    "PermissionDeniedError",
    "PoisonedError",
    "RetryError",
    "Snapshot",
    "Transaction",
    "Values",
    "WriteBatch",
    "__version__",
    "list_backups",
    "open",
    "restore",
]
