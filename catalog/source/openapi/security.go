package openapi

import (
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"

	"github.com/toolkeep/toolkeep"
)

// security is how an operation authenticates.
type security struct {
	auth []any // entries of manifest.auth
	keys []secretPlace
}

// secretPlace is where an API key is sent.
type secretPlace struct{ in, name string }

// covers reports whether a parameter is the place of a credential.
func (s *security) covers(in, name string) bool {
	return slices.ContainsFunc(s.keys, func(k secretPlace) bool {
		return k.in == in && (k.name == name || in == "header" && strings.EqualFold(k.name, name))
	})
}

// schemes returns the security schemes of the document.
func (d *document) schemes() *object {
	if d.dialect == v20 {
		o, _ := d.object(d.root.get("securityDefinitions"), "")
		return o
	}
	comps, _ := d.object(d.root.get("components"), "")
	o, _ := d.object(comps.get("securitySchemes"), "")
	return o
}

// knownSchemes refuses secrets for unknown schemes: a typo would otherwise import tools without
// their credential.
func (d *document) knownSchemes() error {
	known := d.schemes()
	for _, name := range slices.Sorted(maps.Keys(d.opt.Schemes)) {
		if known.has(name) {
			return importError("the document defines the security scheme %q itself, so that it cannot be given", toolkeep.Clip(name, 80))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(d.opt.Auth)) {
		if known.has(name) || d.opt.Schemes[name] != "" {
			continue
		}
		list := "none"
		if known != nil && len(known.keys) > 0 {
			list = toolkeep.Clip(strings.Join(known.keys, ", "), 300)
		}
		return importError("a secret was given for the security scheme %q, which the document does not have; it has: %s", toolkeep.Clip(name, 80), list)
	}
	return nil
}

// securityOf reads the security requirements of an operation, else those of the document.
// Unsupported alternatives are left out; if none remains, the operation is refused.
func (d *document) securityOf(op *operation) (*security, string) {
	v := d.root.get("security")
	if op.op.has("security") {
		v = op.op.get("security")
	}
	list, reason := d.list(v, "security")
	if reason != "" {
		return nil, reason
	}
	s := &security{}
	var open, undefined bool
	var refusals []string
	for _, e := range list {
		alt, reason := d.object(e, "a security requirement")
		if reason != "" {
			return nil, reason
		}
		if len(alt.keys) == 0 {
			open = true
			continue
		}
		entry, places, reason := d.alternative(alt)
		if reason != "" {
			refusals = append(refusals, reason)
			continue
		}
		if entry == nil {
			undefined = true
			continue
		}
		s.auth = append(s.auth, entry)
		s.keys = append(s.keys, places...)
	}
	slices.SortStableFunc(s.auth, func(a, b any) int { return wayRank(a) - wayRank(b) })
	if len(s.auth) > 16 {
		d.warn("%s: only the first 16 of its security alternatives are kept", op.label())
		s.auth = s.auth[:16]
	}
	if open && len(s.auth) > 0 {
		s.auth = append(s.auth[:min(len(s.auth), 15)], map[string]any{"type": "none"})
	}
	if len(s.auth) == 0 && !open && !undefined && len(refusals) > 0 {
		return nil, strings.Join(slices.Compact(refusals), "; ")
	}
	for _, r := range refusals {
		d.warn("%s: one way to authenticate is left out: %s", op.label(), r)
	}
	return s, ""
}

// wayRank orders alternatives, of which the first is used: those with all secrets given, then the
// document's order with certificates and signatures last, since they are rarely available.
func wayRank(e any) int {
	entry := e.(map[string]any)
	also, _ := entry["settings"].(map[string]any)["also"].([]any)
	rank := 0
	for _, one := range append([]any{entry}, also...) {
		one := one.(map[string]any)
		switch kind := one["type"]; {
		case one["secret"] != nil:
		case kind == "mtls" || kind == "aws_sigv4":
			rank = 2
		default:
			rank = max(rank, 1)
		}
	}
	return rank
}

// alternative builds the auth entry of one alternative: its first scheme, with the others, which
// apply together with it, in settings.also. Schemes that the document does not define are left out
// with a warning; entry is nil if there are no others.
func (d *document) alternative(alt *object) (entry map[string]any, places []secretPlace, reason string) {
	var also []any
	for _, name := range alt.keys {
		if d.schemes().get(name) == nil && d.opt.Schemes[name] == "" {
			d.warn("the security scheme %q is not defined, so that calls are sent without it; say what it is with --auth '%s=header:NAME' (or query:NAME, cookie:NAME, bearer, basic) and --secret",
				toolkeep.Clip(name, 80), toolkeep.Clip(name, 80))
			continue
		}
		spec, place, reason := d.scheme(name, alt.vals[name])
		if reason != "" {
			return nil, nil, reason
		}
		if place.name != "" {
			places = append(places, place)
		}
		if entry == nil {
			entry = spec
		} else {
			also = append(also, spec)
		}
	}
	if len(also) > 0 {
		entry["settings"].(map[string]any)["also"] = also
	}
	return entry, places, ""
}

// scheme builds the auth entry of one security scheme.
func (d *document) scheme(name string, scopes any) (map[string]any, secretPlace, string) {
	none := secretPlace{}
	v := d.schemes().get(name)
	if v == nil {
		v, _ = givenScheme(d.opt.Schemes[name])
	}
	o, reason := d.object(v, fmt.Sprintf("the security scheme %q", toolkeep.Clip(name, 80)))
	if reason != "" {
		return nil, none, reason
	}
	settings := map[string]any{"scheme": toolkeep.Clip(clean(name), 200)}
	entry := map[string]any{"settings": settings}
	if secret := d.opt.Auth[name]; secret != "" {
		entry["secret"] = secret
	}
	cannot := func(what string) (map[string]any, secretPlace, string) {
		return nil, none, fmt.Sprintf("it needs %s (security scheme %q), which cannot be sent", what, toolkeep.Clip(name, 80))
	}
	var place secretPlace
	switch kind := o.text("type"); kind {
	case "apiKey":
		if strings.EqualFold(o.text("x-amazon-apigateway-authtype"), "awsSigv4") {
			entry["type"] = "aws_sigv4" // fit adds the rest
			return entry, none, ""
		}
		place = secretPlace{o.text("in"), o.text("name")}
		switch {
		case place.name == "":
			return cannot("an API key without a name")
		case place.in != "header" && place.in != "query" && place.in != "cookie":
			return cannot(fmt.Sprintf("an API key in %q", toolkeep.Clip(place.in, 40)))
		case place.in != "query" && (!isToken(place.name) || slices.Contains(fixedHeaders, strings.ToLower(place.name)) || strings.EqualFold(place.name, "content-type")):
			return cannot(fmt.Sprintf("an API key in the %s %q", place.in, toolkeep.Clip(place.name, 80)))
		}
		entry["type"], entry["in"], entry["name"] = "api_key", place.in, place.name
	case "basic":
		entry["type"] = "basic"
	case "http":
		switch scheme := strings.ToLower(o.text("scheme")); scheme {
		case "basic", "bearer":
			entry["type"] = scheme
		case "digest":
			return cannot("HTTP authentication \"digest\", in which each request answers the challenge of the one before")
		default:
			return cannot(fmt.Sprintf("HTTP authentication %q", toolkeep.Clip(scheme, 40)))
		}
	case "oauth2":
		entry["type"] = "bearer"
		if d.oauth(o, entry, settings) {
			entry["type"] = "oauth2_client_credentials"
		}
	case "openIdConnect":
		entry["type"] = "bearer"
		if u := o.text("openIdConnectUrl"); u != "" {
			settings["openid_connect_url"] = toolkeep.Clip(clean(u), 500)
		}
	case "mutualTLS":
		entry["type"] = "mtls"
		return entry, none, "" // scopes have no meaning here
	default:
		return cannot(fmt.Sprintf("authentication of type %q", toolkeep.Clip(kind, 40)))
	}
	if list := textList(scopes); len(list) > 0 {
		entry["scopes"] = list
	}
	return entry, place, ""
}

// givenScheme reads what an option says of a scheme that the document does not define: header:NAME,
// query:NAME, cookie:NAME, bearer or basic.
func givenScheme(s string) (scheme *object, ok bool) {
	scheme = &object{vals: map[string]any{}}
	in, name, isKey := strings.Cut(s, ":")
	switch {
	case s == "bearer" || s == "basic":
		scheme.set("type", "http")
		scheme.set("scheme", s)
		return scheme, true
	case !isKey || name == "" || in != "header" && in != "query" && in != "cookie":
		return nil, false
	}
	scheme.set("type", "apiKey")
	scheme.set("in", in)
	scheme.set("name", name)
	return scheme, true
}

// fit adapts the credentials to the server: AWS signatures get the service and region from its
// name, and unsupported alternatives are left out.
func (s *security) fit(u *url.URL) (warning, reason string) {
	var kept []any
	for _, e := range s.auth {
		why := ""
		settings, _ := e.(map[string]any)["settings"].(map[string]any)
		also, _ := settings["also"].([]any)
		for _, one := range append([]any{e}, also...) {
			entry := one.(map[string]any)
			switch entry["type"] {
			case "aws_sigv4":
				settings := entry["settings"].(map[string]any)
				service, region := amazonHost(u.Hostname())
				if region == "" {
					why = "it needs a signature of AWS, and the name of its server does not say service and region"
					continue
				}
				settings["service"], settings["region"] = service, region
			case "mtls":
				if u.Scheme != "https" {
					why = "it needs mutual TLS, and its server is not https"
				}
			}
		}
		if why == "" {
			kept = append(kept, e)
		} else {
			warning = why
		}
	}
	if len(kept) == 0 && warning != "" {
		return "", warning
	}
	s.auth = kept
	return warning, ""
}

// amazonHost parses service.region.amazonaws.com, with any prefix.
func amazonHost(host string) (service, region string) {
	rest, ok := strings.CutSuffix(strings.TrimSuffix(strings.ToLower(host), ".cn"), ".amazonaws.com")
	labels := strings.Split(rest, ".")
	if !ok || len(labels) < 2 || strings.Count(labels[len(labels)-1], "-") < 2 {
		return "", ""
	}
	return labels[len(labels)-2], labels[len(labels)-1]
}

// oauth keeps the data of the flows, for fetching the token, which is sent as a bearer token.
// machine reports that the only flow is client credentials, with a usable token address.
func (d *document) oauth(o *object, entry, settings map[string]any) (machine bool) {
	var flows []any
	tokenURL := ""
	if d.dialect == v20 {
		if flow := o.text("flow"); flow != "" {
			flows = append(flows, toolkeep.Clip(clean(flow), 60))
		}
		tokenURL = o.text("tokenUrl")
	}
	all, _ := d.object(o.get("flows"), "")
	if all != nil {
		for _, name := range all.keys {
			flow, reason := d.object(all.vals[name], "")
			if reason != "" || strings.HasPrefix(name, "x-") {
				continue
			}
			flows = append(flows, toolkeep.Clip(clean(name), 60))
			if u := flow.text("tokenUrl"); u != "" && (tokenURL == "" || name == "clientCredentials") {
				tokenURL = u
			}
		}
	}
	if len(flows) > 0 {
		settings["flows"] = flows
	}
	if tokenURL != "" {
		entry["token_url"] = toolkeep.Clip(clean(tokenURL), 500)
	}
	u, err := url.Parse(tokenURL)
	return len(flows) == 1 && (flows[0] == "clientCredentials" || flows[0] == "application") &&
		err == nil && u.Scheme == "https" && u.Hostname() != "" && u.User == nil && len(tokenURL) <= 500
}

func textList(v any) []any {
	list, _ := v.([]any)
	var out []any
	for _, e := range list {
		if s, ok := scalarText(e); ok {
			out = append(out, clean(s))
		}
	}
	return out
}
