// Package rpc is the gRPC face: the services ToolExecution and ToolRegistry of
// package agentic.l03.v1 (contracts/l03.proto), beside the standard health
// service and reflection. It turns messages into toolkeep.Call and back, and does
// nothing else.
//
// The way of a request: interceptor.go gives it an id, catches panics and turns
// errors into statuses; guard.go names the caller, as package gate has it;
// request.go and inputs.go fill
// the Call; result.go writes the receipt; status.go writes a refusal. What is
// wrong with a request's fields becomes the call's Fault, so that the pipeline
// refuses and records it; codec.go sees to it for messages that do not decode.
//
// What the contract's messages have no field for rides as trailing metadata:
//
//	x-output-form        "bare" where the result is no JSON object and stands under
//	                     "result", "none" where there is no result
//	x-idempotency-replayed "true" where an earlier call with the key got this answer
//
// and x-request-id rides as leading metadata of every answer.
package rpc
