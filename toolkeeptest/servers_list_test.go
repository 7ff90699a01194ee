package toolkeeptest_test

import (
	"fmt"
	"testing"
)

// TestToolsOfAServerThatRests: a server's tools are listed before it has been started.
func TestToolsOfAServerThatRests(t *testing.T) {
	t.Parallel()
	k := withServers(t, nil)
	boss := admin(t, k)
	boss.put(t, "notes", offerByStdio(t, definition("remember", "Keeps a text."), definition("pid", "Tells the process.")))
	list := boss.do("GET", "/api/v1/servers", "").want(t, 200)
	if list.text(t, "servers", "0", "state") != "idle" || fmt.Sprint(list.at(t, "servers", "0", "tools")) != "2" {
		t.Errorf("%s", list.body)
	}
}
