package redis

import "context"

// Publish sends a message to those who listen on a channel at this moment. A nil Client sends none.
func (c *Client) Publish(ctx context.Context, channel, message string) error {
	if c == nil {
		return nil
	}
	return c.pool.Publish(ctx, c.prefix+channel, message).Err()
}

// Subscribe calls heard after each message on a channel until Close, which waits for the last
// call. It also calls it when it has connected, and connected again after a lost connection, since
// messages of before are lost. A nil Client hears none.
func (c *Client) Subscribe(channel string, heard func()) {
	if c == nil {
		return
	}
	s := c.pool.Subscribe(context.Background(), c.prefix+channel)
	c.mu.Lock()
	c.subscriptions = append(c.subscriptions, s)
	c.mu.Unlock()
	c.listening.Go(func() {
		for range s.ChannelWithSubscriptions() {
			heard()
		}
	})
}

// deafen ends the subscriptions.
func (c *Client) deafen() {
	c.mu.Lock()
	for _, s := range c.subscriptions {
		_ = s.Close() // nothing to lose on it
	}
	c.subscriptions = nil
	c.mu.Unlock()
	c.listening.Wait()
}
