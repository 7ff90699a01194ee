// Package overlay says what an agent adds to a tool: references to its own
// credentials, tighter limits, and facts about its session.
//
// # Where it comes from
//
// From the store, for an agent and one tool or all of its tools (*), and from a
// remote service, asked GET {URL}/api/v1/context/agent/{agent}/tool/{tool}. All
// that apply are joined: the lowest of each limit; of a credential or fact that
// several name, the store's for the tool, then the store's for *, then the remote
// one.
//
// # It may only narrow
//
// A time limit, a number of attempts and a rate count only where they are below the
// tool's own. A credential fills a place that the manifest left open with
// context://NAME, and only with a reference that the manifest's
// permissions.credentials lists. Facts grant nothing.
//
// # When the remote service is down
//
// What it would have forbidden is not known, so with Required a call is refused
// (E3206, to be tried again) unless an answer of the last five minutes is at hand.
// Without Required calls go on with what the store says; a credential that only
// the service knows is then missing. An answer that cannot be read counts as no
// answer. Failures are remembered for a second, so that a dead service costs one
// call in a second its time and not every one.
//
// # What is kept
//
// Bodies in the store are sealed. Facts may be about people: they go to the
// executor and into no record, event, log line or error.
package overlay
