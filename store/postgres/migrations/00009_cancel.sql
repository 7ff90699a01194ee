-- +goose Up
-- The few running calls whose cancelling was requested, for the nodes that run them.
CREATE INDEX invocations_cancel ON invocations (lease_owner)
	WHERE cancel_by <> '' AND state IN ('accepted', 'pending_approval', 'queued', 'running', 'input_required');

-- +goose Down
DROP INDEX invocations_cancel;
