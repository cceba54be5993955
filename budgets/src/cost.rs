//! How long will a step take? The one cost model that chunk sizes, admission and later features ask.
//!
//! A step's time is linear in what is counted of it ([`StepShape`]). Each count stands for something that the machine
//! does: the constant for reading all weights once, prefill tokens and decode rows for the products with them, a chunk
//! and its draw for what each costs beyond its tokens, and the two contexts for reading KV, which is why a chunk at the
//! end of a long prompt takes several times one at its beginning. Without the context of prefill, the median error on
//! the default model is four times as large; further terms (rounding rows up to the kernels' tiles, a bend between few
//! and many rows) gain nothing.

use std::collections::VecDeque;
use std::time::Duration;

/// Counts of a step, and the constant.
const TERMS: usize = 7;
/// Steps that the fit remembers, about: older ones weigh less and less.
const MEMORY_STEPS: f64 = 1_000.0;
/// Errors kept for [`CostModel::error`].
const ERRORS_MAX: usize = 512;
/// A step that is off by more than this share counts as if it were off by this much: something else had the machine.
const OUTLIER_SHARE: f64 = 0.15;
/// How much of a step's surprise the pace takes on: a lasting change is followed within some twenty steps.
const PACE_RATE: f64 = 0.125;
/// The natural logarithm of a step's surprise counts up to this much for the pace, either way.
const PACE_SURPRISE_MAX: f64 = 0.25;
/// The pace's own bound: sixteen times slower or faster. What goes beyond is for the coefficients.
const PACE_MAX: f64 = 2.77;
/// Rounds of coordinate descent for one observation; the start is the last solution, so few are needed.
const ROUNDS: usize = 8;

/// What a step's time depends on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StepShape {
    /// Tokens of prefill chunks.
    pub prefill_tokens: usize,
    /// Chunks.
    pub prefill_rows: usize,
    /// Chunks that end their prompt, so that a token is drawn.
    pub prefill_draws: usize,
    /// Sum over the chunks' tokens of the positions that each reads.
    pub prefill_context: usize,
    /// Rows of one token that draws.
    pub decode_rows: usize,
    /// Sum over these rows of the positions that each reads.
    pub decode_context: usize,
}

impl StepShape {
    /// Adds a row of one token at position `start` that draws.
    pub fn add_decode(&mut self, start: usize) {
        self.decode_rows = self.decode_rows.saturating_add(1);
        self.decode_context = self.decode_context.saturating_add(start.saturating_add(1));
    }

    /// Adds a chunk of `tokens` that begins at position `start`.
    pub fn add_prefill(&mut self, start: usize, tokens: usize, draws: bool) {
        self.prefill_rows = self.prefill_rows.saturating_add(1);
        self.prefill_tokens = self.prefill_tokens.saturating_add(tokens);
        self.prefill_draws = self.prefill_draws.saturating_add(usize::from(draws));
        let triangle = tokens.saturating_mul(tokens.saturating_add(1)) / 2;
        self.prefill_context =
            self.prefill_context.saturating_add(tokens.saturating_mul(start)).saturating_add(triangle);
    }

    /// Nothing is computed.
    pub fn is_empty(&self) -> bool {
        self.prefill_rows == 0 && self.decode_rows == 0
    }

    /// The counts in the order of [`Coefficients`].
    fn terms(&self) -> [f64; TERMS] {
        let counts = [
            1,
            self.prefill_tokens,
            self.prefill_rows,
            self.prefill_draws,
            self.prefill_context,
            self.decode_rows,
            self.decode_context,
        ];
        counts.map(|count| count as f64)
    }
}

/// Seconds for each count of a [`StepShape`].
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Coefficients {
    /// Whatever the step holds.
    pub step: f64,
    /// A prefill token.
    pub prefill_token: f64,
    /// A chunk.
    pub prefill_row: f64,
    /// A draw after a chunk.
    pub prefill_draw: f64,
    /// A position that a prefill token reads.
    pub prefill_context: f64,
    /// A decode row.
    pub decode_row: f64,
    /// A position that a decode row reads.
    pub decode_context: f64,
}

impl Coefficients {
    fn to_array(self) -> [f64; TERMS] {
        let Self {
            step,
            prefill_token,
            prefill_row,
            prefill_draw,
            prefill_context,
            decode_row,
            decode_context,
        } = self;
        [step, prefill_token, prefill_row, prefill_draw, prefill_context, decode_row, decode_context]
    }

    /// From seconds in the order of the fields.
    pub fn from_array(array: [f64; TERMS]) -> Self {
        let [step, prefill_token, prefill_row, prefill_draw, prefill_context, decode_row, decode_context] =
            array;
        Self { step, prefill_token, prefill_row, prefill_draw, prefill_context, decode_row, decode_context }
    }
}

/// How far predictions were off: shares of the measured time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CostError {
    /// Median of |predicted - measured| / measured.
    pub median: f64,
    /// 95th percentile of the same.
    pub p95: f64,
    /// Steps counted.
    pub samples: usize,
}

/// Predicts a step's time from its shape. Without observations it predicts zero.
///
/// The fit is least squares on the relative error, so that short steps count as much as long ones, over steps that
/// fade with age, with coefficients that are not negative, and with outliers held down (Huber's weights). The sums that
/// it needs are kept, so an observation costs a few hundred multiplications.
///
/// The coefficients change slowly, because there are seven of them to tell apart. What changes at once and for all steps
/// alike, when other work comes or goes on the machine, is one factor: the pace, by which every prediction is
/// multiplied. It follows the last steps, and goes back to one as the coefficients come after.
#[derive(Clone, Debug)]
pub struct CostModel {
    seconds: [f64; TERMS],
    /// Weighted sums of the products of terms over measured time.
    products: [[f64; TERMS]; TERMS],
    /// Weighted sums of terms over measured time.
    sums: [f64; TERMS],
    weight: f64,
    /// Natural logarithm of how much longer the last steps took than the coefficients say.
    pace: f64,
    errors: VecDeque<f64>,
}

