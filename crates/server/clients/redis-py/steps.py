"""Steps of an application with redis-py: `steps.py PORT PROTOCOL`."""

import sys
import threading
import time

import redis

port, protocol = int(sys.argv[1]), int(sys.argv[2])


def connect(**options):
    return redis.Redis(port=port, password="secret", protocol=protocol, client_name="steps", **options)


def fails(error, call, *arguments):
    """The text of the error that `call` must raise."""
    try:
        got = call(*arguments)
    except error as raised:
        return str(raised)
    raise AssertionError(f"{call} returned {got}")


def values(db):
    every_byte = bytes(range(256)) * 400
    assert db.set("a", every_byte) is True
    assert db.get("a") == every_byte
    assert db.get("missing") is None
    assert db.set("a", "x", nx=True) is None
    assert db.set("a", "y", get=True) == every_byte
    assert db.set("t", "v", ex=100) and 0 < db.ttl("t") <= 100
    assert db.persist("t") and db.ttl("t") == -1
    assert db.expire("t", 0) and db.exists("t") == 0
    assert db.incr("n") == 1 and db.incrby("n", 41) == 42 and db.decr("n") == 41
    assert db.incrbyfloat("f", 1.5) == 1.5
    assert db.mset({"m1": "1", "m2": "2"}) and db.mget("m1", "none", "m2") == [b"1", None, b"2"]
    assert db.append("m1", "23") == 3 and db.strlen("m1") == 3 and db.getrange("m1", 1, -1) == b"23"
    assert db.setbit("bits", 9, 1) == 0 and db.bitcount("bits") == 1 and db.bitpos("bits", 1) == 9
    assert db.rename("m1", "m3") and db.type("m3") == b"string"
    assert db.delete("m2", "m3", "none") == 2


def collections(db):
    assert db.hset("h", mapping={"f": "1", "g": "2"}) == 2
    assert db.hgetall("h") == {b"f": b"1", b"g": b"2"}
    assert db.hincrby("h", "f", 4) == 5 and db.hmget("h", "f", "none") == [b"5", None]
    assert db.hset("big", mapping={f"field {n}": n for n in range(3000)}) == 3000
    assert dict(db.hscan_iter("big", count=100))[b"field 2999"] == b"2999"
    assert db.rpush("l", "a", "b", "c", "d") == 4 and db.lrange("l", 0, -1) == [b"a", b"b", b"c", b"d"]
    assert db.lpop("l") == b"a" and db.rpop("l", 2) == [b"d", b"c"] and db.llen("l") == 1
    assert db.lmove("l", "l2", "LEFT", "RIGHT") == b"b" and db.exists("l") == 0
    assert db.sadd("s", "1", "2", "3") == 3 and db.sadd("s2", "2", "3", "4") == 3
    assert db.smembers("s") == {b"1", b"2", b"3"} and db.sinter("s", "s2") == {b"2", b"3"}
    assert db.sismember("s", "1") == 1 and db.smismember("s", ["1", "9"]) == [1, 0]
    assert db.zadd("z", {"a": 1, "b": 2.5, "c": float("inf")}) == 3
    found = db.zrange("z", 0, -1, withscores=True)
    assert [(name, score) for name, score in found] == [(b"a", 1.0), (b"b", 2.5), (b"c", float("inf"))], found
    assert db.zincrby("z", 0.5, "a") == 1.5 and db.zscore("z", "none") is None and db.zrank("z", "b") == 1
    assert db.zrangebyscore("z", "-inf", 2.5) == [b"a", b"b"]
    assert list(db.zscan_iter("z"))[0] == (b"a", 1.5)


def pipelines_and_transactions(db):
    pipeline = db.pipeline(transaction=False)
    for number in range(500):
        pipeline.set(f"p{number}", number).get(f"p{number}")
    replies = pipeline.execute()
    assert replies[1::2] == [str(number).encode() for number in range(500)] and all(replies[::2])
    assert db.pipeline().incr("tx").incr("tx").execute() == [1, 2]
    with db.pipeline() as pipeline:
        pipeline.watch("tx")
        db.set("tx", "changed")
        pipeline.multi()
        pipeline.get("tx")
        fails(redis.WatchError, pipeline.execute)
    failed = db.pipeline().set("kept", 1).lpush("kept", 1)
    assert "WRONGTYPE" in fails(redis.ResponseError, failed.execute) and db.get("kept") == b"1"
    assert db.transaction(lambda it: (it.multi(), it.incr("n")), "n") == [42]


def messages(db):
    subscriber = db.pubsub()
    subscriber.subscribe("news")
    subscriber.psubscribe("ne*")
    seen = []
    while len(seen) < 2:
        seen.append(subscriber.get_message(timeout=30)["type"])
    assert seen == ["subscribe", "psubscribe"], seen
    assert db.publish("news", b"hello\r\n") == 2
    got = [subscriber.get_message(timeout=30) for _ in range(2)]
    assert [(it["type"], it["data"]) for it in got] == [("message", b"hello\r\n"), ("pmessage", b"hello\r\n")], got
    subscriber.close()


def blocking(db):
    assert db.blpop("queue", timeout=0.05) is None
    popped = []
    waiter = threading.Thread(target=lambda: popped.append(connect().blpop(["none", "queue"], timeout=30)))
    waiter.start()
    while not any(it["cmd"] == "blpop" for it in db.client_list()):
        time.sleep(0.01)
    db.rpush("queue", "job")
    waiter.join()
    assert tuple(popped[0]) == (b"queue", b"job"), popped
    assert db.bzpopmin("z", timeout=1)[1] == b"a"


def scans(db):
    names = {name for name in db.scan_iter(match="p*", count=50)}
    assert names == {f"p{number}".encode() for number in range(500)}
    assert db.dbsize() == len(list(db.scan_iter()))
    other = connect(db=3)
    assert other.set("only here", 1) and other.keys("*") == [b"only here"] and db.get("only here") is None
    assert other.flushdb() and other.dbsize() == 0


def errors_and_introspection(db):
    assert "WRONGTYPE" in fails(redis.ResponseError, db.lpush, "n", "x")
    assert "wrong number" in fails(redis.ResponseError, db.execute_command, "GET")
    assert "unknown command" in fails(redis.ResponseError, db.execute_command, "NONSENSE")
    fails(redis.ResponseError, db.eval, "return 1", 0)
    assert db.get("n") == b"42"
    fails(redis.AuthenticationError, redis.Redis(port=port, password="wrong", protocol=protocol).ping)
    info = db.info()
    assert info["redis_version"].startswith("7.") and info["db0"]["keys"] == db.dbsize()
    assert db.client_getname() in (b"steps", "steps") and db.config_get("maxmemory")
    assert db.object("encoding", "n") == b"int" and db.memory_usage("a") > 0


def main():
    db = connect()
    assert db.ping()
    for step in [
        values,
        collections,
        pipelines_and_transactions,
        messages,
        blocking,
        scans,
        errors_and_introspection,
    ]:
        step(db)
    text = connect(decode_responses=True)
    assert text.set("text", "grüße") and text.get("text") == "grüße"
    assert db.flushall() and db.dbsize() == 0


main()
