// Package overlay holds what an agent adds to a tool: references to its own credentials, tighter
// limits, and facts about its session.
//
// # Sources
//
// Contexts come from the store, for an agent and one tool or all of its tools (*), and from a
// remote service at GET {URL}/api/v1/context/agent/{agent}/tool/{tool}. All that apply are merged:
// the lowest of each limit; for a credential or fact in several, first the store's for the tool,
// then the store's for *, then the remote one.
//
// # A context can only narrow
//
// A time limit, a number of attempts and a rate count only if they are below the tool's own. A
// credential fills a place that the manifest left open with context://NAME, and only with a
// reference that the manifest's permissions.credentials lists. Facts grant nothing.
//
// # When the remote service is down
//
// Its restrictions are then unknown, so with Required a call is refused (E3206, retryable) unless
// there is an answer from the last five minutes. Without Required calls use the store's contexts; a
// credential that only the service knows is then missing. An unreadable answer counts as no answer.
// Failures are remembered for a second, so a dead service delays one call per second, not every
// call.
//
// # What is stored
//
// Bodies in the store are sealed. Facts may be personal data: they go to the executor and into no
// record, event, log line or error.
package overlay
