package webhook_test

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/toolkeep/toolkeep/audit/outbox"
	"github.com/toolkeep/toolkeep/audit/outbox/webhook"
	"github.com/toolkeep/toolkeep/egress"
)

const (
	first  = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
	second = "whsec_c2Vjb25kLXNlY3JldC1vZi10aGUtd2ViaG9vaw=="
)

// TestSign: the example of the specification, and two secrets.
func TestSign(t *testing.T) {
	const want = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
	body := []byte(`{"test": 2432232314}`)
	got, err := webhook.Sign(first, "msg_p5jXN8AQM9LWM0D4loKWxJek", "1614265330", body)
	if err != nil || got != want {
		t.Errorf("%s, %v", got, err)
	}
	got, err = webhook.Sign(first+" "+second, "msg_p5jXN8AQM9LWM0D4loKWxJek", "1614265330", body)
	if a, b, _ := strings.Cut(got, " "); err != nil || a != want || !strings.HasPrefix(b, "v1,") {
		t.Errorf("%s, %v", got, err)
	}
	for _, secret := range []string{"", "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "whsec_c2hvcnQ=", "whsec_%"} {
		if got, err := webhook.Sign(secret, "a", "1", body); err == nil || secret != "" && strings.Contains(err.Error(), secret) {
			t.Errorf("%q signs: %s, %v", secret, got, err)
		}
	}
}

// hook is an endpoint that checks each request as a receiver does.
type hook struct {
	*testing.T
	status int
	header http.Header
	ids    []string // of events
	last   string   // webhook-id
}

func (h *hook) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		h.Error(err)
	}
	key, _ := base64.StdEncoding.DecodeString(strings.TrimPrefix(first, "whsec_"))
	mac := hmac.New(sha256.New, key)
	fmt.Fprintf(mac, "%s.%s.%s", r.Header.Get("webhook-id"), r.Header.Get("webhook-timestamp"), body)
	if got := r.Header.Get("webhook-signature"); got != "v1,"+base64.StdEncoding.EncodeToString(mac.Sum(nil)) {
		h.Errorf("the signature is %s", got)
	}
	if at := r.Header.Get("webhook-timestamp"); at != "1772366400" {
		h.Errorf("the timestamp is %s", at)
	}
	var list []struct {
		ID string `json:"id"`
	}
	if err := json.Unmarshal(body, &list); err != nil || r.Header.Get("Content-Type") != "application/cloudevents-batch+json; charset=UTF-8" || r.Header.Get("Authorization") != "Bearer token" {
		h.Errorf("%s: %v, %v", body, err, r.Header)
	}
	for _, e := range list {
		h.ids = append(h.ids, e.ID)
	}
	h.last = r.Header.Get("webhook-id")
	for k, v := range h.header {
		w.Header()[k] = v
	}
	w.WriteHeader(h.status)
	fmt.Fprint(w, "secret words of the endpoint")
}

func text(s string) func(context.Context) (string, error) {
	return func(context.Context) (string, error) { return s, nil }
}

func events(from, to int) (list []outbox.Event) {
	for i := from; i < to; i++ {
		list = append(list, outbox.Event{ID: fmt.Sprint(i), Writer: 3, Number: int64(i), JSON: fmt.Appendf(nil, `{"id":"%d"}`, i)})
	}
	return list
}

var isID = regexp.MustCompile(`^msg_[0-9a-f]{32}$`)

