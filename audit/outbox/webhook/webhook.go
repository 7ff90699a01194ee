// Package webhook delivers events to an HTTP endpoint: batches of CloudEvents 1.0 (application/cloudevents-batch+json),
// signed as Standard Webhooks says.
//
// The headers webhook-id, webhook-timestamp and webhook-signature are sent with each request. The signature is v1, and
// the base64 of HMAC-SHA256 over id, timestamp and body, joined by dots. The id is msg_ and 32 characters in hex,
// and the same whenever the same batch is sent again.
//
// Any 2xx confirms a batch. 400, 413, 415, 422 and the like refuse what was sent; answers that speak of the endpoint and
// not of the events (401, 403, 404, 405, 407, 410, 3xx), 408, 425, 429 and 5xx are a sink that is down. Retry-After is kept to.
package webhook

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/toolkeep/toolkeep/audit/outbox"
	"github.com/toolkeep/toolkeep/egress"
)

// maxAnswer is how much of an answer is read, so that the connection is used again.
const maxAnswer = 64 << 10

// MinSecret is the least number of bytes of a secret.
const MinSecret = 16

// Config configures a Sink. All but Token are required.
type Config struct {
	Name   string // of the sink; a part of what identifies a batch
	URL    string
	Client *http.Client // follows no redirects
	// Secret returns what signs: one or several secrets with spaces between, each whsec_ and base64. All of
	// them sign, so that one can be replaced.
	Secret func(context.Context) (string, error)
	Token  func(context.Context) (string, error) // bearer token; nil sends none
	Clock  func() time.Time
}

// Sink is a webhook.
type Sink struct{ c Config }

// New makes a Sink.
func New(c Config) *Sink { return &Sink{c} }

// Close has nothing to end: the connections are the client's.
func (s *Sink) Close() error { return nil }

// Deliver posts the events as one batch.
func (s *Sink) Deliver(ctx context.Context, events []outbox.Event) (int, error) {
	body := []byte{'['}
	for i := range events {
		if i > 0 {
			body = append(body, ',')
		}
		body = append(body, events[i].JSON...)
	}
	body = append(body, ']')
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.c.URL, bytes.NewReader(body))
	if err != nil {
		return 0, withoutURL(err)
	}
	id, at := s.batchID(events), strconv.FormatInt(s.c.Clock().Unix(), 10)
	secret, err := s.c.Secret(ctx)
	if err != nil {
		return 0, fmt.Errorf("the secret of the webhook cannot be read: %w", err)
	}
	signature, err := Sign(secret, id, at, body)
	if err != nil {
		return 0, err
	}
	h := req.Header
	h.Set("Content-Type", "application/cloudevents-batch+json; charset=UTF-8")
	h.Set("User-Agent", "toolkeep")
	h.Set("webhook-id", id)
	h.Set("webhook-timestamp", at)
	h.Set("webhook-signature", signature)
	if s.c.Token != nil {
		token, err := s.c.Token(ctx)
		if err != nil {
			return 0, fmt.Errorf("the token of the webhook cannot be read: %w", err)
		}
		h.Set("Authorization", "Bearer "+token)
	}
	res, err := s.c.Client.Do(req)
	if err != nil {
		return 0, withoutURL(err)
	}
	defer res.Body.Close()
	_, _ = io.Copy(io.Discard, io.LimitReader(res.Body, maxAnswer))
	if res.StatusCode/100 == 2 {
		return len(events), nil
	}
	err = fmt.Errorf("the webhook answered %d", res.StatusCode)
	switch {
	case refuses(res.StatusCode):
		return 0, &outbox.Refused{Err: err}
	case res.StatusCode == http.StatusTooManyRequests, res.StatusCode == http.StatusServiceUnavailable:
		return 0, &outbox.Later{Err: err, After: egress.RetryAfter(res.Header.Get("Retry-After"), s.c.Clock())}
	}
	return 0, err
}

// refuses reports whether a status is about what was sent, and not about the endpoint or the moment.
func refuses(status int) bool {
	switch status {
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound, http.StatusMethodNotAllowed, http.StatusProxyAuthRequired,
		http.StatusRequestTimeout, http.StatusGone, http.StatusTooEarly, http.StatusTooManyRequests:
		return false
	}
	return status/100 == 4
}

// batchID identifies a batch by the sink and its events. The ids of events are unique among installations; numbers of
// writers and entries alone are not.
func (s *Sink) batchID(events []outbox.Event) string {
	h := sha256.New()
	fmt.Fprintf(h, "%q", s.c.Name)
	for i := range events {
		e := &events[i]
		fmt.Fprintf(h, " %q %q %d %d", e.ID, e.Tenant, e.Writer, e.Number)
	}
	return "msg_" + hex.EncodeToString(h.Sum(nil)[:16])
}

// Sign returns the value of webhook-signature.
func Sign(secrets, id, timestamp string, body []byte) (string, error) {
	var all []string
	for _, secret := range strings.Fields(secrets) {
		text, ok := strings.CutPrefix(secret, "whsec_")
		key, err := base64.StdEncoding.DecodeString(text)
		if !ok || err != nil || len(key) < MinSecret {
			return "", fmt.Errorf("the secret of the webhook must be whsec_ and the base64 of at least %d random bytes, such as whsec_$(openssl rand -base64 32)", MinSecret)
		}
		mac := hmac.New(sha256.New, key)
		mac.Write([]byte(id + "." + timestamp + "."))
		mac.Write(body)
		all = append(all, "v1,"+base64.StdEncoding.EncodeToString(mac.Sum(nil)))
	}
	if len(all) == 0 {
		return "", errors.New("the secret of the webhook is empty")
	}
	return strings.Join(all, " "), nil
}

// withoutURL leaves the address out of an error, since it may have a secret in it.
func withoutURL(err error) error {
	if e, ok := errors.AsType[*url.Error](err); ok {
		return e.Err
	}
	return err
}
