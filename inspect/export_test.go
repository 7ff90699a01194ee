package inspect

import "time"

// SetSanitizing sets the time that the rules of result.sanitize have.
func (i *Inspector) SetSanitizing(d time.Duration) { i.sanitizing = d }
