package main

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/go-json-experiment/json"
)

// denied measures what calls of one agent take while 100 others make 9,000 attempts at calls that they have no right to, and
// fails if one of these passes or is not recorded.
func denied(b *bench) (part, error) {
	const agents, each, rate, others = 100, 90, 1000, 200 // a count of records ends at 10,000
	p := part{set: fmt.Sprintf("Set: one agent makes %d calls of std.echo a second over REST, SQLite; meanwhile %d others, whose roles let them call nothing, make %d attempts each, "+
		"%d a second in all. After 10 denials in a minute an agent's further ones are refused as E3810. Each attempt is refused and recorded, which is checked.", others, agents, each, rate)}
	srv, err := b.server("denied")
	if err != nil {
		return part{}, err
	}
	defer srv.stop()
	callers := make([]*process, agents+1) // the last one may call
	for i := range callers {
		role := "auditor"
		if i == agents {
			role = "agent"
		}
		raw, err := srv.send(http.MethodPost, "/api/v1/keys", map[string]any{"subject": fmt.Sprint("agent-", i), "roles": []string{role}})
		if err != nil {
			return part{}, err
		}
		var made struct {
			Secret string `json:"secret"`
		}
		if err := json.Unmarshal(raw, &made); err != nil {
			return part{}, err
		}
		as := *srv
		as.key, callers[i] = made.Secret, &as
	}
	other := overREST(echoBody(), false, callers[agents])
	quiet, err := pacedLoop(other, others, agents*each/rate*time.Second)
	if err != nil {
		return part{}, err
	}
	var attack sync.WaitGroup
	codes := make([]map[string]int, agents)
	began := time.Now()
	for i := range agents {
		codes[i] = map[string]int{}
		attack.Go(func() {
			for n := range each {
				time.Sleep(time.Until(began.Add(time.Duration(n*agents+i) * time.Second / rate)))
				_, err := callers[i].send(http.MethodPost, "/api/v1/tools/invoke", map[string]any{"tool_id": "std.echo", "parameters": map[string]any{"message": "x"}})
				codes[i][codeIn(err)]++
			}
		})
	}
	during, err := pacedLoop(other, others, agents*each/rate*time.Second)
	attack.Wait()
	if err != nil {
		return part{}, err
	}
	all := map[string]int{}
	for _, m := range codes {
		for code, n := range m {
			all[code] += n
		}
	}
	refused := all["E3201"] + all["E3810"]
	raw, err := srv.send(http.MethodGet, "/api/v1/invocations?state=refused&page_size=1", nil)
	if err != nil {
		return part{}, err
	}
	var list struct {
		Total int `json:"total_count"`
	}
	if err := json.Unmarshal(raw, &list); err != nil {
		return part{}, err
	}
	if refused != agents*each || list.Total != refused {
		return part{}, fmt.Errorf("of %d attempts %d were refused (%v), and %d are recorded", agents*each, refused, all, list.Total)
	}
	for _, row := range []struct {
		name string
		measured
	}{{"before", quiet}, {fmt.Sprintf("during the %d attempts: %d denied, %d blocked", refused, all["E3201"], all["E3810"]), during}} {
		p.rows = append(p.rows, []string{row.name, row.quantiles()})
	}
	return p, nil
}

// codeIn is the code of a problem document in an error of send, "none" for success.
func codeIn(err error) string {
	if err == nil {
		return "none"
	}
	for _, code := range []string{"E3201", "E3810"} {
		if strings.Contains(err.Error(), code) {
			return code
		}
	}
	return err.Error()
}
