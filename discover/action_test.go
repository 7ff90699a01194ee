package discover

import (
	"context"
	"slices"
	"testing"

	"github.com/toolkeep/toolkeep"
)

func TestWanted(t *testing.T) {
	for text, want := range map[string]action{
		"":                                       noAction,
		"order":                                  noAction,
		"weather in Bonn":                        noAction,
		"delete the order":                       removes,
		"Please delete the order":                removes,
		"can you delete the order?":              removes,
		"can the order be deleted?":              reads,
		"I want to cancel it":                    removes,
		"get rid of the order":                   removes,
		"get the order":                          reads,
		"throw it away":                          removes,
		"take the parcel to Bonn":                noAction,
		"show me the order":                      reads,
		"show all orders":                        lists,
		"which orders are open?":                 lists,
		"how many orders are there":              reads, // one number
		"is the order paid?":                     reads,
		"why was it refused":                     reads,
		"do we have such an order?":              reads,
		"do the nightly run at once":             noAction,
		"tell me where it is":                    reads,
		"tell me when it has come":               noAction,
		"give the customer a discount":           noAction,
		"open an account":                        creates,
		"rename the account":                     changes,
		"löschen Sie die Bestellung":             noAction,
		"please":                                 noAction,
		"would you then add a line to the order": creates,
	} {
		if got := wanted(text); got != want {
			t.Errorf("%q wants %d, not %d", text, got, want)
		}
	}
}

func TestDeedOf(t *testing.T) {
	for _, c := range []struct {
		id, title, verb, effects string
		want                     action
	}{
		{"shop.getOrder", "", "", "reads", reads},
		{"shop.orders", "List all orders", "", "reads", lists},
		{"shop.order_list", "", "", "reads", lists},
		{"shop.order_delete", "", "", "writes", removes},
		{"shop.order", "Creates an order", "", "writes", creates},
		{"shop.order", "", "update", "writes", changes},
		{"shop.post-search", "Get a list of orders", "", "writes", lists}, // despite its method
		{"shop.resetCounter", "", "", "reads", reads},                     // side effects are a promise, names are not
		{"shop.reboot", "", "", "writes", writes},
		{"math.triangle_area", "", "", "", noAction},
	} {
		got := actionOf(&toolkeep.Tool{ID: c.id, Manifest: &toolkeep.Manifest{ToolName: c.title, Verb: c.verb, SideEffects: c.effects}})
		if got != c.want {
			t.Errorf("%s (%s %s %s) does %d, not %d", c.id, c.title, c.verb, c.effects, got, c.want)
		}
	}
}

// TestAgrees checks each wanted action against each action of a tool.
func TestAgrees(t *testing.T) {
	does := []action{noAction, reads, lists, creates, changes, removes, writes}
	for want, agrees := range map[action][]float64{
		noAction: {0, 0, 0, 0, 0, 0, 0},
		reads:    {0, 1, 1, -1, -1, -1, -1},
		lists:    {0, 1, 1.4, -1, -1, -1, -1},
		creates:  {0, -1, -1, 1, 0, -1, 0},
		changes:  {0, -1, -1, 0, 1, -1, 0},
		removes:  {0, -1, -1, -1, 0, 1, 0},
	} {
		for i, with := range does {
			if got := want.agrees(with); got != agrees[i] {
				t.Errorf("%d wanted, %d done: %g, not %g", want, with, got, agrees[i])
			}
		}
	}
}

// TestDeedsDecideAmongNearEqualTools uses other words than the tools do.
func TestDeedsDecideAmongNearEqualTools(t *testing.T) {
	tool := func(id, description, effects string) toolkeep.Version {
		return toolkeep.Version{Tool: &toolkeep.Tool{ID: id, Version: "1.0.0", Digest: "sha256:" + id, Manifest: &toolkeep.Manifest{ToolID: id, Version: "1.0.0",
			Description: description, SideEffects: effects}}, Life: toolkeep.Lifecycle{State: toolkeep.Active}}
	}
	x := New(Config{})
	x.Update(slices.Values([]toolkeep.Version{
		tool("shop.createOrder", "Create an order.", "writes"), tool("shop.deleteOrder", "Delete an order.", "writes"),
		tool("shop.fetchOrder", "Fetch an order.", "reads"), tool("shop.listOrder", "List the orders.", "reads"),
		tool("shop.updateOrder", "Update an order.", "writes"), tool("mail.send", "Send a mail.", "writes"),
	}))
	first := func(text string, s Strategy) Match {
		found, _ := x.Find(context.Background(), Query{Text: text, Strategy: s}, nil)
		if len(found) != 5 {
			t.Fatalf("%q found %d tools, want the five of orders", text, len(found))
		}
		return found[0]
	}
	for text, want := range map[string]string{
		"open an order":          "shop.createOrder",
		"get rid of the order":   "shop.deleteOrder",
		"where is my order?":     "shop.fetchOrder",
		"which orders are late?": "shop.listOrder",
		"modify the order":       "shop.updateOrder",
	} {
		for _, s := range []Strategy{Hybrid, Keyword} {
			m := first(text, s)
			if m.Tool.ID != want && (m.Tool.ID != "shop.listOrder" || want != "shop.fetchOrder") {
				t.Errorf("%q by %s found %s first, not %s", text, s, m.Tool.ID, want)
			}
			if m.Action < 1 {
				t.Errorf("%q by %s: the action of %s is %g", text, s, m.Tool.ID, m.Action)
			}
		}
	}
	// A query with several requests prefers no action.
	found, _ := x.Find(context.Background(), Query{Text: "Delete the old order now. Create an order with two lines."}, nil)
	for _, m := range found {
		if m.Action != 0 {
			t.Errorf("a question of two wishes wants an action: %s has %g", m.Tool.ID, m.Action)
		}
	}
	if len(found) == 0 {
		t.Error("a question of two wishes found nothing")
	}
	// A changed tool gets its new action.
	changed := tool("shop.fetchOrder", "Drop an order.", "writes")
	changed.Tool.Digest, changed.Tool.Manifest.ToolName = "sha256:other", "Cancel an order"
	x.Change(slices.Values([]toolkeep.Version{changed}))
	found, _ = x.Find(context.Background(), Query{Text: "show me the order"}, nil)
	for _, m := range found {
		if m.Tool.ID == "shop.fetchOrder" && m.Action != -1 {
			t.Errorf("the action of a tool that removes now is %g", m.Action)
		}
	}
}
