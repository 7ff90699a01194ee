package sinks

import "github.com/toolkeep/toolkeep/audit/outbox"

// Open makes what delivers to a sink.
func (s *Sinks) Open(t outbox.Settings) (outbox.Sink, error) { return s.open(t) }
