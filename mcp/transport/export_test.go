package transport

import "time"

// WithRetry sets the bounds of the pause before a broken stream is reopened.
func (c HTTPConfig) WithRetry(shortest, longest time.Duration) HTTPConfig {
	c.retryMin, c.RetryMax = shortest, longest
	return c
}

// WithoutStream keeps the client from opening the server's own stream with GET.
func (c HTTPConfig) WithoutStream() HTTPConfig {
	c.noStream = true
	return c
}

// WithCloseTimeout bounds the DELETE that Close sends.
func (c HTTPConfig) WithCloseTimeout(d time.Duration) HTTPConfig {
	c.closeTimeout = d
	return c
}

// WithMaxJunk sets how many lines in a row may be no message.
func (c LinesConfig) WithMaxJunk(n int) LinesConfig {
	c.maxJunk = n
	return c
}
