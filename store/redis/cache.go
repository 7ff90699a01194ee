package redis

import (
	"context"
	"strings"
	"time"

	goredis "github.com/redis/go-redis/v9"
)

// maxValue is what Get reads of a value at most, in bytes.
const maxValue = 1 << 20

// Cache keeps bytes under names, each for a while and at most so many; the oldest make
// room. It is bounded by what it counts itself: keys that somebody else puts under the
// prefix are not counted.
type Cache struct {
	pool    goredis.UniversalClient
	prefix  string
	entries int
	clock   func() time.Time
}

// Cache makes one with a name of its own, which stands before its keys. entries is how
// many there are at most (default 20,000); clock is for the count (default time.Now).
func (c *Client) Cache(name string, entries int, clock func() time.Time) *Cache {
	if entries <= 0 {
		entries = 20_000
	}
	if clock == nil {
		clock = time.Now
	}
	return &Cache{pool: c.pool, prefix: strings.TrimSuffix(c.names(name), "names"), entries: entries, clock: clock}
}

// Get gives what is kept under a name, nil if nothing is.
func (c *Cache) Get(ctx context.Context, name string) ([]byte, error) {
	// A range, so that nobody's huge value is read whole.
	raw, err := c.pool.GetRange(ctx, c.prefix+name, 0, maxValue).Bytes()
	switch {
	case goredis.HasErrorPrefix(err, "WRONGTYPE"):
		return nil, nil // somebody else's
	case err != nil || len(raw) == 0:
		return nil, err
	}
	return raw, nil
}

// put sets a value and keeps the count: the list of names by when they end.
var put = goredis.NewScript(`
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
redis.call('ZADD', KEYS[2], ARGV[3] + ARGV[2], KEYS[1])
redis.call('ZREMRANGEBYSCORE', KEYS[2], '-inf', ARGV[3])
local over = redis.call('ZCARD', KEYS[2]) - ARGV[4]
if over > 0 then
  local gone = redis.call('ZPOPMIN', KEYS[2], math.min(over, 1000))
  for i = 1, #gone, 2 do redis.call('DEL', gone[i]) end
end
redis.call('PEXPIRE', KEYS[2], ARGV[2])
return 1`)

// Put keeps a value for life, which is a millisecond at least.
func (c *Cache) Put(ctx context.Context, name string, value []byte, life time.Duration) error {
	return put.Run(ctx, c.pool, []string{c.prefix + name, c.prefix + "names"},
		value, max(1, life.Milliseconds()), c.clock().UnixMilli(), c.entries).Err()
}
