package redis

import (
	"context"
	"fmt"
	"strconv"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/toolkeep/toolkeep/limit"
)

// LimitsName is the name under which Limits has its keys, as a cache has one for Elsewhere.
const LimitsName = "limits"

// Limits counts the limits of all nodes. Each question is one script, by Redis' own clock; its
// keys expire when they say nothing any more. It implements limit.Counter.
type Limits struct {
	pool   goredis.UniversalClient
	prefix string
}

var _ limit.Counter = (*Limits)(nil)

// Limits returns the counter.
func (c *Client) Limits() *Limits {
	return &Limits{pool: c.pool, prefix: c.prefix + "{" + LimitsName + "}:"}
}

// ask checks all rates and slots before it takes any. Times are microseconds since 2026, which a
// Lua number holds exactly. A bucket is the time at which it is full again, at
// most its depth from now, should the clock have been set back; a fixed window the number
// of its minute and a count; a sliding window a hash of counts by second; slots a sorted set of ids
// by the time at which they end. What lies later than it can, by more than a minute or a slot's life, is of a
// clock that was set back since: a bucket is then empty, and windows and slots are forgotten; slots that are held
// come again with their renewal.
//
// It answers which rate or slot refuses, from 0, or -1, and how long it does; then for each rate, or the one that refuses,
// how many calls are left and how long all of them take to be there again.
//
// KEYS: rates, slots, slots to give back. ARGV: dry or take; the numbers of each; lifetime of a
// slot; for each rate its kind and two numbers (step and depth, or the limit); for each slot its most
// and id; for each to give back its id.
var ask = goredis.NewScript(`
local t = redis.call('TIME')
local now = (t[1] - 1767225600) * 1000000 + t[2]
local take, nr, ns, nf, life = ARGV[1] == 'take', tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])
local a = 5
local rates, slots = a, a + 3 * nr
for i = 1, nf do
  redis.call('ZREM', KEYS[nr + ns + i], ARGV[slots + 2 * ns + i])
end
local state, out = {}, {-1, 0}
for i = 1, nr do
  local kind, x, y = ARGV[rates + 3 * i - 2], tonumber(ARGV[rates + 3 * i - 1]), tonumber(ARGV[rates + 3 * i])
  if kind == 'bucket' then
    local full = tonumber(redis.call('GET', KEYS[i]) or '0')
    if full > now + y + 60000000 then
      redis.call('SET', KEYS[i], string.format('%.0f', now + y), 'PX', math.ceil(y / 1000) + 1)
    end
    local nxt = math.min(math.max(full, now), now + y) + x
    if nxt - now > y then return {i - 1, nxt - now - y, 0, nxt - now - x} end
    state[i], out[1 + 2 * i], out[2 + 2 * i] = nxt, math.floor((y - (nxt - now)) / x), nxt - now
  elseif kind == 'fixed' then
    local minute = math.floor(now / 60000000)
    local was, n = string.match(redis.call('GET', KEYS[i]) or '0 0', '^(%d+) (%d+)$')
    n = tonumber(was) == minute and tonumber(n) or 0
    local ends = (minute + 1) * 60000000 - now
    if n >= x then return {i - 1, ends, 0, ends} end
    state[i], out[1 + 2 * i], out[2 + 2 * i] = minute .. ' ' .. (n + 1), x - n - 1, ends
  else
    local second = math.floor(now / 1000000)
    local all, total, seconds = redis.call('HGETALL', KEYS[i]), 0, {}
    for j = 1, #all, 2 do
      local at, n = tonumber(all[j]), tonumber(all[j + 1])
      if at < second - 60 or at > second + 60 then
        redis.call('HDEL', KEYS[i], all[j])
      else
        total = total + n
        seconds[#seconds + 1] = {at, n}
      end
    end
    if total >= x then
      table.sort(seconds, function(a, b) return a[1] < b[1] end)
      for _, s in ipairs(seconds) do
        total = total - s[2]
        if total < x then return {i - 1, (s[1] + 61) * 1000000 - now, 0, (seconds[#seconds][1] + 61) * 1000000 - now} end
      end
    end
    state[i], out[1 + 2 * i], out[2 + 2 * i] = second, x - total - 1, (second + 61) * 1000000 - now
  end
end
for i = 1, ns do
  local key, most, id = KEYS[nr + i], tonumber(ARGV[slots + 2 * i - 1]), ARGV[slots + 2 * i]
  redis.call('ZREMRANGEBYSCORE', key, '-inf', now)
  redis.call('ZREMRANGEBYSCORE', key, string.format('(%.0f', now + 2 * life), '+inf')
  if redis.call('ZCARD', key) >= most and not redis.call('ZSCORE', key, id) then return {nr + i - 1, 0} end
end
for i = 1, nr do
  local kind = ARGV[rates + 3 * i - 2]
  if take and kind == 'bucket' then
    redis.call('SET', KEYS[i], string.format('%.0f', state[i]), 'PX', math.ceil((state[i] - now) / 1000) + 1)
  elseif take and kind == 'fixed' then
    redis.call('SET', KEYS[i], state[i], 'PX', 61000)
  elseif take then
    redis.call('HINCRBY', KEYS[i], state[i], 1)
    redis.call('PEXPIRE', KEYS[i], 62000)
  end
end
if take then
  for i = 1, ns do
    redis.call('ZADD', KEYS[nr + i], now + life, ARGV[slots + 2 * i])
    redis.call('PEXPIRE', KEYS[nr + i], math.ceil(life / 1000) + 1000)
  end
end
return out`)

