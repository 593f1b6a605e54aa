"""What several sketches together give away, against sums done by hand."""

from __future__ import annotations

from fractions import Fraction

from unnoise.ledger import total_budget
from unnoise.sketches.sketch import Sketch


def sketch(epsilon="1", **options) -> Sketch:
    return Sketch.hashed(2**6, epsilon=epsilon, item_types=["int"], **options)


def saved(path, one: Sketch) -> Sketch:
    one.save(path)
    return Sketch.load(path)


def test_independent_sketches_add_up_only_for_what_is_in_both(tmp_path):
    budget = total_budget({"a": saved(tmp_path / "a", sketch("1/2")), "b": saved(tmp_path / "b", sketch("2"))})
    assert (budget.once, budget.again, budget.noises, budget.person) == (2, Fraction(5, 2), 2, None)
    assert "ε = 2 for one occurrence counted in one place" in str(budget)
    assert "k times that" in str(budget)


def test_a_merged_file_gives_nothing_more_away(tmp_path):
    a, b = saved(tmp_path / "a", sketch()), saved(tmp_path / "b", sketch())
    merged = saved(tmp_path / "m", Sketch.load(tmp_path / "a") + Sketch.load(tmp_path / "b"))
    alone = total_budget({"a": a, "b": b})
    assert total_budget({"a": a, "b": b, "m": merged}) == alone
    assert total_budget({"m": merged}) == alone
    assert total_budget({"a": a, "again": Sketch.load(tmp_path / "a")}).noises == 1


def test_epochs_keep_one_occurrence_at_epsilon(tmp_path):
    first = sketch()
    first.save(tmp_path / "1")
    second = Sketch.load(tmp_path / "1")
    second.begin_epoch()
    second.update([1])
    second.save(tmp_path / "2")
    budget = total_budget({"1": Sketch.load(tmp_path / "1"), "2": Sketch.load(tmp_path / "2")})
    assert (budget.once, budget.again, budget.noises) == (1, 2, 2)


def test_persons_add_up_over_calls_and_files(tmp_path):
    persons = []
    for name in "ab":
        one = sketch(max_contributions=4)
        one.update([1, 2, 3], person=["p", "q", "p"])
        one.update([1], person=["p"])
        persons.append(saved(tmp_path / name, one))
    assert persons[0].person_epsilon == 2
    merged = Sketch.load(tmp_path / "a") + Sketch.load(tmp_path / "b")
    for sketches in ({"a": persons[0], "b": persons[1]}, {"a": persons[0], "b": persons[1], "m": merged}):
        budget = total_budget(sketches)
        assert budget.person == 4
        assert budget.once == Fraction(1, 4)
        assert "every ingestion call: ε = 4" in str(budget)
    assert total_budget({"a": persons[0], "c": sketch()}).person is None


def test_the_words_of_a_merged_file_say_what_counting_again_costs(tmp_path):
    a, b = saved(tmp_path / "a", sketch()), saved(tmp_path / "b", sketch())
    for text in (a.guarantee, (a + b).guarantee):
        assert "Replacing one by another: twice that ε. A person with k occurrences: k times that ε." in text
    counted_again = "one counted in several of the sketches merged: that ε for each."
    assert (counted_again in a.guarantee, counted_again in (a + b).guarantee) == (False, True)
