package config

import (
	"net/url"
	"time"
)

// Redis is a server that the nodes share beside the store. Nothing needs it: what it
// does faster is done without it while it is away.
type Redis struct {
	URL        string // redis://, rediss:// or unix://; "" is none
	Password   string // secret reference, "" is none
	CAFile     string // PEM; "" is the system's authorities
	ServerName string // in the certificate, "" is the URL's host
	ClientCert string // PEM; "" shows none
	ClientKey  string
	Prefix     string // of every key
	MaxConns   int
	Timeout    time.Duration // for connecting, and for an answer where nothing shorter is said
}

// redis checks the address; the rest of it is checked by who connects.
func (f *faults) redis(c *Config) {
	r := &c.Redis
	if r.URL == "" {
		for _, s := range []struct{ key, value string }{{"redis.password", r.Password}, {"redis.ca_file", r.CAFile},
			{"redis.server_name", r.ServerName}, {"redis.client_cert", r.ClientCert}, {"redis.client_key", r.ClientKey}} {
			if s.value != "" {
				f.add("redis.url", "required", s.key+" is set; it needs redis.url")
			}
		}
		return
	}
	u, err := url.Parse(r.URL)
	if err != nil || u.Scheme != "redis" && u.Scheme != "rediss" && u.Scheme != "unix" {
		f.add("redis.url", "format", "redis.url must begin with redis://, rediss:// or unix://, such as rediss://redis.example:6379/0")
	} else if _, has := u.User.Password(); has {
		f.add("redis.url", "format", "redis.url holds a password; put a secret reference into redis.password instead")
	}
	f.reference("redis.password", r.Password, "env://TOOLKEEP_SECRET_REDIS")
	if (r.ClientCert == "") != (r.ClientKey == "") {
		f.add("redis.client_key", "required", "redis.client_cert and redis.client_key go together")
	}
}
