package discover

import (
	"fmt"
	"strings"
)

// unembedded returns the number of tools the search may find, and how many of them have no vector
// in of. Neither counts hidden tools, whose number is secret.
func (r *ranker) unembedded(of Selection, positions []uint32) (missing, all int) {
	for _, at := range positions {
		if (of == nil || !of.Has(int(at))) && r.sees(int(at)) {
			missing++
		}
	}
	if missing == 0 {
		return 0, 0
	}
	for _, at := range r.p.sorted {
		if r.sees(int(at)) {
			all++
		}
	}
	return missing, all
}

// partialReason says for how many tools there was no comparison by embedding; "" if for none.
func (r *ranker) partialReason() string {
	a := r.p.alike
	missing, all := r.unembedded(a.of, a.missing)
	if missing == 0 {
		return ""
	}
	return fmt.Sprintf("%s of %s tools are compared by words only until they are embedded", Thousands(missing), Thousands(all))
}

// degradedReason says why embeddings are not compared.
func (m *meaning) degradedReason(r *ranker) string {
	m.mu.Lock()
	err := m.failing
	m.mu.Unlock()
	a := r.p.alike
	if err != nil && (a == nil || a.now == nil) {
		return "the vectors cannot be reached, so only words are compared"
	}
	var of Selection
	if a != nil {
		of = a.now
	}
	model, _, _ := strings.Cut(m.e.Model(), "@") // after the @ is a service's address
	why := "tools are being embedded by " + model
	if missing, all := r.unembedded(of, r.p.sorted); missing > 0 { // otherwise only tools hidden from the caller are missing
		why = fmt.Sprintf("%s of %s tools are embedded by %s so far", Thousands(all-missing), Thousands(all), model)
	}
	why += "; until most are, only words are compared"
	if err != nil {
		why += "; the embedding model does not answer" + publicReason(err)
	}
	return why
}
