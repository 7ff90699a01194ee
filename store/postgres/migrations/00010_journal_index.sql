-- +goose Up
-- A step of its own, since it reads the table once: calls can be read meanwhile, not written.
CREATE INDEX invocations_journal ON invocations (writer, entry) WHERE entry IS NOT NULL;

-- +goose Down
DROP INDEX invocations_journal;
