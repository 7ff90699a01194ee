package rest

import (
	"context"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/control/erasure"
)

// Erasure erases what was recorded of a person.
type Erasure interface {
	Erase(ctx context.Context, p *toolkeep.Principal, person string) (erasure.Done, error)
}

func (a *API) erasureRoutes() {
	if a.c.Erasure == nil {
		return
	}
	erase := op("POST", "/api/v1/audit/erasures", "erasePerson", tagCalls, "Erase what was recorded of a person, by destroying the key with which it is sealed")
	erase.description = "It cannot be undone. Every node takes it within a second. The hash chains stay as they are, and verify. Repeat it if it fails."
	register(a, erase, toolkeep.PermErase, a.erasePerson)
}

type erasePersonInput struct {
	Body struct {
		Person string `json:"person" minLength:"1" maxLength:"4096" doc:"the person that agents acted for, or the subject of a credential that acts for none"`
	} `nameHint:"ErasePersonRequest"`
}

type erasePersonOutput struct{ Body erasure.Done }

func (a *API) erasePerson(ctx context.Context, p *toolkeep.Principal, in *erasePersonInput) (*erasePersonOutput, error) {
	done, err := a.c.Erasure.Erase(ctx, p, in.Body.Person)
	if err != nil {
		return nil, err
	}
	return &erasePersonOutput{done}, nil
}
