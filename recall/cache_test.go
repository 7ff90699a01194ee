
func TestInvalidateAll(t *testing.T) {
	c := New(Config{})
	spec := &toolkeep.CacheSpec{Policy: "ttl", TTLSeconds: 60}
	for i, tool := range []string{"a.one", "a.two", "a.two"} {
		c.Put(Key{byte(i)}, tool, &toolkeep.Result{State: toolkeep.CallSucceeded, Output: []byte(`1`)}, spec)
	}
	if n := c.InvalidateAll(); n != 3 {
		t.Errorf("%d results were dropped, want 3", n)
	}
	if c.Peek(Key{0}) || c.Peek(Key{2}) {
		t.Error("a result is still there")
	}
}
