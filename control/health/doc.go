// Package health says how well tools work, and probes those whose manifests name an endpoint for that.
//
// # States
//
//	unknown    no call is counted, and no probe has told anything
//	healthy    neither of what follows
//	degraded   a larger share of the counted calls failed, or was slow, than the breaker bears; the breaker is half open; the last
//	           probe failed or was slow
//	unhealthy  the breaker of the tool or of its upstream is open; the last Failures probes failed
//
// The worst that is known counts. Calls are those that the tool's breaker counts, on this node; nothing is counted twice.
//
// # Probes
//
// The node that leads Work probes. Each tool has the interval of its manifest, give or take a tenth, so that nodes and tools do not
// beat in step. What a probe found is in this node's memory; a document (Kind) is written when two probes have found that the state changed, twice a minute at most, with its event,
// and the other nodes know the state from that. A new leader goes on from the documents.
//
// A probe that failed is told to the tool's breaker as a call that failed, if a call that ended so would count and its endpoint is on
// the tool's own server. One that succeeded
// is not told: an endpoint that is well says little of the tool's calls, and would thin out those that failed.
package health
