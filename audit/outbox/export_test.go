package outbox

// CallTypes are the types of ends of calls that the package knows.
func CallTypes() []string { return callTypes }
