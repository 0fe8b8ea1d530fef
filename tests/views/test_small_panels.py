"""What the panels of random generators, of a check and of freeing say, as trees of nodes."""

from __future__ import annotations

from dataclasses import replace

from tensormagic.reports import Cell, DeviceGain, Gap
from tensormagic.views.nodes import Column, Findings, Paragraph, Section, Source, Table, Words
from tensormagic.views.panels import freeing, rng, watch
from tests.views import samples_rng
from tests.views.samples_freeing import SAMPLES as FREEING
from tests.views.samples_watch import SAMPLES as WATCH
from tests.views.samples_watch import found


def part(panel, kind):
    """The only node of a kind in a panel's body."""
    (node,) = [node for node in panel.body if isinstance(node, kind)]
    return node


def titles(table):
    return [column.title for column in table.columns]


def test_generators_are_a_row_each():
    """Name, seed, how far it has come, algorithm, and a digest of the state."""
    table = part(rng.view(samples_rng.standing()), Table)
    assert titles(table) == ["generator", "seed", "numbers given", "algorithm", "state"]
    assert table.rows[0] == ["torch, CPU", "3", "81 × 32 bits, half a normal pair kept", "MT19937", "5f5be10ad21d"]


def test_a_column_of_generators_is_one_line(monkeypatch):
    """What is added to the columns stands in all forms."""
    from tensormagic import views

    more = Column("bits", lambda state: f"{state.bits} a piece")
    monkeypatch.setattr(rng, "GENERATORS", (*rng.GENERATORS, more))
    for form in views.FORMS:
        assert "32 a piece" in views.draw(samples_rng.standing(), form)


def test_the_listing_has_each_draw_beside_its_line():
    """Number, code, and who drew there; a line without draws stands alone; setting a generator steps back."""
    lines = {line.number: line for line in part(rng.view(samples_rng.run()), Source).lines}
    assert lines[3].beside == ["torch, CPU: randn 3 times, 36 values"]
    assert lines[5].beside[0] == "numpy.random: drew (between statements) 3 times, 4 × 32 bits, since line 3"
    assert lines[6].beside == [Words("torch, CPU: seeded, or state set", "quiet")]
    assert (lines[4].beside, lines[4].sign) == ([], "")


def test_a_long_cell_is_a_table():
    """Beyond eighty lines the draws are listed by line instead."""
    long = replace(samples_rng.run(), cell=Cell("cell.py", 4, ("x",) * 200))
    first, _ = [node for node in rng.view(long).body if isinstance(node, Table)]
    assert titles(first)[0] == "line"
    assert "3 to 5" in [row[0] for row in first.rows]


def test_one_draw_is_the_same_and_two_are():
    """The sentence about two runs agrees with its number."""
    one = replace(samples_rng.ended(), same=1)
    assert rng.verdict(one).startswith("1 draw is the same; ")
    assert rng.verdict(replace(one, difference="values")).startswith("After 1 draw that is the same, the next call ")
    assert rng.verdict(replace(one, difference="values", same=2)).startswith("After 2 draws that are the same, the ")


def test_a_check_shows_findings_first():
    """Then, folded, what holds the most."""
    findings, held = watch.view(WATCH["everything"]).body
    assert isinstance(findings, Findings)
    assert (held.title, held.folded) == ("What holds the most", True)


def test_where_the_look_was_cut_short_the_all_clear_claims_less():
    """Nothing found in what was looked at is not nothing wrong."""
    cut = found(gaps=(Gap("names", "only 20000 objects were searched"),))
    assert part(watch.view(found()), Findings).clear.startswith("Nothing found: no unused memory")
    assert part(watch.view(cut), Findings).clear == "Nothing found in the part that was searched."
    assert not [node for node in watch.view(replace(found(), sizes=())).body if isinstance(node, Section)]


def test_the_list_says_who_keeps_what_and_how_to_let_go():
    """Both entries with what each frees and shares, the sum of both, and the option that lets go."""
    panel = freeing.view(FREEING["listed"])
    assert panel.facts == ["Out[12] and the last error (ValueError) keep 64 MiB that nothing else holds."]
    error = ["`the last error (ValueError)`", "16 MiB", "of 40 MiB that it reaches, shared with net and opt"]
    assert part(panel, Table).rows[1] == error
    assert part(panel, Paragraph).text.startswith("`%gpumem --free --yes` releases them. Your own variables")


def test_a_drop_says_what_was_measured():
    """Bytes and storages that are gone, and the devices' own figures; no advice any more."""
    panel = freeing.view(FREEING["dropped"])
    assert panel.facts == ["Released Out[12] and the last error (ValueError): 64 MiB freed, in 3 storages."]
    told = [node.text for node in panel.body if isinstance(node, Paragraph)]
    assert told[1] == "cuda:0: allocated 64 MiB less, reserved 96 MiB less, this process takes 96 MiB less"
    assert not any("--yes" in words for words in told)


def test_a_drop_that_brought_less_says_so():
    """Where fewer bytes went than were expected, both numbers stand there; an empty history is one sentence."""
    assert "3.9 KiB freed, in 1 storage, of 4 KiB expected." in freeing.lead(FREEING["hostile"])
    assert freeing.view(FREEING["nothing"]).facts == [freeing.NOTHING]


def test_figures_that_did_not_go_down():
    """A figure that rose or stayed is told as that; one that nobody counts is left out."""
    assert freeing.gain_words(DeviceGain("cpu", process=-2048)) == "cpu: this process takes 2 KiB more"
    assert freeing.gain_words(DeviceGain("cuda:0", allocated=0)) == "cuda:0: allocated as much as before"
    assert freeing.gain_words(DeviceGain("mps")) == ""
