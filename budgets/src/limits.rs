//! How much is too much? Every bound of the service in one place, with their relations checked at start.

use serde::{Deserialize, Serialize};

/// The engine's queue is allocated whole at start, so its length has a bound of its own.
const QUEUE_REQUESTS_CEILING: usize = 1 << 16;

/// All bounds. Units stand last in each name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Limits {
    /// Open connections; further ones wait to be accepted.
    pub connections_max: usize,
    /// Largest request body.
    pub body_bytes_max: usize,
    /// Longest question or search query.
    pub query_chars_max: usize,
    /// Turns of earlier conversation that a request may carry.
    pub conversation_turns_max: usize,
    /// Largest number of passages that one search returns.
    pub search_hits_max: usize,
    /// Largest number of passages in one prompt.
    pub prompt_passages_max: usize,
    /// Longest prompt that the engine takes.
    pub prompt_tokens_max: usize,
    /// Longest answer that a request may ask for.
    pub output_tokens_max: usize,
    /// Requests that wait in the engine's queue; one more is refused.
    pub queue_requests_max: usize,
    /// Sequences that are computed together.
    pub running_sequences_max: usize,
    /// Prompt tokens that one engine step computes at most.
    pub step_prefill_tokens_max: usize,
    /// Prompt tokens that one engine step computes at least, when any wait: prefill always progresses.
    pub step_prefill_tokens_min: usize,
    /// Stop strings of one request.
    pub stop_strings_max: usize,
    /// Length of one stop string.
    pub stop_string_bytes_max: usize,
    /// Longest time that any request may take, whatever it asks for.
    pub total_ms_max: u64,
    /// Largest document file that is read at ingest.
    pub document_bytes_max: u64,
    /// Largest number of pages read from one PDF.
    pub document_pages_max: usize,
    /// Largest body of a request that brings many documents.
    pub bulk_bytes_max: u64,
    /// Most documents in such a request.
    pub bulk_documents_max: usize,
    /// Passages put into an open index that may wait for the next rebuild; more documents are refused until it is done.
    pub live_passages_max: usize,
    /// Passages that must have come or gone before an open index is rebuilt; a fifth of its passages at least.
    pub rebuild_passages_min: usize,
    /// Longest time until a rebuild begins for no other reason than that deleted or replaced text is still on the disk.
    pub deleted_text_ms_max: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections_max: 1_024,
            body_bytes_max: 1 << 20,
            query_chars_max: 4_000,
            conversation_turns_max: 32,
            search_hits_max: 100,
            prompt_passages_max: 20,
            prompt_tokens_max: 6_144,
            output_tokens_max: 1_024,
            queue_requests_max: 256,
            running_sequences_max: 16,
            step_prefill_tokens_max: 256,
            step_prefill_tokens_min: 4,
            stop_strings_max: 8,
            stop_string_bytes_max: 256,
            total_ms_max: 600_000,
            document_bytes_max: 32 << 20,
            document_pages_max: 2_000,
            bulk_bytes_max: 64 << 20,
            bulk_documents_max: 10_000,
            live_passages_max: 65_536,
            rebuild_passages_min: 2_048,
            deleted_text_ms_max: 3_600_000,
        }
    }
}

/// Two bounds that contradict each other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LimitError(pub String);

impl std::fmt::Display for LimitError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "limits: {}", self.0)
    }
}

impl std::error::Error for LimitError {}

impl Limits {
    /// Checks that the bounds fit together.
    ///
    /// # Errors
    /// Names the first relation that does not hold.
    pub fn check(&self) -> Result<(), LimitError> {
        let rules = [
            (
                self.query_chars_max <= self.body_bytes_max / 4,
                "query_chars_max x 4 must fit into body_bytes_max",
            ),
            (
                self.prompt_passages_max <= self.search_hits_max,
                "prompt_passages_max must not exceed search_hits_max",
            ),
            (self.connections_max >= 1, "connections_max must be at least 1"),
            (
                (1..=QUEUE_REQUESTS_CEILING).contains(&self.queue_requests_max),
                "queue_requests_max must be between 1 and 65536",
            ),
            (self.running_sequences_max >= 1, "running_sequences_max must be at least 1"),
            (
                (1..=self.step_prefill_tokens_max).contains(&self.step_prefill_tokens_min),
                "step_prefill_tokens_min must be between 1 and step_prefill_tokens_max",
            ),
            (self.prompt_tokens_max >= 512, "prompt_tokens_max must be at least 512, or no passage fits"),
            (self.output_tokens_max >= 1, "output_tokens_max must be at least 1"),
            (self.total_ms_max >= 1, "total_ms_max must be at least 1"),
        ];
        match rules.iter().find(|(holds, _)| !holds) {
            Some((_, rule)) => Err(LimitError((*rule).to_string())),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_fit_together() {
        assert_eq!(Limits::default().check(), Ok(()));
    }

    #[test]
    fn a_contradiction_is_named() {
        let limits = Limits { prompt_passages_max: 101, ..Limits::default() };
        assert!(limits.check().unwrap_err().0.contains("search_hits_max"));
        for query_chars_max in [262_145, 1 << 62, usize::MAX] {
            let limits = Limits { query_chars_max, ..Limits::default() };
            assert!(limits.check().unwrap_err().0.contains("query_chars_max"), "{query_chars_max}");
        }
        for queue_requests_max in [0, 65_537, usize::MAX] {
            let limits = Limits { queue_requests_max, ..Limits::default() };
            assert!(limits.check().unwrap_err().0.contains("queue_requests_max"), "{queue_requests_max}");
        }
    }
}
