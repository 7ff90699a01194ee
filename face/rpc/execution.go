package rpc

import (
	"context"
	"encoding/json"
	"errors"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"
	"google.golang.org/grpc"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/face/gate"
	"github.com/toolkeep/toolkeep/proto/l03v1"
)

// execution is the service ToolExecution.
type execution struct {
	l03v1.UnimplementedToolExecutionServer
	s *Server
}

// InvokeTool runs a call. The call ends with the RPC's deadline or cancellation, unless async_mode
// is set.
func (x *execution) InvokeTool(ctx context.Context, msg *l03v1.ToolInvocationRequest) (*result, error) {
	req, err := x.s.admit(ctx)
	if err != nil {
		return nil, err
	}
	call := x.s.readCall(req, msg)
	call.Told = func(left toolkeep.RateLeft) { tellRate(ctx, left) }
	if msg.GetDryRun() {
		return x.explain(ctx, req, call)
	}
	res, err := x.s.c.Invoker.Invoke(ctx, req.principal, call)
	if err != nil {
		return nil, err
	}
	x.s.gate.SignResult(req.principal, res)
	a := answer(res, call.Key, call.Traceparent)
	if a.trailer != nil {
		_ = grpc.SetTrailer(ctx, a.trailer)
	}
	return a.msg, nil
}

// explain answers dry_run: outputs are the members of the explanation.
func (x *execution) explain(ctx context.Context, req *request, call *toolkeep.Call) (*result, error) {
	v, err := x.s.c.Calls.Explain(ctx, req.principal, call)
	if err != nil {
		return nil, err
	}
	raw, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	outputs, _ := splitOutput(raw)
	return &result{RequestId: call.Key, Status: l03v1.ToolInvocationResult_SUCCESS, Outputs: outputs, Version: 1, Traceparent: call.Traceparent}, nil
}

// InvokeToolStream runs a call and streams its progress. The last message is the result. A waiting
// call is followed to its end; it continues when the client leaves.
func (x *execution) InvokeToolStream(msg *l03v1.ToolInvocationRequest, out grpc.ServerStreamingServer[l03v1.InvocationUpdate]) error {
	ctx := out.Context()
	req, err := x.s.admit(ctx)
	if err != nil {
		return err
	}
	call := x.s.readCall(req, msg)
	call.Told = func(left toolkeep.RateLeft) { tellRate(ctx, left) }
	if msg.GetDryRun() {
		m, err := x.explain(ctx, req, call)
		if err != nil {
			return err
		}
		return out.Send(&l03v1.InvocationUpdate{Update: &l03v1.InvocationUpdate_Result{Result: m}})
	}
	ctx, over := x.s.gate.While(ctx, req.principal)
	defer over()
	res, err := x.withProgress(ctx, req, call, out)
	if err == nil && !res.State.Ended() {
		res, err = x.follow(ctx, req.principal, res, out)
	}
	if !x.s.gate.Still(req.principal) {
		return gate.Gone()
	}
	if err != nil {
		return err
	}
	x.s.gate.SignResult(req.principal, res)
	a := answer(res, call.Key, call.Traceparent)
	if a.trailer != nil {
		out.SetTrailer(a.trailer)
	}
	return out.Send(&l03v1.InvocationUpdate{Update: &l03v1.InvocationUpdate_Result{Result: a.msg}})
}

// sink is a Caller that keeps the latest progress.
type sink struct {
	mu    sync.Mutex
	last  toolkeep.Progress
	ready chan struct{}
}

func (k *sink) Progress(p toolkeep.Progress) {
	k.mu.Lock()
	k.last = p
	k.mu.Unlock()
	select {
	case k.ready <- struct{}{}:
	default:
	}
}

func (k *sink) take() toolkeep.Progress {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.last
}

// withProgress invokes the call next to a loop that sends the latest progress, so that a slow
// reader delays only its own stream.
func (x *execution) withProgress(ctx context.Context, req *request, call *toolkeep.Call, out grpc.ServerStreamingServer[l03v1.InvocationUpdate]) (*toolkeep.Result, error) {
	k := &sink{ready: make(chan struct{}, 1)}
	call.Caller = k
	id := ""
	if call.ID == "" && call.Fault == nil {
		// Created here, so that progress can name the call.
		made, err := uuid.NewV7()
		if err != nil {
			return nil, err
		}
		id = made.String()
		call.ID = id
	}
	type outcome struct {
		res   *toolkeep.Result
		err   error
		panic *carried
	}
	done := make(chan outcome, 1)
	go func() {
		var o outcome
		defer func() {
			if v := recover(); v != nil {
				o.panic = &carried{v, debug.Stack()}
			}
			done <- o
		}()
		o.res, o.err = x.s.c.Invoker.Invoke(ctx, req.principal, call)
	}()
	var lost error
	for {
		select {
		case <-k.ready:
			if lost == nil {
				// If the client is gone, ctx ends, and with it the call.
				lost = out.Send(progressOf(k.take(), id))
			}
		case o := <-done:
			if o.panic != nil {
				panic(*o.panic)
			}
			return o.res, o.err
		}
	}
}

