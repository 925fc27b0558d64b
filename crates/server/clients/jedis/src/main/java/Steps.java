import java.util.Arrays;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Set;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.FutureTask;
import redis.clients.jedis.DefaultJedisClientConfig;
import redis.clients.jedis.HostAndPort;
import redis.clients.jedis.Jedis;
import redis.clients.jedis.JedisPubSub;
import redis.clients.jedis.Pipeline;
import redis.clients.jedis.RedisProtocol;
import redis.clients.jedis.Response;
import redis.clients.jedis.Transaction;
import redis.clients.jedis.exceptions.JedisDataException;
import redis.clients.jedis.params.ScanParams;
import redis.clients.jedis.params.SetParams;

/** Steps of an application with Jedis: {@code Steps PORT PROTOCOL}. */
public final class Steps {
  private static HostAndPort address;
  private static RedisProtocol protocol;

  private static Jedis connect(String password) {
    var config = DefaultJedisClientConfig.builder().password(password).protocol(protocol)
        .socketTimeoutMillis(60_000).build();
    return new Jedis(address, config);
  }

  private static void expect(Object got, Object wanted) {
    if (!Objects.deepEquals(got, wanted)) {
      throw new AssertionError("got " + got + ", wanted " + wanted);
    }
  }

  private static void fails(String part, Runnable call) {
    try {
      call.run();
    } catch (JedisDataException error) {
      if (error.getMessage().contains(part)) {
        return;
      }
      throw error;
    }
    throw new AssertionError("no error with " + part);
  }

  public static void main(String[] arguments) throws Exception {
    address = new HostAndPort("127.0.0.1", Integer.parseInt(arguments[0]));
    protocol = arguments[1].equals("3") ? RedisProtocol.RESP3 : RedisProtocol.RESP2;
    try (Jedis db = connect("secret")) {
      expect(db.ping(), "PONG");
      values(db);
      collections(db);
      transactions(db);
      messages(db);
      blocking(db);
      scans(db);
      fails("WRONGTYPE", () -> db.lpush("n", "x"));
      fails("", () -> db.eval("return 1"));
      expect(db.get("n"), "42");
      fails("WRONGPASS", () -> connect("wrong").ping());
      expect(db.flushAll(), "OK");
    }
  }

  private static void values(Jedis db) {
    byte[] everyByte = new byte[100_000];
    for (int at = 0; at < everyByte.length; at++) {
      everyByte[at] = (byte) at;
    }
    expect(db.set("a".getBytes(), everyByte), "OK");
    expect(db.get("a".getBytes()), everyByte);
    expect(db.get("missing"), null);
    expect(db.set("a", "x", SetParams.setParams().nx().ex(100)), null);
    expect(db.setex("t", 100, "v"), "OK");
    expect(db.ttl("t") > 0, true);
    expect(db.incrBy("n", 42), 42L);
    expect(db.incrByFloat("f", 1.5), 1.5);
    expect(db.mset("m1", "1", "m2", "2"), "OK");
    expect(db.mget("m1", "none", "m2"), Arrays.asList("1", null, "2"));
    expect(db.del("m1", "m2", "none"), 2L);
  }

  private static void collections(Jedis db) {
    expect(db.hset("h", Map.of("f", "1", "g", "2")), 2L);
    expect(db.hgetAll("h"), Map.of("f", "1", "g", "2"));
    expect(db.rpush("l", "a", "b", "c"), 3L);
    expect(db.lrange("l", 0, -1), List.of("a", "b", "c"));
    expect(db.lpop("l", 2), List.of("a", "b"));
    expect(db.sadd("s", "1", "2", "3"), 3L);
    expect(db.smembers("s"), Set.of("1", "2", "3"));
    expect(db.zadd("z", Map.of("a", 1.0, "b", 2.5)), 2L);
    expect(db.zrange("z", 0, -1), List.of("a", "b"));
    expect(db.zrangeWithScores("z", 0, -1).get(1).getScore(), 2.5);
    expect(db.zincrby("z", 0.5, "a"), 1.5);
    expect(db.zscore("z", "none"), null);
  }

  private static void transactions(Jedis db) {
    Pipeline pipeline = db.pipelined();
    Response<String> last = null;
    for (int number = 0; number < 500; number++) {
      pipeline.set("p" + number, "" + number);
      last = pipeline.get("p" + number);
    }
    pipeline.sync();
    expect(last.get(), "499");
    Transaction transaction = db.multi();
    transaction.incr("tx");
    transaction.incr("tx");
    expect(transaction.exec(), List.<Object>of(1L, 2L));
    try (Jedis other = connect("secret")) {
      db.watch("tx");
      other.set("tx", "changed");
      transaction = db.multi();
      transaction.get("tx");
      expect(transaction.exec(), null);
    }
  }

  private static void messages(Jedis db) throws Exception {
    var subscribed = new CountDownLatch(1);
    var received = new FutureTask<String>(() -> {
      var text = new String[1];
      try (Jedis other = connect("secret")) {
        other.subscribe(new JedisPubSub() {
          @Override
          public void onSubscribe(String channel, int count) {
            subscribed.countDown();
          }

          @Override
          public void onMessage(String channel, String message) {
            text[0] = message;
            unsubscribe();
          }
        }, "news");
      }
      return text[0];
    });
    new Thread(received).start();
    subscribed.await();
    expect(db.publish("news", "hello"), 1L);
    expect(received.get(), "hello");
  }

  private static void blocking(Jedis db) throws Exception {
    var popped = new FutureTask<List<String>>(() -> {
      try (Jedis other = connect("secret")) {
        return other.blpop(30, "none", "queue");
      }
    });
    new Thread(popped).start();
    while (!db.clientList().contains("cmd=blpop")) {
      Thread.sleep(10);
    }
    db.rpush("queue", "job");
    expect(popped.get(), List.of("queue", "job"));
  }

  private static void scans(Jedis db) {
    var names = new HashSet<String>();
    var cursor = ScanParams.SCAN_POINTER_START;
    do {
      var page = db.scan(cursor, new ScanParams().match("p*").count(50));
      names.addAll(page.getResult());
      cursor = page.getCursor();
    } while (!cursor.equals(ScanParams.SCAN_POINTER_START));
    expect(names.size(), 500);
  }
}
