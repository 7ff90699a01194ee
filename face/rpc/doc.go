// Package rpc is the gRPC face: the services ToolExecution and ToolRegistry of package
// agentic.l03.v1 (contracts/l03.proto), plus the standard health service and reflection. It only
// converts messages to toolkeep.Call and back.
//
// A request passes: interceptor.go assigns an id, catches panics and converts errors into statuses;
// guard.go authenticates the caller through package gate; request.go and inputs.go fill the Call;
// result.go writes the receipt; status.go writes a refusal. Faults in a request's fields become the
// call's Fault, so that the pipeline refuses and records it; codec.go does this for messages that
// do not decode.
//
// Data for which the contract's messages have no field goes into trailing metadata:
//
//	x-output-form        "bare" if the result is not a JSON object and is under
//	                     "result", "none" if there is no result
//	x-idempotency-replayed "true" if an earlier call with the key got this answer
//
// and x-request-id is in the leading metadata of every answer.
package rpc
