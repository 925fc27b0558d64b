// Steps of an application with go-redis: `steps PORT PROTOCOL`.
package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

var ctx = context.Background()

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

func expect(got, wanted any) {
	if !reflect.DeepEqual(got, wanted) {
		panic(fmt.Sprintf("got %#v, wanted %#v", got, wanted))
	}
}

func fails(err error, part string) {
	if err == nil || !strings.Contains(err.Error(), part) {
		panic(fmt.Sprintf("got %v, wanted an error with %q", err, part))
	}
}

func connect(password string) *redis.Client {
	protocol := must(strconv.Atoi(os.Args[2]))
	return redis.NewClient(&redis.Options{
		Addr: "127.0.0.1:" + os.Args[1], Password: password, Protocol: protocol, MaxRetries: -1,
	})
}

func main() {
	db := connect("secret")
	defer db.Close()
	expect(must(db.Ping(ctx).Result()), "PONG")
	values(db)
	collections(db)
	transactions(db)
	messages(db)
	blocking(db)
	scans(db)
	fails(db.LPush(ctx, "n", "x").Err(), "WRONGTYPE")
	fails(db.Do(ctx, "NONSENSE").Err(), "unknown command")
	if db.Eval(ctx, "return 1", nil).Err() == nil {
		panic("EVAL must be refused")
	}
	expect(must(db.Get(ctx, "n").Int()), 42)
	fails(connect("wrong").Ping(ctx).Err(), "WRONGPASS")
	expect(must(db.FlushAll(ctx).Result()), "OK")
}

func values(db *redis.Client) {
	everyByte := bytes.Repeat([]byte{0, 1, '\r', '\n', 0xff, 0x80}, 20_000)
	expect(must(db.Set(ctx, "a", everyByte, 0).Result()), "OK")
	expect(must(db.Get(ctx, "a").Bytes()), everyByte)
	expect(db.Get(ctx, "missing").Err(), redis.Nil)
	expect(must(db.SetNX(ctx, "a", "x", time.Minute).Result()), false)
	expect(must(db.Set(ctx, "t", "v", time.Minute).Result()), "OK")
	if left := must(db.PTTL(ctx, "t").Result()); left <= 0 || left > time.Minute {
		panic(left)
	}
	expect(must(db.IncrBy(ctx, "n", 42).Result()), int64(42))
	expect(must(db.IncrByFloat(ctx, "f", 1.5).Result()), 1.5)
	expect(must(db.MSet(ctx, "m1", "1", "m2", "2").Result()), "OK")
	expect(must(db.MGet(ctx, "m1", "none", "m2").Result()), []any{"1", nil, "2"})
	expect(must(db.Del(ctx, "m1", "m2", "none").Result()), int64(2))
}

func collections(db *redis.Client) {
	expect(must(db.HSet(ctx, "h", "f", "1", "g", "2").Result()), int64(2))
	expect(must(db.HGetAll(ctx, "h").Result()), map[string]string{"f": "1", "g": "2"})
	expect(must(db.RPush(ctx, "l", "a", "b", "c").Result()), int64(3))
	expect(must(db.LRange(ctx, "l", 0, -1).Result()), []string{"a", "b", "c"})
	expect(must(db.LPopCount(ctx, "l", 2).Result()), []string{"a", "b"})
	expect(must(db.SAdd(ctx, "s", 1, 2, 3).Result()), int64(3))
	expect(len(must(db.SMembersMap(ctx, "s").Result())), 3)
	expect(must(db.ZAdd(ctx, "z", redis.Z{Score: 1, Member: "a"}, redis.Z{Score: 2.5, Member: "b"}).Result()), int64(2))
	expect(must(db.ZRangeWithScores(ctx, "z", 0, -1).Result()), []redis.Z{{Score: 1, Member: "a"}, {Score: 2.5, Member: "b"}})
	expect(must(db.ZIncrBy(ctx, "z", 0.5, "a").Result()), 1.5)
	expect(db.ZScore(ctx, "z", "none").Err(), redis.Nil)
}

func transactions(db *redis.Client) {
	replies := must(db.Pipelined(ctx, func(pipe redis.Pipeliner) error {
		for number := range 500 {
			pipe.Set(ctx, fmt.Sprint("p", number), number, 0)
			pipe.Get(ctx, fmt.Sprint("p", number))
		}
		return nil
	}))
	expect(replies[999].(*redis.StringCmd).Val(), "499")
	var last *redis.IntCmd
	must(db.TxPipelined(ctx, func(pipe redis.Pipeliner) error {
		pipe.Incr(ctx, "tx")
		last = pipe.Incr(ctx, "tx")
		return nil
	}))
	expect(last.Val(), int64(2))
	conflict := db.Watch(ctx, func(tx *redis.Tx) error {
		must(db.Set(ctx, "tx", "changed", 0).Result())
		_, err := tx.TxPipelined(ctx, func(pipe redis.Pipeliner) error { return pipe.Get(ctx, "tx").Err() })
		return err
	}, "tx")
	if !errors.Is(conflict, redis.TxFailedErr) {
		panic(conflict)
	}
}

func messages(db *redis.Client) {
	subscriber := db.Subscribe(ctx, "news")
	defer subscriber.Close()
	must(subscriber.Receive(ctx))
	expect(must(db.Publish(ctx, "news", "hello").Result()), int64(1))
	expect(must(subscriber.ReceiveMessage(ctx)).Payload, "hello")
}

func blocking(db *redis.Client) {
	expect(db.BLPop(ctx, time.Second, "queue").Err() != nil, true)
	popped := make(chan []string)
	go func() { popped <- must(db.BLPop(ctx, 30*time.Second, "none", "queue").Result()) }()
	for !strings.Contains(must(db.ClientList(ctx).Result()), "cmd=blpop") {
		time.Sleep(10 * time.Millisecond)
	}
	must(db.RPush(ctx, "queue", "job").Result())
	expect(<-popped, []string{"queue", "job"})
}

func scans(db *redis.Client) {
	names := map[string]bool{}
	iterator := db.Scan(ctx, 0, "p*", 50).Iterator()
	for iterator.Next(ctx) {
		names[iterator.Val()] = true
	}
	expect(iterator.Err(), nil)
	expect(len(names), 500)
}
