package httptool

import (
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/executor/executortest"
)

// TestBodyOfAllArguments sends the arguments that are not parameters as the body.
func TestBodyOfAllArguments(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		w.Header().Set("Content-Type", "text/plain")
		io.WriteString(w, r.Method+" "+r.URL.String()+" "+r.Header.Get("Content-Type")+" "+string(body))
	}))
	t.Cleanup(s.Close)
	e := newExecutor(t)
	for _, c := range []struct {
		args, secret, want string
	}{
		{`{"id":"x","n":1.50,"list":[1,{"a":null}]}`, "", `POST /f/x application/json {"list":[1,{"a":null}],"n":1.50}`},
		{`{"id":"x"}`, "", `POST /f/x application/json {}`},
		{`{"id":"x","n":1}`, "hidden", `POST /f/x application/json {"key":"hidden","n":1}`},
	} {
		m := manifest(t, s.URL, `{"method":"POST","server":"SERVER","path":"/f/{id}","parameters":[{"name":"id","in":"path"}],"body":{"all":true,"content_type":"application/json"}}`)
		x := &toolkeep.Execution{Tool: executortest.Tool(m), Args: args(t, c.args), Attempt: 1, MaxBytes: 1 << 20,
			Principal: &toolkeep.Principal{Subject: "agent", Tenant: "acme"}}
		if c.secret != "" {
			x.Credentials = []toolkeep.Credential{{Spec: toolkeep.AuthSpec{Type: "api_key", In: "body", Name: "key"}, Value: c.secret}}
		}
		out, err := e.Execute(t.Context(), x)
		if err != nil {
			t.Fatal(err)
		}
		if got := string(out.Body); got != c.want {
			t.Errorf("%s: %s, want %s", c.args, got, c.want)
		}
	}
	both := manifest(t, s.URL, `{"method":"POST","server":"SERVER","path":"/","body":{"all":true,"arg":"a","content_type":"application/json"}}`)
	if faults := e.Check(both); len(faults) != 1 || faults[0].Pointer != "/execution/binding/body/arg" {
		t.Errorf("%+v", faults)
	}
}
