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


def test_a_close_ends_waiting_reads(path):
    async def main():
        db = terracedb.open(path)
        db[b"k"] = b"v"
        assert await db.get_async(b"k") == b"v"
        db.close()
        with pytest.raises(terracedb.ClosedError):
            await db.get_async(b"k")
        with terracedb.open(path) as again:
            assert await again.get_async(b"k") == b"v"

    asyncio.run(main())
