//! Does the fit find a known machine, and hold its ground when steps lie?

use super::*;
use proptest::prelude::*;

/// A machine: seconds that a step really takes.
const MACHINE: Coefficients = Coefficients {
    step: 12e-3,
    prefill_token: 0.8e-3,
    prefill_row: 0.5e-3,
    prefill_draw: 2e-3,
    prefill_context: 1.1e-6,
    decode_row: 1.6e-3,
    decode_context: 2.5e-6,
};

fn truth(shape: &StepShape) -> f64 {
    12e-3
        + 0.8e-3 * shape.prefill_tokens as f64
        + 0.5e-3 * shape.prefill_rows as f64
        + 2e-3 * shape.prefill_draws as f64
        + 1.1e-6 * shape.prefill_context as f64
        + 1.6e-3 * shape.decode_rows as f64
        + 2.5e-6 * shape.decode_context as f64
}

/// Mixed steps, different for each `nth`.
fn shape(nth: usize) -> StepShape {
    let mut shape = StepShape::default();
    for row in 0..nth * 7 % 11 {
        shape.add_decode((nth * 131 + row * 577) % 2_000);
    }
    if !nth.is_multiple_of(3) || shape.is_empty() {
        shape.add_prefill(nth * 97 % 1_500, 1 + nth * 53 % 250, nth.is_multiple_of(5));
    }
    if nth.is_multiple_of(7) {
        shape.add_prefill(nth * 31 % 900, 1 + nth * 17 % 90, true);
    }
    shape
}

/// Feeds `steps` of a machine whose time for the nth step is `took(nth, truth)`.
fn feed(model: &mut CostModel, steps: std::ops::Range<usize>, took: impl Fn(usize, f64) -> f64) {
    for nth in steps {
        let shape = shape(nth);
        model.observe(&shape, Duration::from_secs_f64(took(nth, truth(&shape))));
    }
}

/// The largest relative error over mixed steps against a machine that is `slower` times the known one.
fn worst(model: &CostModel, slower: f64) -> f64 {
    let off = (5_000..5_200).map(|nth| {
        let truth = truth(&shape(nth)) * slower;
        (model.predict(&shape(nth)).as_secs_f64() - truth).abs() / truth
    });
    off.fold(0.0, f64::max)
}

#[test]
fn nothing_is_known_without_steps() {
    let model = CostModel::default();
    assert!(!model.is_calibrated());
    assert_eq!(model.predict(&shape(1)), Duration::ZERO);
    assert_eq!(model.error(), None);
    assert_eq!(model.prefill_tokens_within(&StepShape::default(), 0, 77, Duration::ZERO), 77);
}

#[test]
fn a_known_machine_is_found() {
    let mut model = CostModel::default();
    feed(&mut model, 0..60, |_, truth| truth);
    assert!(worst(&model, 1.0) < 0.05, "after 60 steps {}", worst(&model, 1.0));
    feed(&mut model, 60..600, |_, truth| truth);
    assert!(worst(&model, 1.0) < 0.01, "after 600 steps {}", worst(&model, 1.0));
    let error = model.error().unwrap();
    assert!(error.median < 0.01 && error.samples == 512, "{error:?}");
}

#[test]
fn steps_that_something_else_slowed_down_are_not_believed() {
    let mut model = CostModel::default();
    let disturbed = |nth: usize, truth: f64| if nth % 20 == 13 { truth * 20.0 } else { truth };
    feed(&mut model, 0..1_000, disturbed);
    assert!(worst(&model, 1.0) < 0.1, "{}", worst(&model, 1.0));
}

#[test]
fn a_machine_that_became_slower_is_learnt_again() {
    let mut model = CostModel::from_coefficients(MACHINE);
    assert!(worst(&model, 1.0) < 1e-9);
    feed(&mut model, 0..1_000, |_, truth| truth);
    feed(&mut model, 1_000..1_050, |_, truth| truth * 2.0);
    assert!(worst(&model, 2.0) < 0.1, "after 50 steps {}", worst(&model, 2.0));
    feed(&mut model, 1_050..4_000, |_, truth| truth * 2.0);
    assert!(worst(&model, 2.0) < 0.1, "{}", worst(&model, 2.0));
    // By then it is the coefficients that know it.
    assert!((model.coefficients().step / (2.0 * MACHINE.step) - 1.0).abs() < 0.15, "{model:?}");
}

