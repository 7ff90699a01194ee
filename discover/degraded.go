package discover

import (
	"fmt"
	"strings"
)

// unembedded counts the tools that the search may find, and those of them that have no
// vector in of. Hidden tools are in neither number: how many there are is a secret.
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

// partialReason tells that meanings were compared, but not of all tools; "" if of all.
func (r *ranker) partialReason() string {
	a := r.p.alike
	missing, all := r.unembedded(a.of, a.missing)
	if missing == 0 {
		return ""
	}
	return fmt.Sprintf("%s of %s tools are compared by words only until they are embedded", Thousands(missing), Thousands(all))
}

// degradedReason tells why meanings are not compared.
func (m *meaning) degradedReason(r *ranker) string {
	m.mu.Lock()
	err := m.failing
	m.mu.Unlock()
	a := r.p.alike
	if err != nil && (a == nil || a.now == nil) {
		return "the vectors cannot be reached, so that words alone are compared"
	}
	var of Selection
	if a != nil {
		of = a.now
	}
	model, _, _ := strings.Cut(m.e.Model(), "@") // behind it is the address of a service
	why := "tools are being embedded by " + model
	if missing, all := r.unembedded(of, r.p.sorted); missing > 0 { // else tools wait that the caller may not see
		why = fmt.Sprintf("%s of %s tools are embedded by %s so far", Thousands(all-missing), Thousands(all), model)
	}
	why += "; until most are, words alone are compared"
	if err != nil {
		why += "; the embedding model does not answer" + publicReason(err)
	}
	return why
}
