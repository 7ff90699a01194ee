package openapi

import "testing"

func TestSpoken(t *testing.T) {
	for id, want := range map[string]string{
		"ListAvailablePhoneNumberLocal": "List available phone number local",
		"getHTTPStatus":                 "Get HTTP status",
		"ListSMSMessages":               "List SMS messages",
		"list_sms_messages":             "List sms messages",
		"users/get-by-id":               "Users get by id",
		"v2.fetchAB":                    "V2 fetch AB",
		"a":                             "A",
		"":                              "",
		"___":                           "",
		"listMüllCafés":                 "List mull cafes",
	} {
		if got := spoken(id); got != want {
			t.Errorf("%q is spoken %q, want %q", id, got, want)
		}
	}
}
