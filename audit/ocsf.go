package audit

import (
	"encoding/json"
	"fmt"
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
	}
	var all object
	_ = json.Unmarshal(e.Data, &about) // what it does not have stays empty
	_ = json.Unmarshal(e.Data, &all)
	e.Entry.who = about.who
	if about.Result == "" {
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
		"src_endpoint": object{"name": faceOf(about.Face)},
		"unmapped":     all,
	}
	if about.Code != "" {
		out["status_code"] = about.Code
	}
	if about.Message != "" {
		out["status_detail"] = about.Message
	}
	if about.Tool != "" {
		out["resources"] = []object{{"type": "tool", "uid": about.Tool, "version": about.Version}}
	}
	return json.Marshal(out)
}

// faceOf is where a request came in: entries have no address.
func faceOf(face string) string {
	if face == "" {
		return "unknown"
	}
	return face
}
