package vault

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/url"
	"strings"
	"unicode"

	"github.com/hashicorp/vault/api"

	"github.com/toolkeep/toolkeep"
)

// status returns Vault's response status, 0 without a response.
func status(err error) int {
	var e *api.ResponseError
	if errors.As(err, &e) {
		return e.StatusCode
	}
	return 0
}

// failed converts a request's error for the caller. what is the operation, such as "read vault://secret/shop".
func failed(ctx context.Context, what string, err error, secrets ...string) *toolkeep.Error {
	var known *toolkeep.Error
	if errors.As(err, &known) {
		return known
	}
	why := cause(err, secrets...)
	if errors.Is(ctx.Err(), context.Canceled) {
		return refuse(toolkeep.Cancelled, "the call ended while Vault was asked").Because(why)
	}
	switch code := status(err); {
	case code == http.StatusForbidden || code == http.StatusUnauthorized:
		return refuse(toolkeep.SecretAccessDenied, "Vault does not let this server %s: its policy must allow it", what).Because(why)
	case code == http.StatusNotFound || code == http.StatusBadRequest || code == http.StatusMethodNotAllowed:
		return refuse(toolkeep.SecretNotFound, "there is nothing in Vault to %s", what).Because(why)
	case code == http.StatusTooManyRequests:
		return refuse(toolkeep.SecretRetrievalFailed, "Vault limits its requests and did not %s", what).Because(why)
	case code > 0:
		return refuse(toolkeep.SecretRetrievalFailed, "Vault answered with status %d and did not %s", code, what).Because(why)
	case errors.Is(err, errTooLarge):
		return refuse(toolkeep.SecretRetrievalFailed, "Vault's answer is over the limit of 1 MiB").Because(why)
	}
	return refuse(toolkeep.SecretRetrievalFailed, "Vault could not be reached to %s", what).Because(why)
}

const maxCause = 300

// cause returns the operator's reason without anything that was sent: no URL, request, token, or response that is
// not an API error.
func cause(err error, secrets ...string) error {
	var r *api.ResponseError
	var u *url.Error
	var text string
	switch {
	case errors.As(err, &r) && r.RawError:
		text = fmt.Sprintf("status %d with an answer that is not Vault's", r.StatusCode)
	case errors.As(err, &r):
		text = fmt.Sprintf("status %d: %s", r.StatusCode, strings.Join(r.Errors, "; "))
	case errors.As(err, &u):
		text = u.Err.Error()
	default:
		text = err.Error()
	}
	for _, s := range secrets {
		if s != "" {
			text = strings.ReplaceAll(text, s, "[REDACTED]")
		}
	}
	text = strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return ' '
	}, text)
	return errors.New(toolkeep.ClipBytes(text, maxCause))
}

// reason returns why a file could not be read, without repeating its path.
func reason(err error) string {
	var p *fs.PathError
	if errors.As(err, &p) {
		return p.Path + ": " + p.Err.Error()
	}
	return err.Error()
}