impl Default for CostModel {
    fn default() -> Self {
        Self {
            seconds: [0.0; TERMS],
            products: [[0.0; TERMS]; TERMS],
            sums: [0.0; TERMS],
            weight: 0.0,
            pace: 0.0,
            errors: VecDeque::new(),
        }
    }
}

impl CostModel {
    /// A model that knows its coefficients; what it observes still changes them.
    pub fn from_coefficients(coefficients: Coefficients) -> Self {
        let seconds =
            coefficients.to_array().map(|value| if value.is_finite() { value.max(0.0) } else { 0.0 });
        Self { seconds, ..Self::default() }
    }

    /// What it believes of the machine over the last thousand steps or so, the pace left out.
    pub fn coefficients(&self) -> Coefficients {
        Coefficients::from_array(self.seconds)
    }

    /// It predicts more than zero.
    pub fn is_calibrated(&self) -> bool {
        self.seconds.iter().any(|seconds| *seconds > 0.0)
    }

    /// The predicted time of a step; zero for an empty one.
    pub fn predict(&self, shape: &StepShape) -> Duration {
        Duration::try_from_secs_f64(self.seconds_of(shape)).unwrap_or(Duration::MAX)
    }

    fn seconds_of(&self, shape: &StepShape) -> f64 {
        if shape.is_empty() { 0.0 } else { dot(&self.seconds, &shape.terms()) * self.pace.exp() }
    }

    /// Learns from a step. What took no time or held nothing teaches nothing.
    pub fn observe(&mut self, shape: &StepShape, measured: Duration) {
        let measured = measured.as_secs_f64();
        if measured <= 0.0 || shape.is_empty() {
            return;
        }
        let predicted = self.seconds_of(shape);
        let off = (predicted - measured) / measured;
        self.keep_error(off.abs());
        // While little is known every step is believed: it is the knowledge that may be off.
        let known = self.weight >= TERMS as f64 * 4.0;
        let weight = if known { (OUTLIER_SHARE / off.abs()).min(1.0) } else { 1.0 };
        // Errors are shares of the measured time; but one absurdly short step would then outweigh all others.
        let unit = if known { measured.max(predicted / 4.0) } else { measured };
        let (terms, target) = (shape.terms().map(|term| term / unit), measured / unit);
        let fade = 1.0 - 1.0 / MEMORY_STEPS;
        self.weight = self.weight * fade + weight;
        for (at, term) in terms.iter().enumerate() {
            self.sums[at] = self.sums[at] * fade + weight * term * target;
            for (other, product) in self.products[at].iter_mut().enumerate() {
                *product = *product * fade + weight * term * terms[other];
            }
        }
        (0..ROUNDS).for_each(|_| self.descend());
        if known {
            self.follow(shape, measured);
        }
    }

    /// Moves the pace towards what the step took, a bounded way, so that a single outlier moves it little.
    fn follow(&mut self, shape: &StepShape, measured: f64) {
        let surprise = (measured / self.seconds_of(shape)).ln();
        if surprise.is_finite() {
            let moved = self.pace + PACE_RATE * surprise.clamp(-PACE_SURPRISE_MAX, PACE_SURPRISE_MAX);
            self.pace = moved.clamp(-PACE_MAX, PACE_MAX);
        }
    }

    /// One round of coordinate descent: each coefficient takes its best value with the others held. One that no step
    /// has needed for very long keeps its value, because nothing is left to fit it to.
    fn descend(&mut self) {
        for at in 0..TERMS {
            let products = &self.products[at];
            if products[at] > f64::MIN_POSITIVE * 1e9 {
                let missing = self.sums[at] - dot(products, &self.seconds);
                let best = self.seconds[at] + missing / products[at];
                if best.is_finite() {
                    self.seconds[at] = best.max(0.0);
                }
            }
        }
    }

    fn keep_error(&mut self, share: f64) {
        if self.errors.len() == ERRORS_MAX {
            self.errors.pop_front();
        }
        self.errors.push_back(share);
    }

    /// The error over the last 512 steps, each predicted before it was learnt from; `None` before the first.
    pub fn error(&self) -> Option<CostError> {
        let mut sorted: Vec<f64> = self.errors.iter().copied().collect();
        sorted.sort_unstable_by(f64::total_cmp);
        let rank = |share: f64| (share * sorted.len() as f64).ceil() as usize;
        let at = |share| sorted.get(rank(share).saturating_sub(1)).copied();
        Some(CostError { median: at(0.5)?, p95: at(0.95)?, samples: sorted.len() })
    }

    /// The most tokens, up to `max`, that a chunk at position `start` may have so that a step of `shape` and that chunk
    /// stays within `limit`; 0 when none may.
    pub fn prefill_tokens_within(
        &self,
        shape: &StepShape,
        start: usize,
        max: usize,
        limit: Duration,
    ) -> usize {
        let fits = |tokens: usize| {
            let mut with = *shape;
            with.add_prefill(start, tokens, false);
            self.predict(&with) <= limit
        };
        // No coefficient is negative, so the time grows with the tokens. The largest that fits lies in `fitting..above`.
        let (mut fitting, mut above) = (0, max.saturating_add(1));
        while above - fitting > 1 {
            let middle = fitting + (above - fitting) / 2;
            if fits(middle) { fitting = middle } else { above = middle }
        }
        fitting
    }
}

fn dot(a: &[f64; TERMS], b: &[f64; TERMS]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

#[cfg(test)]
#[path = "cost_tests.rs"]
mod tests;
