// Package approval says which calls wait for a person, who is asked, and what was decided.
//
// # Requests
//
// A call that owes an approval is parked: its row has the state pending_approval, and a Request
// beside it says whose decision it waits for. Both are committed together, as is each decision
// with what it does to the row. A Request names what was asked by its Digest, over the version
// of the tool and the arguments: people approve that and nothing else.
//
// A decision is of a person other than those who asked: neither the agent nor the person that it
// acts for can approve, whatever roles they have. Where several approvals are needed, they are
// of several persons and for the same digest: one who edits the arguments approves another
// digest, and what was approved before does not count for it.
//
// # Rules
//
// A rule of the operator selects tools and callers. It says who decides, and with required also
// that a call owes an approval. The first rule that fits says who decides; any that fits and has
// required makes the approval owed. Levels of approvers are added as time passes; the last
// deadline refuses the call (E3213).
//
// # Links
//
// A Link decides a request once without a credential. Its maker can use it as its approver can, so
// both must be asked about the request, and the decision counts as one of each. Of its token a hash is
// stored. Both are looked up again when it is used.
//
// # State
//
// Requests are documents of the store, which every node follows. One that was decided is kept for
// a day, sealed arguments included; the events of the journal stay as long as events do. A standing
// approval (Grant) is a document too. It is for one agent, person, tool version, and either the
// same arguments or one session.
package approval
