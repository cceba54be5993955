"""Does the arithmetic of rounds pick, drop and pair as the report says?"""

from __future__ import annotations

import unittest

from common import Rounds, markdown_table, paired_ratios, ratio, spread


class RoundsTest(unittest.TestCase):
    """Against figures worked out by hand."""

    def test_the_best_has_the_highest_median_not_the_luckiest_sample(self) -> None:
        rounds = Rounds()
        for samples in ([200.0, 90.0], [91.0]):
            rounds.add("lucky", samples)
        for samples in ([100.0, 40.0], [120.0]):
            rounds.add("steady", samples)
        self.assertEqual(rounds.best(), "steady")
        self.assertIsNone(Rounds().best())

    def test_ratios_are_taken_within_a_round(self) -> None:
        # The machine halves its speed after round one; the ratio stays.
        self.assertEqual(paired_ratios([[400.0, 440.0], [200.0, 220.0]], [[100.0, 110.0], [50.0, 55.0]]), [4.0, 4.0])

    def test_figures_are_shown_with_their_range(self) -> None:
        self.assertEqual(spread([1200.4, 900.0, 1000.0]), "1,000 [900 to 1,200]")
        self.assertEqual(ratio([2.0, 3.0]), "2.50x [2.00 to 3.00]")
        self.assertEqual(
            markdown_table(["a", "long"], [["xyz", "b"]]), "| a   | long |\n| --- | ---- |\n| xyz | b    |\n"
        )


if __name__ == "__main__":
    unittest.main()
