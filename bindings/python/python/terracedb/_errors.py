"""The exceptions. The class says what to do; `retry` says whether the same call may succeed later."""


class Error(Exception):
    """An error of the store.

    retry: 'now' (make the call again, after a conflict the whole transaction), 'later' (background work
    or other calls hold what it needs) or 'never' (something must change first).
    place: the file, page or keyspace that it is about, or None.
    """

    def __init__(self, message: str = "", *, retry: str = "never", place: "str | None" = None):
        super().__init__(message)
        self.retry = retry
        self.place = place

    def __str__(self) -> str:
        # KeyError would show the repr of its argument.
        return str(self.args[0]) if self.args else ""

    def __reduce__(self):
        return _restored, (type(self), str(self), self.retry, self.place)


class RetryError(Error):
    """A temporary condition, such as a full memory limit."""


class InvalidError(Error, ValueError):
    """The request, a setting or the environment is wrong."""


class NotFoundError(Error, KeyError):
    """The request names something that does not exist, such as a keyspace or a store."""


class AlreadyExistsError(Error):
    """The request creates something that exists."""


class LockedError(InvalidError):
    """Another process has the store open: close it there, or open it here with `read_only=True`."""


class PermissionDeniedError(Error, PermissionError):
    """The system refuses access to a file or directory of the store."""


class CorruptError(Error):
    """Stored bytes are damaged or unreadable: run `terrace check`."""


class NoSpaceError(Error, OSError):
    """The device is full."""


class PoisonedError(Error):
    """An earlier failure makes writes unsafe. Reads work; open the store again to write."""


class ClosedError(Error):
    """The store, the keyspace or the object is closed or dropped."""


class ConflictError(Error):
    """Another write changed what the transaction had read: run the whole transaction again."""


def _restored(kind, message, retry, place):
    return kind(message, retry=retry, place=place)
