#!/bin/sh
# The modes of redis-cli, and redis-benchmark: `steps.sh PORT PROTOCOL`.
set -eu
export REDISCLI_AUTH=secret
port=$1 protocol=$2

cli() { redis-cli -p "$port" "-$protocol" "$@"; }

# expect TEXT COMMAND..: the output of the command, all of it, is TEXT.
expect() {
    wanted=$1
    shift
    got=$("$@" 2>&1) || true
    [ "$got" = "$wanted" ] || { echo "$*: got '$got', wanted '$wanted'" >&2; exit 1; }
}

# has TEXT COMMAND..: the command's output has TEXT in it.
has() {
    wanted=$1
    shift
    got=$("$@" 2>&1) || true
    case $got in *"$wanted"*) ;; *) echo "$*: got '$got', without '$wanted'" >&2; exit 1 ;; esac
}

expect PONG cli ping
# Commands of standard input, and a value of it.
expect "$(printf 'OK\n1\n1\nf\nv')" sh -c "printf 'set a 1\nget a\nhset h f v\nhgetall h\n' | redis-cli -p $port --raw"
expect OK sh -c "head -c 1000000 /dev/zero | redis-cli -p $port -x set zeros"
expect 1000000 cli --raw strlen zeros
# Mass insertion.
has 'errors: 0, replies: 10000' sh -c "seq 10000 | awk '{ print \"SET k\" \$1 \" v\" \$1 }' | redis-cli -p $port --pipe"
expect 11 sh -c "redis-cli -p $port --scan --pattern 'k999*' | wc -l"
# Forms of output, repetition, databases.
expect '"f","v"' redis-cli -p "$port" --csv hgetall h
expect '{"f":"v"}' redis-cli -p "$port" -3 --json hgetall h
expect "$(printf '1\n2\n3')" cli --raw -r 3 -i 0.01 incr n
expect OK cli -n 3 set only here
expect 1 cli --raw -n 3 dbsize
expect here redis-cli -u "redis://default:secret@127.0.0.1:$port/3" --no-auth-warning --raw get only
# Samples of the key space.
has 'Biggest string found' cli --bigkeys
has 'Biggest string found' cli --memkeys
has 'Sampled 10004 keys' cli --hotkeys
# Times: minimum, maximum, mean, samples.
has ' ' timeout 30 redis-cli -p "$port" --latency --raw
has 'keys' timeout 2 stdbuf -oL redis-cli -p "$port" --stat -i 0.1
# Messages.
mkfifo "$0.$port.fifo" 2>/dev/null || true
timeout 60 redis-cli -p "$port" --csv subscribe news >"$0.$port.fifo" &
exec 3<"$0.$port.fifo"
until [ "$(cli --raw publish news hello)" = 1 ]; do sleep 0.01; done
message=
while case $message in '"message"'*) false ;; esac && read -r message <&3; do :; done
kill %1 2>/dev/null || kill $!
rm -f "$0.$port.fifo"
expect '"message","news","hello"' echo "$message"
# What the server does not do ends with an error that says so.
has 'replication is not supported' timeout 30 redis-cli -p "$port" --rdb /dev/null
has 'scripts are not supported' cli --eval /dev/null
has 'not configured as a cluster node' redis-cli -a secret --cluster info "127.0.0.1:$port"
expect OK cli flushall

bench() { redis-benchmark -p "$port" -a secret "$@" -q --csv -n 2000 -c 20; }
[ "$protocol" = 2 ] || bench() { redis-benchmark -3 -p "$port" -a secret "$@" -q --csv -n 2000 -c 20; }
bench -P 1 >"$0.$port.csv"
bench -P 16 -r 1000 >>"$0.$port.csv"
# A line for each of the 20 tests and a head, twice; an error ends redis-benchmark.
expect 42 sh -c "wc -l <'$0.$port.csv'"
rm -f "$0.$port.csv"
expect OK cli flushall
