package toolkeep_test

import data.toolkeep

# An input as the server makes it; docs/policies.md has all its members.
call := {
	"action": "invoke",
	"caller": {"subject": "agent-1", "tenant": "acme", "roles": ["agent"], "on_behalf_of": "", "method": "api_key"},
	"tool": {"id": "crm.search", "namespace": "crm", "version": "1.0.0", "tags": [], "risk": "low", "side_effects": "reads"},
	"call": {"session": "", "task": "", "face": "rest"},
	"arguments": {},
}

test_a_reading_call_is_allowed if {
	toolkeep.allow with input as call
	count(object.get(toolkeep, "deny", set())) == 0 with input as call
}

test_no_approval_is_demanded if {
	count(object.get(toolkeep, "require_approval", set())) == 0 with input as call
}