// TestID: batches that differ in anything have other ids, such as those of two installations that have the same numbers.
func TestID(t *testing.T) {
	h := &hook{T: t, status: http.StatusOK}
	server := httptest.NewServer(h)
	defer server.Close()
	seen := map[string]string{}
	for what, c := range map[string]struct {
		name   string
		change func(*outbox.Event)
		to     int
	}{
		"the batch":               {name: "a", to: 6},
		"another sink":            {name: "b", to: 6},
		"fewer events":            {name: "a", to: 5},
		"another id, same number": {name: "a", to: 6, change: func(e *outbox.Event) { e.ID += "0" }},
		"another tenant":          {name: "a", to: 6, change: func(e *outbox.Event) { e.Tenant = "acme" }},
		"another writer":          {name: "a", to: 6, change: func(e *outbox.Event) { e.Writer++ }},
		"another number":          {name: "a", to: 6, change: func(e *outbox.Event) { e.Number += 10 }},
	} {
		s := webhook.New(webhook.Config{Name: c.name, URL: server.URL, Client: server.Client(), Secret: text(first), Token: text("token"),
			Clock: func() time.Time { return time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC) }})
		list := events(4, c.to)
		if c.change != nil {
			c.change(&list[1])
		}
		if n, err := s.Deliver(t.Context(), list); n != len(list) || err != nil {
			t.Fatalf("%s: %d, %v", what, n, err)
		}
		if other, ok := seen[h.last]; ok || !isID.MatchString(h.last) {
			t.Errorf("%s and %s are both %s", what, other, h.last)
		}
		seen[h.last] = what
	}
}

func TestDeliver(t *testing.T) {
	h := &hook{T: t}
	server := httptest.NewServer(h)
	defer server.Close()
	s := webhook.New(webhook.Config{URL: server.URL + "/hooks/in-the-path?key=in-the-query", Client: &http.Client{CheckRedirect: egress.NoRedirects, Transport: server.Client().Transport},
		Secret: text(first), Token: text("token"), Clock: func() time.Time { return time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC) }})
	defer s.Close()
	var id string
	for _, c := range []struct {
		status  int
		header  http.Header
		ok      bool
		refused bool
		after   time.Duration
	}{
		{status: 200, ok: true}, {status: 202, ok: true}, {status: 204, ok: true},
		{status: 400, refused: true}, {status: 413, refused: true}, {status: 422, refused: true}, {status: 409, refused: true},
		{status: 301, header: http.Header{"Location": {"/elsewhere"}}}, {status: 401}, {status: 403}, {status: 404}, {status: 408}, {status: 410}, {status: 500}, {status: 502},
		{status: 429, header: http.Header{"Retry-After": {"120"}}, after: 2 * time.Minute},
		{status: 503, header: http.Header{"Retry-After": {"Sun, 01 Mar 2026 12:00:30 GMT"}}, after: 30 * time.Second},
	} {
		h.status, h.header, h.ids = c.status, c.header, nil
		done, err := s.Deliver(t.Context(), events(4, 7))
		if strings.Join(h.ids, ",") != "4,5,6" || !isID.MatchString(h.last) || id != "" && h.last != id {
			t.Fatalf("%d: the endpoint got %v as %s", c.status, h.ids, h.last)
		}
		id = h.last // the same batch has the same, also after other answers
		if c.ok {
			if done != 3 || err != nil {
				t.Errorf("%d: %d, %v", c.status, done, err)
			}
			continue
		}
		_, refused := errors.AsType[*outbox.Refused](err)
		later, _ := errors.AsType[*outbox.Later](err)
		if done != 0 || err == nil || refused != c.refused || (later != nil) != (c.after > 0) || later != nil && later.After != c.after {
			t.Errorf("%d: %d, %T %v", c.status, done, err, err)
		}
		if err != nil && strings.Contains(err.Error(), "secret") {
			t.Errorf("the error has words of the endpoint: %v", err)
		}
	}
}

// TestDown: an error names neither path nor query, which may have a secret, and none of the secrets.
func TestDown(t *testing.T) {
	server := httptest.NewServer(nil)
	address := server.URL
	server.Close()
	s := webhook.New(webhook.Config{URL: address + "/hooks/T0/private?key=private", Client: http.DefaultClient, Secret: text(first), Clock: time.Now})
	done, err := s.Deliver(t.Context(), events(1, 2))
	_, refused := errors.AsType[*outbox.Refused](err)
	if done != 0 || err == nil || refused || strings.Contains(err.Error(), "private") || strings.Contains(err.Error(), first) {
		t.Errorf("%d, %v", done, err)
	}
	s = webhook.New(webhook.Config{URL: address, Client: http.DefaultClient, Clock: time.Now,
		Secret: func(context.Context) (string, error) { return "", errors.New("Vault is away") }})
	if done, err := s.Deliver(t.Context(), events(1, 2)); done != 0 || err == nil {
		t.Errorf("without a secret: %d, %v", done, err)
	}
}
