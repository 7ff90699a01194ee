package policy

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2/content"
	oci "oras.land/oras-go/v2/registry/remote"
	"oras.land/oras-go/v2/registry/remote/auth"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/datadir"
)

const (
	// maxArchive bounds a fetched archive in bytes.
	maxArchive = 2 * maxTotalBytes
	// maxManifest bounds an OCI manifest, which names the archive, in bytes.
	maxManifest = 1 << 20
	// ociScheme begins the addresses of registries.
	ociScheme = "oci://"
	// lookPause is the least pause between two looks at a bundle, also where another node asks for one.
	lookPause = 250 * time.Millisecond
)

// layerType is the media type of the layer in which `opa build` and its registries keep a bundle.
const layerType = ocispec.MediaTypeImageLayerGzip

// Bundle is a policy at an address: a gzipped tar archive as `opa build` makes it.
type Bundle struct {
	// URL is https://host/bundle.tar.gz, or oci://registry/repository:tag or with @sha256:digest
	// in place of the tag. A registry on this machine is asked without TLS.
	URL string
	// Every is the pause between two looks; default 30 s.
	Every time.Duration
	// Timeout bounds a look; default 30 s.
	Timeout time.Duration
	// Client connects. Its CheckRedirect is Redirects, since registries keep archives elsewhere.
	Client *http.Client
	// Credential is sent: as bearer token, or as user:password to a registry where it has a
	// colon. nil sends none.
	Credential func(ctx context.Context) (string, error)
	// Keep is the folder in which the archive in use is kept for a start without the service, by
	// the address that it came from; "" keeps none.
	Keep string

	// refusedLooks counts looks since an archive was refused, which is read again from time to time:
	// a busy node may not have had the time for its tests.
	refusedLooks int
	// seen is the ETag or digest of the archive that was read last, and refusal why it was not
	// taken, "" if it was.
	seen, refusal string
}

// CheckURL returns why an address cannot be that of a bundle, nil if it can.
func CheckURL(address string) error {
	if ref, ok := strings.CutPrefix(address, ociScheme); ok {
		repository, err := oci.NewRepository(ref)
		if err != nil || repository.Reference.Reference == "" {
			return errors.New("a registry's address is oci://registry/repository:tag, or with @sha256:… in place of the tag")
		}
		return nil
	}
	u, err := url.Parse(address)
	switch {
	case err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http" || u.User != nil || u.RawQuery != "" || u.Fragment != "":
		return errors.New("it must be an https or oci address without user, query and fragment, which logs and events would have, such as https://policies.example/bundle.tar.gz or oci://registry.example/policies:stable")
	case u.Scheme == "http" && !onThisMachine(u.Host):
		return errors.New("it must be https where the service is not on this machine")
	}
	return nil
}

// Address is the URL whose host is connected to.
func (b *Bundle) Address() string {
	if ref, ok := strings.CutPrefix(b.URL, ociScheme); ok {
		return "https://" + ref
	}
	return b.URL
}

// Redirects is the CheckRedirect of Bundle.Client: five of them, and none that leaves TLS.
func Redirects(req *http.Request, via []*http.Request) error {
	switch {
	case len(via) > 5:
		return errors.New("it redirects more than five times")
	case via[0].URL.Scheme == "https" && req.URL.Scheme != "https":
		return errors.New("it redirects to an address without TLS")
	}
	return nil
}

func onThisMachine(host string) bool {
	name, _, err := net.SplitHostPort(host)
	if err != nil {
		name = host
	}
	at, err := netip.ParseAddr(strings.Trim(name, "[]"))
	return name == "localhost" || err == nil && at.IsLoopback()
}

