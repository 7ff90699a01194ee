package audit

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"time"
)

// Numbers of OCSF 1.6: API Activity in the category Application Activity, with an activity that is none of create,
// read, update and delete.
const (
	ocsfVersion  = "1.6.0"
	ocsfCategory = 6
	ocsfClass    = 6003
	ocsfOther    = 99
)

type object = map[string]any

// OCSF writes an entry, as JSON of a CloudEvent, as an event of the class API Activity (6003). What that has no attribute
// for is in unmapped.
func OCSF(entry []byte) ([]byte, error) {
	var e struct {
		Entry
		Data json.RawMessage `json:"data"`
	}
	if err := json.Unmarshal(entry, &e); err != nil {
		return nil, fmt.Errorf("the entry cannot be read: %w", err)
	}
	var about struct {
		who
		Version string `json:"tool_version"`
		Message string `json:"message"`
		Face    string `json:"face"`
		Session string `json:"session_id"`
		Result  string `json:"decision"`
		Address string `json:"ip_address"`
		Agent   string `json:"user_agent"`
		Actor   string `json:"actor_did"`
	}
	var all object
	_ = json.Unmarshal(e.Data, &about) // what it does not have stays empty
	_ = json.Unmarshal(e.Data, &all)
	e.Entry.who = about.who
	e.Entry.who.Result = about.Result
	if about.Result != Allowed && about.Result != Refused && about.Result != Failed { // events have words of their own there
		about.Result = e.Decision()
	}
	operation := e.Type
	if about.Tool != "" {
		operation = about.Tool
	}
	user := object{"uid": e.agent()}
	if e.agent() == "" {
		user["uid"] = "unknown"
	}
	actor := object{"user": user}
	if about.Actor != "" { // who sent the call in the agent's name
		actor["app_uid"] = about.Actor
	}
	if about.Session != "" {
		actor["session"] = object{"uid": about.Session}
	}
	status, name := 1, "Success"
	if about.Result != Allowed {
		status, name = 2, "Failure"
	}
	out := object{
		"category_uid": ocsfCategory, "class_uid": ocsfClass, "activity_id": ocsfOther, "type_uid": ocsfClass*100 + ocsfOther,
		"time": e.Time.UnixMilli(), "severity_id": 1, "status_id": status, "status": name,
		"metadata": object{"version": ocsfVersion, "uid": e.ID, "event_code": e.Type, "tenant_uid": e.Tenant, "original_time": e.Time.Format(time.RFC3339Nano),
			"sequence": e.Number, "product": object{"name": "Toolkeep", "vendor_name": "Toolkeep"}},
		"actor": actor, "api": object{"operation": operation, "service": object{"name": source}},
		"src_endpoint": endpoint(about.Face, about.Address),
		"unmapped":     all,
	}
	if about.Code != "" {
		out["status_code"] = about.Code
	}
	if about.Agent != "" {
		out["http_request"] = object{"user_agent": about.Agent}
	}
	if about.Message != "" {
		out["status_detail"] = about.Message
	}
	if about.Tool != "" {
		out["resources"] = []object{{"type": "tool", "uid": about.Tool, "version": about.Version}}
	}
	return json.Marshal(out)
}

// endpoint is where a request came in, and from which address. What is no address, as a peer without
// one, is left out: OCSF has a type for it.
func endpoint(face, addr string) object {
	if face == "" {
		face = "unknown"
	}
	from := object{"name": face}
	if ip, err := netip.ParseAddr(addr); err == nil {
		from["ip"] = ip.String()
	}
	return from
}
