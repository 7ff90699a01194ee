package rest

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
)

// hostile makes bodies for a body's schema that have as many or as long faults as fit in.
func hostile(doc, schema map[string]any) []string {
	if ref, ok := schema["$ref"].(string); ok {
		schema = doc["components"].(map[string]any)["schemas"].(map[string]any)[strings.TrimPrefix(ref, componentsAt)].(map[string]any)
	}
	const many = 20_000
	names := make([]string, many)
	for i := range names {
		names[i] = fmt.Sprintf(`"n%d":0`, i)
	}
	list := "[" + strings.Repeat("{},", many) + "{}]"
	bodies := []string{list, "{" + strings.Join(names, ",") + "}", `{"` + strings.Repeat("n", 500_000) + `":0}`}
	properties, _ := schema["properties"].(map[string]any)
	for name := range properties {
		bodies = append(bodies, fmt.Sprintf(`{%q:%s}`, name, list), fmt.Sprintf(`{%q:{%s}}`, name, strings.Join(names, ",")),
			fmt.Sprintf(`{%q:[%s{"manifest":{}}]}`, name, strings.Repeat(`{"manifest":{}},`, 19_999)),
			fmt.Sprintf(`{%q:[%s{"manifest":{}}],"partial":true}`, name, strings.Repeat(`{"manifest":{}},`, 999)))
	}
	return bodies
}

// TestAnswersToBodiesAreBounded: no body makes an answer with more faults than are read, and
// who lacks a route's permission is told that and nothing of the body.
func TestAnswersToBodiesAreBounded(t *testing.T) {
	s := newSystem()
	doc := theContract().doc
	api := s.api()
	bodies, guarded := 0, 0
	for path, item := range doc["paths"].(map[string]any) {
		for method, o := range item.(map[string]any) {
			o := o.(map[string]any)
			rb, ok := o["requestBody"].(map[string]any)
			if !ok {
				continue
			}
			schema := rb["content"].(map[string]any)["application/json"].(map[string]any)["schema"].(map[string]any)
			method, path := strings.ToUpper(method), strings.NewReplacer("{", "x", "}", "").Replace(path)
			description, _ := o["description"].(string)
			needs := strings.Contains(description, "Needs the permission")
			for _, body := range hostile(doc, schema) {
				w := send(t, api, method, path, body)
				bodies++
				if n := w.Body.Len(); n > 200_000 && w.Code != http.StatusOK {
					t.Errorf("%s %s answered %.60q with %d bytes: %.300s", method, path, body, n, w.Body)
				}
				if !needs {
					continue
				}
				guarded++
				for _, body := range []string{body, "not JSON", ""} {
					if w := send(t, api, method, path, body, "Authorization: Bearer agent"); w.Code != http.StatusForbidden {
						t.Errorf("%s %s answered %.60q of somebody without the permission with %d %.300s", method, path, body, w.Code, w.Body)
					}
				}
			}
		}
	}
	if bodies < 50 || guarded < 20 {
		t.Errorf("%d bodies were sent, %d to guarded routes", bodies, guarded)
	}
}
