"""Calls for asyncio. Reads go through one read queue for each event loop and store, so that the reads of
many tasks are at the device together. A write that must wait lets other tasks run meanwhile."""

import asyncio
import os
import threading
import weakref
from collections import deque

_DEPTH = 64
# Seconds between polls of a device that has no descriptor.
_POLL = 0.0005

# Event loop -> number of the open store -> reader. Loops run on several threads.
_lock = threading.Lock()
_readers: weakref.WeakKeyDictionary = weakref.WeakKeyDictionary()


class _Reader:
    """The read queue of one event loop and one store."""

    def __init__(self, keyspace, loop):
        self.loop = loop
        self.queue = keyspace._read_queue(depth=_DEPTH)
        self.futures = {}
        self.waiting = deque()
        self.token = 0
        self.scheduled = False
        # A copy: the queue ends with the store, and its number may then be that of another file, while the
        # loop still watches it.
        number = self.queue.fileno()
        self.descriptor = None if number is None else os.dup(number)
        if self.descriptor is not None:
            loop.add_reader(self.descriptor, self.drain)

    def get(self, keyspace, key):
        future = self.loop.create_future()
        if self.waiting or not self.submit(keyspace, key, future):
            self.waiting.append((keyspace, key, future))
        self.schedule()
        return future

    def submit(self, keyspace, key, future):
        self.token += 1
        if not self.queue.submit(keyspace, key, self.token):
            return False
        self.futures[self.token] = future
        return True

    def schedule(self, delay=0.0):
        # Gets that are submitted in one turn of the loop go to the device together.
        if self.scheduled:
            return
        self.scheduled = True
        if delay:
            self.loop.call_later(delay, self.drain_scheduled)
        else:
            self.loop.call_soon(self.drain_scheduled)

    def drain_scheduled(self):
        self.scheduled = False
        self.drain()

    def drain(self):
        try:
            while True:
                for token, value, error in self.queue.poll():
                    future = self.futures.pop(token)
                    if future.done():
                        continue
                    if error is None:
                        future.set_result(value)
                    else:
                        future.set_exception(error)
                if not self.refill():
                    break
        except Exception as error:
            self.fail(error)
            return
        if self.descriptor is None and self.futures:
            self.schedule(_POLL)

    def refill(self):
        """Submits gets that waited for room; true if it submitted one."""
        submitted = False
        while self.waiting:
            keyspace, key, future = self.waiting[0]
            if not future.done():
                try:
                    if not self.submit(keyspace, key, future):
                        break
                except Exception as error:
                    future.set_exception(error)
                else:
                    submitted = True
            self.waiting.popleft()
        return submitted

    def fail(self, error):
        """The queue is broken or closed: every get ends with its error."""
        waiting = [future for _, _, future in self.waiting]
        for future in [*self.futures.values(), *waiting]:
            if not future.done():
                future.set_exception(error)
        self.futures.clear()
        self.waiting.clear()
        self.close()

    def close(self):
        if self.descriptor is not None:
            self.loop.remove_reader(self.descriptor)
            os.close(self.descriptor)
            self.descriptor = None
        self.queue.close()
        with _lock:
            readers = _readers.get(self.loop, {})
            for store in [store for store, reader in readers.items() if reader is self]:
                del readers[store]


def _reader(keyspace):
    loop = asyncio.get_running_loop()
    store = keyspace._store_id
    with _lock:
        reader = _readers.setdefault(loop, {}).get(store)
    # Only this thread adds readers to its loop.
    if reader is None:
        reader = _Reader(keyspace, loop)
        with _lock:
            _readers[loop][store] = reader
    return reader


def closed(store):
    """Ends the gets of the store with this number, which was closed: their loops find that out."""
    with _lock:
        found = [readers[store] for readers in _readers.values() if store in readers]
    for reader in found:
        try:
            reader.loop.call_soon_threadsafe(reader.drain)
        except RuntimeError:
            # The loop is closed, and nobody waits in it.
            pass


async def get(keyspace, key, default=None):
    value = await _reader(keyspace).get(keyspace, key)
    return default if value is None else value


async def _write(keyspace, batch, durability):
    while (wait := batch._try_write()) is not None:
        await asyncio.sleep(wait)
    if durability == "sync":
        await asyncio.to_thread(keyspace._sync)


def _batch(keyspace, durability):
    # A sync is waited for on another thread, after the write.
    return keyspace.write_batch(durability="none" if durability == "sync" else durability)


async def put(keyspace, key, value, ttl=None, durability=None):
    durability = durability or keyspace._durability
    batch = _batch(keyspace, durability)
    batch.put(key, value, ttl=ttl)
    await _write(keyspace, batch, durability)


async def delete(keyspace, key, durability=None):
    durability = durability or keyspace._durability
    batch = _batch(keyspace, durability)
    batch.delete(key)
    await _write(keyspace, batch, durability)
