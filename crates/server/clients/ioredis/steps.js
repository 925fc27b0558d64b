// Steps of an application with ioredis: `node steps.js PORT PROTOCOL`.

import assert from "node:assert/strict";
import Redis from "ioredis";

const [port, protocol] = process.argv.slice(2).map(Number);
const connect = (options = {}) => new Redis({ port, password: "secret", protocol, ...options });
const db = connect();

// Values.
const everyByte = Buffer.from(Array.from({ length: 102_400 }, (_, at) => at % 256));
assert.equal(await db.set("a", everyByte), "OK");
assert.deepEqual(await db.getBuffer("a"), everyByte);
assert.equal(await db.get("missing"), null);
assert.equal(await db.set("a", "x", "EX", 100, "NX"), null);
assert.equal(await db.set("t", "v", "PX", 100_000), "OK");
assert.ok((await db.pttl("t")) > 0);
assert.equal(await db.incrby("n", 42), 42);
assert.deepEqual(await db.mset({ m1: "1", m2: "2" }), "OK");
assert.deepEqual(await db.mget("m1", "none", "m2"), ["1", null, "2"]);
assert.equal(await db.del("m1", "m2", "none"), 2);

// Collections.
assert.equal(await db.hset("h", { f: "1", g: "2" }), 2);
assert.deepEqual({ ...(await db.hgetall("h")) }, { f: "1", g: "2" });
assert.equal(await db.rpush("l", "a", "b", "c"), 3);
assert.deepEqual(await db.lrange("l", 0, -1), ["a", "b", "c"]);
assert.deepEqual(await db.lpop("l", 2), ["a", "b"]);
assert.equal(await db.sadd("s", 1, 2, 3), 3);
assert.deepEqual((await db.smembers("s")).sort(), ["1", "2", "3"]);
assert.equal(await db.zadd("z", 1, "a", 2.5, "b"), 2);
assert.deepEqual(await db.zrange("z", 0, -1, "WITHSCORES"), ["a", "1", "b", "2.5"]);
assert.equal(Number(await db.zincrby("z", 0.5, "a")), 1.5);
assert.equal(await db.zscore("z", "none"), null);

// Pipelines and transactions.
const pipeline = db.pipeline();
for (let number = 0; number < 500; number += 1) pipeline.set(`p${number}`, number).get(`p${number}`);
const replies = await pipeline.exec();
assert.deepEqual(replies[999], [null, "499"]);
assert.deepEqual(await db.multi().incr("tx").incr("tx").exec(), [[null, 1], [null, 2]]);
const watcher = connect();
await watcher.watch("tx");
await db.set("tx", "changed");
assert.equal(await watcher.multi().get("tx").exec(), null);
const mixed = await db.multi().set("kept", 1).lpush("kept", 1).get("kept").exec();
assert.match(mixed[1][0].message, /WRONGTYPE/);
assert.deepEqual(mixed[2], [null, "1"]);

// Messages.
const subscriber = connect();
const message = new Promise((done) => subscriber.on("message", (...got) => done(got)));
const matched = new Promise((done) => subscriber.on("pmessage", (...got) => done(got)));
assert.equal(await subscriber.subscribe("news"), 1);
assert.equal(await subscriber.psubscribe("ne*"), 2);
assert.equal(await db.publish("news", "hello"), 2);
assert.deepEqual(await message, ["news", "hello"]);
assert.deepEqual(await matched, ["ne*", "news", "hello"]);

// A blocking pop, woken by another client.
const waiting = watcher.blpop("none", "queue", 30);
while (!(await db.client("LIST")).includes("cmd=blpop")) await new Promise((done) => setTimeout(done, 10));
await db.rpush("queue", "job");
assert.deepEqual(await waiting, ["queue", "job"]);

// Scans.
const names = new Set();
for await (const page of db.scanStream({ match: "p*", count: 50 })) page.forEach((name) => names.add(name));
assert.equal(names.size, 500);

// Errors.
await assert.rejects(db.lpush("n", "x"), /WRONGTYPE/);
await assert.rejects(db.call("NONSENSE"), /unknown command/);
await assert.rejects(db.eval("return 1", 0));
assert.equal(await db.get("n"), "42");
const stranger = connect({ password: "wrong", retryStrategy: null });
const refused = new Promise((done) => stranger.once("error", done));
await assert.rejects(stranger.ping());
assert.match((await refused).message, /WRONGPASS/);
assert.match(await db.info("server"), /redis_version:7\./);

assert.equal(await db.flushall(), "OK");
for (const client of [db, watcher, subscriber]) await client.quit();
stranger.disconnect();
