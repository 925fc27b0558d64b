import asyncio
import threading

import pytest
import terracedb


def test_many_tasks_read_and_write(db):
    async def main():
        await asyncio.gather(*(db.put_async(b"%d" % n, b"v%d" % n) for n in range(500)))
        await asyncio.to_thread(db.flush)
        values = await asyncio.gather(*(db.get_async(b"%d" % n) for n in range(600)))
        assert values == [b"v%d" % n for n in range(500)] + [None] * 100
        assert await db.get_async(b"missing", b"default") == b"default"
        await db.put_async(b"synced", b"1", durability="sync")
        await db.put_async(b"short", b"1", ttl=3600)
        await db.delete_async(b"0")
        assert await db.get_async(b"0") is None

    asyncio.run(main())
    # Another loop has another queue.
    asyncio.run(main())
    assert db[b"synced"] == b"1" and db.expires_at(b"short")


def test_cancelled_reads_and_errors_leave_the_queue_usable(db):
    db[b"k"] = b"v"

    async def main():
        tasks = [asyncio.ensure_future(db.get_async(b"k")) for _ in range(200)]
        await asyncio.sleep(0)
        for task in tasks[::2]:
            task.cancel()
        done = await asyncio.gather(*tasks, return_exceptions=True)
        assert all(value == b"v" for value in done[1::2])
        with pytest.raises(TypeError):
            await db.get_async("text")
        with pytest.raises(terracedb.InvalidError):
            await db.get_async(b"")
        assert await db.get_async(b"k") == b"v"

    asyncio.run(main())


def test_threads_and_asyncio_together(db):
    db.update((b"%d" % n, b"v") for n in range(2000))
    db.flush()

    async def main():
        for _ in range(5):
            await asyncio.gather(*(db.get_async(b"%d" % n) for n in range(300)))

    threads = [threading.Thread(target=lambda: asyncio.run(main())) for _ in range(3)]
    for thread in threads:
        thread.start()
    for n in range(2000):
        assert db[b"%d" % n] == b"v"
        db[b"%d" % n] = b"v"
    for thread in threads:
        thread.join()


KEYS = [b"%d" % n for n in range(2000)]


def cold(path):
    """A store whose reads go to the device."""
    with terracedb.open(path) as db:
        db.update((key, b"v" * 1000) for key in KEYS)
        db.flush()
    return terracedb.open(path)


async def started(db):
    """Gets of which some are at the device, and more wait for room."""
    waiting = [asyncio.ensure_future(db.get_async(key)) for key in KEYS]
    for _ in range(3):
        await asyncio.sleep(0)
    return waiting


def test_a_close_ends_waiting_reads(path):
    async def main():
        db = cold(path)
        waiting = await started(db)
        await asyncio.to_thread(db.close)
        ends = await asyncio.gather(*waiting, return_exceptions=True)
        assert all(it == b"v" * 1000 or isinstance(it, terracedb.ClosedError) for it in ends)
        with pytest.raises(terracedb.ClosedError):
            await db.get_async(b"k")

    asyncio.run(asyncio.wait_for(main(), 300))


def test_a_store_opened_again_in_the_same_loop_answers(path):
    async def main():
        db = cold(path)
        waiting = await started(db)
        # In the loop, whose next turn must end the reads. The descriptors of the new store may have the
        # numbers of the old one's.
        db.close()
        with terracedb.open(path) as again:
            assert await asyncio.gather(*(again.get_async(key) for key in KEYS)) == [b"v" * 1000] * 2000
        ends = await asyncio.gather(*waiting, return_exceptions=True)
        assert all(it == b"v" * 1000 or isinstance(it, terracedb.ClosedError) for it in ends)
        assert any(isinstance(it, terracedb.ClosedError) for it in ends)

    asyncio.run(asyncio.wait_for(main(), 300))
