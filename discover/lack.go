package discover

import (
	"fmt"
	"strings"
)

// lacking counts the tools that the search may find, and those of them that have no
// vector in of. Hidden tools are in neither number: how many there are is told to
// nobody.
func (r *ranker) lacking(of Selection, places []uint32) (lack, all int) {
	for _, at := range places {
		if (of == nil || !of.Has(int(at))) && r.sees(int(at)) {
			lack++
		}
	}
	if lack == 0 {
		return 0, 0
	}
	for _, at := range r.p.sorted {
		if r.sees(int(at)) {
			all++
		}
	}
	return lack, all
}

// partly tells that meanings were compared, but not of all tools; "" if of all.
func (r *ranker) partly() string {
	a := r.p.alike
	lack, all := r.lacking(a.of, a.lack)
	if lack == 0 {
		return ""
	}
	return fmt.Sprintf("%s of %s tools are compared by words only until they are embedded", Thousands(lack), Thousands(all))
}

// why tells why meanings are not compared.
func (m *meaning) why(r *ranker) string {
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
	why := "tools are embedded anew by " + model + "; until most are, words alone are compared"
	if lack, all := r.lacking(of, r.p.sorted); lack > 0 { // else others wait, of which nothing is said
		why = fmt.Sprintf("%s of %s %s", Thousands(all-lack), Thousands(all), why)
	}
	if err != nil {
		why += "; the embedding model does not answer" + told(err)
	}
	return why
}
