package telemetry

import (
	"time"

	"github.com/toolkeep/toolkeep/access/policy"
	"github.com/toolkeep/toolkeep/audit"
	"github.com/toolkeep/toolkeep/audit/archive"
	"github.com/toolkeep/toolkeep/audit/outbox"
	"github.com/toolkeep/toolkeep/discover"
	"github.com/toolkeep/toolkeep/discover/cache"
	"github.com/toolkeep/toolkeep/discover/usage"
	"github.com/toolkeep/toolkeep/resultcache"
)

// SpoolSamples tell of records that wait for the store, and of those that were lost.
func SpoolSamples(waiting, lost int64) []Sample {
	return []Sample{
		{Name: "toolkeep_spool_records", Help: "Records that wait for the store.", Value: float64(waiting)},
		{Name: "toolkeep_spool_lost_total", Help: "Records that could not be stored.", Counter: true, Value: float64(lost)},
	}
}

// ResultSamples tell of the memory that results share.
func ResultSamples(used, limit int64) []Sample {
	return []Sample{
		{Name: "toolkeep_result_memory_bytes", Help: "Memory that results take while they are read and checked, about.", Value: float64(used)},
		{Name: "toolkeep_result_memory_limit_bytes", Help: "What they may take together, by calls.result_memory.", Value: float64(limit)},
	}
}

// OverloadSamples tell how busy the processor is, and of the calls that were refused for that or for the number in flight.
func OverloadSamples(wait time.Duration, refused int64) []Sample {
	return []Sample{
		{Name: "toolkeep_cpu_wait_seconds", Help: "How long requests waited for the processor lately, by calls.max_cpu_wait.", Value: wait.Seconds()},
		{Name: "toolkeep_calls_shed_total", Help: "Calls refused because the processor or calls.max_in_flight had no room for them.", Counter: true, Value: float64(refused)},
	}
}

// SharedResultSamples tell of the results that nodes share.
func SharedResultSamples(s resultcache.Stats) []Sample {
	return []Sample{
		{Name: "toolkeep_result_cache_shared_hits_total", Help: "Results that were not in memory and came from Redis.", Counter: true, Value: float64(s.SharedHits)},
		{Name: "toolkeep_result_cache_shared_errors_total", Help: "Requests for results that Redis did not answer.", Counter: true, Value: float64(s.SharedErrors)},
		{Name: "toolkeep_result_cache_unsent_total", Help: "Results that were not put into Redis, because they came faster than it takes them or it did not answer.", Counter: true, Value: float64(s.Unsent)},
		{Name: "toolkeep_result_cache_oversize_total", Help: "Results that were not put into Redis, because they are larger than 100 KiB there.", Counter: true, Value: float64(s.Oversize)},
	}
}

// CommitSamples tell what a store committed.
func CommitSamples(groups, rows int64) []Sample {
	return []Sample{
		{Name: "toolkeep_store_commits_total", Help: "Transactions committed.", Counter: true, Value: float64(groups)},
		{Name: "toolkeep_store_changes_total", Help: "Changes committed.", Counter: true, Value: float64(rows)},
	}
}

// SQLiteSamples tell of the files of a store: walBytes is the size of the write-ahead log, lag
// the calls that are not in the table of calls yet.
func SQLiteSamples(walBytes, lag int64) []Sample {
	return []Sample{
		{Name: "toolkeep_store_wal_bytes", Help: "Size of the write-ahead log.", Value: float64(walBytes)},
		{Name: "toolkeep_store_index_lag", Help: "Calls that are not in the table of calls yet: just recorded, or begun in the last 50 ms.", Value: float64(lag)},
	}
}

// PostgresSamples tell of a store's database.
func PostgresSamples(retries, conns int64) []Sample {
	return []Sample{
		{Name: "toolkeep_store_retries_total", Help: "Transactions done again.", Counter: true, Value: float64(retries)},
		{Name: "toolkeep_store_connections", Help: "Connections to the database.", Value: float64(conns)},
	}
}

// IndexSamples tell how far the tools of an index are embedded.
func IndexSamples(tools int, e discover.Embedding) []Sample {
	serving := 0.0
	if e.Model != "" && e.Model == e.Serving {
		serving = 1
	}
	return []Sample{
		{Name: "toolkeep_search_tools", Help: "Tools in the search index.", Value: float64(tools)},
		{Name: "toolkeep_search_tools_embedded", Help: "Tools that have a vector of the configured model.", Value: float64(e.Have)},
		{Name: "toolkeep_search_model_serving", Help: "1 while search compares meanings by the configured model, 0 while by another one or by words alone.", Value: serving},
	}
}

// SearchCacheSamples tell what the search cache did.
func SearchCacheSamples(s cache.Stats) []Sample {
	return []Sample{
		{Name: "toolkeep_search_cache_hits_total", Help: "Searches answered from the process's cache.", Counter: true, Value: float64(s.Hits)},
		{Name: "toolkeep_search_cache_shared_hits_total", Help: "Searches answered from Redis.", Counter: true, Value: float64(s.RemoteHits)},
		{Name: "toolkeep_search_cache_misses_total", Help: "Searches that went to the index although their answer is kept.", Counter: true, Value: float64(s.Misses)},
		{Name: "toolkeep_search_cache_passed_total", Help: "Searches whose answer is not kept.", Counter: true, Value: float64(s.Passed)},
		{Name: "toolkeep_search_cache_shared_errors_total", Help: "Requests that Redis did not answer.", Counter: true, Value: float64(s.RemoteErrors)},
		{Name: "toolkeep_search_cache_entries", Help: "Answers kept in the process, about.", Value: float64(s.Entries)},
		{Name: "toolkeep_search_cache_bytes", Help: "Bytes of them, about.", Value: float64(s.Bytes)},
	}
}

