-- +goose Up
-- What went wrong with one tool or of one agent, where that is little: the index by state alone has all that went wrong.
-- Calls that succeed are in neither index. Nothing writes calls while the indexes are made.
CREATE INDEX invocations_tool_trouble ON invocations (tenant, tool, state, created)
	WHERE state <> 'succeeded' AND state <> 'running' AND state <> 'queued';
CREATE INDEX invocations_subject_trouble ON invocations (tenant, subject, state, created)
	WHERE state <> 'succeeded' AND state <> 'running' AND state <> 'queued';

-- +goose Down
DROP INDEX invocations_tool_trouble;
DROP INDEX invocations_subject_trouble;
