package record

import (
	"fmt"
	"testing"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/pack"
)

// TestCauseOfOldRecords: a record from before causes gets one, and only a reason that
// matches a server's text exactly makes it a server's block.
func TestCauseOfOldRecords(t *testing.T) {
	packed, err := pack.New(&toolkeep.Tool{Raw: []byte(`{}`)})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		stored      string
		cause, held toolkeep.Cause
	}{
		{`{"state":"active"}`, "", ""},
		{`{"state":"blocked"}`, toolkeep.CauseAdministrator, ""},
		{`{"state":"blocked","reason":"the MCP server files was removed"}`, toolkeep.CauseServerRemoved, ""},
		{`{"state":"blocked","reason":"the MCP server files does not offer this tool any more"}`, toolkeep.CauseDefinitionGone, ""},
		{`{"state":"blocked","reason":"the MCP server files leaks what it reads"}`, toolkeep.CauseAdministrator, ""},
		{`{"state":"blocked","reason":"the MCP server files was removed by the auditors"}`, toolkeep.CauseAdministrator, ""},
		{`{"state":"blocked","cause":"administrator","reason":"the MCP server files was removed"}`, toolkeep.CauseAdministrator, ""},
		{`{"state":"removed","reason":"the MCP server files changed this tool"}`, "", ""},
		{`{"state":"active","held":{"why":"it offers another definition","digest":"sha256:1"}}`, "", toolkeep.CauseDefinitionChanged},
		{`{"state":"active","held":{"why":"it does not offer this tool any more"}}`, "", toolkeep.CauseDefinitionGone},
		{`{"state":"active","held":{"why":"look","cause":"administrator"}}`, "", toolkeep.CauseAdministrator},
	} {
		v, err := DecodeVersion(Tool{ID: "files.read", Version: "1.0.0", Life: []byte(c.stored), Outline: []byte(`{}`), Stored: packed.Stored()}, nil)
		if err != nil {
			t.Fatal(err)
		}
		var held toolkeep.Cause
		if v.Life.Held != nil {
			held = v.Life.Held.Cause
		}
		if v.Life.Cause != c.cause || held != c.held {
			t.Errorf("%s: cause %q, held %q", c.stored, v.Life.Cause, held)
		}
		if same, err := SameLife([]byte(c.stored), v.Life); err != nil || !same {
			t.Errorf("%s: what was read is not what is stored: %v", c.stored, err)
		}
		feed := Row{Kind: KindLifecycle, Data: []byte(`{"id":"files.read","version":"1.0.0","life":` + c.stored + `}`)}
		ch, err := decodeCatalogue(feed, nil)
		if got := ch.(toolkeep.SetLifecycle).Life.Cause; err != nil || got != c.cause {
			t.Errorf("%s: the feed says %q, %v", c.stored, got, err)
		}
	}
}

// TestDecoderCopies: what was decoded stays as it was when the caller's bytes and the rows after it change.
func TestDecoderCopies(t *testing.T) {
	packed, err := pack.New(&toolkeep.Tool{Raw: []byte(`{}`)})
	if err != nil {
		t.Fatal(err)
	}
	const rows = 2*decodeTogether + 7
	errorOf := func(i int) string { return fmt.Sprintf(`[{"error":"%d"}]`, i) }
	var d Decoder
	d.Expect(decodeTogether)
	var life, outline []byte // as database/sql has them: the next row is in the same memory
	for i := range rows {
		life = fmt.Appendf(life[:0], `{"state":"active","reason":"%d"}`, i)
		outline = fmt.Appendf(outline[:0], `{"common_errors":%s}`, errorOf(i))
		if err := d.Add(Tool{ID: "a.b", Version: "1.0.0", Life: life, Outline: outline, Stored: packed.Stored()}); err != nil {
			t.Fatal(err)
		}
	}
	if err := d.Flush(); err != nil || len(d.List) != rows {
		t.Fatal(len(d.List), err)
	}
	for i, v := range d.List {
		if string(v.Tool.Manifest.CommonErrors) != errorOf(i) || v.Life.Reason != fmt.Sprint(i) {
			t.Fatalf("row %d became %s, %q", i, v.Tool.Manifest.CommonErrors, v.Life.Reason)
		}
	}
}
