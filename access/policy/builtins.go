package policy

import (
	"slices"
	"strings"

	"github.com/open-policy-agent/opa/v1/ast"
)

// builtins are what a policy may use: functions of their arguments alone, and the time. Left out
// are those that reach the network, files, the environment or random numbers (http.send,
// net.lookup_ip_addr, opa.runtime, json.match_schema and json.verify_schema, which load
// references, io.jwt.decode_verify and io.jwt.encode_sign, rand.intn, uuid.rfc4122), those that
// make credentials, parse keys or languages, and what OPA has deprecated.
var builtins = strings.Fields(`
abs and array.concat array.flatten array.reverse array.slice assign
base64.decode base64.encode base64.is_valid base64url.decode base64url.encode base64url.encode_no_pad
bits.and bits.lsh bits.negate bits.or bits.rsh bits.xor ceil concat contains count
crypto.hmac.equal crypto.hmac.sha256 crypto.hmac.sha512 crypto.md5 crypto.sha1 crypto.sha256
div endswith eq equal floor format_int glob.match glob.quote_meta graph.reachable graph.reachable_paths gt gte
hex.decode hex.encode indexof indexof_n internal.member_2 internal.member_3 internal.print internal.template_string
intersection io.jwt.decode is_array is_boolean is_null is_number is_object is_set is_string
json.filter json.is_valid json.marshal json.marshal_with_options json.patch json.remove json.unmarshal
lower lt lte max min minus mul neq
net.cidr_contains net.cidr_contains_matches net.cidr_intersects net.cidr_is_valid net.cidr_merge
numbers.range numbers.range_step object.filter object.get object.keys object.remove object.subset object.union object.union_n
or plus print product
regex.find_all_string_submatch_n regex.find_n regex.globs_match regex.is_valid regex.match regex.replace regex.split regex.template_match
rem replace round semver.compare semver.is_valid sort split sprintf startswith
strings.any_prefix_match strings.any_suffix_match strings.count strings.render_template strings.replace_n strings.reverse strings.split_n
substring sum time.add_date time.clock time.date time.diff time.format time.now_ns time.parse_duration_ns time.parse_ns
time.parse_rfc3339_ns time.weekday to_number trim trim_left trim_prefix trim_right trim_space trim_suffix type_name
union units.parse units.parse_bytes upper uri.is_valid uri.parse
urlquery.decode urlquery.decode_object urlquery.encode urlquery.encode_object uuid.parse walk yaml.is_valid yaml.marshal yaml.unmarshal`)

// testBuiltins are what tests may use besides.
var testBuiltins = []string{"internal.test_case"}

// capabilities are OPA's own with these builtins alone.
func capabilities(more ...string) *ast.Capabilities {
	c := ast.CapabilitiesForThisVersion()
	kept := make([]*ast.Builtin, 0, len(builtins)+len(more))
	for _, b := range c.Builtins {
		if slices.Contains(builtins, b.Name) || slices.Contains(more, b.Name) {
			kept = append(kept, b)
		}
	}
	c.Builtins = kept
	c.AllowNet = []string{} // no host: references of schemas are not fetched
	return c
}