#[test]
fn other_work_comes_and_goes() {
    let mut model = CostModel::default();
    // Slow and quiet spells of 200 steps; a fifth of each is enough to be right in the rest.
    feed(&mut model, 0..4_000, |nth, truth| if nth / 200 % 2 == 1 { truth * 1.6 } else { truth });
    let error = model.error().unwrap();
    assert!(error.median < 0.05, "{error:?}");
}

#[test]
fn one_impossibly_short_step_changes_little() {
    let mut model = CostModel::default();
    feed(&mut model, 0..600, |_, truth| truth);
    model.observe(&shape(1), Duration::from_nanos(1));
    assert!(worst(&model, 1.0) < 0.1, "{}", worst(&model, 1.0));
}

#[test]
fn no_count_overflows() {
    let mut vast = StepShape::default();
    vast.add_prefill(usize::MAX, usize::MAX, true);
    vast.add_prefill(1, usize::MAX, true);
    vast.add_decode(usize::MAX);
    vast.add_decode(usize::MAX);
    assert_eq!(vast.prefill_tokens, usize::MAX);
    for model in [CostModel::default(), CostModel::from_coefficients(MACHINE)] {
        assert!(model.prefill_tokens_within(&vast, 5, usize::MAX, Duration::MAX) >= usize::MAX - 1);
    }
}

#[test]
fn long_decoding_does_not_forget_what_prefill_costs() {
    let mut model = CostModel::default();
    feed(&mut model, 0..600, |_, truth| truth);
    let mut decode = StepShape::default();
    decode.add_decode(700);
    for _ in 0..2_000_000 / MEMORY_STEPS as usize * 100 {
        model.observe(&decode, Duration::from_secs_f64(truth(&decode)));
    }
    assert!(worst(&model, 1.0) < 0.1, "{}", worst(&model, 1.0));
}

#[test]
fn absurd_steps_do_no_harm() {
    let mut model = CostModel::default();
    model.observe(&shape(1), Duration::ZERO);
    model.observe(&StepShape::default(), Duration::from_secs(1));
    assert!(!model.is_calibrated());
    let mut vast = StepShape::default();
    vast.add_prefill(usize::MAX, usize::MAX - 1, true);
    for took in [Duration::from_nanos(1), Duration::MAX, Duration::from_secs(1)] {
        model.observe(&vast, took);
        model.observe(&shape(2), took);
        assert!(model.seconds.iter().all(|seconds| seconds.is_finite() && *seconds >= 0.0));
        let _ = model.predict(&vast);
    }
}

#[test]
fn the_error_is_that_of_predictions_made_before() {
    // Predicts 10 ms for one decode row at position 0, and does not learn enough from few steps to change that.
    let mut model =
        CostModel::from_coefficients(Coefficients { decode_row: 10e-3, ..Coefficients::default() });
    let mut row = StepShape::default();
    row.add_decode(0);
    model.observe(&row, Duration::from_millis(20));
    assert_eq!(model.error().map(|error| (error.median, error.p95)), Some((0.5, 0.5)));
    for (nth, share) in [0.1, 0.4, 0.2, 0.3].into_iter().enumerate() {
        model.keep_error(share);
        assert_eq!(model.error().unwrap().samples, nth + 2);
    }
    // 0.1, 0.2, 0.3, 0.4, 0.5: the third of five, and the fifth.
    assert_eq!(model.error().map(|error| (error.median, error.p95)), Some((0.3, 0.5)));
}

proptest! {
    #[test]
    fn the_chunk_is_the_largest_that_fits(
        decodes in 0usize..20,
        start in 0usize..4_000,
        max in 0usize..300,
        limit_ms in 0u64..400,
    ) {
        let model = CostModel::from_coefficients(MACHINE);
        let mut step = StepShape::default();
        (0..decodes).for_each(|row| step.add_decode(row * 100));
        let limit = Duration::from_millis(limit_ms);
        let fits = |tokens: usize| {
            let mut with = step;
            with.add_prefill(start, tokens, false);
            truth(&with) <= limit.as_secs_f64() + 1e-9
        };
        let brute = (1..=max).take_while(|tokens| fits(*tokens)).count();
        prop_assert_eq!(model.prefill_tokens_within(&step, start, max, limit), brute);
    }
}
