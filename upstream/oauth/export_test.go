package oauth

import "time"

// SetLoginTime sets how long a person may take.
func (c *Config) SetLoginTime(d time.Duration) { c.loginTime = d }

// SetBeginTime bounds discovery and registration.
func (c *Config) SetBeginTime(d time.Duration) { c.beginTime = d }

// SetMaxLogins bounds the logins under way.
func (c *Config) SetMaxLogins(n int) { c.maxLogins = n }
