package rest

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"
	"github.com/go-json-experiment/json"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/canon"
	"github.com/toolkeep/toolkeep/face/gate"
)

// request is huma's view of the request; the name leaves Context free for the
// method.
type request = huma.Context

// exchange is one request on its way through huma. It stands between huma and
// net/http, so that the gates, the problem documents and the compression are
// the same for every route.
type exchange struct {
	request
	a         *API
	w         http.ResponseWriter
	r         *http.Request
	principal *toolkeep.Principal
	body      []byte
	status    int
	problem   int // status of the problem document that replaces huma's own
	progress  *progress
	out       bytes.Buffer
}

// exchangeContext takes the principal through huma to the handler's parameter.
type exchangeContext struct {
	context.Context
	principal *toolkeep.Principal
}

// Context is what register's handler gets.
func (x *exchange) Context() context.Context { return exchangeContext{x.r.Context(), x.principal} }

// Header says JSON of every body, because checkedBody let nothing else through.
func (x *exchange) Header(name string) string {
	if name == "Content-Type" {
		return gate.JSONType
	}
	return x.r.Header.Get(name)
}

func (x *exchange) BodyReader() io.Reader           { return bytes.NewReader(x.body) }
func (x *exchange) SetReadDeadline(time.Time) error { return nil } // the body is read already
func (x *exchange) SetStatus(status int)            { x.status = status }
func (x *exchange) Status() int                     { return x.status }
func (x *exchange) BodyWriter() io.Writer           { return &x.out }
func (x *exchange) SetHeader(name, value string)    { x.headers().Set(name, value) }
func (x *exchange) AppendHeader(name, value string) { x.headers().Add(name, value) }

// headers are those of the answer; once a stream has begun they are sent and what comes
// is for nobody.
func (x *exchange) headers() http.Header {
	if x.progress != nil && x.progress.begun {
		return http.Header{}
	}
	return x.w.Header()
}

// adapter registers huma's operations on the mux.
type adapter struct{ a *API }

func (d adapter) ServeHTTP(w http.ResponseWriter, r *http.Request) { d.a.ServeHTTP(w, r) }

func (d adapter) Handle(op *huma.Operation, next func(huma.Context)) {
	serve := func(w http.ResponseWriter, r *http.Request) { d.a.serveOperation(op, next, nil, w, r) }
	if op.Metadata[streams] == nil {
		d.a.route(op.Method+" "+op.Path, serve)
		return
	}
	d.a.route(op.Method+" "+op.Path, func(w http.ResponseWriter, r *http.Request) {
		p := d.a.newProgress(w, r)
		if p == nil {
			serve(w, r)
			return
		}
		d.a.gate.Streaming(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { d.a.serveOperation(op, next, p, w, r) }))(w, r)
	})
}

func (a *API) serveOperation(op *huma.Operation, next func(huma.Context), p *progress, w http.ResponseWriter, r *http.Request) {
	x := &exchange{request: humago.NewContext(op, r, w), a: a, w: w, r: r, progress: p}
	var err error
	if x.principal, err = a.caller(r); err != nil {
		a.gate.Refuse(w, r, err)
		return
	}
	if op.RequestBody != nil && r.ContentLength != 0 {
		if x.body, err = a.checkedBody(op, r); err != nil {
			a.gate.Refuse(w, r, err)
			return
		}
	}
	next(x)
	status := x.status
	if x.problem != 0 {
		status = x.problem
	}
	if status == 0 {
		status = http.StatusOK
	}
	if p != nil && p.begun {
		p.end(status, x.out.Bytes())
		return
	}
	a.gate.Send(w, r, status, w.Header().Get("Content-Type"), x.out.Bytes())
}

// checkedBody reads a body within its limits; bulk routes take many manifests
// and so more of everything, and conversations have more properties than other bodies.
func (a *API) checkedBody(op *huma.Operation, r *http.Request) ([]byte, error) {
	limits := canon.Limits{Bytes: a.limits.BodyBytes}
	switch {
	case op.Metadata[conversation] != nil:
		limits.Properties = 100_000 // 500 messages of all that they may hold
	case op.Metadata[bulk] != nil:
		limits = canon.Limits{Bytes: a.limits.BulkBytes, Depth: 60, Properties: 2_000_000, Elements: 2_000_000}
	}
	body, err := gate.ReadBody(r, limits.Bytes, true)
	if err != nil || len(body) == 0 {
		return nil, err
	}
	if _, err := canon.Parse(body, limits); err != nil {
		return nil, err
	}
	return body, nil
}

// bulk marks operations with the larger body limit.
const bulk = "bulk"

// conversation marks operations that are told a conversation.
const conversation = "conversation"

// register makes an operation of a function that takes the principal as a
// parameter and returns ordinary errors. permission, if set, must be the
// principal's.
func register[I, O any](a *API, op huma.Operation, permission string, fn func(context.Context, *toolkeep.Principal, *I) (*O, error)) {
	a.describe(&op, permission)
	huma.Register(a.huma, op, func(ctx context.Context, in *I) (*O, error) {
		x := ctx.(exchangeContext)
		if err := gate.Need(x.principal, permission); err != nil {
			return nil, &problemError{err}
		}
		out, err := fn(x.Context, x.principal, in)
		if err != nil {
			return nil, &problemError{err}
		}
		return out, nil
	})
}

// problemError carries an error through huma to toProblem.
type problemError struct{ err error }

func (p *problemError) Error() string             { return p.err.Error() }
func (p *problemError) GetStatus() int            { return http.StatusInternalServerError }
func (p *problemError) ContentType(string) string { return gate.ProblemType }

// toProblem is huma's transformer: whatever error huma is about to write
// becomes a problem document with the status of its code.
func toProblem(ctx huma.Context, _ string, v any) (any, error) {
	var err error
	switch e := v.(type) {
	case *problemError:
		err = e.err
	case *huma.ErrorModel:
		err = fromHuma(e)
	default:
		return v, nil
	}
	x := ctx.(*exchange)
	p := x.a.gate.Problem(x.w, x.r, err)
	x.problem = p.Status
	return p, nil
}

// jsonFormat reads strictly and writes plainly.
func jsonFormat() huma.Format {
	return huma.Format{
		Marshal: func(w io.Writer, v any) error {
			b, err := gate.Marshal(v)
			if err != nil {
				return err
			}
			_, err = w.Write(b)
			return err
		},
		Unmarshal: func(data []byte, v any) error { return json.Unmarshal(data, v) },
	}
}

// An object is a JSON object that is passed on as it came.

func (o object) MarshalJSON() ([]byte, error) {
	if len(o) == 0 {
		return []byte("{}"), nil
	}
	return o, nil
}

func (o *object) UnmarshalJSON(b []byte) error {
	*o = append((*o)[:0], b...)
	return nil
}

// Schema is for the document.
func (o object) Schema(huma.Registry) *huma.Schema {
	return &huma.Schema{Type: huma.TypeObject, AdditionalProperties: true}
}
