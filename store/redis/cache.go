package redis

import (
	"context"
	"strings"
	"time"

	goredis "github.com/redis/go-redis/v9"
)

// maxValue is the most bytes that Get reads of a value.
const maxValue = 1 << 20

// Cache stores bytes by name, each with a lifetime and up to a maximum number; those
// that end soonest are evicted. It counts only its own entries: keys that another client puts
// under the prefix are not counted.
type Cache struct {
	pool    goredis.UniversalClient
	prefix  string
	entries int
	clock   func() time.Time
}

// Cache returns a cache whose keys start with name. entries is the maximum number of
// entries (default 20,000); clock is for the count (default time.Now).
func (c *Client) Cache(name string, entries int, clock func() time.Time) *Cache {
	if entries <= 0 {
		entries = 20_000
	}
	if clock == nil {
		clock = time.Now
	}
	return &Cache{pool: c.pool, prefix: strings.TrimSuffix(c.names(name), "names"), entries: entries, clock: clock}
}

// Get returns the value of a name, nil if there is none.
func (c *Cache) Get(ctx context.Context, name string) ([]byte, error) {
	// A range, so that another client's huge value is not read whole.
	raw, err := c.pool.GetRange(ctx, c.prefix+name, 0, maxValue).Bytes()
	switch {
	case goredis.HasErrorPrefix(err, "WRONGTYPE"):
		return nil, nil // not written by this cache
	case err != nil || len(raw) == 0:
		return nil, err
	}
	return raw, nil
}

// put sets a value and maintains the list of names by expiry, which lasts as long as the last of them.
var put = goredis.NewScript(`
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
redis.call('ZADD', KEYS[2], ARGV[3] + ARGV[2], KEYS[1])
redis.call('ZREMRANGEBYSCORE', KEYS[2], '-inf', ARGV[3])
local over = redis.call('ZCARD', KEYS[2]) - ARGV[4]
if over > 0 then
  local gone = redis.call('ZPOPMIN', KEYS[2], math.min(over, 1000))
  for i = 1, #gone, 2 do redis.call('DEL', gone[i]) end
end
if redis.call('PEXPIRE', KEYS[2], ARGV[2], 'NX') == 0 then
  redis.call('PEXPIRE', KEYS[2], ARGV[2], 'GT')
end
return 1`)

// Put stores a value for life, at least a millisecond.
func (c *Cache) Put(ctx context.Context, name string, value []byte, life time.Duration) error {
	return put.Run(ctx, c.pool, []string{c.prefix + name, c.prefix + "names"},
		value, max(1, life.Milliseconds()), c.clock().UnixMilli(), c.entries).Err()
}
