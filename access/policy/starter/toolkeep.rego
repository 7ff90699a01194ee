# The policy of this server. It is asked about each call that the roles allow: it can refuse
# the call, or demand that a person approves it. What the roles refuse stays refused.
#
# As it stands it changes nothing. Take the comment signs from an example and adapt it; the
# tests beside this file run before a change is taken.
package toolkeep

# A call needs true. Leave the rule out to allow whatever deny does not refuse.
default allow := true

# Writing tools only in the office's hours.
#
# deny contains "tools that write are open from Monday to Friday, 8:00 to 18:00" if {
# 	input.tool.side_effects == "writes"
# 	not office_hours
# }
#
# office_hours if {
# 	[hour, _, _] := time.clock([time.now_ns(), "Europe/Berlin"])
# 	hour >= 8
# 	hour < 18
# 	not time.weekday([time.now_ns(), "Europe/Berlin"]) in {"Saturday", "Sunday"}
# }

# Tools of production only for a task that names a ticket.
#
# deny contains {"rule": "ticket", "reason": "tools of production need a ticket as task_id, such as OPS-123"} if {
# 	"production" in input.tool.tags
# 	not regex.match(`^[A-Z]+-[0-9]+$`, input.call.task)
# }

# In a rule of deny read what may be missing with object.get: a rule that meets something
# undefined, also behind not, does not apply.

# What each tenant may use, from data.json: {"tenants": {"acme": {"namespaces": ["crm", "mail"]}}}
#
# deny contains sprintf("tenant %s may not use tools of %s", [input.caller.tenant, input.tool.namespace]) if {
# 	allowed := object.get(data.tenants, [input.caller.tenant, "namespaces"], [])
# 	not input.tool.namespace in allowed
# }

# A person approves what costs more. An amount that is not a number is refused, because texts
# are greater than numbers in Rego.
#
# require_approval contains sprintf("the amount %v is over 1000", [input.arguments.amount]) if {
# 	input.tool.id == "billing.refund"
# 	input.arguments.amount > 1000
# }
#
# deny contains "amount is not a number" if {
# 	input.tool.id == "billing.refund"
# 	not is_number(object.get(input.arguments, "amount", null))
# }
