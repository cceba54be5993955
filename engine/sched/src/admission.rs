//! Can this request ever be computed? Asked at the door, before it takes a place in the queue.

use crate::RunnerLimits;
use thiserror::Error;

/// A request that the scheduler does not take.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Refused {
    /// Nothing to continue.
    #[error("the prompt is empty")]
    EmptyPrompt,
    /// No token may be drawn.
    #[error("no output token is asked for")]
    NoOutput,
    /// It would not fit even alone.
    #[error("the prompt has {tokens} tokens and at most {max} fit")]
    NeverFits {
        /// Its prompt tokens.
        tokens: usize,
        /// The longest prompt that fits with the same number of output tokens.
        max: usize,
    },
    /// Too many wait already.
    #[error("{waiting} sequences wait")]
    QueueFull {
        /// Sequences that wait.
        waiting: usize,
    },
}

/// What a sequence may use at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WorstCase {
    /// Tokens that are drawn at most: what was asked for, less what the model's context cuts off.
    pub output_tokens_max: usize,
    /// Blocks that hold the prompt and all of them.
    pub blocks: usize,
}

impl RunnerLimits {
    /// What a sequence of `prompt_tokens` that may draw `output_tokens_max` uses at most on this runner.
    ///
    /// # Errors
    /// When it could never be computed, whatever else ends.
    pub fn worst_case(&self, prompt_tokens: usize, output_tokens_max: usize) -> Result<WorstCase, Refused> {
        if prompt_tokens == 0 {
            return Err(Refused::EmptyPrompt);
        }
        if output_tokens_max == 0 {
            return Err(Refused::NoOutput);
        }
        let context_room = self.context_tokens_max.saturating_sub(prompt_tokens);
        let output_tokens_max = output_tokens_max.min(context_room);
        let blocks = (prompt_tokens + output_tokens_max).div_ceil(self.block_tokens.max(1));
        if output_tokens_max == 0 || blocks > self.blocks_total {
            let pool_tokens = self.blocks_total.saturating_mul(self.block_tokens);
            let max = (self.context_tokens_max.saturating_sub(1))
                .min(pool_tokens.saturating_sub(output_tokens_max.max(1)));
            return Err(Refused::NeverFits { tokens: prompt_tokens, max });
        }
        Ok(WorstCase { output_tokens_max, blocks })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(prompt: usize, output: usize, want: Result<(usize, usize), Refused>) {
        let runner =
            RunnerLimits { block_tokens: 4, blocks_total: 8, context_tokens_max: 40, vocab_tokens: 10 };
        let got = runner.worst_case(prompt, output).map(|worst| (worst.output_tokens_max, worst.blocks));
        assert_eq!(got, want, "prompt {prompt}, output {output}");
    }

    #[test]
    fn the_door_knows_what_fits() {
        check(0, 5, Err(Refused::EmptyPrompt));
        check(5, 0, Err(Refused::NoOutput));
        check(1, 3, Ok((3, 1)));
        check(1, 4, Ok((4, 2)));
        check(22, 10, Ok((10, 8)));
        check(23, 10, Err(Refused::NeverFits { tokens: 23, max: 22 }));
        check(40, 1, Err(Refused::NeverFits { tokens: 40, max: 31 }));
        check(1, 1_000, Err(Refused::NeverFits { tokens: 1, max: 0 }));
    }

    #[test]
    fn the_context_cuts_the_output() {
        let runner =
            RunnerLimits { block_tokens: 4, blocks_total: 100, context_tokens_max: 40, vocab_tokens: 10 };
        let worst = runner.worst_case(30, 1_000).unwrap();
        assert_eq!((worst.output_tokens_max, worst.blocks), (10, 10));
        assert_eq!(runner.worst_case(40, 1).unwrap_err(), Refused::NeverFits { tokens: 40, max: 39 });
    }
}