func progressOf(p toolkeep.Progress, id string) *l03v1.InvocationUpdate {
	return &l03v1.InvocationUpdate{Update: &l03v1.InvocationUpdate_Progress_{Progress: &l03v1.InvocationUpdate_Progress{
		Percent: count(int64(p.Percent)), Phase: valid(p.Phase), Message: valid(p.Message), InvocationId: id}}}
}

var errClosing = errors.New("the server is shutting down")

// follow sends the progress of a waiting call until it has ended. Its first message names the call.
// A call made for another agent is followed only if the caller may see it; else the answer says
// where it waits.
func (x *execution) follow(ctx context.Context, p *toolkeep.Principal, res *toolkeep.Result, out grpc.ServerStreamingServer[l03v1.InvocationUpdate]) (*toolkeep.Result, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(x.s.closing, func() { cancel(errClosing) })()
	var last toolkeep.Progress
	begun := false
	for v, err := range x.s.c.Calls.Watch(ctx, p, res.InvocationID) {
		if err != nil {
			if !begun && toolkeep.IsCode(err, toolkeep.ResourceNotFound) {
				return res, nil
			}
			return nil, err
		}
		if v.State.Ended() {
			return x.fetched(ctx, p, v), nil
		}
		if now := phased(v); !begun || now != last {
			begun, last = true, now
			if err := out.Send(progressOf(now, v.ID)); err != nil {
				return nil, err
			}
		}
	}
	if errors.Is(context.Cause(ctx), errClosing) {
		e := toolkeep.NewError(toolkeep.Draining, "the server is shutting down; the call goes on, ask for it with GetInvocation").After(time.Second)
		e.InvocationID = res.InvocationID
		return nil, e
	}
	return nil, ctx.Err()
}

// phased returns the row's progress; without any, the state is the phase.
func phased(v *toolkeep.Invocation) toolkeep.Progress {
	p := v.Progress
	if p.Phase == "" {
		p.Phase = string(v.State)
	}
	return p
}

// fetched records that the answer is sent. If recording fails, the answer is sent anyway and stays
// for its lifetime.
func (x *execution) fetched(ctx context.Context, p *toolkeep.Principal, v *toolkeep.Invocation) *toolkeep.Result {
	if again, err := x.s.c.Calls.Get(ctx, p, v.ID); err == nil {
		v = again
	}
	return x.s.c.Calls.Result(v)
}

// GetInvocation returns a call's state or result.
func (x *execution) GetInvocation(ctx context.Context, msg *l03v1.GetInvocationRequest) (*result, error) {
	p, err := x.s.admitFollowing(ctx, msg)
	if err != nil {
		return nil, err
	}
	if err := x.s.checkID(msg.GetInvocationId()); err != nil {
		return nil, err
	}
	v, err := x.s.c.Calls.Get(ctx, p, msg.GetInvocationId())
	if err != nil {
		return nil, err
	}
	res := x.s.c.Calls.Result(v)
	x.s.gate.SignResult(p, res)
	a := answer(res, v.Key, v.Traceparent)
	a.msg.UserId, a.msg.ActorId, a.msg.AllowedBy = valid(v.OnBehalf), valid(v.Actor), v.AllowedBy()
	if a.trailer != nil {
		_ = grpc.SetTrailer(ctx, a.trailer)
	}
	return a.msg, nil
}

// CancelInvocation ends a waiting call or asks a running one to stop.
func (x *execution) CancelInvocation(ctx context.Context, msg *l03v1.CancelInvocationRequest) (*l03v1.CancelInvocationResponse, error) {
	p, err := x.s.admitFollowing(ctx, msg)
	if err != nil {
		return nil, err
	}
	if err := x.s.checkID(msg.GetInvocationId()); err != nil {
		return nil, err
	}
	cancelled, text, err := x.s.c.Calls.Cancel(ctx, p, msg.GetInvocationId(), clip(msg.GetReason(), x.s.limits.KeyBytes))
	if err != nil {
		return nil, err
	}
	return &l03v1.CancelInvocationResponse{InvocationId: msg.GetInvocationId(), Cancelled: cancelled, Message: valid(text)}, nil
}

// checkID refuses malformed invocation ids.
func (s *Server) checkID(id string) error {
	if id == "" || len(id) > s.limits.KeyBytes || strings.IndexByte(id, 0) >= 0 {
		return toolkeep.NewError(toolkeep.InvalidParameters, "the id must have 1 to %d bytes and no NUL", s.limits.KeyBytes)
	}
	return nil
}