// UsageSamples tell of the records of searches.
func UsageSamples(s usage.Stats) []Sample {
	return []Sample{
		{Name: "toolkeep_retrieval_events_total", Help: "Records of searches that were written.", Counter: true, Value: float64(s.Written)},
		{Name: "toolkeep_retrieval_events_dropped_total", Help: "Records of searches that could not be written.", Counter: true, Value: float64(s.Dropped)},
		{Name: "toolkeep_retrieval_events_waiting", Help: "Records of searches that wait to be written.", Value: float64(s.Waiting)},
	}
}

// ReadSamples tell of the events of reads.
func ReadSamples(s audit.ReadStats) []Sample {
	return []Sample{
		{Name: "toolkeep_audit_reads_total", Help: "Events of reads that were written.", Counter: true, Value: float64(s.Written)},
		{Name: "toolkeep_audit_reads_dropped_total", Help: "Events of reads that were left out because the store is slower than they come.", Counter: true, Value: float64(s.Lost)},
		{Name: "toolkeep_audit_reads_waiting", Help: "Events of reads that wait to be written.", Value: float64(s.Waiting)},
	}
}

// SinkSamples tell what was delivered to the sinks of the journal.
func SinkSamples(s outbox.Stats) []Sample {
	return []Sample{
		{Name: "toolkeep_outbox_delivered_total", Help: "Events that sinks confirmed.", Counter: true, Value: float64(s.Delivered)},
		{Name: "toolkeep_outbox_failures_total", Help: "Deliveries that failed; they are tried again.", Counter: true, Value: float64(s.Failures)},
		{Name: "toolkeep_outbox_failing", Help: "Sinks that do not take events now.", Value: float64(s.Failing)},
		{Name: "toolkeep_outbox_dead_letters", Help: "Events that sinks refused, in this node's files.", Value: float64(s.DeadLetters)},
		{Name: "toolkeep_outbox_damaged_total", Help: "Damaged entries that sinks were not sent.", Counter: true, Value: float64(s.Damaged)},
		{Name: "toolkeep_outbox_lost", Help: "Entries that retention removed before sinks had them, at most.", Value: float64(s.Lost)},
	}
}

// ArchiveSamples tell of the audit's archive, on the node that writes it. What is older than keepsFrom retention keeps for
// the archive alone.
func ArchiveSamples(s archive.State, now, keepsFrom time.Time) []Sample {
	var behind, held, failing float64
	if !s.Oldest.IsZero() {
		behind, held = max(now.Sub(s.Oldest).Seconds(), 0), max(keepsFrom.Sub(s.Oldest).Seconds(), 0)
	}
	if s.Error != "" {
		failing = 1
	}
	return []Sample{
		{Name: "toolkeep_audit_archive_segments_total", Help: "Segments of the audit's archive that were written.", Counter: true, Value: float64(s.Segments)},
		{Name: "toolkeep_audit_archive_entries_total", Help: "Entries that were archived.", Counter: true, Value: float64(s.Entries)},
		{Name: "toolkeep_audit_archive_failures_total", Help: "Attempts to write the archive that failed; they are repeated.", Counter: true, Value: float64(s.Failures)},
		{Name: "toolkeep_audit_archive_failing", Help: "1 while the archive cannot be written.", Value: failing},
		{Name: "toolkeep_audit_archive_behind_seconds", Help: "Age of the oldest entry that is not archived.", Value: behind},
		{Name: "toolkeep_audit_archive_held_seconds", Help: "How long retention has waited for the archive.", Value: held},
		{Name: "toolkeep_audit_archive_missed_total", Help: "Entries that retention removed before they were archived, at most.", Counter: true, Value: float64(s.Missed)},
	}
}

// PolicySamples tell what an attribute policy decided.
func PolicySamples(s policy.Stats) []Sample {
	return []Sample{
		{Name: "toolkeep_policy_evaluated_total", Help: "Questions that the policy evaluated.", Counter: true, Value: float64(s.Evaluated)},
		{Name: "toolkeep_policy_kept_total", Help: "Questions answered from kept answers.", Counter: true, Value: float64(s.Kept)},
		{Name: "toolkeep_policy_denied_total", Help: "Calls that the policy denied.", Counter: true, Value: float64(s.Denied)},
		{Name: "toolkeep_policy_failed_total", Help: "Questions that the policy could not answer; their calls were denied.", Counter: true, Value: float64(s.Failed)},
		{Name: "toolkeep_policy_changes_total", Help: "Changed policies that were taken.", Counter: true, Value: float64(s.Changes)},
		{Name: "toolkeep_policy_refusals_total", Help: "Changed policies that were not taken.", Counter: true, Value: float64(s.Refusals)},
	}
}
