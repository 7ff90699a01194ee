package openapi

import (
	"context"
	"sync"
)

// GivenServer is the server of the plans of Given.
const GivenServer = "https://example.invalid"

var given struct {
	sync.Mutex
	plans map[string]*Plan
}

// Given reads a document with GivenServer, once for all tests: reading all of them takes seconds.
func Given(ctx context.Context, path string) (*Plan, error) {
	given.Lock()
	defer given.Unlock()
	if plan := given.plans[path]; plan != nil {
		return plan, nil
	}
	plan, err := Read(ctx, Options{Location: path, Server: GivenServer})
	if err != nil {
		return nil, err
	}
	if given.plans == nil {
		given.plans = map[string]*Plan{}
	}
	given.plans[path] = plan
	return plan, nil
}
