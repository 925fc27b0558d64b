"""Closes the stores that are open when the interpreter exits."""

import atexit
import os
import weakref

_open: weakref.WeakSet = weakref.WeakSet()
_process = os.getpid()


def register(database):
    _open.add(database)


@atexit.register
def _close_all():
    # A forked child has no store: it belongs to the parent.
    if os.getpid() != _process:
        return
    for database in list(_open):
        try:
            database.close()
        except Exception as error:  # The other stores must be closed too.
            import sys

            print(f"terracedb: closing {database.path}: {error}", file=sys.stderr)
