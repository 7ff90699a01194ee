package inspect_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/microcosm-cc/bluemonday"
	"golang.org/x/net/html"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/inspect"
)

// FuzzHTMLAgainstBluemonday holds what stays of a page against another sanitiser, which must have nothing to take out of it.
func FuzzHTMLAgainstBluemonday(f *testing.F) {
	for _, s := range []string{`<p onclick=x>a<script>b</script>&lt;i&gt;`, `<a href="java&#10;script:x" title="a">b</a><img src=/i.png alt='"'>`, `<title><p>a</title><svg><p>b`,
		`<table><tr><td colspan=2 style="x">a<td>b</table>`, `<math><mtext><b>x</b></mtext><style><img src=x onerror=y></style>`, `<!--><img src=x onerror=y>-->`,
		`<p/>a</p><q cite="data:x">b</q><ol start=2 reversed><li value=1>c`, `<scr<script>x</script>ipt>y</ipt>`} {
		f.Add(s)
	}
	basic := bluemonday.NewPolicy().AllowElements("p", "br", "b", "i", "em", "strong")
	basic.AllowAttrs("lang", "dir", "title").Globally()
	markup := bluemonday.UGCPolicy().RequireNoFollowOnLinks(false)
	markup.AllowElements("address", "footer", "header", "kbd", "main", "nav", "title", "time")
	markup.AllowAttrs("lang", "dir", "title", "alt", "span", "datetime", "value", "start", "reversed", "colspan", "rowspan", "scope").Globally()
	markup.AllowNoAttrs().OnElements("a", "img", "span", "q", "del", "ins")
	i := inspect.New(inspect.Config{HardBytes: 1 << 20})
	f.Fuzz(func(t *testing.T, in string) {
		for mode, policy := range map[string]*bluemonday.Policy{"basic": basic, "markup": markup} {
			got, err := i.Inspect(tool(&toolkeep.ResultSpec{HTML: mode}, ""), body("text/html; charset=utf-8", in), nil)
			if err != nil {
				return
			}
			ours, _ := got.Value.(string)
			if theirs := policy.Sanitize(ours); !slices.Equal(tokens(theirs), tokens(ours)) {
				t.Fatalf("%s: %q gives %q, of which %q would stay:\n%q\n%q", mode, in, ours, theirs, tokens(ours), tokens(theirs))
			}
		}
	})
}

// tokens returns what a page consists of, without the values of attributes, which may be spelt otherwise.
func tokens(page string) (list []string) {
	z := html.NewTokenizer(strings.NewReader(page))
	for z.Next() != html.ErrorToken {
		t := z.Token()
		s := t.Type.String() + " " + t.Data
		for _, a := range t.Attr {
			address := a.Key == "href" || a.Key == "src" || a.Key == "cite"
			if v := strings.Trim(strings.TrimSpace(a.Val), "#"); !address || v != "" && !strings.ContainsAny(v, " \t\n") { // such addresses are plain, and not valid
				s += " " + a.Key
			}
		}
		list = append(list, s)
	}
	return list
}