// fetch returns the archive and what marks it, nil if it is the one that was read last.
func (b *Bundle) fetch(ctx context.Context) (archive []byte, mark string, err error) {
	limit := b.Timeout
	if limit <= 0 {
		limit = 30 * time.Second
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	credential := ""
	if b.Credential != nil {
		if credential, err = b.Credential(ctx); err != nil {
			return nil, "", fmt.Errorf("the credential of policy.token cannot be read: %w", err)
		}
	}
	if ref, ok := strings.CutPrefix(b.URL, ociScheme); ok {
		archive, mark, err = b.pull(ctx, ref, credential)
	} else {
		archive, mark, err = b.get(ctx, credential)
	}
	// The address may be one of a redirect, with a signature in its query.
	if u, ok := errors.AsType[*url.Error](err); ok {
		at := "the address"
		if to, bad := url.Parse(u.URL); bad == nil {
			at = to.Host
		}
		err = fmt.Errorf("%s cannot be asked: %w", at, u.Err)
	}
	return archive, mark, err
}

// keptAt is the file in which the archive of this address is kept.
func (b *Bundle) keptAt() string {
	sum := sha256.Sum256([]byte(b.URL))
	return filepath.Join(b.Keep, fmt.Sprintf("policy-%x.tar.gz", sum[:8]))
}

// get asks an HTTP address.
func (b *Bundle) get(ctx context.Context, token string) ([]byte, string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, b.URL, nil)
	if err != nil {
		return nil, "", err
	}
	if strings.HasPrefix(b.seen, `"`) || strings.HasPrefix(b.seen, `W/"`) {
		req.Header.Set("If-None-Match", b.seen)
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := b.Client.Do(req)
	if err != nil {
		return nil, "", err
	}
	defer resp.Body.Close()
	switch resp.StatusCode {
	case http.StatusOK:
	case http.StatusNotModified:
		return nil, b.seen, nil
	default:
		return nil, "", fmt.Errorf("%s answered %s", req.URL.Host, resp.Status)
	}
	raw, err := io.ReadAll(io.LimitReader(resp.Body, maxArchive+1))
	switch {
	case err != nil:
		return nil, "", err
	case len(raw) > maxArchive:
		return nil, "", fmt.Errorf("the archive has more than %d MiB", maxArchive>>20)
	}
	mark := resp.Header.Get("ETag")
	if mark == "" || len(mark) > 1000 {
		mark = fmt.Sprintf("sha256:%x", sha256.Sum256(raw))
	}
	if mark == b.seen {
		return nil, mark, nil
	}
	return raw, mark, nil
}

// pull asks a registry. What it answers is compared with the digests by which it is named.
func (b *Bundle) pull(ctx context.Context, ref, credential string) ([]byte, string, error) {
	repository, err := oci.NewRepository(ref)
	if err != nil {
		return nil, "", err
	}
	host := repository.Reference.Host()
	client := &auth.Client{Client: b.Client}
	if credential != "" {
		c := auth.Credential{AccessToken: credential}
		if user, password, ok := strings.Cut(credential, ":"); ok {
			c = auth.Credential{Username: user, Password: password}
		}
		client.Credential = auth.StaticCredential(host, c)
	}
	repository.Client, repository.PlainHTTP, repository.MaxMetadataBytes = client, onThisMachine(host), maxManifest
	named, err := repository.Resolve(ctx, repository.Reference.Reference)
	if err != nil {
		return nil, "", err
	}
	mark := named.Digest.String()
	if mark == b.seen {
		return nil, mark, nil
	}
	if named.MediaType != ocispec.MediaTypeImageManifest || named.Size > maxManifest {
		return nil, "", fmt.Errorf("the registry has %s of %d bytes there, and not a manifest (%s) of a bundle", named.MediaType, named.Size, ocispec.MediaTypeImageManifest)
	}
	raw, err := content.FetchAll(ctx, repository, named)
	if err != nil {
		return nil, "", err
	}
	var manifest ocispec.Manifest
	if err := json.Unmarshal(raw, &manifest); err != nil {
		return nil, "", fmt.Errorf("its manifest cannot be read: %w", err)
	}
	if len(manifest.Layers) != 1 || manifest.Layers[0].MediaType != layerType {
		return nil, "", fmt.Errorf("its manifest must have one layer of type %s, as `opa build` and an OCI client make it", layerType)
	}
	layer := manifest.Layers[0]
	if layer.Size > maxArchive {
		return nil, "", fmt.Errorf("the archive has more than %d MiB", maxArchive>>20)
	}
	if raw, err = content.FetchAll(ctx, repository.Blobs(), layer); err != nil {
		return nil, "", err
	}
	return raw, mark, nil
}

// startBundle takes the bundle of a start: that of the address, else the one that was kept. E3008.
func (e *Engine) startBundle(ctx context.Context) error {
	b := e.c.Bundle
	raw, mark, err := b.fetch(ctx)
	if err == nil {
		if err = e.takeArchive(ctx, raw); err == nil {
			b.seen = mark
			return nil
		}
	}
	kept, absent := os.ReadFile(b.keptAt())
	if absent == nil {
		absent = e.takeArchive(ctx, kept)
	}
	if b.Keep == "" || absent != nil || ctx.Err() != nil {
		return e.unusable(err)
	}
	s := e.setState(func(s *State) { s.Refused, s.RefusedAt = toolkeep.ClipBytes(err.Error(), 4000), e.c.Clock() })
	e.c.Log.Error("the policy's bundle cannot be used; the one that was kept decides", "source", b.URL, "digest", s.Digest, "error", err)
	return nil
}

// takeArchive takes an archive if it passes, and keeps it for a later start.
func (e *Engine) takeArchive(ctx context.Context, raw []byte) error {
	files, err := Unpack(raw, e.c.KeyFile)
	if err != nil {
		return err
	}
	g, s, err := e.load(ctx, files)
	if err != nil {
		return err
	}
	e.current.Store(g)
	e.setState(func(now *State) { *now = s })
	e.keep(raw)
	return nil
}

func (e *Engine) keep(raw []byte) {
	b := e.c.Bundle
	if b.Keep == "" {
		return
	}
	err := datadir.WriteFile(b.keptAt(), string(raw))
	others, _ := filepath.Glob(filepath.Join(b.Keep, datadir.PolicyBundle))
	for _, name := range others {
		if name != b.keptAt() { // of an address of before
			err = errors.Join(err, os.Remove(name))
		}
	}
	if err != nil {
		e.c.Log.Error("the policy's bundle could not be kept for a start without its address", "file", b.keptAt(), "error", err)
	}
}

// followBundle looks at the bundle every Bundle.Every, and when Look asks for it.
func (e *Engine) followBundle(ctx context.Context) {
	every := e.c.Bundle.Every
	if every <= 0 {
		every = 30 * time.Second
	}
	for toolkeep.Sleep(ctx, lookPause) {
		wait := time.NewTimer(max(0, every-lookPause))
		select {
		case <-ctx.Done():
		case <-e.wake:
		case <-wait.C:
		}
		wait.Stop()
		if ctx.Err() == nil {
			e.lookAtBundle(ctx)
		}
	}
}

// lookAtBundle takes the bundle if it has changed and passes. An address that does not answer
// is told by State, and is no change.
func (e *Engine) lookAtBundle(ctx context.Context) {
	b := e.c.Bundle
	if b.refusedLooks++; b.refusal != "" && b.refusedLooks%rereadEvery == 0 {
		b.seen = ""
	}
	raw, mark, err := b.fetch(ctx)
	switch {
	case ctx.Err() != nil:
	case err != nil:
		s := e.setState(func(s *State) {
			s.Refused, s.RefusedAt = toolkeep.ClipBytes("the bundle cannot be fetched: "+err.Error(), 4000), e.c.Clock()
		})
		e.seldom.Error("the policy's bundle cannot be fetched; the policy in use goes on", "source", b.URL, "digest", s.Digest, "error", err)
	case raw == nil:
		e.setState(func(s *State) {
			if s.Refused = b.refusal; b.refusal == "" {
				s.RefusedAt = time.Time{}
			}
		})
	default:
		files, err := Unpack(raw, e.c.KeyFile)
		s := e.reload(ctx, files, err)
		if err == nil && s.Refused == "" && s.Digest == files.Digest() { // it is in use, also where the engine stops now
			e.keep(raw)
		}
		if ctx.Err() == nil {
			b.seen, b.refusal = mark, s.Refused
		}
	}
}

// Look makes the engine look at its bundle now, such as when another node has taken a change. A
// path is looked at often enough.
func (e *Engine) Look() {
	select {
	case e.wake <- struct{}{}:
	default:
	}
}