// Take implements limit.Counter.
func (l *Limits) Take(ctx context.Context, q *limit.Question) (limit.Answer, error) {
	keys := make([]string, 0, len(q.Rates)+len(q.Slots)+len(q.Free))
	args := make([]any, 0, 5+3*len(q.Rates)+2*len(q.Slots)+len(q.Free))
	mode := "take"
	if q.Dry {
		mode = "dry"
	}
	args = append(args, mode, len(q.Rates), len(q.Slots), len(q.Free), limit.SlotLife.Microseconds())
	for _, r := range q.Rates {
		keys = append(keys, l.prefix+r.Name)
		switch r.Algorithm {
		case "fixed_window":
			args = append(args, "fixed", r.PerMinute, 0)
		case "sliding_window":
			args = append(args, "sliding", r.PerMinute, 0)
		default:
			args = append(args, "bucket", r.Step.Microseconds(), r.Depth.Microseconds())
		}
	}
	for _, s := range q.Slots {
		keys = append(keys, l.prefix+s.Name)
		args = append(args, s.Most, s.ID)
	}
	for _, s := range q.Free {
		keys = append(keys, l.prefix+s.Name)
		args = append(args, s.ID)
	}
	got, err := ask.Run(ctx, l.pool, keys, args...).Int64Slice()
	switch {
	case err != nil:
		return limit.Answer{}, err
	case len(got) < 2 || got[0] >= int64(len(q.Rates)+len(q.Slots)) || len(got) != 2+2*states(int(got[0]), len(q.Rates)):
		return limit.Answer{}, fmt.Errorf("redis: the script of the limits answered %d numbers, the first is %v", len(got), got[:min(1, len(got))])
	}
	a := limit.Answer{Refused: max(-1, int(got[0])), Wait: time.Duration(got[1]) * time.Microsecond}
	for s := got[2:]; len(s) > 0; s = s[2:] {
		a.States = append(a.States, limit.State{Left: int(s[0]), Reset: time.Duration(s[1]) * time.Microsecond})
	}
	return a, nil
}

// states is how many states an answer has.
func states(refused, rates int) int {
	switch {
	case refused < 0:
		return rates
	case refused < rates:
		return 1
	}
	return 0
}

// renew makes slots last. KEYS are their names, ARGV the lifetime and then their ids.
var renew = goredis.NewScript(`
local t = redis.call('TIME')
local ends = (t[1] - 1767225600) * 1000000 + t[2] + ARGV[1]
for i = 1, #KEYS do
  redis.call('ZADD', KEYS[i], ends, ARGV[i + 1])
  redis.call('PEXPIRE', KEYS[i], math.ceil(ARGV[1] / 1000) + 1000)
end
return 1`)

// renewBatch is how many slots one script renews: Lua has no room for arguments without end.
const renewBatch = 1000

// Renew implements limit.Counter. Without slots it asks whether Redis takes scripts.
func (l *Limits) Renew(ctx context.Context, held []limit.Slot) error {
	for first := true; first || len(held) > 0; first = false {
		n := min(renewBatch, len(held))
		keys, args := make([]string, 0, n), []any{strconv.FormatInt(limit.SlotLife.Microseconds(), 10)}
		for _, s := range held[:n] {
			keys, args = append(keys, l.prefix+s.Name), append(args, s.ID)
		}
		if err := renew.Run(ctx, l.pool, keys, args...).Err(); err != nil {
			return err
		}
		held = held[n:]
	}
	return nil
}

// Free implements limit.Counter.
func (l *Limits) Free(ctx context.Context, held []limit.Slot) error {
	_, err := l.pool.Pipelined(ctx, func(p goredis.Pipeliner) error {
		for _, s := range held {
			p.ZRem(ctx, l.prefix+s.Name, s.ID)
		}
		return nil
	})
	return err
}
